// An independent implementation for headers: the codecs that rpcgen makes from the layouts in
// layouts.x (reference_codec.cc), and, written as plainly as possible, the rules that XDR does not
// express (reference_rules.cc).
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

struct ReferenceProperty {
  uint32_t id;
  std::vector<std::byte> data;
};

struct ReferenceHeader {
  uint32_t length;  // that rpcgen's decoder used
  bool canonical;   // rpcgen's encoder gives the same bytes back
  uint32_t xid, version, credits, proc;
  uint32_t align, thresh;                             // RDMA_MSGP
  uint32_t invalidate;                                // draft-04
  uint32_t error, low, high, maximum, index, needed;  // errors
  uint32_t option_type;                               // RDMA_OPTIONAL
  std::vector<std::byte> option;                      // its data
  std::vector<ReferenceProperty> set;                 // draft-04's properties
  // The number of properties, as in PropertyBody.
  std::vector<uint32_t> first, second;
  std::vector<ReferenceRead> reads;
  std::vector<std::vector<Segment>> writes;
  std::optional<std::vector<Segment>> reply;
  std::vector<std::byte> again;  // rpcgen's encoding of the result of its decoder
};

// Empty if rpcgen's decoder refuses.
std::optional<ReferenceHeader> reference_decode(Wire wire, std::span<const std::byte> message);

// rpcgen's encoding of one of our headers with lists or an error; version 1's ERR_CHUNK has its
// eight words.
std::vector<std::byte> reference_encode(const Header& header);

// All faults of a version 1 header that rpcgen's decoder accepted, any of which our decoder may
// name; empty if the header is correct. `behind` is how many bytes follow it. `role` is the
// direction of a message that does not state its own.
std::set<Verdict> faults(const ReferenceHeader& header, size_t behind, Direction role,
                         const Limits& limits);
// The same for version 2, where the order of checks is given (V2D4-ERR-18): only the faults that
// are found first.
std::set<Verdict> faults_of_version2(Wire wire, const ReferenceHeader& header,
                                     std::span<const std::byte> message, Direction role,
                                     const Limits& limits);

}  // namespace rrdk::proto
