#include "runtime/thread.h"

#include <pthread.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <system_error>
#include <utility>

#include "base/system.h"
#include "rrdk/eal.h"

namespace rrdk::runtime {

namespace {

thread_local bool is_aside = false;

struct TokenHolder {
  std::shared_ptr<ThreadToken> token = std::make_shared<ThreadToken>();
  TokenHolder() { this_thread = token.get(); }
  ~TokenHolder() { token->running.store(false, std::memory_order_release); }
};

// EAL pins the main thread, and a new thread inherits that, so "any CPU" must be set too. The
// kernel keeps the CPUs of the mask that this process may use, and refuses an empty result.
Result<void> set_affinity(int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (cpu >= CPU_SETSIZE)
    return fail(Errc::kInvalidArgument, "CPU " + std::to_string(cpu) + " does not exist");
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (cpu < 0 || i == cpu)
      CPU_SET(i, &cpus);
  }
  if (pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus) != 0)
    return fail(Errc::kInvalidArgument,
                "CPU " + std::to_string(cpu) + " does not exist or is not ours to use");
  return {};
}

}  // namespace

const std::shared_ptr<ThreadToken>& this_thread_token() {
  static thread_local TokenHolder holder;
  return holder.token;
}

Result<std::thread> start_thread(const std::string& name, int cpu, std::function<void()> body) {
  std::promise<Result<void>> started;
  std::future<Result<void>> outcome = started.get_future();
  std::thread thread;
  base::SignalsBlocked blocked;
  try {
    thread = std::thread([&started, name, cpu, run = std::move(body)] {
      pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
      Result<void> ready = set_affinity(cpu);
      if (ready && !register_thread())
        ready = fail(Errc::kSystem, "EAL has no identity left for thread " + name);
      bool run_body = ready.has_value();
      started.set_value(std::move(ready));
      if (run_body)
        run();
    });
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem, "cannot start thread " + name + ": " + error.what());
  }
  Result<void> ready = outcome.get();
  if (!ready) {
    thread.join();
    return tl::unexpected(ready.error());
  }
  return thread;
}

Result<std::thread> start_plain_thread(const std::string& name, std::function<void()> body) {
  base::SignalsBlocked blocked;
  try {
    return std::thread([name, run = std::move(body)] {
      pthread_setname_np(pthread_self(), name.c_str());
      (void)set_affinity(-1);
      run();
    });
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem, "cannot start thread " + name + ": " + error.what());
  }
}

Result<std::thread> start_aside_thread(const std::string& name, std::function<void()> body) {
  return start_plain_thread(name, [run = std::move(body)] {
    is_aside = true;
    run();
  });
}

bool AsideThread::here() noexcept {
  return is_aside;
}

Result<void> AsideThread::run(Task task) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    auto thread = start_aside_thread("rrdk-aside", [this] { work(); });
    if (!thread)
      return tl::unexpected(thread.error());
    thread_ = std::move(*thread);
  }
  tasks_.push_back(std::move(task));
  arrived_.notify_one();
  return {};
}

void AsideThread::stop() {
  std::deque<Task> dropped;  // their contents are destroyed outside the lock
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(tasks_);
    arrived_.notify_one();
  }
  dropped.clear();
  if (thread_.joinable())
    thread_.join();
}

void AsideThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    if (stopped_)
      return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace rrdk::runtime
