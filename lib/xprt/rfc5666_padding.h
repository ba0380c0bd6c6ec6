// Padding of inline data (RFC 5666 section 3.9): RDMA_MSGP. What that document leaves open is
// defined in doc/compat-rfc5666.md.
#pragma once

#include <cstdint>
#include <span>

#include "rrdk/memory.h"
#include "rrdk/xdr.h"
#include "xprt/stream_datapath.h"

namespace rrdk::xprt {

constexpr uint32_t kMsgpWords = 8;  // bytes of rdma_align and rdma_thresh
constexpr uint32_t kLargestAlign = 4096;

// Alignments that mean something: others are taken for none (V1-CCP-16).
constexpr bool is_alignment(uint32_t align) noexcept {
  return align > 4 && align <= kLargestAlign && (align & (align - 1)) == 0;
}

struct Padding {
  uint32_t threshold = 0;  // rdma_thresh; 0: nothing is padded
  uint32_t bytes = 0;      // of all pads
};

// What a call needs whose stream begins `header_length` bytes into the Send and goes whole. Items
// of `smallest` bytes and more are padded, as far as the receiver can tell them from what was
// copied.
Padding plan_padding(std::span<const Piece> pieces, uint32_t align, uint32_t smallest,
                     uint32_t header_length) noexcept;

// Adds the stream of `length` bytes with its pads to the plan, as a copy; the plan has the header.
// False: no buffer.
bool gather_padded(SendPlan& plan, std::span<const Piece> pieces, uint32_t align,
                   const Padding& padding, uint32_t length, Memory& memory) noexcept;

}  // namespace rrdk::xprt
