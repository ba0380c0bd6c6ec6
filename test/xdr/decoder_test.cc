#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "rrdk/xdr.h"
#include "test/xdr/scatter.h"

namespace rrdk {
namespace {

using test::append_u32;
using test::Bytes;
using test::bytes_of;
using test::Scattered;
using test::words_of;

Bytes opaque(const Bytes& item, std::byte pad = {}) {
  Bytes out = words_of({static_cast<uint32_t>(item.size())});
  out.insert(out.end(), item.begin(), item.end());
  out.resize(out.size() + xdr_pad(item.size()), pad);
  return out;
}

const Bytes kFive = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};

TEST(Decoder, ReadsBigEndianWords) {
  Bytes stream = words_of({0x01020304, 0xfffffffe, 0, 1, 0x11223344, 0x55667788, 1, 0});
  Scattered whole(stream);
  Decoder in(whole.fragments());
  EXPECT_EQ(in.remaining(), 32u);
  EXPECT_EQ(in.get_u32(), 0x01020304u);
  EXPECT_EQ(in.get_i32(), -2);
  EXPECT_EQ(in.get_u64(), 1u);
  EXPECT_EQ(in.get_u64(), 0x1122334455667788u);
  EXPECT_TRUE(in.get_bool());
  EXPECT_FALSE(in.at_end());
  EXPECT_FALSE(in.get_bool());
  EXPECT_TRUE(in.at_end());
}

TEST(Decoder, WordsStraddleFragments) {
  Bytes stream = words_of({0xa1b2c3d4, 0x11223344, 0x55667788});
  for (size_t first = 0; first <= stream.size(); ++first) {
    for (size_t second = 0; first + second <= stream.size(); ++second) {
      Scattered cut(stream, std::array{first, second});
      Decoder in(cut.fragments());
      EXPECT_EQ(in.get_u32(), 0xa1b2c3d4u);
      EXPECT_EQ(in.remaining(), 8u);
      EXPECT_EQ(in.get_u64(), 0x1122334455667788u);
      EXPECT_TRUE(in.at_end());
    }
  }
}

TEST(Decoder, EmptyStreamsAreAtEndAndGiveNothing) {
  const Fragment nothing[] = {{nullptr, 0}, {nullptr, 0}};
  for (std::span<const Fragment> stream :
       {std::span<const Fragment>(), std::span<const Fragment>(nothing)}) {
    Decoder in(stream);
    EXPECT_TRUE(in.at_end());
    EXPECT_TRUE(in.get_fixed(0).empty());
    EXPECT_TRUE(in.at_end());
    EXPECT_EQ(in.get_u32(), 0u);
    EXPECT_FALSE(in.ok());
  }
  EXPECT_TRUE(Decoder().at_end());
}

TEST(Decoder, FailureIsSticky) {
  Bytes stream = words_of({7, 8, 9});
  Scattered cut(stream, std::array<size_t, 1>{6});
  Decoder in(cut.fragments());
  EXPECT_FALSE(in.get_bool());  // 7 is no boolean
  EXPECT_FALSE(in.ok());
  EXPECT_FALSE(in.at_end());
  EXPECT_EQ(in.remaining(), 0u);
  EXPECT_EQ(in.get_u32(), 0u);
  EXPECT_EQ(in.get_u64(), 0u);
  EXPECT_TRUE(in.get_opaque(100).empty());
  EXPECT_TRUE(in.get_fixed(4).empty());
  EXPECT_TRUE(in.get_item(100).empty());
  EXPECT_EQ(in.peek_run(4), nullptr);
  EXPECT_FALSE(in.at_end());
}

// Shows: V1-PAD-01
TEST(Decoder, OpaqueIsInPlaceAndItsPadIsSkipped) {
  Bytes stream = opaque(kFive);
  append_u32(stream, 99);
  Scattered whole(stream);
  Decoder in(whole.fragments());
  ItemView item = in.get_opaque(5);
  EXPECT_EQ(bytes_of(item), kFive);
  EXPECT_TRUE(item.contiguous());
  EXPECT_EQ(item.data(), whole.fragments()[0].data + 4);
  EXPECT_EQ(in.get_u32(), 99u);
  EXPECT_TRUE(in.at_end());
}

TEST(Decoder, PadBytesMayHaveAnyValueButMustBeThere) {
  Bytes stream = opaque(kFive, std::byte{0xee});
  Scattered whole(stream);
  Decoder in(whole.fragments());
  EXPECT_EQ(bytes_of(in.get_opaque(5)), kFive);
  EXPECT_TRUE(in.at_end());

  stream.pop_back();
  Scattered cut(stream);
  Decoder short_in(cut.fragments());
  EXPECT_TRUE(short_in.get_opaque(5).empty());
  EXPECT_FALSE(short_in.ok());
}

TEST(Decoder, HostileCountsAreRefused) {
  for (uint32_t count :
       {5u, 8u, 100u, 0x7fffffffu, 0x80000000u, 0xfffffffcu, 0xfffffffdu, 0xffffffffu}) {
    Bytes stream = words_of({count, 0x01020304});
    Scattered whole(stream);
    for (uint32_t max : {4u, UINT32_MAX}) {
      Decoder opaque_in(whole.fragments());
      EXPECT_TRUE(opaque_in.get_opaque(max).empty());
      EXPECT_FALSE(opaque_in.ok());
      Decoder item_in(whole.fragments());
      EXPECT_TRUE(item_in.get_item(max).empty());
      EXPECT_FALSE(item_in.ok());
    }
    char text[4];
    Decoder string_in(whole.fragments());
    EXPECT_TRUE(string_in.get_string(text).empty());
    EXPECT_FALSE(string_in.ok());
  }
}

TEST(Decoder, CountAboveTheCallersMaximumFailsThoughTheBytesAreThere) {
  Scattered whole(opaque(kFive));
  Decoder in(whole.fragments());
  in.get_opaque(4);
  EXPECT_FALSE(in.ok());
}

TEST(Decoder, StringsAreCopiedAndBounded) {
  Bytes stream = words_of({3, 0x61626300, 0});
  Scattered cut(stream, std::array<size_t, 2>{5, 1});
  Decoder in(cut.fragments());
  char text[3];
  EXPECT_EQ(in.get_string(text), "abc");
  EXPECT_EQ(in.get_string({}), "");
  EXPECT_TRUE(in.at_end());
}

TEST(Decoder, ItemViewWalksItsFragments) {
  Bytes stream = opaque(kFive);
  Scattered cut(stream, std::array<size_t, 3>{5, 0, 2});
  Decoder in(cut.fragments());
  ItemView item = in.get_opaque(5);
  EXPECT_FALSE(item.contiguous());
  std::vector<size_t> runs;
  item.for_each([&runs](const std::byte*, size_t n) { runs.push_back(n); });
  EXPECT_EQ(runs, (std::vector<size_t>{1, 2, 2}));
  EXPECT_EQ(bytes_of(item), kFive);
  EXPECT_EQ(bytes_of(item.first(2)), Bytes(kFive.begin(), kFive.begin() + 2));
}

TEST(Decoder, RunsArePeekedWithinOneFragmentOnly) {
  Bytes stream = words_of({1, 2, 3});
  Scattered cut(stream, std::array<size_t, 1>{8});
  Decoder in(cut.fragments());
  EXPECT_EQ(in.peek_run(12), nullptr);
  ASSERT_NE(in.peek_run(8), nullptr);
  EXPECT_EQ(in.remaining(), 12u);
  in.skip_run(8);
  EXPECT_EQ(in.get_u32(), 3u);
  EXPECT_TRUE(in.at_end());
}

TEST(Decoder, TruncationAtEveryByteFailsInside) {
  Bytes stream = opaque(kFive);
  append_u32(stream, 1);
  append_u32(stream, 2);
  append_u32(stream, 3);
  for (size_t length = 0; length <= stream.size(); ++length) {
    for (size_t cut = 0; cut <= length; ++cut) {
      Scattered part(std::span<const std::byte>(stream).first(length), std::array{cut});
      Decoder in(part.fragments());
      ItemView item = in.get_opaque(5);
      in.get_u64();
      in.get_u32();
      EXPECT_EQ(in.ok(), length == stream.size()) << length << " cut at " << cut;
      EXPECT_EQ(in.at_end(), length == stream.size());
      if (length >= 12) {
        EXPECT_EQ(bytes_of(item), kFive);
      } else {
        EXPECT_TRUE(item.empty());
      }
    }
  }
}

TEST(Decoder, ReadsBytesWithoutPadsAndTellsWhereItIs) {
  Bytes stream = words_of({5});
  stream.insert(stream.end(), kFive.begin(), kFive.end());
  stream.resize(12, std::byte{9});
  append_u32(stream, 77);
  for (size_t first = 0; first <= stream.size(); ++first) {
    Scattered cut(stream, std::array{first});
    Decoder in(cut.fragments());
    EXPECT_EQ(in.position(), 0u);
    uint32_t count = in.get_u32();
    EXPECT_EQ(in.position(), 4u);
    EXPECT_EQ(bytes_of(in.get_bytes(2)), Bytes(kFive.begin(), kFive.begin() + 2));
    EXPECT_EQ(in.position(), 6u);
    EXPECT_EQ(bytes_of(in.get_bytes(count - 2)), Bytes(kFive.begin() + 2, kFive.end()));
    EXPECT_EQ(bytes_of(in.get_bytes(xdr_pad(count))), Bytes(3, std::byte{9}));
    EXPECT_EQ(in.position(), 12u);
    EXPECT_EQ(in.get_u32(), 77u);
    EXPECT_TRUE(in.get_bytes(0).empty());
    EXPECT_TRUE(in.at_end());
    EXPECT_TRUE(in.get_bytes(1).empty());
    EXPECT_FALSE(in.ok());
  }
}

TEST(Decoder, GivesTheRestAsItLies) {
  Bytes stream = words_of({1, 2, 3});
  stream.resize(11);  // nothing says that a stream's rest is XDR
  for (size_t first = 0; first <= stream.size(); ++first) {
    Scattered cut(stream, std::array{first});
    Decoder in(cut.fragments());
    in.get_u32();
    EXPECT_EQ(bytes_of(in.get_rest()), Bytes(stream.begin() + 4, stream.end()));
    EXPECT_TRUE(in.at_end());
    EXPECT_TRUE(in.get_rest().empty());
    EXPECT_TRUE(in.ok());
  }
  Decoder failed;
  failed.fail();
  EXPECT_TRUE(failed.get_rest().empty());
  EXPECT_FALSE(failed.ok());
}

// One placed result, described as `landed` bytes, and a stream that says `count`.
struct Placed {
  Placed(uint32_t count, const Bytes& landed)
      : place(landed, std::array<size_t, 1>{2}),
        item(place.fragments(), 0, static_cast<uint32_t>(landed.size())),
        stream(words_of({count, 77})) {}
  Scattered place;
  ItemView item;
  Scattered stream;
};

// Shows: V1-CHUNK-03, V1-CHUNK-04, V1-PAD-09, V1-WL-10
TEST(DecoderPlaced, ItemComesFromWhereItLandedAndTheStreamGoesOnAfterTheCount) {
  Placed p(5, kFive);
  Decoder in(p.stream.fragments(), {&p.item, 1});
  EXPECT_EQ(bytes_of(in.get_item(5)), kFive);
  EXPECT_EQ(in.get_u32(), 77u);
  EXPECT_TRUE(in.at_end());
}

// Shows: V1-PAD-11
TEST(DecoderPlaced, LengthMayCountThePad) {
  Bytes eight = kFive;
  eight.resize(8);
  Placed p(5, eight);
  Decoder in(p.stream.fragments(), {&p.item, 1});
  EXPECT_EQ(bytes_of(in.get_item(5)), kFive);
  EXPECT_EQ(in.get_u32(), 77u);
  EXPECT_TRUE(in.at_end());
}

// Shows: V1-CHUNK-04, V1-CHUNK-05
TEST(DecoderPlaced, AnyOtherLengthFails) {
  for (size_t landed = 1; landed <= 16; ++landed) {
    for (uint32_t count = 0; count <= 16; ++count) {
      Placed p(count, Bytes(landed));
      Decoder in(p.stream.fragments(), {&p.item, 1});
      ItemView item = in.get_item(16);
      bool right = landed == count || landed == count + xdr_pad(count);
      EXPECT_EQ(in.ok(), right) << landed << " landed, count " << count;
      EXPECT_EQ(item.size(), right ? count : 0);
    }
  }
  for (uint32_t count : {0xfffffffdu, 0xffffffffu}) {
    Placed p(count, kFive);
    Decoder in(p.stream.fragments(), {&p.item, 1});
    EXPECT_TRUE(in.get_item(UINT32_MAX).empty());
    EXPECT_FALSE(in.ok());
  }
}

TEST(DecoderPlaced, CallersMaximumHoldsForPlacedItems) {
  Placed p(5, kFive);
  Decoder in(p.stream.fragments(), {&p.item, 1});
  in.get_item(4);
  EXPECT_FALSE(in.ok());
}

// Shows: V1-CHUNK-14, V1-WL-09
TEST(DecoderPlaced, PairsInOrderAndAnEmptyOneMeansInLine) {
  Bytes stream = words_of({8});
  Bytes in_line = opaque(kFive);
  stream.insert(stream.end(), in_line.begin(), in_line.end());
  append_u32(stream, 4);  // the third item, placed
  Bytes rest = opaque(kFive);
  stream.insert(stream.end(), rest.begin(), rest.end());  // the fourth: no chunk was left
  Scattered reply(stream);
  Scattered first(Bytes(8, std::byte{1}));
  Scattered third(Bytes(4, std::byte{3}));
  const ItemView placed[] = {{first.fragments(), 0, 8}, {}, {third.fragments(), 0, 4}};
  Decoder in(reply.fragments(), placed);
  EXPECT_EQ(bytes_of(in.get_item(8)), Bytes(8, std::byte{1}));
  EXPECT_EQ(bytes_of(in.get_item(8)), kFive);
  EXPECT_EQ(bytes_of(in.get_item(8)), Bytes(4, std::byte{3}));
  EXPECT_EQ(bytes_of(in.get_item(8)), kFive);
  EXPECT_TRUE(in.at_end());
}

// Shows: V1-WL-08, EXP-11
TEST(DecoderPlaced, UndecodedItemsAreIgnored) {
  Placed p(1, kFive);
  Decoder in(p.stream.fragments(), {&p.item, 1});
  EXPECT_EQ(in.get_u32(), 1u);  // an error status: the arm has no eligible item
  EXPECT_EQ(in.get_u32(), 77u);
  EXPECT_TRUE(in.at_end());
}

TEST(DecoderPlaced, OpaqueIsNeverTakenFromAPlace) {
  Placed p(5, kFive);
  Decoder in(p.stream.fragments(), {&p.item, 1});
  in.get_opaque(5);
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace rrdk
