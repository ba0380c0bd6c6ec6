// The completion queue: polls the queue pairs that were active recently, and is told about the
// others by doorbells. It stores nothing: completions are taken from the queue pairs' own queues,
// so it cannot overflow.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "drivers/shm/device.h"
#include "drivers/shm/doorbell.h"
#include "drivers/shm/mapping.h"
#include "fabric/device.h"

namespace rrdk::shm {

class QueuePair;

class CompletionQueue final : public fabric::CompletionQueue {
 public:
  // `counts`: the device's.
  static Result<std::unique_ptr<CompletionQueue>> create(Counters& counts);

  uint32_t poll(std::span<fabric::Completion> out) override;
  int wake_fd() const override { return wakers_.get(); }
  bool arm() override;
  void disarm() override;

  // A page of doorbells that the connections of one user's processes share.
  struct UsersPage {
    uid_t user;
    SharedMemory memory;
    uint32_t connections = 0;

    DoorbellPage* doorbells() const noexcept {
      return reinterpret_cast<DoorbellPage*>(memory.mapping.base());
    }
  };

  // Control path, any thread. Returns the queue pair's doorbell bit. Errors: kLimit if none is
  // left.
  Result<uint32_t> add(QueuePair& qp);
  // By the polling thread, or while nothing polls. `page` is from join_page(), or null. It is
  // destroyed with its last connection.
  void remove(QueuePair& qp, uint32_t bit, UsersPage* page);

  // The polling thread: a lane's user has taken `messages`.
  void count_lane(uint64_t messages) noexcept { lane_messages_ += messages; }
  // The polling thread: polls `qp` from now on.
  void activate(QueuePair& qp) noexcept;
  // Any thread: the same through the doorbell.
  void ring(uint32_t bit) noexcept;

  // Control path, any thread: returns the doorbell page for a connection with a process of this
  // user. remove() gives it back.
  Result<UsersPage*> join_page(uid_t user);
  // Control path: what arrives at `receiver` wakes the sleeper, until ignore().
  Result<void> wake_by(int receiver);
  // Any thread. Must be called before `receiver` is handed over to be closed, which may happen
  // late.
  void ignore(int receiver) noexcept;

 private:
  // For this many users at once; the others share the last page. A poll checks each page.
  static constexpr uint32_t kMaxPages = 64;

  CompletionQueue(Counters& counts, Fd own_waker, Fd wakers);
  std::span<DoorbellPage* const> pages() const noexcept {
    return std::span(pages_).first(num_pages_.load(std::memory_order_acquire));
  }
  void take_doorbells(DoorbellPage& page) noexcept;
  void take_bits(DoorbellPage& page, uint32_t word) noexcept;
  void sweep() noexcept;
  void deactivate(size_t position) noexcept;
  bool rest_all() noexcept;
  void leave_page(UsersPage& page);

  Counters& counts_;
  // The first is our own user's, and stays. The control path adds pages, the polling thread removes
  // them.
  std::array<DoorbellPage*, kMaxPages> pages_{};
  std::atomic<uint32_t> num_pages_{0};
  std::vector<std::unique_ptr<UsersPage>> users_;  // of `pages_`, in that order; under `mutex_`
  Fd own_waker_;                                   // an eventfd, for our own threads
  Fd wakers_;  // an epoll set: own_waker_, and the receiving end of each peer's wake-up socket

  std::array<QueuePair*, kMaxQueuePairs> active_;
  size_t active_count_ = 0;
  size_t next_ = 0;     // in active_: the one whose turn it is
  uint32_t polls_ = 0;  // for the sweep
  uint32_t swept_ = 0;  // bit that the sweep checks next

  std::mutex mutex_;                    // for the assignment of bits, and of pages
  std::atomic<uint32_t> bits_used_{0};  // bits from here on were never assigned
  std::array<std::atomic<QueuePair*>, kMaxQueuePairs> queue_pairs_{};
};

}  // namespace rrdk::shm
