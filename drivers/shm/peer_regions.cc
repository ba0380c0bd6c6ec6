#include "drivers/shm/peer_regions.h"

namespace rrdk::shm {

bool PeerRegions::add(WireId id, uint64_t bytes) {
  if (bytes_.size() >= kMaxPeerRegions || bytes > kMaxPeerRegionBytes - total_)
    return false;
  if (!bytes_.emplace(id, bytes).second)
    return false;
  total_ += bytes;
  return true;
}

bool PeerRegions::remove(WireId id) {
  auto found = bytes_.find(id);
  if (found == bytes_.end())
    return false;
  total_ -= found->second;
  bytes_.erase(found);
  return true;
}

}  // namespace rrdk::shm
