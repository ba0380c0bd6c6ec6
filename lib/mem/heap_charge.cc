#include "mem/heap_charge.h"

#include <algorithm>

#include "mem/memory_impl.h"
#include "mem/slabs.h"

namespace rrdk::mem {

uint64_t elastic_budget(Memory& memory) noexcept {
  uint64_t bytes = 0;
  for (const Memory::Impl::Node& node : memory.impl().nodes)
    bytes += node.slabs != nullptr ? node.slabs->budget() : 0;
  return bytes;
}

HeapCharge::HeapCharge(Memory& memory) {
  for (const Memory::Impl::Node& node : memory.impl().nodes) {
    if (node.slabs != nullptr)
      parts_.push_back({node.slabs.get()});
  }
}

HeapCharge::~HeapCharge() {
  bytes_ = 0;
  remove_units(0);
}

bool HeapCharge::take(uint64_t bytes) noexcept {
  if (parts_.empty())
    return true;
  std::lock_guard lock(lock_);
  while (bytes_ + bytes > units_ * kUnitBytes) {
    if (!add_unit()) {
      remove_units(0);
      return false;
    }
  }
  bytes_ += bytes;
  return true;
}

// One unit more than is needed stays, so that small steps up and down cost nothing.
void HeapCharge::give(uint64_t bytes) noexcept {
  if (parts_.empty())
    return;
  std::lock_guard lock(lock_);
  bytes_ -= bytes;
  remove_units(1);
}

bool HeapCharge::add_unit() noexcept {
  auto richest =
      std::ranges::max_element(parts_, {}, [](const Part& part) { return part.budget->left(); });
  if (!richest->budget->set_unit_aside())
    return false;
  ++richest->units;
  ++units_;
  return true;
}

// Those that are not needed, but for `spare`.
void HeapCharge::remove_units(uint64_t spare) noexcept {
  const uint64_t needed = (bytes_ + kUnitBytes - 1) / kUnitBytes + spare;
  for (Part& part : parts_) {
    for (; units_ > needed && part.units != 0; --part.units, --units_)
      part.budget->return_unit();
  }
}

}  // namespace rrdk::mem
