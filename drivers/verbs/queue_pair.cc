#include "drivers/verbs/queue_pair.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "drivers/verbs/device.h"
#include "drivers/verbs/keys.h"

namespace rrdk::verbs {

using fabric::WcStatus;

namespace {

uint32_t completions_of(const Device& device, const fabric::QueuePairOptions& options) {
  const uint32_t receives = options.srq != nullptr
                                ? static_cast<SharedReceiveQueue*>(options.srq)->entries_to_count()
                                : options.receive_wrs;
  return options.send_wrs + receives + (device.pokes() ? kMostPokes : 0);
}

std::unique_ptr<Keys> make_keys(Device& device, uint32_t count) {
  if (device.has_windows())
    return std::make_unique<Windows>(device.pd(), count, device.counts());
  return std::make_unique<Registrations>(device.pd(), count, device.counts());
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::create(Device& device,
                                                     const fabric::QueuePairOptions& options) {
  if (auto checked = drivers::check(options, device.capabilities()); !checked)
    return tl::unexpected(checked.error());
  const uint32_t completions = completions_of(device, options);
  auto& cq = static_cast<CompletionQueue&>(*options.cq);
  if (Result<void> room = cq.reserve(completions); !room)
    return tl::unexpected(room.error());
  return std::unique_ptr<QueuePair>(new QueuePair(device, options, completions));
}

QueuePair::QueuePair(Device& device, const fabric::QueuePairOptions& options, uint32_t completions)
    : device_(device),
      cq_(static_cast<CompletionQueue&>(*options.cq)),
      srq_(static_cast<SharedReceiveQueue*>(options.srq)),
      owner_(options.owner),
      options_(options),
      completions_(completions),
      reads_(std::min(options.reads, device.capabilities().max_reads)),
      keys_(make_keys(device, options.keys)),
      soft_keys_(!device.has_windows()),
      send_limit_(options.send_wrs),
      record_mask_(std::bit_ceil(options.send_wrs) - 1),
      records_(record_mask_ + 1),
      silent_limit_(std::max(1u, options.send_wrs / 4)),
      inline_limit_(device.capabilities().max_inline),
      receive_limit_(options.srq == nullptr ? options.receive_wrs : 0),
      receive_mask_(std::bit_ceil(std::max(receive_limit_, 1u)) - 1),
      receive_ids_(receive_mask_ + 1) {
  device.add(*this);
}

QueuePair::~QueuePair() {
  disconnect();
  const std::lock_guard lock(device_.control().mutex());
  device_.remove(*this);
  device_.control().forget(*this);
  keys_.reset();  // windows are destroyed while their queue pair is in error, and before it
  if (qp_ != nullptr)
    cq_.destroy(*this, qp_);
  for (; head_ != tail_; ++head_)
    close_sink(record(head_));
  id_.reset();
  cq_.forget(*this);
  cq_.unreserve(completions_);
}

Peer QueuePair::peer() const {
  return drivers::peer_between(kScheme, near_, far_);
}

// What is impossible is reported at once: the caller would wait for keys that never come back.
bool QueuePair::reserve_keys(std::span<uint32_t> keys) {
  if (keys_->reserve(keys)) [[likely]]
    return true;
  if (keys_->is_hopeless())
    end_with(End::kNoKeys);
  return false;
}

void QueuePair::end_with(End end) noexcept {
  const Status before = status_.exchange(Status::kError, std::memory_order_acq_rel);
  if (before == Status::kError)
    return;
  was_up_ = before == Status::kEstablished;
  end_ = !was_up_ && end == End::kDisconnected ? End::kNeverConnected : end;
  if (was_up_)
    part();
  ended_.store(true, std::memory_order_release);
  cq_.ring(*this);
  if (before != Status::kIdle)
    device_.control().nudge(*this);
}

// The device flushes what it has, and the peer is notified.
void QueuePair::part() noexcept {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  if (qp_ != nullptr)
    ibv_modify_qp(qp_, &attr, IBV_QP_STATE);
  if (id_)
    rdma_disconnect(id_.get());
}

// Receives that are posted before the device's queue pair exists.
uint32_t QueuePair::post_early(std::span<const fabric::ReceiveWr> wrs) {
  RRDK_ASSERT(srq_ == nullptr);
  const std::lock_guard lock(early_mutex_);
  if (open_.load(std::memory_order_relaxed))
    return post_receive(wrs);
  uint32_t taken = 0;
  for (; taken < wrs.size() && receive_tail_ - receive_head_ < receive_limit_; ++taken) {
    receive_ids_[receive_tail_++ & receive_mask_] = wrs[taken].wr_id;
    if (!early_closed_)
      early_.push_back(wrs[taken]);
  }
  if (status_.load(std::memory_order_acquire) == Status::kError)
    cq_.activate(*this);
  return taken;
}

// Returns false if they went to the device.
bool QueuePair::close_early() {
  RRDK_ASSERT(status_.load(std::memory_order_relaxed) == Status::kError);
  const std::lock_guard lock(early_mutex_);
  if (open_.load(std::memory_order_relaxed))
    return false;
  early_closed_ = true;
  early_.clear();
  return true;
}

bool QueuePair::device_is_done() const noexcept {
  RRDK_ASSERT(device_end_ <= tail_ && receive_device_end_ <= receive_tail_, device_end_, tail_);
  return head_ >= device_end_ && (srq_ != nullptr || receive_head_ >= receive_device_end_);
}

void QueuePair::check_settled() noexcept {
  if (status_.load(std::memory_order_relaxed) == Status::kError &&
      !settled_.load(std::memory_order_relaxed) && device_is_done())
    settled_.store(true, std::memory_order_release);
}

// Some devices lose requests that are posted at the moment of the error. Once its queue pair is
// destroyed, a device no longer touches their memory.
void QueuePair::force_flush() noexcept {
  RRDK_ASSERT(status_.load(std::memory_order_relaxed) == Status::kError && !flushed_by_force_);
  flushed_by_force_ = true;
  if (device_is_done())
    return;
  Counters::count(device_.counts().forced_flushes);
  {
    const std::lock_guard lock(device_.control().mutex());
    if (qp_ != nullptr)
      cq_.destroy(*this, std::exchange(qp_, nullptr));
  }
  for (uint64_t i = head_; i != tail_; ++i) {
    if (!record(i).done && !record(i).soft) {
      record(i).done = true;
      record(i).status = WcStatus::kFlushed;
    }
  }
}

}  // namespace rrdk::verbs
