// How threads hand work to each other: the ring between them, and for a poll core its inbox, its
// queue for the control path, and the alarm by which both wake it.
#pragma once

#include <rte_ring.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "base/budget.h"
#include "rrdk/error.h"
#include "runtime/work.h"

namespace rrdk::runtime {

// How other threads wake a sleeping core: an eventfd, written only if the core has announced that
// it goes to sleep.
//
// No wake-up is lost: a producer publishes its work and then exchanges the flag; the sleeper sets
// the flag by an exchange and then looks for work. Both exchanges are on one variable, so one of
// the two is first. If the producer's is, the sleeper's reads from it and sees the work; if the
// sleeper's is, the producer sees the flag and writes the eventfd.
class Alarm {
 public:
  // `enabled`: whether the core ever sleeps; otherwise ring() costs nothing.
  explicit Alarm(bool enabled) noexcept : enabled_(enabled) {}
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  Result<void> open();  // Errors: kSystem

  int fd() const noexcept { return fd_; }
  // Any thread, after publishing work.
  void ring() noexcept {
    if (enabled_ && asleep_.exchange(false, std::memory_order_acq_rel))
      write_fd();
  }
  // Called by the core before its last look for work.
  void set() noexcept { asleep_.exchange(true, std::memory_order_acq_rel); }
  // Called by the core when it is awake again; makes the descriptor unreadable.
  void clear() noexcept;

 private:
  void write_fd() noexcept;

  const bool enabled_;
  int fd_ = -1;
  alignas(64) std::atomic<bool> asleep_ = false;
};

enum class Consumers { kOne, kMany };

// A bounded ring of work items between threads: rte_ring in memory of our own. Any number of
// producers.
class Ring {
 public:
  // `size` must be a power of two; one entry stays unused. Errors: kInvalidArgument, kNoMemory.
  static Result<std::unique_ptr<Ring>> create(uint32_t size, Consumers consumers);
  ~Ring() { std::free(ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  bool push(WorkItem& item) noexcept;  // false: full
  // Returns how many were taken, from the front.
  uint32_t push_burst(std::span<WorkItem* const> items) noexcept;
  uint32_t pop_burst(std::span<WorkItem*> items) noexcept;
  // As rte_ring_empty() and rte_ring_count(), but atomic: a core that goes to sleep relies on the
  // result.
  bool empty() const noexcept {
    return __atomic_load_n(&ring_->prod.tail, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&ring_->cons.tail, __ATOMIC_RELAXED);
  }
  uint32_t count() const noexcept {
    return __atomic_load_n(&ring_->prod.tail, __ATOMIC_RELAXED) -
           __atomic_load_n(&ring_->cons.tail, __ATOMIC_RELAXED);
  }

 private:
  explicit Ring(rte_ring* ring) noexcept : ring_(ring) {}
  rte_ring* ring_;
};

// What other threads have for a poll core: calls to submit, replies from workers.
//
// If the ring is full, the item goes to the overflow, a list linked through the items, which the
// core empties after the ring. So push() never waits, never drops an item and needs no memory. It
// cannot deadlock, since no side waits for space: neither workers nor callers wait for the core,
// and (see WorkerPool) the core does not wait for the workers. The number of queued items is
// bounded by the objects that exist: calls and replies, each with one item.
//
// A pass takes a burst of either at most. Items are not in strict order when the overflow is in
// use; users must not rely on the order.
class Inbox {
 public:
  Inbox(std::unique_ptr<Ring> ring, Alarm& alarm) noexcept
      : ring_(std::move(ring)), alarm_(alarm) {}

  void push(WorkItem& item) noexcept;  // any thread

  uint32_t poll(uint64_t now_ns) noexcept { return peek(now_ns) ? run() : 0; }
  bool peek(uint64_t) const noexcept {
    return !ring_->empty() || overflow_.load(std::memory_order_acquire) != nullptr;
  }
  // The alarm must have been set before.
  bool try_sleep(uint64_t now_ns) noexcept { return !peek(now_ns); }
  void wake() noexcept {}

 private:
  static constexpr uint32_t kBurst = 32;

  uint32_t run() noexcept;
  uint32_t run_overflow() noexcept;

  std::unique_ptr<Ring> ring_;
  Alarm& alarm_;
  std::atomic<WorkItem*> overflow_ = nullptr;  // newest first; the last one may be more_
  ItemList overflowed_;                        // what was taken from there, oldest first
  WorkItem more_;                              // no item: says that there are such
};

// What the control path has for a poll core: connections to open, close and end, the fabric's
// events. In order, unbounded, protected by a lock; the core checks one flag per pass. A pass runs
// tasks that are there when it begins, until its budget is spent (base/budget.h).
class ControlQueue {
 public:
  using Task = std::function<void()>;

  explicit ControlQueue(Alarm& alarm, base::Budget& budget = base::Budget::none()) noexcept
      : alarm_(alarm), budget_(budget) {}

  void post(Task task);  // any thread
  // Before those that wait; any thread. For a quick task that must precede what is submitted later.
  void post_first(Task task);
  // The core's thread.
  void post_here(Task task);

  uint32_t poll(uint64_t) { return waiting_.load(std::memory_order_relaxed) ? run() : 0; }
  bool peek(uint64_t) const noexcept { return waiting_.load(std::memory_order_acquire); }
  // The alarm must have been set before.
  bool try_sleep(uint64_t now_ns) noexcept { return !peek(now_ns); }
  void wake() noexcept {}

 private:
  uint32_t run();
  uint32_t run_first();
  size_t take();

  Alarm& alarm_;
  base::Budget& budget_;
  std::atomic<bool> waiting_ = false;
  std::deque<Task> taken_;  // the core's thread
  std::mutex mutex_;        // protects the members below
  std::deque<Task> tasks_;
  std::deque<Task> first_;
};

}  // namespace rrdk::runtime
