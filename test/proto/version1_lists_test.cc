// The layout of the three lists: RFC 5666 section 4.3.
#include <gtest/gtest.h>

#include "messages.h"

namespace rrdk::proto {
namespace {

// An RDMA_MSG with these lists and `inline_words` behind.
Words msg(const Words& reads, const Words& writes, const Words& reply, size_t inline_words = 64) {
  return join({fixed(kMsgProc), reads, {0}, writes, {0}, reply, zeros(inline_words)});
}
const Words kNoReply = {0};

void expect_round_trip(const Words& words, const Decoding& d) {
  Bytes header = to_bytes(words);
  header.resize(d.decoded.header_length);
  EXPECT_EQ(encoded(d.header), header);
}

// Shows: V1-HDR-08, V1-INLINE-12
TEST(Version1Lists, ReadListOfAnyLengthRoundTrips) {
  for (uint32_t n : {0u, 1u, 2u, 41u}) {
    Words reads;
    for (uint32_t i = 0; i < n; ++i)
      reads = join({reads, read_entry(40, 100 + i, i)});
    Words words = msg(reads, {}, kNoReply);
    Decoding d(words);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.lists.num_segments, n);
    EXPECT_EQ(d.decoded.header_length, 28 + 24 * n);
    expect_round_trip(words, d);
  }
}

// Shows: V1-HDR-09, V1-WL-19
TEST(Version1Lists, WriteListOfAnyLengthRoundTrips) {
  const std::vector<std::vector<uint32_t>> shapes[] = {
      {}, {{100}}, {{100, 200, 300}, {5}, {6, 7}}, {std::vector<uint32_t>(61, 16)}};
  for (const auto& shape : shapes) {
    Words writes;
    for (const std::vector<uint32_t>& lengths : shape)
      writes = join({writes, chunk(lengths)});
    Words words = msg({}, writes, kNoReply);
    Decoding d(words);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    ASSERT_EQ(d.header.lists.num_writes, shape.size());
    for (size_t i = 0; i < shape.size(); ++i) {
      const WriteChunk& c = d.header.lists.writes[i];
      ASSERT_EQ(c.count, shape[i].size());
      uint64_t length = 0;
      for (size_t s = 0; s < shape[i].size(); ++s) {
        EXPECT_EQ(d.header.lists.of(c)[s], (Segment{9, shape[i][s], 0x2000}));
        length += shape[i][s];
      }
      EXPECT_EQ(c.length, length);
    }
    expect_round_trip(words, d);
  }
}

// Shows: V1-HDR-10, V1-RC-01, V1-RC-16
TEST(Version1Lists, ReplyChunkComesLastAndHasNoTerminator) {
  for (size_t segments : {1u, 8u, 62u}) {
    Words words = msg({}, {}, chunk(std::vector<uint32_t>(segments, 50)));
    Decoding d(words);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    ASSERT_TRUE(d.header.lists.has_reply);
    EXPECT_EQ(d.header.lists.reply.count, segments);
    EXPECT_EQ(d.header.lists.reply.length, 50 * segments);
    EXPECT_EQ(d.decoded.header_length, 28 + 4 + 16 * segments);
    expect_round_trip(words, d);
  }
}

// Shows: V1-RC-16, V1-CHUNK-11
TEST(Version1Lists, AllCombinationsOfListsRoundTrip) {
  for (unsigned has = 0; has < 8; ++has) {
    Words words = msg(has & 1 ? read_entry(8, 4, 1) : Words{}, has & 2 ? chunk({10, 20}) : Words{},
                      has & 4 ? chunk({30}) : kNoReply);
    Decoding d(words);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.lists.num_reads, has & 1 ? 1 : 0);
    EXPECT_EQ(d.header.lists.num_writes, has & 2 ? 1 : 0);
    EXPECT_EQ(d.header.lists.has_reply, (has & 4) != 0);
    expect_round_trip(words, d);
  }
}

