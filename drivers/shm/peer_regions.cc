#include "drivers/shm/peer_regions.h"

#include <string>

namespace rrdk::shm {

Result<void> PeerRegions::add(WireId id, const PeerFile& file) {
  if (regions_.size() >= kMaxPeerRegions || regions_.contains(id))
    return fail(Errc::kNotAPeer, "the peer names too many regions, or one twice");
  File& known = files_[file.id()];
  if (known.regions == 0) {
    if (file.bytes > most_bytes_ - bytes_) {
      files_.erase(file.id());
      return fail(Errc::kLimit, "the peer's memory is more than the " +
                                    std::to_string(most_bytes_ >> 20) +
                                    " MiB that a connection may have mapped here: shm:PATH?"
                                    "peer_memory=SIZE allows more");
    }
    known.bytes = file.bytes;
    bytes_ += file.bytes;
  }
  ++known.regions;
  regions_.emplace(id, file.id());
  return {};
}

bool PeerRegions::remove(WireId id) {
  const auto found = regions_.find(id);
  if (found == regions_.end())
    return false;
  const auto file = files_.find(found->second);
  regions_.erase(found);
  if (--file->second.regions == 0) {
    bytes_ -= file->second.bytes;
    files_.erase(file);
  }
  return true;
}

}  // namespace rrdk::shm
