// The regions of one Memory, and who wants to know of them. Control path, one thread at a
// time, but for contains().
#pragma once

#include <cstdint>
#include <vector>

#include "mem/region.h"
#include "mem/region_bounds_datapath.h"

namespace rrdk::mem {

class RegionTable {
 public:
  // Gives `region` the lowest free id, so that ids index tables well, and tells the listeners.
  RegionId add(Region region);
  void remove(RegionId id);

  void listen(RegionListener& listener);
  void unlisten(RegionListener& listener);

  // Any thread.
  bool contains(const MemorySpan& span) const noexcept { return bounds_.contain(span); }
  bool is_shareable(RegionId id) const noexcept { return bounds_.is_shareable(id); }

  // How many there have been.
  uint64_t added() const noexcept { return added_; }

 private:
  std::vector<Region> regions_;  // by id; a free place has the id kNoRegion
  std::vector<RegionListener*> listeners_;
  RegionBounds bounds_;
  uint64_t added_ = 0;
};

}  // namespace rrdk::mem
