// The Runtime's helper thread (rrdk/runtime.h): what may block is done there, one task after the
// other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "rrdk/error.h"

namespace rrdk::runtime {

class Aside {
 public:
  using Task = std::function<void()>;

  Aside() = default;
  ~Aside() { stop(); }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

  // Any thread; waits for nothing, the thread's first step included. Errors: kSystem.
  Result<void> run(Task task);
  // Waits for the task that is running; those behind it are dropped. Once, by the last user.
  void stop();
  // Whether the caller is such a thread, of whatever Runtime.
  static bool here() noexcept;

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Task> tasks_;
  bool stopped_ = false;
  std::thread thread_;  // from the first task on
};

}  // namespace rrdk::runtime
