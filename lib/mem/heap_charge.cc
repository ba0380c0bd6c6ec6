#include "mem/heap_charge.h"

#include <algorithm>
#include <functional>

#include "base/assert.h"
#include "base/clock.h"
#include "base/internals.h"
#include "mem/memory_impl.h"
#include "mem/slabs.h"

namespace rrdk::mem {

uint64_t elastic_budget(Memory& memory) noexcept {
  uint64_t bytes = 0;
  for (const Memory::Impl::Node& node : Internals::of(memory).nodes)
    bytes += node.slabs != nullptr ? node.slabs->budget() : 0;
  return bytes;
}

HeapCharge::HeapCharge(Memory& memory, uint64_t reserve) {
  for (const Memory::Impl::Node& node : Internals::of(memory).nodes) {
    if (node.slabs != nullptr)
      parts_.push_back({node.slabs.get()});
  }
  while (units_ * kUnitBytes < reserve && add_unit()) {
  }
  least_ = units_;
}

HeapCharge::~HeapCharge() {
  remove_units(0);
}

bool HeapCharge::take(uint64_t bytes) noexcept {
  if (parts_.empty())
    return true;
  std::lock_guard lock(lock_);
  while (bytes_ + bytes > units_ * kUnitBytes) {
    if (!add_unit())
      return false;
  }
  bytes_ += bytes;
  return true;
}

// One unit more than is needed is kept, so that small steps up and down cost nothing.
void HeapCharge::give(uint64_t bytes) noexcept {
  if (parts_.empty())
    return;
  std::lock_guard lock(lock_);
  RRDK_ASSERT(bytes <= bytes_, bytes, bytes_);
  bytes_ -= bytes;
  remove_units(std::max(least_, (bytes_ + kUnitBytes - 1) / kUnitBytes + 1));
}

// Takes a unit from the node that has most. After a failure there is no new attempt for a while.
bool HeapCharge::add_unit() noexcept {
  constexpr uint64_t kPutOffNs = 1'000'000;
  const uint64_t now = base::Tsc::now_ns();
  if (now < not_before_ns_)
    return false;
  for (Part& part : parts_)
    part.left = part.budget->left();  // this changes while buffers are taken and given back
  std::ranges::sort(parts_, std::greater(), &Part::left);
  for (Part& part : parts_) {
    if (!part.budget->set_unit_aside())
      continue;
    ++part.units;
    ++units_;
    return true;
  }
  not_before_ns_ = now + kPutOffNs;
  return false;
}

void HeapCharge::remove_units(uint64_t keep) noexcept {
  for (Part& part : parts_) {
    for (; units_ > keep && part.units != 0; --part.units, --units_)
      part.budget->return_unit();
  }
}

}  // namespace rrdk::mem
