#include "mem/regions.h"

#include <algorithm>

#include "base/assert.h"
#include "base/internals.h"
#include "mem/memory_impl.h"

namespace rrdk::mem {

void RegionBounds::set(RegionId id, const std::byte* base, size_t length, bool shareable) {
  uint32_t block = block_of(id);
  if (!blocks_[block]) {
    blocks_[block] = std::make_unique<Bounds[]>(size_t{kFirst} << block);
    published_[block].store(blocks_[block].get(), std::memory_order_release);
  }
  Bounds* bounds = find(id);
  bounds->base.store(reinterpret_cast<uintptr_t>(base), std::memory_order_relaxed);
  bounds->shareable.store(shareable, std::memory_order_relaxed);
  bounds->length.store(length, std::memory_order_release);
}

void RegionBounds::clear(RegionId id) noexcept {
  RRDK_ASSERT(find(id) != nullptr, id);
  find(id)->length.store(0, std::memory_order_release);
}

RegionId RegionTable::add(Region region) {
  const std::lock_guard lock(mutex_);
  auto place = std::find_if(regions_.begin(), regions_.end(),
                            [](const Region& r) { return r.id == kNoRegion; });
  if (place == regions_.end())
    place = regions_.insert(regions_.end(), region);
  region.id = static_cast<RegionId>(place - regions_.begin());
  *place = region;
  bounds_.set(region.id, region.base, region.length, region.fd >= 0);
  added_.fetch_add(1, std::memory_order_relaxed);
  for (RegionListener* listener : listeners_)
    listener->region_added(region);
  return region.id;
}

void RegionTable::remove(RegionId id) {
  const std::lock_guard lock(mutex_);
  RRDK_ASSERT(id < regions_.size() && regions_[id].id == id, id);
  const Region region = regions_[id];
  bounds_.clear(id);
  for (RegionListener* listener : listeners_)
    listener->region_removed(region);
  regions_[id].id = kNoRegion;
}

void RegionTable::fill(RegionId id, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  RRDK_ASSERT(id < regions_.size() && regions_[id].id == id, id);
  RRDK_ASSERT(bytes <= regions_[id].length && bytes >= regions_[id].filled, id, bytes);
  regions_[id].filled = bytes;
  for (RegionListener* listener : listeners_)
    listener->region_filled(regions_[id]);
}

void RegionTable::listen(RegionListener& listener) {
  const std::lock_guard lock(mutex_);
  listeners_.push_back(&listener);
  for (const Region& region : regions_) {
    if (region.id != kNoRegion)
      listener.region_added(region);
  }
}

void RegionTable::unlisten(RegionListener& listener) {
  const std::lock_guard lock(mutex_);
  std::erase(listeners_, &listener);
}

void listen_regions(Memory& memory, RegionListener& listener) {
  Internals::of(memory).regions.listen(listener);
}

void unlisten_regions(Memory& memory, RegionListener& listener) {
  Internals::of(memory).regions.unlisten(listener);
}

}  // namespace rrdk::mem
