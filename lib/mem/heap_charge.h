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
  explicit HeapCharge(Memory& memory);
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
  };

  bool add_unit() noexcept;
  void remove_units(uint64_t spare) noexcept;

  std::mutex lock_;
  std::vector<Part> parts_;  // one for each node
  uint64_t units_ = 0;       // of all parts
  uint64_t bytes_ = 0;       // that are charged
};

}  // namespace rrdk::mem
