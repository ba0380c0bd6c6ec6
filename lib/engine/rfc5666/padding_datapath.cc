#include <algorithm>
#include <cstring>

#include "engine/responder.h"
#include "engine/rfc5666/mode.h"

namespace rrdk::engine {

namespace {

uint32_t pad_at(uint64_t offset, uint32_t align) {
  return static_cast<uint32_t>(-offset & (align - 1));
}

// What an upper layer copied into the stream may be opaque data too. Returns the largest length
// that it may have; it must be below the threshold, since such data is not padded.
uint32_t longest_copied(std::span<const Piece> pieces) {
  uint32_t longest = 0;
  uint32_t run = 0;
  for (const Piece& piece : pieces) {
    run = piece.item ? 0 : run + piece.bytes.length;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace

Padding plan_padding(std::span<const Piece> pieces, uint32_t align, uint32_t smallest,
                     uint32_t header_length) noexcept {
  uint32_t threshold = std::max({smallest, longest_copied(pieces) + 1, 1u});
  Padding padding;
  uint64_t offset = header_length;
  for (const Piece& piece : pieces) {
    if (piece.item && piece.bytes.length >= threshold) {
      uint32_t bytes = pad_at(offset, align);
      padding.threshold = threshold;
      padding.bytes += bytes;
      offset += bytes;
    }
    offset += piece.bytes.length + (piece.item ? xdr_pad(piece.bytes.length) : 0);
  }
  return padding;
}

bool gather_padded(SendPlan& plan, std::span<const Piece> pieces, uint32_t align,
                   const Padding& padding, uint32_t length, Memory& memory) noexcept {
  plan.copy = memory.get(length + padding.bytes);
  if (!plan.copy)
    return false;
  std::byte* to = plan.copy.data();
  uint64_t offset = plan.sges[0].length;
  for (const Piece& piece : pieces) {
    uint32_t before =
        piece.item && piece.bytes.length >= padding.threshold ? pad_at(offset, align) : 0;
    uint32_t after = piece.item ? xdr_pad(piece.bytes.length) : 0;
    std::memset(to, 0, before);
    to += before;
    for (const MemorySpan& run : piece.runs()) {
      std::memcpy(to, run.data, run.length);
      to += run.length;
    }
    std::memset(to, 0, after);
    to += after;
    offset += before + piece.bytes.length + after;
  }
  plan.sges[plan.num_sges++] = plan.copy.first(length + padding.bytes);
  return true;
}

// Data that was fetched by RDMA Read has no pads before it, and an invalid alignment is ignored.
OpaquePadding Responder::padding(const ServedCall& call) noexcept {
  if (call.part == nullptr)
    return {};
  const proto::Header& header = call.part->header;
  if (header.type != proto::MessageType::kMsgp || header.lists.num_reads != 0 ||
      !is_alignment(header.msgp_align))
    return {};
  ++common_.counters.rfc5666_padded_calls;
  auto header_length = static_cast<uint32_t>(call.inline_data - call.receive.data());
  return {header.msgp_align, header.msgp_thresh, header_length + call.inline_length};
}

}  // namespace rrdk::engine
