#include "differential.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iomanip>
#include <map>
#include <sstream>

namespace rrdk::proto {

uint64_t number_of_headers() {
  const char* given = std::getenv("RRDK_HEADERS");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : RRDK_DEFAULT_HEADERS;
}

std::string hex(std::span<const std::byte> bytes) {
  std::ostringstream out;
  out << std::hex << std::setfill('0');
  for (size_t i = 0; i < bytes.size(); ++i)
    out << (i % 4 == 0 ? " " : "") << std::setw(2) << std::to_integer<int>(bytes[i]);
  return out.str();
}

namespace {

void expect_same_reads(const std::vector<ReferenceRead>& reads, const ChunkLists& ours) {
  // Entries with equal keys stay in the order in which they came.
  std::multimap<uint32_t, Segment> sorted;
  for (const ReferenceRead& read : reads)
    sorted.emplace(read.position, read.segment);
  auto expected = sorted.begin();
  uint64_t total = 0;
  for (size_t c = 0; c < ours.num_reads; ++c) {
    const ReadChunk& chunk = ours.reads[c];
    uint64_t length = 0;
    ASSERT_GT(chunk.count, 0);
    for (const Segment& s : ours.of(chunk)) {
      ASSERT_NE(expected, sorted.end());
      EXPECT_EQ(chunk.position, expected->first);
      EXPECT_EQ(s, expected->second);
      length += s.length;
      ++expected;
    }
    EXPECT_EQ(chunk.length, length);
    EXPECT_TRUE(c == 0 || ours.reads[c - 1].position < chunk.position) << "Position not grouped";
    total += length;
  }
  EXPECT_EQ(expected, sorted.end());
  EXPECT_EQ(ours.read_length, total);
}

void expect_same_chunk(const std::vector<Segment>& segments, const ChunkLists& ours,
                       const WriteChunk& chunk) {
  EXPECT_TRUE(std::ranges::equal(ours.of(chunk), segments));
  uint64_t length = 0;
  for (const Segment& s : segments)
    length += s.length;
  EXPECT_EQ(chunk.length, length);
}

}  // namespace

void expect_same_lists(const ReferenceHeader& reference, const ChunkLists& ours) {
  expect_same_reads(reference.reads, ours);
  ASSERT_EQ(ours.num_writes, reference.writes.size());
  size_t segments = reference.reads.size();
  for (size_t i = 0; i < ours.num_writes; ++i) {
    expect_same_chunk(reference.writes[i], ours, ours.writes[i]);
    segments += reference.writes[i].size();
  }
  ASSERT_EQ(ours.has_reply, reference.reply.has_value());
  if (ours.has_reply) {
    expect_same_chunk(*reference.reply, ours, ours.reply);
    segments += reference.reply->size();
  }
  EXPECT_EQ(ours.num_segments, segments);
}

}  // namespace rrdk::proto
