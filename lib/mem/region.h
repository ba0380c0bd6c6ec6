// The regions of a Memory as drivers see them: what to register, and what to share by descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

}  // namespace rrdk::mem
