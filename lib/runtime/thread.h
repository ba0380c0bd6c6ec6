// Threads of the runtime, including its helper thread, and which thread polls a core.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "rrdk/error.h"

namespace rrdk::runtime {

// Starts a named thread (15 characters) on `cpu` (-1: on any), known to EAL, and waits until it
// runs. Errors: kInvalidArgument (no such CPU, or not ours), kSystem.
Result<std::thread> start_thread(const std::string& name, int cpu, std::function<void()> body);

// Starts a thread that EAL does not know, on any CPU, and does not wait until it runs. Errors:
// kSystem.
Result<std::thread> start_plain_thread(const std::string& name, std::function<void()> body);

// The same for a thread that may block and waits for no poll core: AsideThread::here() is true
// there.
Result<std::thread> start_aside_thread(const std::string& name, std::function<void()> body);

// Stands for a thread, so that another thread can tell whether it has ended, and what it does.
struct ThreadToken {
  std::atomic<bool> running = true;
  std::atomic<const void*> pass = nullptr;  // the poll core that it polls; the innermost if nested
};

// The calling thread's token, which is the same for its whole life.
const std::shared_ptr<ThreadToken>& this_thread_token();

// Only its address, quickly; null before this_thread_token() was called on the thread.
[[gnu::tls_model("initial-exec")]] inline thread_local constinit ThreadToken* this_thread = nullptr;

// The Runtime's helper thread (rrdk/runtime.h). Tasks that may block are run there, one after the
// other. Resolving names has threads of its own (searches.h).
class AsideThread {
 public:
  using Task = std::function<void()>;

  AsideThread() = default;
  ~AsideThread() { stop(); }
  AsideThread(const AsideThread&) = delete;
  AsideThread& operator=(const AsideThread&) = delete;

  // Any thread; does not wait, not even for the thread to start. Errors: kSystem.
  Result<void> run(Task task);
  // Waits for the task that is running, and drops those behind it. Idempotent; for the last user
  // only.
  void stop();
  // Whether the caller is such a thread, of any Runtime.
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
