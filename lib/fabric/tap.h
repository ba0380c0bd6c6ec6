// A tap sees, and may change, what a connection posts and what completes: fault injection and
// captures use it. It is placed in front of a driver's queue pairs and completion queues only while
// it is needed, so that the data path never has to check for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "fabric/device.h"

namespace rrdk::fabric {

// Both functions run on the thread of the queue pairs.
class Tap {
 public:
  // Called instead of queue_pair.post_send(wrs), for the connection `owner`
  // (QueuePairOptions::owner).
  virtual uint32_t post(void* owner, QueuePair& queue_pair, std::span<const SendWr> wrs) = 0;
  // Called when `count` completions have been polled into the front of `out`. Leaves there those
  // that are passed on now, and returns their number.
  virtual uint32_t filter(std::span<Completion> out, uint32_t count) = 0;

 protected:
  ~Tap() = default;
};

// Work requests pass through the tap. What can be done only without one (the ..._now() functions)
// is refused, so that the caller posts it. There is no lane. The user of the queue pair's own lane
// is removed first, since the tap would not see what it takes and sends.
class TappedQueuePair final : public QueuePair {
 public:
  TappedQueuePair(Tap& tap, void* owner, QueuePair& queue_pair) noexcept
      : tap_(tap), owner_(owner), queue_pair_(queue_pair) {}

  uint32_t post_send(std::span<const SendWr> wrs) override {
    return tap_.post(owner_, queue_pair_, wrs);
  }
  uint32_t post_receive(std::span<const ReceiveWr> wrs) override {
    return queue_pair_.post_receive(wrs);
  }
  void disconnect() override { queue_pair_.disconnect(); }
  uint32_t reads_allowed() const override { return queue_pair_.reads_allowed(); }
  bool holds_receive() const override { return queue_pair_.holds_receive(); }
  void hold_receives(bool hold) override { queue_pair_.hold_receives(hold); }
  Peer peer() const override { return queue_pair_.peer(); }
  bool reserve_keys(std::span<uint32_t> keys) override { return queue_pair_.reserve_keys(keys); }
  uint32_t name_key(uint32_t key, const MemorySpan& span, Rights rights) override {
    return queue_pair_.name_key(key, span, rights);
  }
  void release_key(uint32_t key) override { queue_pair_.release_key(key); }
  void expect_read(uint32_t key) override { queue_pair_.expect_read(key); }
  uint64_t read_bytes() const override { return queue_pair_.read_bytes(); }
  bool puts_reads_off() const override { return queue_pair_.puts_reads_off(); }

 private:
  Tap& tap_;
  void* const owner_;
  QueuePair& queue_pair_;
};

class TappedCompletionQueue final : public CompletionQueue {
 public:
  TappedCompletionQueue(Tap& tap, CompletionQueue& queue) noexcept : tap_(tap), queue_(queue) {}

  uint32_t poll(std::span<Completion> out) override {
    const uint64_t before = queue_.lane_messages();
    const uint32_t count = queue_.poll(out);
    lane_messages_ += queue_.lane_messages() - before;
    return tap_.filter(out, count);
  }
  int wake_fd() const override { return queue_.wake_fd(); }
  bool arm() override { return queue_.arm(); }
  void disarm() override { queue_.disarm(); }

 private:
  Tap& tap_;
  CompletionQueue& queue_;
};

}  // namespace rrdk::fabric
