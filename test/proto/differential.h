// What the differential tests of all versions share: how many headers there are, and whether the
// lists that our decoder found are those that rpcgen's found.
#pragma once

#include <string>

#include "reference.h"

namespace rrdk::proto {

// In so many headers, or more, each kind of header is sure to come up.
constexpr uint64_t kManyHeaders = 100'000;
uint64_t number_of_headers();

std::string hex(std::span<const std::byte> bytes);

// What the message is, judged without our decoder.
struct Judgement {
  std::set<Verdict> verdicts;  // any of these is right; kOk alone, or refusals
  std::optional<ReferenceHeader> reference;
};

void expect_same_lists(const ReferenceHeader& reference, const ChunkLists& ours);

constexpr Limits kWide = {kMaxSegments, kMaxReadChunks, kMaxWriteChunks,
                          kMaxSegments, ~uint64_t{0},   ~uint64_t{0}};
constexpr Limits kNarrow = {8, 2, 2, 12, 4096, 8192};

}  // namespace rrdk::proto
