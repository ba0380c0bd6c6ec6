// Posted Receives: those of one queue pair, used in order, or a queue that several queue pairs of
// one thread share.
//
// A shared queue uses the Receive that was posted last. With thousands of connections it holds all
// Receives that they were promised, and the oldest is no longer in any cache.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"
#include "fabric/device.h"

namespace rrdk::drivers {

// A queue pair whose next message has no Receive.
class ReceiveWaiter {
 public:
  virtual ~ReceiveWaiter() = default;
  virtual void receive_posted() noexcept = 0;

 private:
  friend class ReceiveQueue;
  ReceiveWaiter* next_waiting_ = nullptr;
  bool waiting_ = false;
};

class ReceiveQueue {
 public:
  enum class First : uint8_t { kOldest, kNewest };
  explicit ReceiveQueue(uint32_t entries, First first = First::kOldest)
      : limit_(entries),
        mask_(std::bit_ceil(entries == 0 ? 1 : entries) - 1),
        newest_first_(first == First::kNewest),
        ring_(mask_ + 1) {}

  bool empty() const noexcept { return head_ == tail_; }
  // The next to be used.
  const fabric::ReceiveWr& front() const noexcept {
    RRDK_ASSERT(!empty());
    return ring_[(newest_first_ ? tail_ - 1 : head_) & mask_];
  }
  void pop() noexcept {
    RRDK_ASSERT(!empty());
    newest_first_ ? --tail_ : ++head_;
  }
  uint32_t post(std::span<const fabric::ReceiveWr> wrs) noexcept;

  // post() calls the waiter, once.
  void wait(ReceiveWaiter& waiter) noexcept;
  void stop_waiting(ReceiveWaiter& waiter) noexcept;

 private:
  const uint32_t limit_;
  const uint32_t mask_;
  const bool newest_first_;
  uint64_t head_ = 0;  // the oldest
  uint64_t tail_ = 0;  // next to be posted
  ReceiveWaiter* waiting_ = nullptr;
  std::vector<fabric::ReceiveWr> ring_;
};

class SharedReceiveQueue final : public fabric::SharedReceiveQueue {
 public:
  explicit SharedReceiveQueue(uint32_t entries) : queue_(entries, ReceiveQueue::First::kNewest) {}
  uint32_t post(std::span<const fabric::ReceiveWr> wrs) override { return queue_.post(wrs); }
  ReceiveQueue& queue() { return queue_; }

 private:
  ReceiveQueue queue_;
};

}  // namespace rrdk::drivers