// Shows: V1-HDR-11, V1-CHUNK-06, V1-MEM-01
TEST(Version1Lists, SegmentIsHandleLengthAndOffsetMostSignificantFirst) {
  Words words = msg({}, {1, 1, 0x11223344, 0x55667788, 0x01234567, 0x89abcdef}, kNoReply);
  Limits limits;
  limits.write_bytes = ~uint64_t{0};
  Decoding d(words, Direction::kCall, limits);
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  const Segment& s = d.header.lists.segments[0];
  EXPECT_EQ(s.handle, 0x11223344u);
  EXPECT_EQ(s.length, 0x55667788u);
  EXPECT_EQ(s.offset, 0x0123456789abcdefu);
  expect_round_trip(words, d);
  Bytes offset = encoded(d.header);
  for (unsigned i = 0; i < 8; ++i)
    EXPECT_EQ(offset[28 + 8 + i], std::byte((0x0123456789abcdef >> (56 - 8 * i)) & 0xff));
}

// Shows: V1-HDR-17
TEST(Version1Lists, DiscriminatorsOtherThanZeroAndOneAreRefused) {
  const Words lists = join({read_entry(8, 4), {0}, chunk({10}), {0}, chunk({20})});
  for (size_t at : {0u, 6u, 7u, 13u, 14u}) {
    for (uint32_t bad : {2u, 0x01000000u, 0xffffffffu}) {
      Words words = join({fixed(kMsgProc), lists, zeros(16)});
      words[4 + at] = bad;
      EXPECT_EQ(Decoding(words).verdict(), Verdict::kBadDiscriminator) << at;
    }
  }
}

// Shows: V1-HDR-20, V1-ERR-07
TEST(Version1Lists, EveryTruncationIsRefused) {
  Bytes whole = to_bytes(join({fixed(kNoMsgProc),
                               read_entry(0, 100),
                               read_entry(8, 4),
                               {0},
                               chunk({10, 11}),
                               chunk({}),
                               {0},
                               chunk({20})}));
  ASSERT_EQ(Decoding(whole).verdict(), Verdict::kOk);
  for (size_t size = 28; size < whole.size(); ++size) {
    // In its own allocation, so that a read beyond its end would be seen.
    Bytes cut(whole.begin(), whole.begin() + ptrdiff_t(size));
    EXPECT_EQ(Decoding(cut).verdict(), Verdict::kTruncated) << size;
  }
}

// Shows: V1-HDR-20, V1-ERR-07
TEST(Version1Lists, WildCountsAreRefused) {
  for (uint32_t count : {2u, 0x0fffffffu, 0x10000000u, 0x10000001u, 0x80000000u, 0xffffffffu}) {
    Words segment = {9, 10, 0, 0};
    EXPECT_EQ(Decoding(join({fixed(kMsgProc), {0, 1, count}, segment, {0, 0}})).verdict(),
              Verdict::kTruncated);
    EXPECT_EQ(Decoding(join({fixed(kMsgProc), {0, 0, 1, count}, segment})).verdict(),
              Verdict::kTruncated);
  }
}

// Shows: V1-RL-09
TEST(Version1Lists, MalformedWriteListRefusesTheWholeHeader) {
  EXPECT_EQ(Decoding(join({fixed(kMsgProc), read_entry(4, 8), {0, 5}, zeros(16)})).verdict(),
            Verdict::kBadDiscriminator);
}

// Shows: V1-CHUNK-13
TEST(Version1Lists, SegmentsOfLengthZeroAreAccepted) {
  Words words = msg(join({read_entry(8, 10), read_entry(8, 0), read_entry(8, 20)}),
                    chunk({0, 5, 0}), chunk({0}));
  Decoding d(words);
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(d.header.lists.reads[0].count, 3);
  EXPECT_EQ(d.header.lists.reads[0].length, 30u);
  EXPECT_EQ(d.header.lists.writes[0].count, 3);
  EXPECT_EQ(d.header.lists.writes[0].length, 5u);
  expect_round_trip(words, d);
}

// Shows: V1-CHUNK-14
TEST(Version1Lists, ChunksWithoutSegmentsArePlaceholders) {
  Words words = msg({}, join({chunk({}), chunk({100})}), chunk({}));
  Decoding d(words);
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  ASSERT_EQ(d.header.lists.num_writes, 2);
  EXPECT_EQ(d.header.lists.writes[0].count, 0);
  EXPECT_EQ(d.header.lists.writes[1].count, 1);
  EXPECT_TRUE(d.header.lists.has_reply);
  EXPECT_EQ(d.header.lists.reply.count, 0);
  EXPECT_EQ(d.header.lists.reply.length, 0u);
  expect_round_trip(words, d);
}

