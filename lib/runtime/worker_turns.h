// What poll cores have for the workers, by connection: one item of each in turn, so that the calls
// of one do not fill the workers' ring before those of others.
#pragma once

#include "runtime/work_item.h"

namespace rrdk::runtime {

// One connection's. It outlives its items.
struct WorkerQueue {
  ItemList items;
  WorkerQueue* next = nullptr;
};

class WorkerTurns {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void push(WorkerQueue& queue, WorkItem& item) noexcept {
    bool waits = !queue.items.empty();
    queue.items.push(item);
    if (!waits)
      join(queue);
  }
  // Not when empty().
  WorkItem& pop() noexcept {
    WorkerQueue& queue = *first_;
    first_ = queue.next;
    WorkItem& item = *queue.items.pop();
    if (!queue.items.empty())
      join(queue);
    return item;
  }

 private:
  void join(WorkerQueue& queue) noexcept {
    queue.next = nullptr;
    if (first_ == nullptr)
      first_ = &queue;
    else
      last_->next = &queue;
    last_ = &queue;
  }

  WorkerQueue* first_ = nullptr;
  WorkerQueue* last_ = nullptr;
};

}  // namespace rrdk::runtime
