// The bounds of each region. Any thread can read them while regions come and go.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "rrdk/memory.h"

namespace rrdk::mem {

class RegionBounds {
 public:
  // Whether all bytes of the span are inside the region that it names. An empty span is inside any
  // region.
  bool contain(const MemorySpan& span) const noexcept {
    if (span.length == 0)
      return true;
    const Bounds* bounds = find(span.region);
    if (bounds == nullptr)
      return false;
    size_t length = bounds->length.load(std::memory_order_acquire);
    auto offset =
        reinterpret_cast<uintptr_t>(span.data) - bounds->base.load(std::memory_order_relaxed);
    return offset <= length && span.length <= length - offset;
  }

  // Whether another process can map the region, which must exist.
  bool is_shareable(RegionId id) const noexcept {
    const Bounds* bounds = find(id);
    return bounds != nullptr && bounds->shareable.load(std::memory_order_relaxed);
  }

  // Control path, one thread at a time (regions.cc).
  void set(RegionId id, const std::byte* base, size_t length, bool shareable);
  void clear(RegionId id) noexcept;

 private:
  struct Bounds {
    std::atomic<uintptr_t> base = 0;
    std::atomic<size_t> length = 0;  // 0: there is no such region
    std::atomic<bool> shareable = false;
  };
  // Block b has kFirst << b entries and never moves, so readers need no lock.
  static constexpr uint32_t kFirst = 64;
  static constexpr uint32_t kBlocks = 27;  // enough for every id

  static uint32_t block_of(RegionId id) noexcept {
    return static_cast<uint32_t>(std::bit_width(id / kFirst + uint64_t{1})) - 1;
  }
  static uint32_t place_of(RegionId id, uint32_t block) noexcept {
    return id - kFirst * ((uint32_t{1} << block) - 1);
  }
  Bounds* find(RegionId id) const noexcept {
    if (id == kNoRegion)
      return nullptr;
    uint32_t block = block_of(id);
    Bounds* entries = published_[block].load(std::memory_order_acquire);
    return entries != nullptr ? &entries[place_of(id, block)] : nullptr;
  }

  std::array<std::atomic<Bounds*>, kBlocks> published_ = {};
  std::array<std::unique_ptr<Bounds[]>, kBlocks> blocks_;
};

}  // namespace rrdk::mem
