#include "runtime/inbox.h"

namespace rrdk::runtime {

void Inbox::push(WorkItem& item) noexcept {
  if (!ring_->push(item)) [[unlikely]] {
    item.next = overflow_.load(std::memory_order_relaxed);
    while (!overflow_.compare_exchange_weak(item.next, &item, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }
  alarm_.ring();
}

uint32_t Inbox::run() noexcept {
  WorkItem* items[kBurst];
  uint32_t count = ring_->pop_burst(items);
  for (uint32_t i = 0; i < count; ++i)
    items[i]->run(*items[i]);
  if (overflow_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    count += run_overflow();
  return count;
}

uint32_t Inbox::run_overflow() noexcept {
  WorkItem* newest = overflow_.exchange(nullptr, std::memory_order_acquire);
  WorkItem* oldest = nullptr;
  while (newest != nullptr) {
    WorkItem* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  uint32_t count = 0;
  while (oldest != nullptr) {
    WorkItem* next = oldest->next;  // running it may queue it again
    oldest->run(*oldest);
    oldest = next;
    ++count;
  }
  return count;
}

}  // namespace rrdk::runtime
