// Data that is sent out of several pieces of memory (--pieces), as a cache keeps it in pages.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "pattern.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::testrpc {

// The list is the thread's: a thread has one Pieces at a time, and its entries are not initialised
// for each call.
class Pieces {
 public:
  static constexpr uint32_t kMost = Encoder::kMaxItemSegments;

  // The memory in `count` pieces of at least one byte each. None continues the one before: the last
  // piece comes first in memory.
  Pieces(MemorySpan memory, uint32_t count) {
    count_ = std::clamp(std::min(count, memory.length), 1u, kMost);
    const uint32_t each = memory.length / count_;
    std::byte* at = memory.data + memory.length;
    for (uint32_t i = 0; i != count_; ++i) {
      const uint32_t length = i + 1 < count_ ? each : static_cast<uint32_t>(at - memory.data);
      at -= length;
      pieces[i] = {at, length, memory.region};
    }
  }
  // What they hold: the pattern from `offset` on.
  void fill(uint64_t offset) const noexcept {
    for (const MemorySpan& piece : all()) {
      fill_pattern({piece.data, piece.length}, offset);
      offset += piece.length;
    }
  }
  uint32_t crc() const noexcept {
    std::array<Fragment, kMost> fragments;
    uint32_t length = 0;
    for (uint32_t i = 0; i != count_; ++i) {
      fragments[i] = {pieces[i].data, pieces[i].length};
      length += pieces[i].length;
    }
    return crc32c(ItemView(std::span(fragments).first(count_), 0, length));
  }
  void put(Encoder& out, Ddp ddp) const noexcept { out.put_item(all(), ddp); }

 private:
  std::span<const MemorySpan> all() const noexcept { return std::span(pieces).first(count_); }

  uint32_t count_;
  inline static thread_local std::array<MemorySpan, kMost> pieces;
};

}  // namespace rrdk::testrpc
