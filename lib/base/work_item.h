// What waits for a core or a worker, or for a time: intrusive, so that queueing never allocates.
#pragma once

#include <cstdint>

#include "base/assert.h"
#include "base/list.h"

namespace rrdk::base {

// What crosses rings and waits in lists: a pointer to an item embedded in the object that it is
// about (a call to submit, a reply to send).
//
// `run` is the item's tag: what to do with the object around it. An item is in one list or ring at
// a time.
struct WorkItem {
  void (*run)(WorkItem& item) = nullptr;
  WorkItem* next = nullptr;  // while in an ItemList
};
static_assert(sizeof(WorkItem) == 16);

// For one thread.
using ItemList = base::Queue<WorkItem, &WorkItem::next>;

// Runs at most `most` items. Returns how many ran.
inline uint32_t run_some(ItemList& items, uint32_t most) noexcept {
  uint32_t count = 0;
  for (; count != most && !items.empty(); ++count) {
    WorkItem& item = items.pop();
    RRDK_ASSERT(item.run != nullptr);
    item.run(item);
  }
  return count;
}

// An entry in a core's heap of timers (runtime/timers.h).
struct Timer {
  void (*fire)(Timer& timer) = nullptr;
  uint64_t due_ns = 0;
  uint32_t place = UINT32_MAX;  // in the heap; UINT32_MAX: not running

  bool running() const noexcept { return place != UINT32_MAX; }
};
static_assert(sizeof(Timer) <= 24);

}  // namespace rrdk::base
