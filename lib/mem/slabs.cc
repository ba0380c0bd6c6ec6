#include "mem/slabs.h"

#include <algorithm>
#include <new>
#include <string>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sanitizer.h"
#include "mem/pool_datapath.h"
#include "mem/system_memory.h"

namespace rrdk::mem {

namespace {

// A budget's first extent is this part of the budget, and each later one doubles the sum: eight
// extents at most.
constexpr uint32_t kFirstPart = 1u << (kMaxExtents - 1);

// Between checks of what the system has left for others.
constexpr uint64_t kCheckedBytes = uint64_t{256} << 20;

// How long no new attempt is made after the system had no memory or no descriptor left.
constexpr uint64_t kPutOffNs = 1'000'000'000;

}  // namespace

Slabs::Slabs(const BudgetOptions& options, RegionTable& regions)
    : options_(options), regions_(regions) {}

Slabs::~Slabs() {
  for (Extent& extent : extents_) {
    if (extent.bytes.load(std::memory_order_relaxed) == 0)
      continue;
    regions_.remove(extent.region);
    base::unpoison(extent.base, extent.arena.length());
  }
}

Result<void> Slabs::check_budget(const std::vector<SizeClass>& classes) const {
  uint64_t least = 0;
  for (const SizeClass& c : classes)
    least += uint64_t{units_of(c.buffer_size)} * kUnitBytes;
  if (options_.bytes >= least)
    return {};
  return fail(Errc::kNoMemory, "a budget of " + std::to_string(options_.bytes) +
                                   " bytes has no room for " + std::to_string(classes.size()) +
                                   " elastic classes, which need " + std::to_string(least) +
                                   " at least: raise MemoryOptions::bytes");
}

Result<std::vector<std::unique_ptr<Pool>>> Slabs::open(const std::vector<SizeClass>& classes) {
  if (Result<void> enough = check_budget(classes); !enough)
    return tl::unexpected(enough.error());
  const auto units =
      static_cast<uint32_t>(std::min<uint64_t>(options_.bytes / kUnitBytes, UINT32_MAX / 2));
  plan(units, units_of(classes.back().buffer_size), options_.most_extents);
  taken_.resize(units);
  free_.store(units, std::memory_order_relaxed);
  kept_ = std::max(units / kPartForSmallest, 1u);
  std::vector<std::unique_ptr<Pool>> pools;
  for (const SizeClass& c : classes) {
    // All classes together strand in a core's caches as much as one class with the whole budget
    // would.
    const uint64_t most = options_.bytes / c.buffer_size / classes.size();
    Result<std::unique_ptr<Pool>> pool =
        Pool::create({.buffer_size = c.buffer_size,
                      .numa_node = options_.numa_node,
                      .slabs = units,
                      .per_slab = buffers_of_slab(c.buffer_size),
                      .cached = Pool::cached_of(most),
                      .resting = Pool::resting_of(most, c.buffer_size),
                      .budget = this});
    if (!pool)
      return tl::unexpected(pool.error());
    pools_.push_back(pool->get());
    pools.push_back(std::move(*pool));
  }
  Result<bool> taken = take(*pools_.front());
  if (!taken)
    return tl::unexpected(taken.error());
  return pools;
}

// No slab spans two extents, so each extent must hold the largest slab.
void Slabs::plan(uint32_t units, uint32_t largest, uint32_t most_extents) {
  uint32_t next = std::max((units + kFirstPart - 1) / kFirstPart, largest);
  uint32_t first = 0;
  for (uint32_t i = 0; first < units; ++i) {
    const uint32_t left = units - first;
    const bool all = i + 1 == most_extents || left <= next || left - next < largest;
    extents_[i].first = first;
    extents_[i].units = all ? left : next;
    first += extents_[i].units;
    next = first;
  }
}

Result<void> Slabs::make(Extent& extent) {
  Result<Arena> arena = Arena::create({.bytes = size_t{extent.units} * kUnitBytes,
                                       .numa_node = options_.numa_node,
                                       .hugepages = options_.hugepages,
                                       .prefault = false});
  if (!arena)
    return tl::unexpected(arena.error());
  extent.arena = std::move(*arena);
  extent.base = extent.arena.base();
  extent.region = regions_.add({.id = kNoRegion,
                                .base = extent.arena.base(),
                                .length = extent.arena.length(),
                                .fd = extent.arena.fd(),
                                .fd_offset = 0,
                                .filled = 0});
  extent.bytes.store(extent.arena.length(), std::memory_order_release);
  return {};
}

// Fills the extent's first `units` units with pages.
Result<void> Slabs::fill(Extent& extent, uint32_t units) {
  RRDK_ASSERT(units <= extent.units, units, extent.units);
  if (units <= extent.filled)
    return {};
  const uint64_t bytes = uint64_t{units - extent.filled} * kUnitBytes;
  if (!extent.arena.huge() && bytes > unchecked_) {
    if (Result<void> room = check_headroom(bytes, memory_headroom()); !room)
      return room;
    unchecked_ = std::max(bytes, kCheckedBytes);
  }
  if (Result<void> filled =
          extent.arena.fill(size_t{extent.filled} * kUnitBytes, static_cast<size_t>(bytes));
      !filled)
    return filled;
  unchecked_ -= std::min(bytes, unchecked_);
  extent.filled = units;
  regions_.fill(extent.region, size_t{units} * kUnitBytes);
  return {};
}

std::optional<uint32_t> Slabs::find_free(const Extent& extent, uint32_t units) const noexcept {
  uint32_t run = 0;
  for (uint32_t unit = extent.first; unit < extent.first + extent.units; ++unit) {
    run = taken_[unit] ? 0 : run + 1;
    if (run == units)
      return unit + 1 - units;
  }
  return std::nullopt;
}

// Returns false if there is not enough space in it.
Result<bool> Slabs::take_from(Extent& extent, Pool& pool) {
  const uint32_t units = units_of(pool.buffer_size());
  const std::optional<uint32_t> first = find_free(extent, units);
  if (!first)
    return false;
  if (extent.base == nullptr) {
    if (Result<void> made = make(extent); !made)
      return tl::unexpected(made.error());
  }
  const uint32_t place = *first - extent.first;
  if (Result<void> filled = fill(extent, place + units); !filled)
    return tl::unexpected(filled.error());
  if (!pool.add_slab(*first, extent.base + size_t{place} * kUnitBytes, extent.region))
    return fail(Errc::kNoMemory, "no memory for the descriptions of a pool's buffers");
  for (uint32_t unit = *first; unit < *first + units; ++unit) {
    RRDK_ASSERT(!taken_[unit], unit);
    taken_[unit] = true;
  }
  free_.fetch_sub(units, std::memory_order_relaxed);
  return true;
}

// Returns false if the budget has no space for another slab.
Result<bool> Slabs::take(Pool& pool) {
  if (free_for(&pool) < units_of(pool.buffer_size()))
    return false;
  for (Extent& extent : extents_) {
    Result<bool> taken = take_from(extent, pool);
    if (!taken || *taken)
      return taken;
  }
  return false;
}

bool Slabs::grow(Pool& pool, uint32_t wanted) noexcept {
  // Checked without the lock, so that no thread has to wait only to learn that there is nothing.
  if (uint64_t{more_for(pool)} + pool.home() < wanted ||
      base::Tsc::now_ns() < not_before_ns_.load(std::memory_order_relaxed))
    return pool.home() >= wanted;
  const std::lock_guard lock(mutex_);
  if (pool.home() >= wanted)
    return true;  // other threads were faster
  do {
    Result<bool> taken = take(pool);
    if (!taken)
      put_off(taken.error());
    if (!taken || *taken)
      return taken.value_or(false);
  } while (reclaim_for(&pool));
  return false;
}

void Slabs::put_off(const Error& error) {
  static base::LogLimit limit;
  const uint64_t now = base::Tsc::now_ns();
  not_before_ns_.store(now + kPutOffNs, std::memory_order_relaxed);
  if (auto left_out = limit.allow(now))
    base::log_warning("buffers cannot grow into their budget of %s bytes: %s%s",
                      std::to_string(options_.bytes).c_str(), error.message.c_str(),
                      base::and_more(*left_out).text);
}

bool Slabs::set_unit_aside() noexcept {
  if (units_for(nullptr) == 0)
    return false;
  const std::lock_guard lock(mutex_);
  do {
    if (free_for(nullptr) != 0) {
      free_.fetch_sub(1, std::memory_order_relaxed);
      return true;
    }
  } while (reclaim_for(nullptr));
  return false;
}

void Slabs::return_unit() noexcept {
  RRDK_ASSERT(free_.load(std::memory_order_relaxed) < taken_.size());
  free_.fetch_add(1, std::memory_order_relaxed);
}

// Takes a slab from the class that has most free buffers. Returns false if no class has one to
// give.
bool Slabs::reclaim_for(const Pool* pool) noexcept {
  for (size_t tries = 0; tries < pools_.size(); ++tries) {
    Pool* richest = nullptr;
    uint64_t most = 0;
    for (Pool* other : pools_) {
      const uint64_t bytes = uint64_t{other->within_reach()} * other->buffer_size();
      if (other != pool && bytes > most && other->may_have_free_slabs()) {
        richest = other;
        most = bytes;
      }
    }
    if (richest == nullptr)
      return false;
    if (richest->remove_free_slabs() != 0)
      return true;
  }
  return false;
}

void Slabs::give_back(uint32_t first_unit, const Pool& pool) noexcept {
  const uint32_t units = units_of(pool.buffer_size());
  for (uint32_t unit = first_unit; unit < first_unit + units; ++unit) {
    RRDK_ASSERT(taken_[unit], unit);
    taken_[unit] = false;
  }
  free_.fetch_add(units, std::memory_order_relaxed);
}

// The part of the smallest class's share that it has not taken yet.
uint32_t Slabs::kept_from(const Pool* pool) const noexcept {
  const Pool& smallest = *pools_.front();
  const uint32_t has = smallest.slabs() * units_of(smallest.buffer_size());
  return pool == &smallest ? 0 : kept_ - std::min(kept_, has);
}

uint32_t Slabs::free_for(const Pool* pool) const noexcept {
  const uint32_t free = free_.load(std::memory_order_relaxed);
  return free - std::min(free, kept_from(pool));
}

// Units that a pool could get; null: any pool.
uint64_t Slabs::units_for(const Pool* pool) const noexcept {
  uint64_t units = free_.load(std::memory_order_relaxed);
  for (const Pool* other : pools_) {
    if (other == pool || !other->may_have_free_slabs())
      continue;
    const uint32_t each = units_of(other->buffer_size());
    uint64_t theirs = uint64_t{other->within_reach() / other->per_slab()} * each;
    if (other == pools_.front()) {
      const uint64_t has = uint64_t{other->slabs()} * each;
      theirs = std::min(theirs, has - std::min<uint64_t>(has, kept_));
    }
    units += theirs;
  }
  return units - std::min<uint64_t>(units, kept_from(pool));
}

uint32_t Slabs::more_for(const Pool& pool) const noexcept {
  return static_cast<uint32_t>(units_for(&pool) / units_of(pool.buffer_size()) * pool.per_slab());
}

uint32_t Slabs::unused_for(const Pool& pool) const noexcept {
  return free_for(&pool) / units_of(pool.buffer_size()) * pool.per_slab();
}

uint64_t Slabs::left() const noexcept {
  uint64_t bytes = unused();
  for (const Pool* pool : pools_)
    bytes += uint64_t{pool->home()} * pool->buffer_size();
  return bytes;
}

bool Slabs::on_hugepages() const noexcept {
  return std::all_of(extents_.begin(), extents_.end(), [](const Extent& extent) {
    return extent.bytes.load(std::memory_order_acquire) == 0 || extent.arena.huge();
  });
}

}  // namespace rrdk::mem
