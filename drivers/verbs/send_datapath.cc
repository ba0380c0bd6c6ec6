// Takes send-queue requests, and reports their completions.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "drivers/verbs/completion_queue.h"
#include "drivers/verbs/device.h"
#include "drivers/verbs/queue_pair.h"

namespace rrdk::verbs {

using fabric::Op;
using fabric::WcStatus;

uint32_t QueuePair::post_send(std::span<const fabric::SendWr> wrs) {
  const Status status = status_.load(std::memory_order_acquire);
  if (status != Status::kEstablished) [[unlikely]]
    return status == Status::kError ? add_flushed(wrs) : 0;
  SendChain& chain = cq_.sends();
  uint32_t taken = 0;
  while (taken < wrs.size() && has_room()) {
    chain.count = 0;
    while (taken < wrs.size() && has_room() && chain.count < SendChain::kMost)
      add(wrs[taken++], chain);
    if (chain.count != 0 && !launch(chain)) [[unlikely]]
      break;
  }
  if (soft_keys_ && head_ != tail_ && record(head_).soft) [[unlikely]]
    cq_.activate(*this);
  return taken;
}

void QueuePair::add(const fabric::SendWr& wr, SendChain& chain) noexcept {
  RRDK_ASSERT(has_room() && chain.count < SendChain::kMost, head_, tail_);
  Record& r = record(tail_);
  r = {.wr_id = wr.wr_id,
       .sink = nullptr,
       .length = 0,
       .op = wr.op,
       .status = WcStatus::kSuccess,
       .signaled = wr.signaled,
       .device_signaled = false,
       .soft = false,
       .refused = false,
       .done = false};
  ibv_send_wr& to = chain.wrs[chain.count];
  to = {};
  to.wr_id = tail_++;
  switch (wr.op) {
    case Op::kSendInvalidate:
      to.opcode = IBV_WR_SEND_WITH_INV;
      to.invalidate_rkey = wr.invalidate_key;
      fill_sges(wr, chain, to);
      break;
    case Op::kRead:
    case Op::kWrite:
      to.opcode = wr.op == Op::kRead ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
      to.wr.rdma.remote_addr = wr.remote_address;
      to.wr.rdma.rkey = wr.key;
      fill_sges(wr, chain, to);
      if (wr.op == Op::kRead)
        make_read(wr, r, chain, to);
      break;
    case Op::kBindKey:
    case Op::kInvalidateKey: {
      const KeyVerdict verdict =
          wr.op == Op::kBindKey ? keys_->bind(wr, device_.regions().find(wr.sges[0].region), to)
                                : keys_->invalidate(wr.key, to);
      if (verdict == KeyVerdict::kRefused) {
        make_refused(r, chain, to);
      } else if (verdict == KeyVerdict::kNothing) {
        r.soft = soft_keys_;
        make_empty_write(to);
      }
      break;
    }
    default:
      to.opcode = IBV_WR_SEND;
      fill_sges(wr, chain, to);
      break;
  }
  if (r.soft)
    return;
  // Only a completion that the device reports frees places in its send queue. A Read always reports
  // its own: software devices let later requests overtake it, so the completions of those do not
  // show that it is done.
  r.device_signaled =
      wr.signaled || soft_keys_ || wr.op == Op::kRead || ++silent_run_ >= silent_limit_;
  if (r.device_signaled) {
    to.send_flags |= IBV_SEND_SIGNALED;
    silent_run_ = 0;
  }
  if (chain.count != 0)
    chain.wrs[chain.count - 1].next = &to;
  ++chain.count;
  device_end_ = tail_;
}

void QueuePair::make_read(const fabric::SendWr& wr, Record& r, SendChain& chain,
                          ibv_send_wr& to) noexcept {
  if (reads_allowed_ == 0) {
    Counters::count(device_.counts().reads_denied);  // it would wait for ever
    make_refused(r, chain, to);
  } else if (to.num_sge == 0) {
    make_empty_write(to);  // siw looks up the destination of an empty Read, too
  } else if (device_.registers_sinks() && !open_sink(wr, r, to)) {
    make_refused(r, chain, to);
  }
}

// It needs no key (InfiniBand C9-88, RFC 5040 section 5.1), and keeps its place in the queue.
void QueuePair::make_empty_write(ibv_send_wr& to) noexcept {
  to.opcode = IBV_WR_RDMA_WRITE;
  to.wr.rdma.remote_addr = 0;
  to.wr.rdma.rkey = 0;
}

void QueuePair::fill_sges(const fabric::SendWr& wr, SendChain& chain, ibv_send_wr& to) noexcept {
  std::array<ibv_sge, fabric::kMaxSges>& sges = chain.sges[chain.count];
  uint64_t length = 0;
  for (const MemorySpan& span : wr.spans()) {
    if (span.length == 0)
      continue;  // to some devices that means 2 GB
    RRDK_ASSERT(static_cast<uint32_t>(to.num_sge) < fabric::kMaxSges, to.num_sge);
    sges[static_cast<size_t>(to.num_sge++)] = device_.regions().sge_of(span);
    length += span.length;
  }
  to.sg_list = sges.data();
  record(to.wr_id).length = static_cast<uint32_t>(length);
  if (length <= inline_limit_ && length != 0 && fits_inline(wr))
    to.send_flags |= IBV_SEND_INLINE;
}

// We read inline data, so its memory must exist.
bool QueuePair::fits_inline(const fabric::SendWr& wr) const noexcept {
  if (wr.op == Op::kRead)
    return false;
  return std::ranges::all_of(
      wr.spans(), [&](const MemorySpan& span) { return device_.memory().contains(span); });
}

// The data of an iWARP Read comes as tagged messages, and devices require that its destination is
// open to the peer's Writes (according to RFC 5040 section 5.2, the destination of a Read is an
// STag that the peer is told). Only this memory is open, and only until the Read is reported.
bool QueuePair::open_sink(const fabric::SendWr& wr, Record& r, ibv_send_wr& to) noexcept {
  if (to.num_sge != 1)
    return false;  // Capabilities::max_read_sges
  if (!std::ranges::all_of(wr.spans(),
                           [&](const MemorySpan& span) { return device_.memory().contains(span); }))
    return true;  // unchanged, so that the device refuses it
  ibv_sge& sink = to.sg_list[0];
  // The real function: <infiniband/verbs.h> has a macro of this name for constant arguments.
  r.sink = (ibv_reg_mr)(device_.pd(), reinterpret_cast<void*>(sink.addr), sink.length,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  if (r.sink == nullptr) {
    Counters::count(device_.counts().registrations_failed);
    return false;
  }
  Counters::count(device_.counts().sinks_registered);
  sink.lkey = r.sink->lkey;
  return true;
}

void QueuePair::close_sink(Record& r) noexcept {
  if (r.sink != nullptr)
    ibv_dereg_mr(std::exchange(r.sink, nullptr));
}

// The device's own refusal comes in its turn, and ends the connection like any other.
void QueuePair::make_refused(Record& r, SendChain& chain, ibv_send_wr& to) noexcept {
  RRDK_ASSERT(!r.refused && !r.soft && !r.done && &to == &chain.wrs[chain.count]);
  r.refused = true;
  to.opcode = IBV_WR_SEND;
  chain.sges[chain.count][0] = device_.regions().forbidden();
  to.sg_list = chain.sges[chain.count].data();
  to.num_sge = 1;
}

// Rings one doorbell. Returns false if the device did not take all, which means that something is
// wrong with it.
bool QueuePair::launch(SendChain& chain) noexcept {
  RRDK_ASSERT(chain.count != 0 && chain.count <= SendChain::kMost && qp_ != nullptr, chain.count);
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_, chain.wrs.data(), &bad) == 0) [[likely]]
    return true;
  if (bad == nullptr)
    return true;  // it has them all, and the connection is closing
  RRDK_ASSERT(bad->wr_id - head_ < tail_ - head_, bad->wr_id, head_);
  for (uint64_t i = bad->wr_id; i != tail_; ++i) {
    record(i).soft = true;
    record(i).status = i == bad->wr_id ? WcStatus::kLocalProtection : WcStatus::kFlushed;
  }
  device_end_ = bad->wr_id;
  Counters::count(device_.counts().request_errors);
  end_with(End::kRequestFailed);
  return false;
}

