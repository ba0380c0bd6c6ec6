#include "mem/region_table.h"

#include <algorithm>

#include "mem/memory_impl.h"

namespace rrdk::mem {

RegionId RegionTable::add(Region region) {
  auto place = std::find_if(regions_.begin(), regions_.end(),
                            [](const Region& r) { return r.id == kNoRegion; });
  if (place == regions_.end())
    place = regions_.insert(regions_.end(), region);
  region.id = static_cast<RegionId>(place - regions_.begin());
  *place = region;
  ++added_;
  for (RegionListener* listener : listeners_)
    listener->region_added(region);
  return region.id;
}

void RegionTable::remove(RegionId id) {
  const Region region = regions_[id];
  for (RegionListener* listener : listeners_)
    listener->region_removed(region);
  regions_[id].id = kNoRegion;
}

void RegionTable::listen(RegionListener& listener) {
  listeners_.push_back(&listener);
  for (const Region& region : regions_) {
    if (region.id != kNoRegion)
      listener.region_added(region);
  }
}

void RegionTable::unlisten(RegionListener& listener) {
  std::erase(listeners_, &listener);
}

void listen_regions(Memory& memory, RegionListener& listener) {
  memory.impl().regions.listen(listener);
}

void unlisten_regions(Memory& memory, RegionListener& listener) {
  memory.impl().regions.unlisten(listener);
}

}  // namespace rrdk::mem
