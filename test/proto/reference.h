// The specification's own idea of a version 1 header: the codec that rpcgen makes from its XDR, and
// beside it, in the plainest words, the rules that XDR does not express.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "proto/codec.h"

namespace rrdk::proto {

struct ReferenceRead {
  uint32_t position;
  Segment segment;
};

struct ReferenceHeader {
  uint32_t length;  // that rpcgen's decoder used
  bool canonical;   // rpcgen's encoder gives the same bytes back: no boolean but 0 and 1
  uint32_t xid, version, credits, proc;
  uint32_t align, thresh;     // RDMA_MSGP
  uint32_t error, low, high;  // RDMA_ERROR
  std::vector<ReferenceRead> reads;
  std::vector<std::vector<Segment>> writes;
  std::optional<std::vector<Segment>> reply;
};

// Empty when rpcgen's decoder refuses.
std::optional<ReferenceHeader> reference_decode(std::span<const std::byte> message);

// rpcgen's encoding of one of our headers; ERR_CHUNK has its eight words.
std::vector<std::byte> reference_encode(const Header& header);

// All that is wrong with a header that rpcgen's decoder accepted. `behind` is how many bytes follow
// it.
std::set<Verdict> faults(const ReferenceHeader& header, size_t behind, Direction role,
                         const Limits& limits);

}  // namespace rrdk::proto