uint32_t QueuePair::add_flushed(std::span<const fabric::SendWr> wrs) noexcept {
  RRDK_ASSERT(status_.load(std::memory_order_relaxed) == Status::kError);
  uint32_t taken = 0;
  for (; taken < wrs.size() && has_room(); ++taken)
    record(tail_++) = {.wr_id = wrs[taken].wr_id,
                       .sink = nullptr,
                       .length = 0,
                       .op = wrs[taken].op,
                       .status = WcStatus::kFlushed,
                       .signaled = true,
                       .device_signaled = false,
                       .soft = true,
                       .refused = false,
                       .done = false};
  cq_.activate(*this);
  return taken;
}

// An empty Write needs no key, and no Receive (RFC 5040 section 5.1).
void QueuePair::poke() noexcept {
  RRDK_ASSERT(qp_ != nullptr);
  poke_wanted_.store(false, std::memory_order_relaxed);
  ibv_send_wr nothing{};
  nothing.wr_id = kPoke;
  nothing.opcode = IBV_WR_RDMA_WRITE;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(qp_, &nothing, &bad) == 0)
    Counters::count(device_.counts().pokes);
}

uint32_t QueuePair::complete(const ibv_wc& wc, std::span<fabric::Completion> out) noexcept {
  RRDK_ASSERT(!out.empty());
  const uint32_t n =
      (wc.wr_id & kReceiveBit) != 0 ? complete_receive(wc, out) : complete_send(wc, out);
  if (status_.load(std::memory_order_relaxed) == Status::kError) [[unlikely]] {
    progress_.store(progress_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    check_settled();
    if (has_reports())
      cq_.activate(*this);
  }
  return n;
}

uint32_t QueuePair::complete_send(const ibv_wc& wc, std::span<fabric::Completion> out) noexcept {
  const uint64_t number = wc.wr_id;
  if (number - head_ >= tail_ - head_)
    return 0;
  // Requests that the device did not report have succeeded.
  for (swept_ = std::max(swept_, head_); swept_ < number; ++swept_)
    if (Record& before = record(swept_); !before.device_signaled && !before.soft)
      before.done = true;
  swept_ = std::max(swept_, number + 1);
  Record& r = record(number);
  RRDK_ASSERT(!r.soft && number < device_end_, number, device_end_);
  r.done = true;
  r.status = r.refused ? status_of_refused(wc.status) : status_of(wc.status);
  if (r.status != WcStatus::kSuccess) [[unlikely]] {
    if (r.refused && r.status != WcStatus::kFlushed)
      Counters::count(device_.counts().local_protection);
    else if (r.status != WcStatus::kFlushed)
      Counters::count(device_.counts().request_errors);
    end_with(r.status == WcStatus::kFlushed ? End::kBroken : End::kRequestFailed);
  }
  return reap(out);
}

uint32_t QueuePair::reap(std::span<fabric::Completion> out) noexcept {
  uint32_t n = 0;
  for (; head_ != tail_; ++head_) {
    Record& r = record(head_);
    if (!r.done && !r.soft)
      break;
    RRDK_ASSERT(!r.soft || r.sink == nullptr);  // the device has no use for it
    close_sink(r);
    if (!r.signaled && r.status == WcStatus::kSuccess)
      continue;
    if (n == out.size()) {
      cq_.activate(*this);
      break;
    }
    out[n++] = {.wr_id = r.wr_id,
                .owner = owner_,
                .op = r.op,
                .status = r.status,
                .has_invalidated = false,
                .byte_length = r.op == Op::kRead ? r.length : 0,
                .invalidated_key = 0};
  }
  return n;
}

}  // namespace rrdk::verbs
