// Takes send-queue requests, and reports their completions.
#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "drivers/iwarp/device.h"
#include "drivers/iwarp/queue_pair.h"
#include "drivers/iwarp/segment.h"

namespace rrdk::iwarp {

using fabric::Op;
using fabric::WcStatus;

namespace {

// What is posted before one of these would need a system call of its own; a record costs less.
bool goes_through_records(const fabric::SendWr& wr) {
  return wr.op == Op::kRead || wr.op == Op::kWrite;
}

}  // namespace

uint32_t QueuePair::post_send(std::span<const fabric::SendWr> wrs) {
  const Status status = status_.load(std::memory_order_acquire);
  if (status != Status::kEstablished && status != Status::kError)
    return 0;
  if (lane_.begun())
    return 0;
  posted_ = posted_ || !wrs.empty();
  drop_reported();
  const bool straight = std::ranges::none_of(wrs, goes_through_records) && nothing_waits();
  uint32_t taken = straight ? send_straight(wrs) : 0;
  for (; taken < wrs.size() && has_room(wrs[taken]); ++taken)
    record_send(wrs[taken]);
  transmit(Asked::kByPost);
  if (head_ != tail_)
    cq_.activate(*this);
  return taken;
}

// Whether nothing has to go before what is posted now.
bool QueuePair::nothing_waits() noexcept {
  if (cursor_.in_record || cursor_.response != response_tail_ || !kept_.empty() || !may_speak_ ||
      !may_transmit())
    return false;
  while (cursor_.record != tail_ && record(cursor_.record).done)
    ++cursor_.record;
  return cursor_.record == tail_;
}

// Copies small Sends directly into the outbox, and performs requests about keys. Returns how many
// requests it handled, from the front. Sends that TCP has taken leave no record, unless they must
// be reported.
uint32_t QueuePair::send_straight(std::span<const fabric::SendWr> wrs) noexcept {
  RRDK_ASSERT(cursor_.record == tail_ && cut_ == 0 && kept_.empty(), cursor_.record, tail_);
  Outbox& out = cq_.outbox();
  out.clear();
  const size_t lent = lend_lane(out);
  uint32_t number = cursor_.send_number;
  uint32_t count = 0;
  uint32_t spans = 0;
  for (; count < wrs.size() && out.has_room() && has_room(wrs[count], count, spans); ++count) {
    if (!append_straight(wrs[count], number, out))
      break;
    spans += wrs[count].num_sges;
  }
  const ssize_t taken = out.empty() ? 0 : out.send(socket_fd_);
  const bool all = taken == static_cast<ssize_t>(out.length());
  const ssize_t sent = took_lane(taken, lent);
  for (const fabric::SendWr& wr : wrs.first(count)) {
    const bool is_send = wr.op == Op::kSend || wr.op == Op::kSendInvalidate;
    if (is_send && !all)
      record_send(wr);
    else if (wr.signaled)
      add_record(wr, WcStatus::kSuccess).done = true;
  }
  if (all) {
    cursor_.send_number = number;
    cursor_.record = tail_;
  } else {
    (void)pushed(sent);
  }
  return count;
}

// Returns false if it is something else, or not allowed.
bool QueuePair::append_straight(const fabric::SendWr& wr, uint32_t& number, Outbox& out) noexcept {
  uint64_t payload = 0;
  if (check(wr, payload) != WcStatus::kSuccess)
    return false;
  if (wr.op == Op::kBindKey || wr.op == Op::kInvalidateKey)
    return act(wr) == WcStatus::kSuccess;
  if (payload > std::min(Outbox::kMostCopied, room_in_fpdu(/*tagged=*/false)))
    return false;
  const auto ulpdu = static_cast<uint32_t>(kUntaggedHeader + payload);
  const uint32_t pad = pad_of(ulpdu);
  std::byte* at = out.extend(kLengthField + ulpdu + pad + kCrcField);
  const std::byte* begin = at;
  store_u16(at, static_cast<uint16_t>(ulpdu));
  const bool kills = wr.op == Op::kSendInvalidate;
  at += kLengthField + encode({.last = true,
                               .opcode = kills ? Opcode::kSendInvalidate : Opcode::kSend,
                               .stag = kills ? wr.invalidate_key : 0,
                               .queue = kSendQueue,
                               .number = number++},
                              at + kLengthField);
  for (const MemorySpan& span : wr.spans()) {
    if (span.length != 0)
      std::memcpy(at, span.data, span.length);
    at += span.length;
  }
  const uint32_t crc = agreed_.crc ? add_crc(kCrcStart, begin, static_cast<size_t>(at - begin)) : 0;
  finish_fpdu(at, pad, agreed_.crc, crc);
  return true;
}

// Whether there is space after `ahead` more requests, with `spans_ahead` spans.
bool QueuePair::has_room(const fabric::SendWr& wr, uint32_t ahead, uint32_t spans_ahead) noexcept {
  const uint64_t records = tail_ - head_ + ahead;
  const uint64_t spans = span_tail_ - span_head_ + spans_ahead + wr.num_sges;
  if (records >= send_limit_)
    return false;
  while (records > record_mask_ || spans > span_mask_ + 1) [[unlikely]] {
    if (!grow())
      return false;
  }
  return true;
}

QueuePair::Record& QueuePair::add_record(const fabric::SendWr& wr, WcStatus status) noexcept {
  RRDK_ASSERT(tail_ - head_ < send_limit_ && tail_ - head_ <= record_mask_, head_, tail_);
  return record(tail_++) = {.wr_id = wr.wr_id,
                            .remote_address = wr.remote_address,
                            .first_span = span_tail_,
                            .key = wr.key,
                            .invalidate_key = wr.invalidate_key,
                            .length = 0,
                            .read_number = 0,
                            .num_spans = 0,
                            .op = wr.op,
                            .status = status,
                            .signaled = wr.signaled,
                            .quiet = wr.quiet,
                            .copied = wr.copied,
                            .done = false};
}

void QueuePair::record_send(const fabric::SendWr& wr) noexcept {
  Record& r = add_record(wr, WcStatus::kFlushed);
  r.done = true;
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
  large_reads_ += is_large_read(r);
  add_spans(r, wr);
}

void QueuePair::add_spans(Record& r, const fabric::SendWr& wr) noexcept {
  RRDK_ASSERT(span_tail_ - span_head_ + wr.num_sges <= span_mask_ + 1, span_head_, span_tail_);
  if (r.length == 0)
    return;
  if (r.copied) {
    std::byte* const copy = copies_.get() + ((tail_ - 1) & record_mask_) * kMaxCopied;
    std::byte* at = copy;
    RRDK_ASSERT(r.length <= kMaxCopied, r.length);
    for (const MemorySpan& span : wr.spans())
      at = std::copy_n(span.data, span.length, at);
    spans_[span_tail_++ & span_mask_] = {copy, r.length, kNoRegion};
    r.num_spans = 1;
    return;
  }
  for (const MemorySpan& span : wr.spans()) {
    if (span.length == 0)
      continue;
    spans_[span_tail_++ & span_mask_] = span;
    ++r.num_spans;
  }
}

WcStatus QueuePair::check(const fabric::SendWr& wr, uint64_t& length) noexcept {
  const Memory& memory = device_.memory();
  // The peer's IRD is 0 (RFC 6581 section 4): it gives us keys but does not let us use them.
  if (wr.op == Op::kRead && agreed_.ord == 0)
    return WcStatus::kRemoteAccess;
  bool good = wr.num_sges <= fabric::kMaxSges && wr.op != Op::kReceive;
  for (const MemorySpan& span : wr.spans()) {
    length += span.length;
    good = good && memory.contains(span);
  }
  good = good && length <= (wr.copied ? kMaxCopied : device_.capabilities().max_message);
  return good ? WcStatus::kSuccess : WcStatus::kLocalProtection;
}

// Keys concern only us, so what is requested about them is done at once, before any later Send.
WcStatus QueuePair::act(const fabric::SendWr& wr) noexcept {
  const bool done =
      wr.op == Op::kBindKey
          ? wr.num_sges == 1 &&
                (wr.runs == 0 ? stags_.bind(wr.key, wr.sges[0], wr.rights) : bind_list(wr))
          : kill(wr.key);
  return done ? WcStatus::kSuccess : WcStatus::kLocalProtection;
}

bool QueuePair::bind_list(const fabric::SendWr& wr) noexcept {
  const MemorySpan& list = wr.sges[0];
  if (wr.runs > fabric::kMaxKeyRuns || list.length != wr.runs * sizeof(MemorySpan))
    return false;
  const std::span runs(reinterpret_cast<const MemorySpan*>(list.data), wr.runs);
  return std::ranges::all_of(
             runs, [this](const MemorySpan& run) { return device_.memory().contains(run); }) &&
         stags_.bind(wr.key, list, wr.runs, wr.rights);
}

bool QueuePair::bind_now(uint32_t key, const MemorySpan& span, fabric::Rights rights) {
  return status_.load(std::memory_order_relaxed) == Status::kEstablished &&
         device_.memory().contains(span) && stags_.bind(key, span, rights);
}

// After this nothing reads or writes the key's memory: neither a Read Response that TCP has in
// part, nor a Write that has arrived in part (sink_alive()).
bool QueuePair::kill(uint32_t key) noexcept {
  if (cut_ != 0 && cursor_.in_response &&
      responses_[cursor_.response & response_mask_].source_stag == key) [[unlikely]]
    keep_rest();
  return stags_.kill(key);
}

void QueuePair::release_key(uint32_t key) {
  (void)kill(key);
  stags_.release(key);
}

// A request that was done at once is popped without having been sent. The cursor must not stay
// behind, since newer records will take that place in the ring.
void QueuePair::pop_record() noexcept {
  RRDK_ASSERT(head_ != tail_ && record(head_).done, head_, tail_);
  RRDK_ASSERT(record(head_).num_spans <= span_tail_ - span_head_, span_head_, span_tail_);
  span_head_ += record(head_).num_spans;
  ++head_;
  cursor_.record = std::max(cursor_.record, head_);
}

void QueuePair::drop_reported() noexcept {
  while (head_ != tail_ && record(head_).done &&
         ((record(head_).quiet && record(head_).status == WcStatus::kFlushed) ||
          (!record(head_).signaled && record(head_).status == WcStatus::kSuccess)))
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
