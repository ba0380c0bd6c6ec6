#include "engine/stream_datapath.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace rrdk::engine {

// Whether the piece, which begins here, has moved.
bool StreamCursor::skips() noexcept {
  if (!piece_->eligible)
    return false;
  const uint32_t index = eligible_;
  eligible_ = static_cast<uint16_t>(std::min(index + 1, kMaxMovedItems));
  return is_moved(moved_, index);
}

MemorySpan StreamCursor::next(uint32_t most) noexcept {
  RRDK_ASSERT(most != 0);
  for (; piece_ != end_; ++piece_, run_ = 0, offset_ = 0) {
    if (run_ == 0 && offset_ == 0 && skips())
      continue;
    for (std::span<const MemorySpan> runs = piece_->runs(); run_ != runs.size();
         ++run_, offset_ = 0) {
      const MemorySpan& run = runs[run_];
      if (offset_ == run.length)
        continue;
      uint32_t length = std::min(most, run.length - offset_);
      MemorySpan part{run.data + offset_, length, run.region};
      offset_ += length;
      return part;
    }
    uint32_t pad = piece_->item ? xdr_pad(piece_->bytes.length) : 0;
    if (offset_ < pad) {
      uint32_t length = std::min(most, pad - offset_);
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
