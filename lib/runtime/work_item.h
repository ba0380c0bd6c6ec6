// What crosses rings and waits in lists: one pointer to an item embedded in the object that it is
// about (a call to submit, a reply to send), so that queueing never allocates.
#pragma once

#include <cstdint>

#include "base/list.h"

namespace rrdk::runtime {

// `run` is the item's tag: what to do with the object around it. An item is in one place at a time.
struct WorkItem {
  void (*run)(WorkItem& item) = nullptr;
  WorkItem* next = nullptr;  // while in an ItemList
};

// Of one thread.
using ItemList = base::Queue<WorkItem, &WorkItem::next>;

// Runs what is there now; what the items add waits for the next time. Returns how many.
inline uint32_t run_once(ItemList& items) noexcept {
  uint32_t count = 0;
  for (ItemList now = items.take(); !now.empty(); ++count) {
    WorkItem& item = now.pop();
    item.run(item);
  }
  return count;
}

// What waits for the workers, of one connection. It outlives its items.
struct WorkerQueue {
  ItemList items;
  WorkerQueue* next = nullptr;
};

}  // namespace rrdk::runtime
