// What a peer has told of its regions, as the control path keeps count of it. The files in which
// they lie are mapped here, so their number and size are bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "drivers/shm/mapping.h"
#include "drivers/shm/region_table.h"

namespace rrdk::shm {

// Of one connection. An honest end announces no more.
constexpr size_t kMaxPeerRegions = 256;
// Bytes of all files together, unless the address says otherwise (socket.h). All of it is memory
// that is there, and not ours; page tables take a part in 512 of what is read. A listening end maps
// whoever comes; a connecting one maps the server that it has chosen, and servers are large.
constexpr uint64_t kMemoryOfClient = uint64_t{4} << 30;
constexpr uint64_t kMemoryOfServer = uint64_t{1} << 40;

class PeerRegions {
 public:
  explicit PeerRegions(uint64_t most_bytes = 0) : most_bytes_(most_bytes) {}

  // A region that lies in `file`. Errors: kNotAPeer (it is known already, or there are too many),
  // kLimit (too many bytes).
  Result<void> add(WireId id, const PeerFile& file);
  // False: unknown.
  bool remove(WireId id);

 private:
  using FileId = std::pair<dev_t, ino_t>;
  struct File {
    uint64_t bytes = 0;
    uint32_t regions = 0;
  };

  uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  std::unordered_map<WireId, FileId> regions_;
  std::map<FileId, File> files_;
};

}  // namespace rrdk::shm
