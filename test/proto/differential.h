// Shared by the differential tests of all versions: the number of headers, and whether our decoder
// found the same lists as rpcgen's.
#pragma once

#include <string>

#include "reference.h"

namespace rrdk::proto {

// With this many headers or more, each kind of header is sure to occur.
constexpr uint64_t kManyHeaders = 100'000;
uint64_t number_of_headers();

std::string hex(std::span<const std::byte> bytes);

// The correct verdicts on a message, determined without our decoder.
struct Judgement {
  std::set<Verdict> verdicts;  // each of these is correct; kOk alone, or refusals
  std::optional<ReferenceHeader> reference;
};

void expect_same_lists(const ReferenceHeader& reference, const ChunkLists& ours);

constexpr Limits kWide = {kMaxSegments, kMaxReadChunks, kMaxWriteChunks,
                          kMaxSegments, ~uint64_t{0},   ~uint64_t{0}};
constexpr Limits kNarrow = {8, 2, 2, 12, 4096, 8192};

}  // namespace rrdk::proto
