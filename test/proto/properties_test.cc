// Transport properties (draft-04 section 5) as words.
#include "proto/properties.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "messages.h"

namespace rrdk::proto {
namespace {

constexpr uint32_t kConnProp = 6, kReqProp = 7, kRespProp = 8, kUpdProp = 9;
const Words kRbsiz = {1, 4, 8192};
const Words kBrs = {2, 4, 2};

Bytes encoded(const PropertyMessage& message) {
  Bytes out(4096);
  uint32_t length = encode(message, out);
  EXPECT_EQ(encode(message, std::span(out).first(length - 1)), 0u);
  out.resize(length);
  return out;
}

std::vector<std::pair<uint32_t, Bytes>> items(const PropertySet& set) {
  std::vector<std::pair<uint32_t, Bytes>> out;
  set.for_each([&](uint32_t index, const Property& property) {
    EXPECT_EQ(index, out.size());
    out.emplace_back(property.id, Bytes(property.data.begin(), property.data.end()));
  });
  return out;
}

PropertyMessage empty(MessageType type) {
  return {.type = type, .xid = kXid, .credits = 32, .set = {}, .first = {}, .second = {}};
}

// Shows: V2D4-POP-01, V2D4-POP-02, V2D4-POP-31
TEST(Properties, EmptyMessagesHaveTheseLengths) {
  const std::pair<MessageType, size_t> lengths[] = {{MessageType::kConnProp, 24},
                                                    {MessageType::kReqProp, 20},
                                                    {MessageType::kRespProp, 28},
                                                    {MessageType::kUpdProp, 20}};
  for (auto [type, length] : lengths) {
    Bytes message = encoded(empty(type));
    EXPECT_EQ(message.size(), length);
    PropertyBody body;
    EXPECT_EQ(decode_properties(message, type, body), Verdict::kOk);
    EXPECT_EQ(body.length, length);
    for (size_t cut = 16; cut < length; ++cut) {
      EXPECT_EQ(decode_properties(std::span(message).first(cut), type, body), Verdict::kTruncated)
          << cut;
    }
  }
}

// Shows: V2D4-POP-01, V2D4-PROP-01, V2D4-PROP-18, V2D4-PROP-27
TEST(Properties, ConnpropHasItsSetAndThenWhatStays) {
  Bytes rbsiz = to_bytes({8192}), brs = to_bytes({2});
  const std::array<Property, 2> set = {Property{kReceiveBufferSize, rbsiz},
                                       Property{kBackwardSupport, brs}};
  const std::array<uint32_t, 1> nochg = {2};
  PropertyMessage message = empty(MessageType::kConnProp);
  message.set = set;
  message.first = nochg;
  Bytes bytes = encoded(message);
  EXPECT_EQ(bytes, to_bytes(join({fixed(kConnProp, 2), {2}, kRbsiz, kBrs, {1, 2}})));
  EXPECT_EQ(bytes.size(), 52u);
  PropertyBody body;
  ASSERT_EQ(decode_properties(bytes, MessageType::kConnProp, body), Verdict::kOk);
  EXPECT_EQ(items(body.set), (std::vector<std::pair<uint32_t, Bytes>>{{1, rbsiz}, {2, brs}}));
  EXPECT_FALSE(body.first.has(0));
  EXPECT_TRUE(body.first.has(1));
}

// Shows: V2D4-POP-02
TEST(Properties, TheOthersHaveTheirFieldsInOrder) {
  Bytes rbsiz = to_bytes({8192});
  const std::array<Property, 1> set = {Property{kReceiveBufferSize, rbsiz}};
  const std::array<uint32_t, 1> done = {1}, rejected = {4};
  PropertyMessage message = empty(MessageType::kReqProp);
  message.set = set;
  EXPECT_EQ(encoded(message), to_bytes(join({fixed(kReqProp, 2), {1}, kRbsiz})));
  message.type = MessageType::kUpdProp;
  EXPECT_EQ(encoded(message), to_bytes(join({fixed(kUpdProp, 2), {1}, kRbsiz})));
  message.type = MessageType::kRespProp;
  message.first = done;
  message.second = rejected;
  EXPECT_EQ(encoded(message), to_bytes(join({fixed(kRespProp, 2), {1, 1, 1, 4, 1}, kRbsiz})));
  PropertyBody body;
  Bytes bytes = encoded(message);
  ASSERT_EQ(decode_properties(bytes, MessageType::kRespProp, body), Verdict::kOk);
  EXPECT_TRUE(body.first.has(0));
  EXPECT_TRUE(body.second.has(2));
  EXPECT_EQ(items(body.set).size(), 1u);
}

// Shows: V2D4-PROP-03, V2D4-PROP-04, V2D4-PROP-05, V2D4-PROP-06
TEST(Properties, SubsetsCountFromTheLeastSignificantBit) {
  auto subset = [](const Words& words) {
    Bytes bytes = to_bytes(join({fixed(kConnProp, 2), {0}, words}));
    PropertyBody body;
    EXPECT_EQ(decode_properties(bytes, MessageType::kConnProp, body), Verdict::kOk);
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < 100; ++i) {
      if (body.first.has(i))
        out.push_back(i);
    }
    EXPECT_FALSE(body.first.has(0xffffffff));
    return out;
  };
  EXPECT_EQ(subset({2, 1, 2}), (std::vector<uint32_t>{0, 33}));
  EXPECT_EQ(subset({1, 0x80000001}), (std::vector<uint32_t>{0, 31}));
  EXPECT_EQ(subset({0}), std::vector<uint32_t>{});
}

// Shows: V2D4-PROP-08, V2D4-PROP-10
TEST(Properties, DataOfAnyLengthIsSkippedAndNoneIsLongerThanTheMessage) {
  Words odd = {1000, 17, 0, 0, 0, 0, 0};
  Bytes bytes = to_bytes(join({fixed(kUpdProp, 2), {2}, odd, kRbsiz}));
  PropertyBody body;
  ASSERT_EQ(decode_properties(bytes, MessageType::kUpdProp, body), Verdict::kOk);
  auto found = items(body.set);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].second.size(), 17u);
  EXPECT_EQ(found[1].first, kReceiveBufferSize);
  for (uint32_t length : {5u, 1000u, 0xfffffffdu, 0xffffffffu}) {
    Bytes long_data = to_bytes(join({fixed(kUpdProp, 2), {1, 1, length, 8192}}));
    EXPECT_EQ(decode_properties(long_data, MessageType::kUpdProp, body), Verdict::kTruncated);
  }
  for (uint32_t count : {2u, 0x20000000u, 0xffffffffu}) {
    Bytes many = to_bytes(join({fixed(kUpdProp, 2), {count}, kRbsiz}));
    EXPECT_EQ(decode_properties(many, MessageType::kUpdProp, body), Verdict::kTruncated);
    Bytes words = to_bytes(join({fixed(kConnProp, 2), {0, count, 1}}));
    EXPECT_EQ(decode_properties(words, MessageType::kConnProp, body), Verdict::kTruncated);
  }
}

}  // namespace
}  // namespace rrdk::proto
