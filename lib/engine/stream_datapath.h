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

// The eligible items of a message that move in chunks: bit k stands for the k-th item. Items beyond
// the last bit never move.
using MovedItems = uint64_t;
constexpr uint32_t kMaxMovedItems = 64;

constexpr bool is_moved(MovedItems moved, uint32_t eligible_index) {
  return eligible_index < kMaxMovedItems && ((moved >> eligible_index) & 1) != 0;
}

// Walks the bytes that stay in the stream. They include the items' XDR pads, but not those of moved
// items (V1-PAD-07).
class StreamCursor {
 public:
  StreamCursor() = default;
  // `zeros` must be at least three registered zero bytes; pads are taken from it.
  StreamCursor(std::span<const Piece> pieces, MovedItems moved, MemorySpan zeros) noexcept
      : piece_(pieces.data()), end_(pieces.data() + pieces.size()), moved_(moved), zeros_(zeros) {}

  // Returns the next run of at most `most` bytes; empty at the end.
  MemorySpan next(uint32_t most) noexcept;

 private:
  bool skips() noexcept;
  const Piece* piece_ = nullptr;
  const Piece* end_ = nullptr;
  MovedItems moved_ = 0;
  uint16_t eligible_ = 0;  // index of the next eligible item, up to the last that may move
  uint16_t run_ = 0;       // of *piece_; the pad comes after the last one
  uint32_t offset_ = 0;    // into that run, or the pad
  MemorySpan zeros_;
};

// Returns the number of bytes that StreamCursor yields for a stream of `stream_length` bytes.
uint64_t reduced_length(std::span<const Piece> pieces, uint64_t stream_length,
                        MovedItems moved) noexcept;

// What one Send gathers: the transport header, then the reduced stream.
struct SendPlan {
  std::array<MemorySpan, fabric::kMaxSges> sges;
  uint8_t num_sges = 0;
  uint32_t invalidate_key = 0;  // 0: a plain Send
  Buffer header;                // used if the header does not fit the buffer that every call has
  Buffer copy;                  // a copy of the stream, used if that lies in too many pieces

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

// Returns whether a transport header and a whole stream take at most `most` runs of bytes.
inline bool fits_sges(std::span<const Piece> pieces, size_t most) noexcept {
  size_t runs = 1 + pieces.size();
  if (runs > most)
    return false;
  for (const Piece& piece : pieces) {
    runs += piece.item && xdr_pad(piece.bytes.length) != 0;
    runs += piece.scattered() ? piece.segments - 1u : 0;
  }
  return runs <= most;
}

// Lists these runs; there must be few enough. `zeros` is as for StreamCursor.
inline uint8_t name_runs(const MemorySpan& header, std::span<const Piece> pieces,
                         const MemorySpan& zeros,
                         std::array<MemorySpan, fabric::kMaxSges>& sges) noexcept {
  uint8_t runs = 0;
  sges[runs++] = header;
  for (const Piece& piece : pieces) {
    for (const MemorySpan& run : piece.runs()) {
      if (run.length != 0)
        sges[runs++] = run;
    }
    if (const uint32_t pad = piece.item ? xdr_pad(piece.bytes.length) : 0; pad != 0)
      sges[runs++] = {zeros.data, pad, zeros.region};
  }
  RRDK_ASSERT(runs <= sges.size(), runs);
  return runs;
}

// Adds the reduced stream of `length` bytes to the plan: by reference if it lies in few enough
// pieces, otherwise as a copy. Returns false if there is no buffer for the copy, or if the stream
// is shorter than `length`.
bool gather(SendPlan& plan, StreamCursor stream, uint32_t length, uint32_t max_sges,
            Memory& memory) noexcept;

}  // namespace rrdk::engine
