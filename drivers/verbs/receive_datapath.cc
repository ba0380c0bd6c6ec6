// Takes Receives, and delivers messages.
#include "base/assert.h"
#include "drivers/verbs/completion_queue.h"
#include "drivers/verbs/device.h"
#include "drivers/verbs/queue_pair.h"

namespace rrdk::verbs {

using fabric::WcStatus;

uint32_t QueuePair::post_receive(std::span<const fabric::ReceiveWr> wrs) {
  if (srq_ != nullptr)
    return 0;
  if (!open_.load(std::memory_order_acquire)) [[unlikely]]
    return post_early(wrs);
  const bool in_error = status_.load(std::memory_order_acquire) == Status::kError;
  ReceiveChain& chain = cq_.receives();
  uint32_t taken = 0;
  while (taken < wrs.size() && receive_tail_ - receive_head_ < receive_limit_) {
    chain.clear();
    const uint64_t first = receive_tail_;
    for (; taken < wrs.size() && !chain.full() && receive_tail_ - receive_head_ < receive_limit_;
         ++taken) {
      RRDK_ASSERT(receive_tail_ - receive_head_ <= receive_mask_, receive_head_, receive_tail_);
      receive_ids_[receive_tail_ & receive_mask_] = wrs[taken].wr_id;
      if (!in_error)
        chain.add(wrs[taken], receive_tail_, device_.regions());
      ++receive_tail_;
    }
    if (in_error)
      continue;
    ibv_recv_wr* bad = nullptr;
    receive_device_end_ = receive_tail_;
    if (ibv_post_recv(qp_, chain.wrs.data(), &bad) == 0) [[likely]]
      continue;
    // A queue pair that is closing: we flush the rest.
    receive_device_end_ =
        bad != nullptr ? first + static_cast<uint64_t>(bad - chain.wrs.data()) : receive_tail_;
    end_with(End::kBroken);
    break;
  }
  if (status_.load(std::memory_order_relaxed) == Status::kError) [[unlikely]]
    cq_.activate(*this);
  return taken;
}

uint32_t QueuePair::complete_receive(const ibv_wc& wc, std::span<fabric::Completion> out) noexcept {
  RRDK_ASSERT(!out.empty() && (wc.wr_id & kReceiveBit) != 0);
  const uint64_t number = wc.wr_id & ~kReceiveBit;
  uint64_t wr_id;
  if (srq_ != nullptr) {
    wr_id = srq_->take(static_cast<uint32_t>(number));
  } else {
    if (number != receive_head_ || receive_head_ == receive_tail_)
      return 0;
    wr_id = receive_ids_[receive_head_++ & receive_mask_];
  }
  WcStatus status = status_of_receive(wc.status);
  // A Write with immediate data takes a Receive and leaves nothing in it.
  if (status == WcStatus::kSuccess && wc.opcode != IBV_WC_RECV) [[unlikely]] {
    Counters::count(device_.counts().immediates_refused);
    status = WcStatus::kRemoteOperation;
  }
  heard_.store(true, std::memory_order_relaxed);
  const bool killed =
      status == WcStatus::kSuccess && (wc.wc_flags & device_.invalidation_flag()) != 0;
  if (killed)
    keys_->died(wc.invalidated_rkey);
  if (status != WcStatus::kSuccess) [[unlikely]] {
    if (wc.status != IBV_WC_SUCCESS && status != WcStatus::kFlushed)
      Counters::count(device_.counts().request_errors);
    end_with(status == WcStatus::kFlushed ? End::kBroken : End::kPeerRefused);
  }
  out[0] = {.wr_id = wr_id,
            .owner = owner_,
            .op = fabric::Op::kReceive,
            .status = status,
            .has_invalidated = killed,
            .byte_length = status == WcStatus::kSuccess ? wc.byte_len : 0,
            .invalidated_key = killed ? wc.invalidated_rkey : 0};
  return 1;
}

bool QueuePair::receives_soft() const noexcept {
  RRDK_ASSERT(receive_tail_ - receive_head_ <= receive_limit_, receive_head_, receive_tail_);
  return receive_head_ != receive_tail_ &&
         (flushed_by_force_ || receive_head_ >= receive_device_end_);
}

uint32_t QueuePair::flush_receives(std::span<fabric::Completion> out) noexcept {
  RRDK_ASSERT(srq_ == nullptr || receive_head_ == receive_tail_);
  uint32_t n = 0;
  for (; receives_soft() && n != out.size(); ++receive_head_)
    out[n++] = {.wr_id = receive_ids_[receive_head_ & receive_mask_],
                .owner = owner_,
                .op = fabric::Op::kReceive,
                .status = WcStatus::kFlushed,
                .has_invalidated = false,
                .byte_length = 0,
                .invalidated_key = 0};
  return n;
}

bool QueuePair::has_reports() const noexcept {
  if (head_ != tail_ && (record(head_).soft || record(head_).done))
    return true;
  return status_.load(std::memory_order_relaxed) == Status::kError &&
         (receives_soft() || (force_.load(std::memory_order_relaxed) && !flushed_by_force_));
}

uint32_t QueuePair::report(std::span<fabric::Completion> out, bool empty) noexcept {
  const Status status = status_.load(std::memory_order_acquire);
  const bool in_error = status == Status::kError;
  if (status == Status::kEstablished && poke_wanted_.load(std::memory_order_relaxed))
    poke();
  if (in_error && !open_.load(std::memory_order_acquire) && !flushed_by_force_)
    flushed_by_force_ = close_early();
  if (in_error && empty && force_.load(std::memory_order_acquire) && !flushed_by_force_)
    force_flush();
  uint32_t n = reap(out);
  if (in_error)
    n += flush_receives(out.subspan(n));
  check_settled();
  return n;
}

void QueuePair::drop(const ibv_wc& wc) noexcept {
  if (srq_ != nullptr && (wc.wr_id & kReceiveBit) != 0)
    srq_->take(static_cast<uint32_t>(wc.wr_id & ~kReceiveBit));
}

}  // namespace rrdk::verbs
