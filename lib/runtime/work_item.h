// What crosses rings and waits in lists: one pointer to an item embedded in the object that it is
// about (a call to submit, a reply to send), so that queueing never allocates.
#pragma once

#include <cstdint>

namespace rrdk::runtime {

// `run` is the item's tag: what to do with the object around it. An item is in one place at a time.
struct WorkItem {
  void (*run)(WorkItem& item) = nullptr;
  WorkItem* next = nullptr;  // while in a ItemList
};

// First in, first out; of one thread.
class ItemList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void push(WorkItem& item) noexcept {
    item.next = nullptr;
    *last_ = &item;
    last_ = &item.next;
  }
  WorkItem* front() const noexcept { return first_; }
  WorkItem* pop() noexcept {
    WorkItem* item = first_;
    if (item != nullptr && (first_ = item->next) == nullptr)
      last_ = &first_;
    return item;
  }
  // Forgets the first `count` items; `rest` is the one after them. Does not touch the items.
  void drop_front(uint32_t count, WorkItem* rest) noexcept {
    if (count == 0)
      return;
    first_ = rest;
    if (first_ == nullptr)
      last_ = &first_;
  }
  // Runs what is there now; what the items add waits for the next pass. Returns how many.
  uint32_t run_once() noexcept {
    WorkItem* item = first_;
    first_ = nullptr;
    last_ = &first_;
    uint32_t count = 0;
    while (item != nullptr) {
      WorkItem* next = item->next;
      item->run(*item);
      item = next;
      ++count;
    }
    return count;
  }

  ItemList() = default;
  ItemList(const ItemList&) = delete;
  ItemList& operator=(const ItemList&) = delete;

 private:
  WorkItem* first_ = nullptr;
  WorkItem** last_ = &first_;
};

}  // namespace rrdk::runtime
