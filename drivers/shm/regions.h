// Regions, our own and those that a peer shows: their locations, and how many a peer may have.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "drivers/shm/mapping.h"
#include "rrdk/memory.h"

namespace rrdk::shm {

// Regions by id: the location in this process of the bytes of a MemorySpan, or of a peer's message.

// The name of a region between the two ends of a connection. A device never reuses one.
using WireId = uint32_t;
constexpr WireId kNoWireId = kNoRegion;

struct RegionEntry {
  RegionId id = kNoRegion;  // for a peer's region: its wire id
  WireId wire_id = kNoWireId;
  std::byte* base = nullptr;
  uint64_t length = 0;
  std::shared_ptr<Mapping> mapping;  // for a peer's region
};

// Belongs to one thread. A lookup is an array access for the few regions that a connection uses.
class RegionTable {
 public:
  // Returns the address of [offset, offset + length) of region `id`; null if it is unknown or too
  // short.
  std::byte* at(RegionId id, uint64_t offset, uint64_t length) noexcept {
    const Hot& hot = find(id);
    if (hot.id != id || offset > hot.length || length > hot.length - offset)
      return nullptr;
    return hot.base + offset;
  }
  // The position of a span in its region; offset -1: in none.
  struct Place {
    int64_t offset = -1;
    WireId wire_id = kNoWireId;
  };
  Place place_of(const MemorySpan& span) noexcept {
    const Hot& hot = find(span.region);
    const auto offset = static_cast<uint64_t>(span.data - hot.base);
    if (hot.id != span.region || offset > hot.length || span.length > hot.length - offset)
      return {};
    return {static_cast<int64_t>(offset), hot.wire_id};
  }
  bool holds(const MemorySpan& span) noexcept { return place_of(span).offset >= 0; }
  bool has(RegionId id) noexcept { return id != kNoRegion && find(id).id == id; }

  void add(RegionEntry entry) {
    RRDK_ASSERT(entry.base != nullptr, entry.id);
    remove(entry.id);
    entries_.push_back(std::move(entry));
  }
  void remove(RegionId id) {
    hot_[id % kHot] = Hot{};
    std::erase_if(entries_, [id](const RegionEntry& e) { return e.id == id; });
  }
  const std::vector<RegionEntry>& entries() const noexcept { return entries_; }

 private:
  static constexpr size_t kHot = 16;
  struct Hot {
    RegionId id = kNoRegion;
    WireId wire_id = kNoWireId;
    std::byte* base = nullptr;
    uint64_t length = 0;
  };

  const Hot& find(RegionId id) noexcept {
    Hot& hot = hot_[id % kHot];
    if (hot.id != id) [[unlikely]] {
      auto it = std::ranges::find(entries_, id, &RegionEntry::id);
      if (it != entries_.end())
        hot = Hot{it->id, it->wire_id, it->base, it->length};
    }
    return hot;
  }

  std::array<Hot, kHot> hot_{};
  std::vector<RegionEntry> entries_;
};

// What a peer has reported about its regions, as recorded by the control path. The files in which
// they lie are mapped here, so their number and size are limited.

// The most regions of one connection. An honest end announces no more.
constexpr size_t kMaxPeerRegions = 256;
// Bytes of all files together, unless the address says otherwise (socket.h). This memory exists,
// and is not ours; page tables take a 512th of what is read. A listening end maps the memory of any
// peer that connects; a connecting end maps that of the server that it has chosen, and servers are
// large.
constexpr uint64_t kMemoryOfClient = uint64_t{4} << 30;
constexpr uint64_t kMemoryOfServer = uint64_t{1} << 40;

class PeerRegions {
 public:
  explicit PeerRegions(uint64_t most_bytes = 0) : most_bytes_(most_bytes) {}

  // Adds a region in `file`, or extends a known one. Errors: kNotAPeer (it is already known like
  // this, or there are too many), kLimit (too many bytes).
  Result<void> add(WireId id, const PeerFile& file);
  // Returns false if it is unknown.
  bool remove(WireId id);

 private:
  using FileId = std::pair<dev_t, ino_t>;
  struct File {
    uint64_t bytes = 0;  // as far as its regions reach
    uint32_t regions = 0;
  };
  struct Known {
    FileId file;
    uint64_t end;
  };
  Result<void> count(File& file, uint64_t end);

  uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  std::unordered_map<WireId, Known> regions_;
  std::map<FileId, File> files_;
};

}  // namespace rrdk::shm
