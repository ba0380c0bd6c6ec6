// Memory of the heap that counts as part of a Memory's budget: what is charged, elastic classes can
// not have. In units, of whichever NUMA nodes have them. Where no class is elastic there is no
// budget to charge, and all is granted.
//
// Any thread. The Memory outlives it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "rrdk/memory.h"

namespace rrdk::mem {

class Slabs;

// Bytes that the elastic classes of all nodes may have; 0: none is elastic.
uint64_t elastic_budget(Memory& memory) noexcept;

class HeapCharge {
 public:
  // `reserve` bytes of the budget are for this at once, and for good, if they can be had.
  explicit HeapCharge(Memory& memory, uint64_t reserve = 0);
  ~HeapCharge();
  HeapCharge(const HeapCharge&) = delete;
  HeapCharge& operator=(const HeapCharge&) = delete;

  // False: the budget is used up, and nothing was charged.
  bool take(uint64_t bytes) noexcept;
  void give(uint64_t bytes) noexcept;

 private:
  struct Part {
    Slabs* budget;
    uint64_t units = 0;
    uint64_t left = 0;  // bytes, at the last look
  };

  bool add_unit() noexcept;
  void remove_units(uint64_t keep) noexcept;

  std::mutex lock_;
  std::vector<Part> parts_;     // one for each node
  uint64_t units_ = 0;          // of all parts
  uint64_t least_ = 0;          // units that stay
  uint64_t bytes_ = 0;          // that are charged
  uint64_t not_before_ns_ = 0;  // there was nothing left
};

}  // namespace rrdk::mem
