// Heap memory that counts against a Memory's budget: elastic classes cannot use what is charged. It
// is charged in units, from any NUMA node that has them. If no class is elastic there is no budget
// to charge, and everything is granted.
//
// Any thread. The Memory must outlive it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "rrdk/memory.h"

namespace rrdk::mem {

class Slabs;

// The bytes that the elastic classes of all nodes may use; 0: no class is elastic.
uint64_t elastic_budget(Memory& memory) noexcept;

class HeapCharge {
 public:
  // Takes `reserve` bytes of the budget at once and keeps them, if they are available.
  explicit HeapCharge(Memory& memory, uint64_t reserve = 0);
  ~HeapCharge();
  HeapCharge(const HeapCharge&) = delete;
  HeapCharge& operator=(const HeapCharge&) = delete;

  // Returns false if the budget is used up; nothing was charged then.
  bool take(uint64_t bytes) noexcept;
  void give(uint64_t bytes) noexcept;

 private:
  struct Part {
    Slabs* budget;
    uint64_t units = 0;
    uint64_t left = 0;  // bytes, at the last check
  };

  bool add_unit() noexcept;
  void remove_units(uint64_t keep) noexcept;

  std::mutex lock_;
  std::vector<Part> parts_;     // one for each node
  uint64_t units_ = 0;          // of all parts
  uint64_t least_ = 0;          // units that are kept
  uint64_t bytes_ = 0;          // that are charged
  uint64_t not_before_ns_ = 0;  // after a failure: no new attempt before this time
};

}  // namespace rrdk::mem
