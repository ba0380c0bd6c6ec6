#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "test/xdr/messages.h"

namespace rrdk {
namespace {

using test::Bytes;
using test::kNoLimit;
using test::stream_of;
using test::words_of;

class EncoderTest : public test::MessageTest {};

const Bytes kFive = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Shows: V1-PAD-01
TEST_F(EncoderTest, WritesWhatRfc4506Says) {
  {
    Encoder out(message_, *memory_, 1024, kNoLimit);
    out.put_u32(0x01020304);
    out.put_i32(-2);
    out.put_u64(0x1122334455667788);
    out.put_bool(true);
    out.put_opaque(kFive);
    out.put_fixed(kFive);
    out.put_string("abc");
    EXPECT_EQ(out.position(), 48u);
    EXPECT_TRUE(out.ok());
  }
  const Bytes pad(3);
  EXPECT_EQ(stream_of(message_), words_of({0x01020304, 0xfffffffe, 0x11223344, 0x55667788, 1, 5}) +
                                     kFive + pad + kFive + pad + words_of({3, 0x61626300}));
  EXPECT_EQ(message_.stream_length(), 48u);
  EXPECT_EQ(message_.pieces().size(), 1u);
  EXPECT_FALSE(message_.pieces()[0].item);
}

// Bytes of another message stay where they are if they are many, lie in buffers, and only the last
// run needs a pad.
TEST_F(EncoderTest, RefersToViewsThatLieInBuffers) {
  std::mt19937_64 random(test::run_seed());
  const Bytes data = test::random_bytes(random, 5001);
  Buffer buffers[5];
  std::vector<Fragment> in_buffers;
  for (uint32_t i = 0, at = 0; i != 5; ++i, at += 1000) {
    buffers[i] = memory_->get(1024);
    const uint32_t length = i == 4 ? 1001 : 1000;
    std::copy_n(data.begin() + at, length, buffers[i].data());
    in_buffers.push_back({buffers[i].data(), length});
  }
  std::vector<Fragment> odd = in_buffers;
  odd[0].length = 999;
  odd.insert(odd.begin() + 1, {buffers[0].data() + 999, 1});
  const std::vector<Fragment> elsewhere = {{data.data(), 5001}};
  struct Case {
    const std::vector<Fragment>& fragments;
    uint32_t length;
    bool refers;
  };
  for (const Case& c : {Case{in_buffers, 5001, true}, Case{in_buffers, 4000, false},
                        Case{odd, 5001, false}, Case{elsewhere, 5001, false}}) {
    Encoder out(message_, *memory_, 1024, kNoLimit);
    out.put_u32(7);
    out.put_view(ItemView(c.fragments, 0, c.length));
    out.put_u32(8);
    out.finish();
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(stream_of(message_), words_of({7, c.length}) +
                                       Bytes(data.begin(), data.begin() + c.length) +
                                       Bytes(xdr_pad(c.length)) + words_of({8}));
    EXPECT_EQ(message_.borrows(), c.refers);
    EXPECT_EQ(out.position(), message_.stream_length());
  }
}

TEST_F(EncoderTest, SpillsOverBuffers) {
  std::mt19937_64 random(test::run_seed());
  Bytes data = test::random_bytes(random, 1003);
  {
    Encoder out(message_, *memory_, 64, kNoLimit);
    out.put_u32(1);
    out.put_opaque(data);
    out.put_u64(2);
    for (uint32_t i = 0; i != 100; ++i)
      out.put_u32(i);
    EXPECT_TRUE(out.ok());
    EXPECT_EQ(out.position(), 4u + 4 + 1004 + 8 + 400);
  }
  EXPECT_GT(message_.pieces().size(), 2u);
  Bytes expected = words_of({1, 1003}) + data + Bytes(1) + words_of({0, 2});
  for (uint32_t i = 0; i != 100; ++i)
    test::append_u32(expected, i);
  EXPECT_EQ(stream_of(message_), expected);
  EXPECT_EQ(message_.stream_length(), expected.size());
}

TEST_F(EncoderTest, U64AtTheEndOfABufferIsWhole) {
  for (uint32_t before = 13; before <= 16; ++before) {
    {
      Encoder out(message_, *memory_, 64, kNoLimit);
      for (uint32_t i = 0; i != before; ++i)
        out.put_u32(0);
      out.put_u64(0x1122334455667788);
    }
    EXPECT_EQ(stream_of(message_), Bytes(before * 4) + words_of({0x11223344, 0x55667788}));
  }
}

TEST_F(EncoderTest, ItemByReferenceIsNotCopied) {
  Buffer buffer = memory_->get(64);
  std::ranges::copy(kFive, buffer.data());
  {
    Encoder out(message_, *memory_, 64, kNoLimit);
    out.put_u32(7);
    out.put_item(buffer.first(5), Ddp::kEligible);
    EXPECT_EQ(out.position(), 16u);
    out.put_u32(8);
  }
  ASSERT_EQ(message_.pieces().size(), 3u);
  const Piece& item = message_.pieces()[1];
  EXPECT_TRUE(item.item);
  EXPECT_TRUE(item.eligible);
  EXPECT_EQ(item.bytes.data, buffer.data());
  EXPECT_EQ(item.bytes.length, 5u);
  EXPECT_EQ(item.bytes.region, buffer.region());
  EXPECT_EQ(stream_of(message_), words_of({7, 5}) + kFive + Bytes(3) + words_of({8}));
  EXPECT_EQ(message_.stream_length(), 20u);
}

TEST_F(EncoderTest, IneligibleItemIsMarkedSo) {
  Buffer buffer = memory_->get(64);
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_item(buffer.first(5), Ddp::kNo);
  out.finish();
  ASSERT_EQ(message_.pieces().size(), 2u);
  EXPECT_TRUE(message_.pieces()[1].item);
  EXPECT_FALSE(message_.pieces()[1].eligible);
}

// Shows: V1-WL-09
TEST_F(EncoderTest, EmptyEligibleItemKeepsItsTurnInTheWriteList) {
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_item(MemorySpan{}, Ddp::kEligible);
  out.put_item(MemorySpan{}, Ddp::kNo);
  out.finish();
  size_t eligible = 0;
  for (const Piece& piece : message_.pieces())
    eligible += piece.eligible;
  EXPECT_EQ(eligible, 1u);
  EXPECT_EQ(stream_of(message_), words_of({0, 0}));
}

TEST_F(EncoderTest, MessageOwnsTheBufferOfAnItemUntilItIsCleared) {
  {
    Encoder out(message_, *memory_, 64, kNoLimit);
    out.put_item(memory_->get(1024), 1000, Ddp::kEligible);
  }
  EXPECT_FALSE(memory_->whole());
  message_.clear();
  EXPECT_TRUE(memory_->whole());
  EXPECT_EQ(message_.stream_length(), 0u);
  EXPECT_TRUE(message_.pieces().empty());
}

TEST_F(EncoderTest, ItemLargerThanItsBufferOrOfNoBufferFails) {
  for (bool none : {false, true}) {
    Encoder out(message_, *memory_, 64, kNoLimit);
    out.put_item(none ? Buffer() : memory_->get(64), 65, Ddp::kEligible);
    EXPECT_EQ(out.fault(), none ? EncoderFault::kNoMemory : EncoderFault::kInvalidMemory);
  }
}

TEST_F(EncoderTest, ItemOutsideOfRegisteredMemoryFails) {
  Buffer buffer = memory_->get(64);
  RegisteredMemory other = memory_->allocate(4096).value();
  std::byte heap[64];
  for (const MemorySpan& bad :
       {MemorySpan{heap, 64, kNoRegion}, MemorySpan{heap, 64, buffer.region()},
        MemorySpan{buffer.data(), 64, other.region()}, MemorySpan{buffer.data(), 64, 4000000000},
        MemorySpan{other.data() + 4000, 97, other.region()}}) {
    Encoder out(message_, *memory_, 64, kNoLimit);
    Encoder::Mark before = out.mark();
    out.put_item(bad, Ddp::kEligible);
    EXPECT_EQ(out.fault(), EncoderFault::kInvalidMemory);
    out.fail();
    EXPECT_EQ(out.fault(), EncoderFault::kInvalidMemory) << "the first reason counts";
    EXPECT_EQ(out.position(), 0u);
    out.rewind(before);
    out.put_item(other.span(4000, 96), Ddp::kEligible);
    EXPECT_TRUE(out.ok());
  }
}

// Lengths that leave every remainder: the pad comes once, after the last segment.
TEST_F(EncoderTest, SegmentsAreOneItemWithOnePad) {
  Bytes expected;
  std::vector<Buffer> buffers;
  std::vector<MemorySpan> segments;
  for (uint32_t length : {1u, 4u, 7u, 62u, 3u}) {
    buffers.push_back(memory_->get(64));
    for (uint32_t i = 0; i != length; ++i)
      expected.push_back(buffers.back().data()[i] = std::byte(expected.size() * 7 + 1));
    segments.push_back(buffers.back().first(length));
  }
  for (size_t count = 2; count <= segments.size(); ++count) {
    const std::span<const MemorySpan> part = std::span(segments).first(count);
    uint32_t length = 0;
    for (const MemorySpan& segment : part)
      length += segment.length;
    Bytes item(expected.begin(), expected.begin() + length);
    item.resize(length + xdr_pad(length));
    {
      Encoder out(message_, *memory_, 64, kNoLimit);
      out.put_u32(7);
      out.put_item(part, Ddp::kEligible);
      EXPECT_EQ(out.position(), 8u + item.size());
      out.put_u32(8);
    }
    ASSERT_EQ(message_.pieces().size(), 3u);
    const Piece& piece = message_.pieces()[1];
    EXPECT_TRUE(piece.item && piece.eligible);
    EXPECT_EQ(piece.bytes.length, length);
    ASSERT_EQ(piece.runs().size(), count);
    for (size_t i = 0; i != count; ++i)
      EXPECT_EQ(piece.runs()[i].data, segments[i].data) << "copied";
    EXPECT_TRUE(message_.borrows());
    EXPECT_EQ(stream_of(message_), words_of({7, length}) + item + words_of({8}));
    EXPECT_EQ(message_.stream_length(), 12u + item.size());
  }
}

TEST_F(EncoderTest, EmptySegmentsCountForNothing) {
  Buffer buffer = memory_->get(64);
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_item(std::span<const MemorySpan>(), Ddp::kEligible);
  out.put_item(std::array<MemorySpan, 2>{}, Ddp::kEligible);
  out.put_item(std::span<const MemorySpan>(), Ddp::kNo);
  out.put_item(std::array{MemorySpan{}, buffer.first(5), MemorySpan{}}, Ddp::kEligible);
  out.finish();
  std::vector<Piece> items;
  std::ranges::copy_if(message_.pieces(), std::back_inserter(items), &Piece::item);
  ASSERT_EQ(items.size(), 3u) << "an empty eligible item has its turn, as always (V1-WL-09)";
  EXPECT_EQ(items[0].bytes.length, 0u);
  EXPECT_EQ(items[1].bytes.length, 0u);
  EXPECT_EQ(items[2].bytes.data, buffer.data());
  EXPECT_EQ(items[2].segments, 0u) << "one run is an item like any other";
  EXPECT_EQ(message_.buffers().size(), 1u);
}

TEST_F(EncoderTest, SegmentsThatContinueEachOtherAreJoined) {
  Buffer buffer = memory_->get(1024);
  const auto part = [&](uint32_t from, uint32_t length) {
    return MemorySpan{buffer.data() + from, length, buffer.region()};
  };
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_item(std::array{part(0, 100), part(100, 1), MemorySpan{}, part(101, 400)}, Ddp::kNo);
  out.put_item(std::array{part(0, 100), part(101, 10), part(111, 9), part(50, 50)}, Ddp::kNo);
  out.finish();
  ASSERT_EQ(message_.pieces().size(), 4u);
  EXPECT_EQ(message_.pieces()[1].segments, 0u);
  EXPECT_EQ(message_.pieces()[1].bytes.length, 501u);
  ASSERT_EQ(message_.pieces()[3].runs().size(), 3u);
  EXPECT_EQ(message_.pieces()[3].runs()[1].length, 19u);
}

TEST_F(EncoderTest, OneSegmentOutsideOfRegisteredMemoryFailsTheItem) {
  Buffer buffer = memory_->get(64);
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_item(buffer.first(4), Ddp::kNo);
  const Encoder::Mark before = out.mark();
  std::byte heap[4];
  for (const MemorySpan& bad : {MemorySpan{heap, 4, buffer.region()}, MemorySpan{heap, 4}}) {
    out.put_item(std::array{buffer.first(4), bad}, Ddp::kEligible);
    EXPECT_EQ(out.fault(), EncoderFault::kInvalidMemory);
    EXPECT_EQ(out.faulty_item(), 2u);
    out.rewind(before);
  }
  EXPECT_EQ(out.position(), 8u);
}

TEST_F(EncoderTest, TooManySegmentsFailTheItemThatHasThem) {
  auto memory =
      Memory::create({.classes = {{64, 16}, {32768, 2}}, .hugepages = HugepagePolicy::kNever})
          .value();
  RegisteredMemory own = memory->allocate(65536).value();
  std::vector<MemorySpan> segments;  // with gaps
  for (uint32_t i = 0; i <= Encoder::kMaxItemSegments; ++i)
    segments.push_back(own.span(size_t{i} * 8, 3));
  Message message;
  Encoder out(message, *memory, 64, kNoLimit);
  const Encoder::Mark before = out.mark();
  out.put_item(segments, Ddp::kEligible);
  EXPECT_EQ(out.fault(), EncoderFault::kTooManySegments);
  EXPECT_EQ(out.faulty_item(), 1u);
  out.rewind(before);
  segments.pop_back();
  out.put_item(segments, Ddp::kEligible);
  EXPECT_TRUE(out.ok());
  out.finish();
  EXPECT_EQ(message.pieces().back().runs().size(), Encoder::kMaxItemSegments);
  EXPECT_EQ(message.buffers().size(), 2u) << "the list is in a buffer";
  out.rewind(before);
  EXPECT_TRUE(message.buffers().empty()) << "the list goes with the item";
  // Segments that are joined do not count.
  segments.clear();
  for (uint32_t i = 0; i != 4 * Encoder::kMaxItemSegments; ++i)
    segments.push_back(own.span(i, 1));
  out.put_item(segments, Ddp::kEligible);
  EXPECT_TRUE(out.ok());
  message.clear();
}

TEST_F(EncoderTest, NoBufferForTheListAndNoRoomForTheBytesAreToldApart) {
  RegisteredMemory own = memory_->allocate(65536).value();
  std::vector<MemorySpan> segments;
  for (uint32_t i = 0; i != 65; ++i)  // the largest buffer holds 64
    segments.push_back(own.span(size_t{i} * 8, 4));
  Encoder out(message_, *memory_, 64, 100);
  const Encoder::Mark before = out.mark();
  out.put_item(segments, Ddp::kEligible);
  EXPECT_EQ(out.fault(), EncoderFault::kNoMemory);
  out.rewind(before);
  out.put_item(std::span(segments).first(30), Ddp::kEligible);
  EXPECT_EQ(out.fault(), EncoderFault::kLimit);
  out.rewind(before);
  out.put_item(std::span(segments).first(24), Ddp::kEligible);
  EXPECT_TRUE(out.ok());
  out.finish();
}

TEST_F(EncoderTest, OpaqueIsCopiedOutOfAnotherMessage) {
  test::Scattered place(kFive, std::array<size_t, 2>{1, 3});
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_opaque(ItemView(place.fragments(), 0, 5));
  out.put_opaque(ItemView());
  out.finish();
  EXPECT_EQ(stream_of(message_), words_of({5}) + kFive + Bytes(3) + words_of({0}));
}

TEST_F(EncoderTest, LimitHoldsForEveryWayToWrite) {
  Buffer buffer = memory_->get(64);
  auto fails = [&](uint64_t limit, auto&& put) {
    Encoder out(message_, *memory_, 64, limit);
    out.put_u32(1);
    put(out);
    bool failed = !out.ok();
    EXPECT_LE(out.position(), limit);
    return failed;
  };
  auto word = [](Encoder& out) { out.put_u32(2); };
  auto hyper = [](Encoder& out) { out.put_u64(2); };
  auto opaque = [](Encoder& out) { out.put_opaque(kFive); };
  auto fixed = [](Encoder& out) { out.put_fixed(kFive); };
  auto reference = [&](Encoder& out) { out.put_item(buffer.first(5), Ddp::kNo); };
  auto run = [](Encoder& out) { out.put_run(24) == nullptr ? out.fail() : void(); };
  EXPECT_TRUE(fails(7, word));
  EXPECT_FALSE(fails(8, word));
  EXPECT_TRUE(fails(11, hyper));
  EXPECT_FALSE(fails(12, hyper));
  EXPECT_TRUE(fails(15, opaque));
  EXPECT_FALSE(fails(16, opaque));
  EXPECT_TRUE(fails(11, fixed));
  EXPECT_FALSE(fails(12, fixed));
  EXPECT_TRUE(fails(15, reference));
  EXPECT_FALSE(fails(16, reference));
  EXPECT_TRUE(fails(27, run));
  EXPECT_FALSE(fails(28, run));
}

TEST_F(EncoderTest, ReferencedBytesCountAgainstTheLimitOfWhatFollows) {
  Buffer buffer = memory_->get(64);
  Encoder out(message_, *memory_, 64, 64);
  out.put_item(buffer.first(50), Ddp::kNo);  // 56 bytes of stream
  out.put_u64(1);
  EXPECT_TRUE(out.ok());
  EXPECT_EQ(out.position(), 64u);
  out.put_u32(1);
  EXPECT_FALSE(out.ok());
}

TEST_F(EncoderTest, ExhaustedMemoryFailsAndIsSticky) {
  std::vector<Buffer> hoard;
  while (Buffer b = memory_->get(64))
    hoard.push_back(std::move(b));
  hoard.pop_back();
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_opaque(Bytes(5000));
  EXPECT_FALSE(out.ok());
  hoard.clear();
  uint64_t position = out.position();
  out.put_u32(1);
  out.put_u64(1);
  out.put_opaque(kFive);
  out.put_item(memory_->get(64), 5, Ddp::kNo);
  EXPECT_EQ(out.put_run(8), nullptr);
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(out.position(), position);
}

TEST_F(EncoderTest, TakesSmallerBuffersWhenLargeOnesAreExhausted) {
  std::vector<Buffer> hoard;
  while (Buffer b = memory_->get(1024))
    hoard.push_back(std::move(b));
  {
    Encoder out(message_, *memory_, 64, kNoLimit);
    out.put_opaque(Bytes(1000, std::byte{9}));
    EXPECT_TRUE(out.ok());
  }
  EXPECT_EQ(stream_of(message_), words_of({1000}) + Bytes(1000, std::byte{9}));
}

TEST_F(EncoderTest, RewindForgetsWhatCameAfterTheMark) {
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_u32(1);
  Encoder::Mark mark = out.mark();
  out.put_opaque(Bytes(500));
  out.put_item(memory_->get(64), 5, Ddp::kEligible);
  out.put_u32(2);
  out.rewind(mark);
  EXPECT_EQ(out.position(), 4u);
  out.put_u32(3);
  out.finish();
  EXPECT_EQ(stream_of(message_), words_of({1, 3}));
  EXPECT_EQ(message_.pieces().size(), 1u);
  EXPECT_EQ(message_.stream_length(), 8u);
  message_.clear();
  EXPECT_TRUE(memory_->whole());
}

TEST_F(EncoderTest, RewindToTheVeryStart) {
  Encoder out(message_, *memory_, 64, kNoLimit);
  Encoder::Mark mark = out.mark();
  out.put_u32(1);
  out.rewind(mark);
  EXPECT_EQ(out.position(), 0u);
  EXPECT_TRUE(memory_->whole());
  out.put_u32(2);
  out.finish();
  EXPECT_EQ(stream_of(message_), words_of({2}));
}

TEST_F(EncoderTest, RewindForgetsAFailureSinceTheMark) {
  Encoder out(message_, *memory_, 64, 16);
  out.put_u32(1);
  Encoder::Mark mark = out.mark();
  out.put_opaque(Bytes(100));
  EXPECT_FALSE(out.ok());
  out.rewind(mark);
  EXPECT_TRUE(out.ok());
  out.put_u32(2);
  out.finish();
  EXPECT_EQ(stream_of(message_), words_of({1, 2}));
  out.fail();
  out.rewind(out.mark());
  EXPECT_FALSE(out.ok());
}

TEST_F(EncoderTest, RunsAreContiguous) {
  Encoder out(message_, *memory_, 64, kNoLimit);
  std::byte* first = out.put_run(40);
  ASSERT_NE(first, nullptr);
  std::fill_n(first, 40, std::byte{1});
  EXPECT_EQ(out.put_run(40), nullptr);  // 24 bytes are left in this buffer
  EXPECT_TRUE(out.ok());
  for (int i = 0; i != 6; ++i)
    out.put_u32(0x02020202);
  std::byte* second = out.put_run(40);
  ASSERT_NE(second, nullptr);
  std::fill_n(second, 40, std::byte{3});
  out.finish();
  EXPECT_EQ(stream_of(message_),
            Bytes(40, std::byte{1}) + Bytes(24, std::byte{2}) + Bytes(40, std::byte{3}));
}

TEST_F(EncoderTest, FinishMayComeEarlyAndAgain) {
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_u32(1);
  out.finish();
  out.finish();
  EXPECT_EQ(message_.stream_length(), 4u);
  out.put_u32(2);
  EXPECT_EQ(out.position(), 8u);
  out.finish();
  EXPECT_EQ(stream_of(message_), words_of({1, 2}));
}

TEST_F(EncoderTest, StartsAMessageAnew) {
  for (uint32_t i = 0; i != 3; ++i) {
    Encoder out(message_, *memory_, 64, kNoLimit);
    out.put_u32(i);
    out.finish();
    EXPECT_EQ(stream_of(message_), words_of({i}));
  }
}

// Byte by byte, as rpcgen's routines write: the pad is there whether or not the caller writes it.
TEST_F(EncoderTest, BytesWithoutPadsMakeOneRun) {
  std::mt19937_64 random(test::run_seed());
  for (size_t length = 0; length <= 100; ++length) {
    for (bool pads : {false, true}) {
      Bytes data = test::random_bytes(random, length);
      Encoder out(message_, *memory_, 64, kNoLimit);
      out.put_u32(1);
      for (size_t at = 0; at < length;) {
        size_t n = std::min<size_t>(random() % 7, length - at);
        out.put_bytes(std::span(data).subspan(at, n));
        at += n;
      }
      if (pads)
        out.put_bytes(Bytes(xdr_pad(length)));
      EXPECT_EQ(out.position(), 4 + length + xdr_pad(length));
      out.put_u32(2);
      out.put_bytes(std::span(kFive).first(1));  // in its own run
      EXPECT_TRUE(out.ok());
      out.finish();
      EXPECT_EQ(stream_of(message_), words_of({1}) + data + Bytes(xdr_pad(length)) + words_of({2}) +
                                         Bytes{std::byte{1}} + Bytes(3))
          << length;
    }
  }
}

TEST_F(EncoderTest, BytesWithoutPadsGoOnBehindFinishAndRewind) {
  Encoder out(message_, *memory_, 64, kNoLimit);
  out.put_bytes(kFive);
  out.finish();
  Encoder::Mark mark = out.mark();
  out.put_bytes(std::span(kFive).first(2));
  out.put_u32(0x07070707);
  out.rewind(mark);
  EXPECT_EQ(out.position(), 8u);
  out.finish();
  EXPECT_EQ(stream_of(message_), kFive + Bytes(3));  // bytes written over the pad are discarded
  out.put_bytes(std::span(kFive).first(1));
  out.finish();
  EXPECT_EQ(stream_of(message_), kFive + Bytes{std::byte{1}} + Bytes(2));
}

TEST_F(EncoderTest, BytesWithoutPadsKeepTheLimit) {
  Encoder out(message_, *memory_, 64, 8);
  out.put_bytes(kFive);
  out.put_bytes(std::span(kFive).first(3));
  EXPECT_TRUE(out.ok());
  out.put_bytes(std::span(kFive).first(1));
  EXPECT_EQ(out.fault(), EncoderFault::kLimit);
}

}  // namespace
}  // namespace rrdk
