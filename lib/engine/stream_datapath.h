// The stream of a Message that is being sent, without the items that were moved into chunks.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "fabric/work.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

// Which eligible items of a message move in chunks: bit k for the k-th. Later ones never do.
using MovedItems = uint64_t;
constexpr uint32_t kMaxMovedItems = 64;

constexpr bool is_moved(MovedItems moved, uint32_t eligible_index) {
  return eligible_index < kMaxMovedItems && ((moved >> eligible_index) & 1) != 0;
}

// Walks the bytes that stay in the stream, XDR pads of items included (V1-PAD-07: those of moved
// items are left out).
class StreamCursor {
 public:
  StreamCursor() = default;
  // `zeros`: at least three registered zero bytes, for pads.
  StreamCursor(std::span<const Piece> pieces, MovedItems moved, MemorySpan zeros) noexcept
      : piece_(pieces.data()), end_(pieces.data() + pieces.size()), moved_(moved), zeros_(zeros) {}

  // The next run of at most `most` bytes; an empty span at the end.
  MemorySpan next(uint32_t most) noexcept;

 private:
  const Piece* piece_ = nullptr;
  const Piece* end_ = nullptr;
  MovedItems moved_ = 0;
  uint32_t eligible_ = 0;  // index of the next eligible item
  uint32_t offset_ = 0;    // into *piece_, its pad counted
  MemorySpan zeros_;
};

// Bytes that StreamCursor yields, of a stream that has `stream_length` in all.
uint64_t reduced_length(std::span<const Piece> pieces, uint64_t stream_length,
                        MovedItems moved) noexcept;

// What one Send gathers: the transport header, then the reduced stream.
struct SendPlan {
  std::array<MemorySpan, fabric::kMaxSges> sges;
  uint8_t num_sges = 0;
  uint32_t invalidate_key = 0;  // 0: a plain Send
  Buffer header;                // when it does not fit the room that every call has
  Buffer copy;                  // of the stream, when it lies in too many pieces

  void clear() noexcept {
    num_sges = 0;
    invalidate_key = 0;
    header.reset();
    copy.reset();
  }
  std::span<const MemorySpan> spans() const noexcept { return {sges.data(), num_sges}; }
  uint64_t length() const noexcept {
    uint64_t length = 0;
    for (const MemorySpan& span : spans())
      length += span.length;
    return length;
  }
  void fill(fabric::SendWr& wr) const noexcept {
    RRDK_ASSERT(num_sges != 0);
    wr.num_sges = num_sges;
    for (uint32_t i = 0; i < num_sges; ++i)
      wr.sges[i] = sges[i];
  }
};

// Whether a transport header and a whole stream are at most `most` runs of bytes.
inline bool fits_sges(std::span<const Piece> pieces, size_t most) noexcept {
  size_t runs = 1 + pieces.size();
  if (runs > most)
    return false;
  for (const Piece& piece : pieces)
    runs += piece.item && xdr_pad(piece.bytes.length) != 0;
  return runs <= most;
}

// Names these runs, of which there are few enough. `zeros`: as StreamCursor's.
inline uint8_t name_runs(const MemorySpan& header, std::span<const Piece> pieces,
                         const MemorySpan& zeros,
                         std::array<MemorySpan, fabric::kMaxSges>& sges) noexcept {
  uint8_t runs = 0;
  sges[runs++] = header;
  for (const Piece& piece : pieces) {
    if (piece.bytes.length != 0)
      sges[runs++] = piece.bytes;
    if (const uint32_t pad = piece.item ? xdr_pad(piece.bytes.length) : 0; pad != 0)
      sges[runs++] = {zeros.data, pad, zeros.region};
  }
  RRDK_ASSERT(runs <= sges.size(), runs);
  return runs;
}

// Adds the reduced stream of `length` bytes to the plan, by reference if it lies in few enough
// pieces, else as a copy. False: no buffer for the copy, or the stream is shorter than it says.
bool gather(SendPlan& plan, StreamCursor stream, uint32_t length, uint32_t max_sges,
            Memory& memory) noexcept;

}  // namespace rrdk::engine
