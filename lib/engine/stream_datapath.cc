#include "engine/stream_datapath.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace rrdk::engine {

MemorySpan StreamCursor::next(uint32_t most) noexcept {
  RRDK_ASSERT(most != 0);
  for (; piece_ != end_; ++piece_, offset_ = 0) {
    const MemorySpan& bytes = piece_->bytes;
    if (offset_ == 0 && piece_->eligible && is_moved(moved_, eligible_++))
      continue;
    if (offset_ < bytes.length) {
      uint32_t length = std::min(most, bytes.length - offset_);
      MemorySpan run{bytes.data + offset_, length, bytes.region};
      offset_ += length;
      return run;
    }
    uint32_t padded = bytes.length + (piece_->item ? xdr_pad(bytes.length) : 0);
    if (offset_ < padded) {
      uint32_t length = std::min(most, padded - offset_);
      offset_ += length;
      return {zeros_.data, length, zeros_.region};
    }
  }
  return {};
}

uint64_t reduced_length(std::span<const Piece> pieces, uint64_t stream_length,
                        MovedItems moved) noexcept {
  uint32_t eligible = 0;
  for (const Piece& piece : pieces) {
    if (moved == 0)
      break;
    if (!piece.eligible)
      continue;
    if (is_moved(moved, eligible++))
      stream_length -= uint64_t{piece.bytes.length} + xdr_pad(piece.bytes.length);
  }
  return stream_length;
}

bool gather(SendPlan& plan, StreamCursor stream, uint32_t length, uint32_t max_sges,
            Memory& memory) noexcept {
  RRDK_ASSERT(plan.num_sges < max_sges, plan.num_sges, max_sges);
  StreamCursor from_start = stream;
  uint32_t left = length;
  uint8_t first = plan.num_sges;
  while (left != 0 && plan.num_sges < max_sges) {
    MemorySpan run = stream.next(left);
    if (run.length == 0)
      return false;
    plan.sges[plan.num_sges++] = run;
    left -= run.length;
  }
  if (left == 0) [[likely]]
    return true;
  plan.num_sges = first;
  plan.copy = memory.get(length);
  if (!plan.copy)
    return false;
  for (uint32_t done = 0; done != length;) {
    MemorySpan run = from_start.next(length - done);
    if (run.length == 0)
      return false;
    std::memcpy(plan.copy.data() + done, run.data, run.length);
    done += run.length;
  }
  plan.sges[plan.num_sges++] = plan.copy.first(length);
  return true;
}

}  // namespace rrdk::engine
