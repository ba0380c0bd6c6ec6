// A bounded ring of work items between threads: rte_ring in memory of our own.
#pragma once

#include <rte_ring.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "rrdk/error.h"
#include "runtime/work_item.h"

namespace rrdk::runtime {

enum class Consumers { kOne, kMany };

// Any number of producers.
class Ring {
 public:
  // `size` is a power of two; one entry of it stays unused. Errors: kInvalidArgument, kNoMemory.
  static Result<std::unique_ptr<Ring>> create(uint32_t size, Consumers consumers);
  ~Ring() { std::free(ring_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  bool push(WorkItem& item) noexcept;  // false: full
  // How many were taken, from the front.
  uint32_t push_burst(std::span<WorkItem* const> items) noexcept;
  uint32_t pop_burst(std::span<WorkItem*> items) noexcept;
  // As rte_ring_empty() and rte_ring_count(), but atomic: a core that goes to sleep relies on what
  // it sees.
  bool empty() const noexcept {
    return __atomic_load_n(&ring_->prod.tail, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&ring_->cons.tail, __ATOMIC_RELAXED);
  }
  uint32_t count() const noexcept {
    return __atomic_load_n(&ring_->prod.tail, __ATOMIC_RELAXED) -
           __atomic_load_n(&ring_->cons.tail, __ATOMIC_RELAXED);
  }

 private:
  explicit Ring(rte_ring* ring) noexcept : ring_(ring) {}
  rte_ring* ring_;
};

}  // namespace rrdk::runtime
