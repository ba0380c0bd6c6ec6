// One end's limits on what a header may name: a header beyond them is refused, never truncated.
#include <gtest/gtest.h>

#include "messages.h"

namespace rrdk::proto {
namespace {

// `segments` Read segments over `positions` Positions, eight bytes in all for each.
Words reads(uint32_t positions, uint32_t segments_each) {
  Words out;
  for (uint32_t p = 0; p < positions; ++p) {
    for (uint32_t s = 0; s < segments_each; ++s)
      out = join({out, read_entry(4 + 8 * p, s == 0 ? 8 : 0)});
  }
  return out;
}

Verdict verdict(const Words& read_list, const Words& write_list, const Words& reply,
                const Limits& limits) {
  return Decoding(join({fixed(kMsgProc), read_list, {0}, write_list, {0}, reply, zeros(64)}),
                  Direction::kCall, limits)
      .verdict();
}

Words repeat(uint32_t n, const Words& words) {
  Words out;
  for (uint32_t i = 0; i < n; ++i)
    out = join({out, words});
  return out;
}

// Shows: V1-CHUNK-15
TEST(Version1Limits, SegmentsOfTheReadList) {
  Limits limits;
  EXPECT_EQ(verdict(reads(1, 128), {}, {0}, limits), Verdict::kOk);
  EXPECT_EQ(verdict(reads(1, 129), {}, {0}, limits), Verdict::kTooManySegments);
}

// Shows: V1-CHUNK-15, V1-RL-12
TEST(Version1Limits, PositionsOfTheReadList) {
  Limits limits;
  EXPECT_EQ(verdict(reads(16, 2), {}, {0}, limits), Verdict::kOk);
  EXPECT_EQ(verdict(reads(17, 1), {}, {0}, limits), Verdict::kTooManyReadChunks);
}

// Shows: V1-WL-18
TEST(Version1Limits, ChunksOfTheWriteList) {
  Limits limits;
  EXPECT_EQ(verdict({}, repeat(16, chunk({4})), {0}, limits), Verdict::kOk);
  EXPECT_EQ(verdict({}, repeat(17, chunk({4})), {0}, limits), Verdict::kTooManyWriteChunks);
  EXPECT_EQ(verdict({}, repeat(17, chunk({})), {0}, limits), Verdict::kTooManyWriteChunks);
}

// Shows: V1-CHUNK-15
TEST(Version1Limits, SegmentsOfAllListsTogether) {
  Limits limits;
  limits.segments = 10;
  auto some = [](uint32_t n) { return chunk(std::vector<uint32_t>(n, 4)); };
  EXPECT_EQ(verdict(reads(1, 3), some(4), some(3), limits), Verdict::kOk);
  EXPECT_EQ(verdict(reads(1, 3), some(4), some(4), limits), Verdict::kTooManySegments);
  EXPECT_EQ(verdict(reads(1, 3), some(8), {0}, limits), Verdict::kTooManySegments);
  EXPECT_EQ(verdict(reads(1, 11), {}, {0}, limits), Verdict::kTooManySegments);
}

// Shows: V1-CHUNK-12, V1-LONG-16
TEST(Version1Limits, BytesOfTheReadList) {
  Limits limits;
  limits.read_bytes = 1000;
  EXPECT_EQ(verdict(join({read_entry(8, 600), read_entry(8, 400)}), {}, {0}, limits), Verdict::kOk);
  EXPECT_EQ(verdict(join({read_entry(8, 600), read_entry(8, 401)}), {}, {0}, limits),
            Verdict::kTooManyBytes);
  Words gigabyte = join({fixed(kNoMsgProc), read_entry(0, 1u << 30), {0, 0, 0}});
  EXPECT_EQ(Decoding(gigabyte).verdict(), Verdict::kTooManyBytes);
}

// Shows: V1-CHUNK-12
TEST(Version1Limits, SumsDoNotWrapAround) {
  Words wrapping = join({read_entry(8, 0xffffffff), read_entry(8, 2)});
  EXPECT_EQ(verdict(wrapping, {}, {0}, {}), Verdict::kTooManyBytes);
  EXPECT_EQ(verdict({}, chunk({0xffffffff, 2}), {0}, {}), Verdict::kTooManyBytes);
  EXPECT_EQ(verdict({}, join({chunk({0xffffffff}), chunk({2})}), {0}, {}), Verdict::kTooManyBytes);
  EXPECT_EQ(verdict({}, {}, chunk({0xffffffff, 2}), {}), Verdict::kTooManyBytes);
}

// Shows: V1-CHUNK-12
TEST(Version1Limits, BytesOfTheWriteListAndOfTheReplyChunkAreLimitedEach) {
  Limits limits;
  limits.write_bytes = 1000;
  EXPECT_EQ(verdict({}, join({chunk({600}), chunk({400})}), chunk({1000}), limits), Verdict::kOk);
  EXPECT_EQ(verdict({}, join({chunk({600}), chunk({401})}), {0}, limits), Verdict::kTooManyBytes);
  EXPECT_EQ(verdict({}, {}, chunk({1000, 1}), limits), Verdict::kTooManyBytes);
}

// Shows: V1-CHUNK-15, V1-INLINE-12
TEST(Version1Limits, DefaultsTakeWhatASendOf1024BytesCanName) {
  EXPECT_EQ(verdict(reads(1, 41), {}, {0}, {}), Verdict::kOk);
  EXPECT_EQ(verdict({}, chunk(std::vector<uint32_t>(61, 4)), {0}, {}), Verdict::kOk);
  EXPECT_EQ(verdict({}, {}, chunk(std::vector<uint32_t>(62, 4)), {}), Verdict::kOk);
}

// Shows: V1-CHUNK-15
TEST(Version1Limits, HeaderCapacityIsTheFinalLimit) {
  constexpr Limits kAbove = {65535, 65535, 65535, 65535, ~uint64_t{0}, ~uint64_t{0}};
  auto some = [](uint32_t n) { return chunk(std::vector<uint32_t>(n, 4)); };
  EXPECT_EQ(verdict(reads(1, kMaxSegments), {}, {0}, kAbove), Verdict::kOk);
  EXPECT_EQ(verdict(reads(1, kMaxSegments + 1), {}, {0}, kAbove), Verdict::kTooManySegments);
  EXPECT_EQ(verdict({}, some(kMaxSegments + 1), {0}, kAbove), Verdict::kTooManySegments);
  EXPECT_EQ(verdict({}, {}, some(kMaxSegments + 1), kAbove), Verdict::kTooManySegments);
  EXPECT_EQ(verdict(reads(kMaxReadChunks, 1), {}, {0}, kAbove), Verdict::kOk);
  EXPECT_EQ(verdict(reads(kMaxReadChunks + 1, 1), {}, {0}, kAbove), Verdict::kTooManyReadChunks);
  EXPECT_EQ(verdict({}, repeat(kMaxWriteChunks, chunk({})), {0}, kAbove), Verdict::kOk);
  EXPECT_EQ(verdict({}, repeat(kMaxWriteChunks + 1, chunk({})), {0}, kAbove),
            Verdict::kTooManyWriteChunks);
}

}  // namespace
}  // namespace rrdk::proto
