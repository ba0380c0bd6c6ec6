// What other threads have for a poll core: calls to submit, replies from workers.
//
// A full ring: the item goes to the overflow, a list through the items themselves, which the core
// empties after the ring. So push() never waits, never drops and needs no memory. It can not
// deadlock, since nobody waits for room: neither workers nor callers for the core, nor (see
// WorkerPool) the core for the workers. What is queued is bounded by the objects that exist: calls
// and replies, each with one item.
//
// Items are not in strict order when the overflow is in use; their users do not rely on order.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/alarm.h"
#include "runtime/ring.h"

namespace rrdk::runtime {

class Inbox {
 public:
  Inbox(std::unique_ptr<Ring> ring, Alarm& alarm) noexcept
      : ring_(std::move(ring)), alarm_(alarm) {}

  void push(WorkItem& item) noexcept;  // any thread

  uint32_t poll(uint64_t now_ns) noexcept { return peek(now_ns) ? run() : 0; }
  bool peek(uint64_t) const noexcept {
    return !ring_->empty() || overflow_.load(std::memory_order_acquire) != nullptr;
  }
  bool try_sleep(uint64_t now_ns) noexcept { return !peek(now_ns); }  // the alarm is set before
  void wake() noexcept {}

 private:
  static constexpr uint32_t kBurst = 32;

  uint32_t run() noexcept;
  uint32_t run_overflow() noexcept;

  std::unique_ptr<Ring> ring_;
  Alarm& alarm_;
  std::atomic<WorkItem*> overflow_ = nullptr;  // newest first
};

}  // namespace rrdk::runtime
