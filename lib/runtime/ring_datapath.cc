#include "base/sanitizer.h"
#include "runtime/ring.h"

namespace rrdk::runtime {

// DPDK's rings order the entries among several producers by what x86 and Arm guarantee, not by what
// the C++ memory model does: a producer publishes, with its own tail, those before it, whose tail
// it has read without acquiring. TSan therefore takes the ring's word for the entries.

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

}  // namespace rrdk::runtime
