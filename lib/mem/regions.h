// The regions of a Memory: as drivers see them (what to register, and what to share by descriptor),
// and the table of them all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mem/region_bounds_datapath.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

struct Region {
  RegionId id;
  std::byte* base;
  size_t length;
  int fd;              // a memfd sealed with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_FUTURE_WRITE,
                       // owned by the Memory; -1: not shareable
  uint64_t fd_offset;  // of `base` within fd
};

// Told on the control thread when regions come and go; drivers register and deregister in it.
class RegionListener {
 public:
  virtual void region_added(const Region& region) = 0;
  virtual void region_removed(const Region& region) = 0;

 protected:
  ~RegionListener() = default;
};

// Calls region_added for each present region before it returns.
void listen_regions(Memory& memory, RegionListener& listener);
void unlisten_regions(Memory& memory, RegionListener& listener);

// The regions of one Memory, and who wants to know of them. Control path, one thread at a
// time, but for contains().
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
