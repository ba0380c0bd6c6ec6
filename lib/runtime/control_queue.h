// What the control path has for a poll core: connections to open and close, the fabric's events.
// In order, unbounded, behind a lock; the core looks at one flag per pass.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>

#include "runtime/alarm.h"

namespace rrdk::runtime {

class ControlQueue {
 public:
  using Task = std::function<void()>;

  explicit ControlQueue(Alarm& alarm) noexcept : alarm_(alarm) {}

  void post(Task task);  // any thread

  uint32_t poll(uint64_t) { return waiting_.load(std::memory_order_relaxed) ? run() : 0; }
  bool peek(uint64_t) const noexcept { return waiting_.load(std::memory_order_acquire); }
  bool try_sleep(uint64_t now_ns) noexcept { return !peek(now_ns); }  // the alarm is set before
  void wake() noexcept {}

 private:
  uint32_t run();

  Alarm& alarm_;
  std::atomic<bool> waiting_ = false;
  std::mutex mutex_;
  std::deque<Task> tasks_;
};

}  // namespace rrdk::runtime
