#include <utility>

#include "base/assert.h"
#include "base/sanitizer.h"
#include "runtime/inbox.h"

namespace rrdk::runtime {

// DPDK's rings order the entries of several producers by what x86 and Arm guarantee, not by the C++
// memory model: a producer that publishes its own tail also publishes the entries of the producers
// before it, whose tail it has read without acquiring. So TSan is told to trust the ring for its
// entries.

bool Ring::push(WorkItem& item) noexcept {
  base::tsan_release(&item);
  base::TsanIgnore entries;
  return rte_ring_enqueue(ring_, &item) == 0;
}

uint32_t Ring::push_burst(std::span<WorkItem* const> items) noexcept {
  for (WorkItem* item : items)
    base::tsan_release(item);
  base::TsanIgnore entries;
  return rte_ring_enqueue_burst(ring_, reinterpret_cast<void* const*>(items.data()),
                                static_cast<unsigned>(items.size()), nullptr);
}

uint32_t Ring::pop_burst(std::span<WorkItem*> items) noexcept {
  uint32_t count;
  {
    base::TsanIgnore entries;
    count = rte_ring_dequeue_burst(ring_, reinterpret_cast<void**>(items.data()),
                                   static_cast<unsigned>(items.size()), nullptr);
  }
  for (WorkItem* item : items.first(count))
    base::tsan_acquire(item);
  return count;
}

void Inbox::push(WorkItem& item) noexcept {
  RRDK_ASSERT(item.run != nullptr);
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
  if (overflowed_.empty()) {
    WorkItem* newest = overflow_.exchange(&more_, std::memory_order_acquire);
    while (newest != nullptr && newest != &more_)
      overflowed_.push_front(*std::exchange(newest, newest->next));
  }
  const uint32_t ran = run_some(overflowed_, kBurst);
  WorkItem* only = &more_;
  if (overflowed_.empty())
    overflow_.compare_exchange_strong(only, nullptr, std::memory_order_relaxed);
  return ran;
}

}  // namespace rrdk::runtime
