// What a peer has told of its regions, as the control path keeps count of it. Each is a mapping of
// ours, so their number and size are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "drivers/shm/region_table.h"

namespace rrdk::shm {

// Of one connection. An honest end announces no more.
constexpr size_t kMaxPeerRegions = 256;
constexpr uint64_t kMaxPeerRegionBytes = uint64_t{1} << 40;

class PeerRegions {
 public:
  // False: it is known already, or there are too many, or too many bytes.
  bool add(WireId id, uint64_t bytes);
  // False: unknown.
  bool remove(WireId id);

 private:
  std::unordered_map<WireId, uint64_t> bytes_;
  uint64_t total_ = 0;
};

}  // namespace rrdk::shm
