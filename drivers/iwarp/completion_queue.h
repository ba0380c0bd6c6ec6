// The completion queue: polls the queue pairs that have something to do, and learns about the
// others from epoll, whose cost does not grow with the number of idle ones. It stores nothing:
// completions are taken from the queue pairs, so it cannot overflow.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/assert.h"
#include "base/system.h"
#include "drivers/iwarp/lane.h"
#include "drivers/iwarp/outbox.h"
#include "fabric/device.h"

namespace rrdk::iwarp {

class QueuePair;

constexpr size_t kMaxQueuePairs = 16384;  // of one completion queue
constexpr uint32_t kStaging = 32 << 10;   // bytes taken from TCP at once

class CompletionQueue final : public fabric::CompletionQueue {
 public:
  static Result<std::unique_ptr<CompletionQueue>> create();

  uint32_t poll(std::span<fabric::Completion> out) override;
  int wake_fd() const override { return epoll_.get(); }
  bool arm() override;
  void disarm() override;

  // Control path. Errors: kLimit.
  Result<void> add();
  // By the polling thread, or while nothing polls.
  void remove(QueuePair& qp);
  Result<void> watch(QueuePair& qp, int socket);
  void unwatch(int socket);
  // Any thread: makes the polling thread check `qp`.
  void ring(QueuePair& qp) noexcept;

  // The polling thread: polls `qp` from now on.
  void activate(QueuePair& qp) noexcept;
  // The polling thread: the connection is over.
  void forget_quiet(const QueuePair& qp) noexcept {
    if (quiet_ == &qp)
      quiet_ = nullptr;
  }
  // For a queue pair that sends now.
  Outbox& outbox() noexcept { return outbox_; }
  LaneOutbox& lane_outbox() noexcept { return lane_outbox_; }
  // A lane's user has taken `messages`.
  void count_lane(uint64_t messages) noexcept { lane_messages_ += messages; }
  // Returns kStaging bytes for a queue pair that receives, until the data has been placed: mostly
  // within one poll, so that all use the same. Returns null if there is no memory.
  std::unique_ptr<std::byte[]> take_staging() noexcept;
  void give_staging(std::unique_ptr<std::byte[]> staging) noexcept {
    RRDK_ASSERT(staging != nullptr);
    if (free_staging_.size() < kFreeStaging)
      free_staging_.push_back(std::move(staging));
  }

 private:
  CompletionQueue() = default;
  // The polling thread: removes from epoll a queue pair that is polled alone.
  void begin_quiet(QueuePair& qp) noexcept;
  bool end_quiet() noexcept;
  uint32_t take_ready() noexcept;
  void take_rings() noexcept;
  void deactivate(size_t position) noexcept;

  base::Fd epoll_;
  base::Fd rings_;  // eventfd

  std::array<QueuePair*, kMaxQueuePairs> active_;
  size_t active_count_ = 0;
  size_t next_ = 0;  // in active_: the one whose turn it is
  uint32_t polls_ = 0;
  uint32_t alone_polls_ = 0;
  QueuePair* quiet_ = nullptr;  // its socket is not in the epoll set

  Outbox outbox_;
  LaneOutbox lane_outbox_;
  // As many as polls take one after the other. Buffers beyond these, taken because of peers, are
  // freed at once.
  static constexpr size_t kFreeStaging = 16;
  std::vector<std::unique_ptr<std::byte[]>> free_staging_;

  std::mutex mutex_;  // protects the members below
  size_t queue_pairs_ = 0;
  std::vector<QueuePair*> rung_;
};

}  // namespace rrdk::iwarp
