// Send-queue requests in, their completions out.
#include <algorithm>

#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

using fabric::Op;
using fabric::WcStatus;

uint32_t QueuePair::post_send(std::span<const fabric::SendWr> wrs) {
  const Status status = status_.load(std::memory_order_acquire);
  if (status != Status::kEstablished && status != Status::kError)
    return 0;
  drop_reported();
  uint32_t taken = 0;
  for (; taken < wrs.size() && has_room(wrs[taken]); ++taken)
    record_send(wrs[taken]);
  if (status == Status::kEstablished)
    transmit();
  if (head_ != tail_)
    cq_.activate(*this);
  return taken;
}

bool QueuePair::has_room(const fabric::SendWr& wr) noexcept {
  return tail_ - head_ < send_limit_ && span_tail_ - span_head_ + wr.num_sges <= span_mask_ + 1;
}

void QueuePair::record_send(const fabric::SendWr& wr) noexcept {
  Record& r = record(tail_);
  r = {.wr_id = wr.wr_id,
       .remote_address = wr.remote_address,
       .first_span = span_tail_,
       .key = wr.key,
       .invalidate_key = wr.invalidate_key,
       .length = 0,
       .read_number = 0,
       .num_spans = 0,
       .op = wr.op,
       .status = WcStatus::kFlushed,
       .signaled = wr.signaled,
       .done = true};
  ++tail_;
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return;
  uint64_t length = 0;
  r.status = check(wr, length);
  if (r.status == WcStatus::kSuccess && (wr.op == Op::kBindKey || wr.op == Op::kInvalidateKey))
    r.status = act(wr);
  else if (r.status == WcStatus::kSuccess)
    r.done = wr.op == Op::kRead && length == 0;
  if (r.status == WcStatus::kRemoteAccess) {
    Counters::count(device_.counts().reads_denied);
    return fail_with(End::kReadsDenied);
  }
  if (r.status != WcStatus::kSuccess) {
    Counters::count(device_.counts().local_protection);
    return fail_with(End::kLocalError);
  }
  if (r.done)
    return;
  r.length = static_cast<uint32_t>(length);
  for (const MemorySpan& span : wr.spans()) {
    if (span.length == 0)
      continue;
    spans_[span_tail_++ & span_mask_] = span;
    ++r.num_spans;
  }
}

WcStatus QueuePair::check(const fabric::SendWr& wr, uint64_t& length) noexcept {
  const Memory& memory = device_.memory();
  // The peer's IRD is 0 (RFC 6581 section 4): it gives us keys and lets nobody use them.
  if (wr.op == Op::kRead && agreed_.ord == 0)
    return WcStatus::kRemoteAccess;
  bool good = wr.num_sges <= fabric::kMaxSges && wr.op != Op::kReceive;
  for (const MemorySpan& span : wr.spans()) {
    length += span.length;
    good = good && memory.contains(span);
  }
  return good && length <= device_.capabilities().max_message ? WcStatus::kSuccess
                                                              : WcStatus::kLocalProtection;
}

// Keys are ours alone: what is asked of them is done at once, before any later Send.
WcStatus QueuePair::act(const fabric::SendWr& wr) noexcept {
  const bool done = wr.op == Op::kBindKey
                        ? wr.num_sges == 1 && stags_.bind(wr.key, wr.sges[0], wr.rights)
                        : kill(wr.key);
  return done ? WcStatus::kSuccess : WcStatus::kLocalProtection;
}

// After this nobody reads or writes the key's memory: not a Read Response that is half with TCP,
// nor a Write that is half here (sink_alive()).
bool QueuePair::kill(uint32_t key) noexcept {
  if (partial_.length != 0 && partial_.response_key == key)
    keep_partial();
  return stags_.kill(key);
}

void QueuePair::release_key(uint32_t key) {
  (void)kill(key);
  stags_.release(key);
}

// What was done at once is popped without having been sent: the cursor does not stay behind, where
// newer records will take its place in the ring.
void QueuePair::pop_record() noexcept {
  span_head_ += record(head_).num_spans;
  ++head_;
  cursor_.record = std::max(cursor_.record, head_);
}

void QueuePair::drop_reported() noexcept {
  while (head_ != tail_ && record(head_).done && !record(head_).signaled &&
         record(head_).status == WcStatus::kSuccess)
    pop_record();
}

uint32_t QueuePair::reap_sends(std::span<fabric::Completion> out) noexcept {
  uint32_t n = 0;
  for (;;) {
    drop_reported();
    if (n == out.size() || head_ == tail_ || !record(head_).done)
      return n;
    const Record& r = record(head_);
    out[n++] = {.wr_id = r.wr_id,
                .owner = owner_,
                .op = r.op,
                .status = r.status,
                .has_invalidated = false,
                .byte_length = r.op == Op::kRead ? r.length : 0,
                .invalidated_key = 0};
    pop_record();
  }
}

}  // namespace rrdk::iwarp
