// The budget of one NUMA node, from which its elastic classes take slabs, and to which they give
// them back.
//
// It grows on demand, in a few extents, each a sealed memfd and one registered region, so that a
// driver maps or registers only a few regions. The first extents are small and each later one is as
// large as all before it, so that a device that pins whole regions pins no more than twice what is
// used. An extent is divided into units of 2 MiB. A class takes as many consecutive units as hold
// one of its buffers; for most classes that is one. Pages are filled when a unit is first taken,
// from the extent's beginning on, and stay: holes cannot be punched into sealed memory, and peers
// rely on that.
//
// Other classes cannot take all: a part of the budget is kept for the class with the smallest
// buffers, which are those of headers and connections.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mem/arena.h"
#include "mem/regions.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

class Pool;

constexpr uint32_t kUnitBytes = 2u << 20;
// On one node, including that of the classes with fixed counts.
constexpr uint32_t kMaxExtents = 8;
// A 16th of the budget is reserved for the smallest class.
constexpr uint32_t kPartForSmallest = 16;

// The units of a slab of this class, and its buffers.
constexpr uint32_t units_of(uint32_t buffer_size) noexcept {
  return buffer_size <= kUnitBytes ? 1 : buffer_size / kUnitBytes;
}
constexpr uint32_t buffers_of_slab(uint32_t buffer_size) noexcept {
  return buffer_size <= kUnitBytes ? kUnitBytes / buffer_size : 1;
}

struct BudgetOptions {
  uint64_t bytes = 0;
  int numa_node = 0;
  HugepagePolicy hugepages = HugepagePolicy::kPrefer;
  uint32_t most_extents = kMaxExtents;
};

class Slabs {
 public:
  Slabs(const BudgetOptions& options, RegionTable& regions);
  ~Slabs();
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  // Makes the pools of these classes, ascending, and takes one slab for the first pool. Errors:
  // kNoMemory (there is not enough for a slab of each), kInvalidArgument, kSystem.
  Result<std::vector<std::unique_ptr<Pool>>> open(const std::vector<SizeClass>& classes);

  // Gets more buffers for a pool with fewer than `wanted` free ones. Any thread; not needed in the
  // steady state. Returns true if the pool has one slab more, or if another thread made sure that
  // it has enough. At most one slab is filled.
  bool grow(Pool& pool, uint32_t wanted = 1) noexcept;
  // The number of buffers that the pool could still get: from what is free and from free buffers of
  // others. An estimate while buffers are taken and given back.
  uint32_t more_for(const Pool& pool) const noexcept;
  uint64_t budget() const noexcept { return options_.bytes; }
  // The bytes that are available now to any class; and those that no class has, which are fewer and
  // cheap to determine.
  uint64_t left() const noexcept;
  uint64_t unused() const noexcept {
    return uint64_t{free_.load(std::memory_order_relaxed)} * kUnitBytes;
  }
  // How many buffers the pool could get from these.
  uint32_t unused_for(const Pool& pool) const noexcept;
  // The region that holds these bytes, if it is one of ours. Any thread, cheap.
  RegionId region_of(const std::byte* data, uint32_t length) const noexcept {
    for (const Extent& extent : extents_) {
      const size_t bytes = extent.bytes.load(std::memory_order_acquire);
      if (bytes == 0)
        break;  // the later ones do not exist either
      const auto offset = static_cast<size_t>(data - extent.base);
      if (offset < bytes && length <= bytes - offset)
        return extent.region;
    }
    return kNoRegion;
  }

  // Takes one unit from all classes until it is returned; what is kept for the smallest class is
  // not used. Returns false if no unit is free. (heap_charge.h)
  bool set_unit_aside() noexcept;
  void return_unit() noexcept;

  // Called by a pool, under our lock, when it has one slab less.
  void give_back(uint32_t first_unit, const Pool& pool) noexcept;

  bool on_hugepages() const noexcept;

 private:
  struct Extent {
    // Set once, before `bytes`.
    std::byte* base = nullptr;
    RegionId region = kNoRegion;
    std::atomic<size_t> bytes = 0;  // 0: it does not exist yet
    // Under the lock.
    Arena arena = {};
    uint32_t first = 0;   // unit
    uint32_t units = 0;   // that it has, or will have
    uint32_t filled = 0;  // units whose pages are allocated
  };

  void plan(uint32_t units, uint32_t largest, uint32_t most_extents);
  Result<void> check_budget(const std::vector<SizeClass>& classes) const;
  Result<void> make(Extent& extent);
  Result<void> fill(Extent& extent, uint32_t units);
  Result<bool> take(Pool& pool);
  Result<bool> take_from(Extent& extent, Pool& pool);
  bool reclaim_for(const Pool* pool) noexcept;
  uint64_t units_for(const Pool* pool) const noexcept;
  uint32_t kept_from(const Pool* pool) const noexcept;
  uint32_t free_for(const Pool* pool) const noexcept;
  std::optional<uint32_t> find_free(const Extent& extent, uint32_t units) const noexcept;
  void put_off(const Error& error);

  BudgetOptions options_;
  RegionTable& regions_;
  std::mutex mutex_;
  std::array<Extent, kMaxExtents> extents_;
  std::vector<bool> taken_;  // by unit
  // units, including those of extents that do not exist yet, but not those set aside
  std::atomic<uint32_t> free_ = 0;
  uint32_t kept_ = 0;         // units, for the smallest class
  std::vector<Pool*> pools_;  // ascending by buffer size
  uint64_t unchecked_ = 0;    // bytes that may be filled before the next check of what is left
  std::atomic<uint64_t> not_before_ns_ = 0;  // the system had nothing left
};

}  // namespace rrdk::mem
