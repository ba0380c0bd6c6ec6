#include "runtime/aside.h"

#include <utility>

#include "runtime/thread.h"

namespace rrdk::runtime {

namespace {

thread_local bool is_aside = false;

}  // namespace

bool Aside::here() noexcept {
  return is_aside;
}

Result<void> Aside::run(Task task) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    auto thread = start_plain_thread("rrdk-aside", [this] {
      is_aside = true;
      work();
    });
    if (!thread)
      return tl::unexpected(thread.error());
    thread_ = std::move(*thread);
  }
  tasks_.push_back(std::move(task));
  arrived_.notify_one();
  return {};
}

void Aside::stop() {
  std::deque<Task> dropped;  // what they hold goes outside of the lock
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

void Aside::work() {
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
