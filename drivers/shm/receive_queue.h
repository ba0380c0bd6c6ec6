// Posted Receives, in order: of one queue pair, or shared by several of one thread. Private memory.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "fabric/device.h"

namespace rrdk::shm {

class QueuePair;

class ReceiveQueue {
 public:
  explicit ReceiveQueue(uint32_t entries)
      : limit_(entries), mask_(std::bit_ceil(entries == 0 ? 1 : entries) - 1), ring_(mask_ + 1) {}

  bool empty() const noexcept { return head_ == tail_; }
  const fabric::ReceiveWr& front() const noexcept { return ring_[head_ & mask_]; }
  void pop() noexcept { ++head_; }
  uint32_t post(std::span<const fabric::ReceiveWr> wrs) noexcept;

  // A queue pair whose next message has no Receive: post() makes it be polled again.
  void wait(QueuePair& qp) noexcept;
  void stop_waiting(QueuePair& qp) noexcept;

 private:
  uint32_t limit_;
  uint32_t mask_;
  uint64_t head_ = 0;  // next to be used
  uint64_t tail_ = 0;  // next to be posted
  QueuePair* waiting_ = nullptr;
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

}  // namespace rrdk::shm