// Shows: V1-WL-03, V1-WL-06
TEST(Version1Lists, ReplyEncodesTheCallsChunksWithOtherLengths) {
  Decoding d(msg(read_entry(4, 8), join({chunk({100, 100}), chunk({50})}), chunk({30})));
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  // As the engine does: the call's header becomes the reply's, and its segments stay where they
  // are.
  ChunkLists& lists = d.header.lists;
  lists.num_reads = 0;
  lists.segments[lists.writes[0].first].length = 60;
  lists.segments[lists.writes[0].first + 1].length = 0;
  EXPECT_EQ(encoded(d.header),
            to_bytes(join({fixed(kMsgProc), {0}, chunk({60, 0}), chunk({50}), {0}, chunk({30})})));
}

// Shows: V1-RL-01, V1-RL-02, V1-RL-12
TEST(Version1Lists, SegmentsOfOnePositionAreOneChunkInListOrder) {
  for (uint32_t n = 1; n <= 16; ++n) {
    Words reads;
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; ++i) {
      reads = join({reads, read_entry(8, 2 * i + 1, i)});
      total += 2 * i + 1;
    }
    Limits limits;
    limits.read_chunks = 1;  // counts Positions
    Decoding d(msg(reads, {}, kNoReply), Direction::kCall, limits);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    ASSERT_EQ(d.header.lists.num_reads, 1);
    const ReadChunk& c = d.header.lists.reads[0];
    EXPECT_EQ(c.position, 8u);
    ASSERT_EQ(c.count, n);
    EXPECT_EQ(c.length, total);
    EXPECT_EQ(d.header.lists.read_length, total);
    for (uint32_t i = 0; i < n; ++i)
      EXPECT_EQ(d.header.lists.of(c)[i].handle, i);
  }
}

// Shows: V1-RL-07
TEST(Version1Lists, ReadListIsSortedByPositionAndStaysInOrderWithinOne) {
  Words reads = join(
      {read_entry(200, 8, 1), read_entry(100, 8, 2), read_entry(200, 8, 3), read_entry(100, 8, 4)});
  Decoding d(msg(reads, {}, kNoReply));
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  const ChunkLists& lists = d.header.lists;
  ASSERT_EQ(lists.num_reads, 2);
  EXPECT_EQ(lists.reads[0].position, 100u);
  EXPECT_EQ(lists.reads[1].position, 200u);
  EXPECT_EQ(lists.of(lists.reads[0])[0].handle, 2u);
  EXPECT_EQ(lists.of(lists.reads[0])[1].handle, 4u);
  EXPECT_EQ(lists.of(lists.reads[1])[0].handle, 1u);
  EXPECT_EQ(lists.of(lists.reads[1])[1].handle, 3u);

  Bytes sorted = to_bytes(msg(join({read_entry(100, 8, 2), read_entry(100, 8, 4),
                                    read_entry(200, 8, 1), read_entry(200, 8, 3)}),
                              {}, kNoReply));
  sorted.resize(d.decoded.header_length);
  EXPECT_EQ(encoded(d.header), sorted);
}

TEST(Version1Lists, HeaderThatIsUsedAgainKeepsNothingOfTheOldOne) {
  Header header;
  Bytes full = to_bytes(msg(read_entry(4, 8), chunk({10}), chunk({20})));
  Bytes empty = to_bytes(msg({}, {}, kNoReply));
  ASSERT_EQ(decode(full, Direction::kCall, {}, header).verdict, Verdict::kOk);
  ASSERT_EQ(decode(empty, Direction::kCall, {}, header).verdict, Verdict::kOk);
  EXPECT_EQ(encoded(header).size(), 28u);
  EXPECT_EQ(header.lists.num_segments, 0);
  EXPECT_EQ(header.lists.read_length, 0u);
}

}  // namespace
}  // namespace rrdk::proto
