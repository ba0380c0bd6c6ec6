// Posted Receives, in order: of one queue pair, or shared by several of one thread.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

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
  explicit ReceiveQueue(uint32_t entries)
      : limit_(entries), mask_(std::bit_ceil(entries == 0 ? 1 : entries) - 1), ring_(mask_ + 1) {}

  bool empty() const noexcept { return head_ == tail_; }
  const fabric::ReceiveWr& front() const noexcept { return ring_[head_ & mask_]; }
  void pop() noexcept { ++head_; }
  uint32_t post(std::span<const fabric::ReceiveWr> wrs) noexcept;

  // post() tells the waiter, once.
  void wait(ReceiveWaiter& waiter) noexcept;
  void stop_waiting(ReceiveWaiter& waiter) noexcept;

 private:
  uint32_t limit_;
  uint32_t mask_;
  uint64_t head_ = 0;  // next to be used
  uint64_t tail_ = 0;  // next to be posted
  ReceiveWaiter* waiting_ = nullptr;
  std::vector<fabric::ReceiveWr> ring_;
};

class SharedReceiveQueue final : public fabric::SharedReceiveQueue {
 public:
  explicit SharedReceiveQueue(uint32_t entries) : queue_(entries) {}
  uint32_t post(std::span<const fabric::ReceiveWr> wrs) override { return queue_.post(wrs); }
  ReceiveQueue& queue() { return queue_; }

 private:
  ReceiveQueue queue_;
};

}  // namespace rrdk::drivers
