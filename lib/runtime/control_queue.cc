#include "runtime/control_queue.h"

#include <utility>

namespace rrdk::runtime {

void ControlQueue::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    waiting_.store(true, std::memory_order_release);
  }
  alarm_.ring();
}

uint32_t ControlQueue::run() {
  std::deque<Task> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    waiting_.store(false, std::memory_order_relaxed);
  }
  for (Task& task : tasks)
    task();
  return static_cast<uint32_t>(tasks.size());
}

}  // namespace rrdk::runtime
