// The regions of a Memory: as drivers see them (what to register, and what to share by descriptor),
// and the table of all regions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
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
  // How many bytes from `base` on have their pages. kWhole: the region is used as a whole, and its
  // pages may be allocated when they are first touched.
  static constexpr uint64_t kWhole = UINT64_MAX;
  uint64_t filled = kWhole;
};

// Called when regions come and go; drivers then register and deregister them. The regions of
// buffers appear and are filled while calls are made, on any thread that needs a buffer. The
// functions are called one at a time, with locks of the Memory held, so they must not take buffers.
class RegionListener {
 public:
  virtual void region_added(const Region& region) = 0;
  virtual void region_removed(const Region& region) = 0;
  // `filled` has increased; buffers beyond its old value come next.
  virtual void region_filled(const Region& /*region*/) {}

 protected:
  ~RegionListener() = default;
};

// Calls region_added for each present region before it returns.
void listen_regions(Memory& memory, RegionListener& listener);
void unlisten_regions(Memory& memory, RegionListener& listener);

// The regions of one Memory, and the listeners. Any thread.
class RegionTable {
 public:
  // Gives `region` the lowest free id, so that ids index tables well, and calls the listeners.
  RegionId add(Region region);
  void remove(RegionId id);
  // `bytes` of the region have their pages now.
  void fill(RegionId id, uint64_t bytes);

  void listen(RegionListener& listener);
  void unlisten(RegionListener& listener);

  // Without a lock.
  bool contains(const MemorySpan& span) const noexcept { return bounds_.contain(span); }
  bool is_shareable(RegionId id) const noexcept { return bounds_.is_shareable(id); }

  // How many regions there have been.
  uint64_t added() const noexcept { return added_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::vector<Region> regions_;  // by id; a free entry has the id kNoRegion
  std::vector<RegionListener*> listeners_;
  RegionBounds bounds_;
  std::atomic<uint64_t> added_ = 0;
};

}  // namespace rrdk::mem
