// The fixed words, and the requirements of each message type: RFC 5666 sections 4.1 and 4.2.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "messages.h"

namespace rrdk::proto {
namespace {

const Words kNoLists = {0, 0, 0};
const Words kRpc = {kXid, 0, 2, 100003};

// Shows: V1-HDR-01, V1-HDR-03
TEST(Version1Header, FixedWordsAreXidVersionCreditsAndType) {
  Decoding d(join({fixed(kMsgProc), kNoLists, kRpc}));
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(d.header.xid, kXid);
  EXPECT_EQ(d.header.version, 1u);
  EXPECT_EQ(d.header.credits, 32u);
  EXPECT_EQ(encoded(d.header), to_bytes(join({fixed(kMsgProc), kNoLists})));
}

// Shows: V1-HDR-04
TEST(Version1Header, FixedWordsAreReadForAnyVersionAndBody) {
  Bytes message = to_bytes({kXid, 99, 5, 1234567, 0xffffffff});
  auto words = peek(message);
  ASSERT_TRUE(words);
  EXPECT_EQ(words->xid, kXid);
  EXPECT_EQ(words->version, 99u);
  EXPECT_EQ(words->credits, 5u);
  EXPECT_EQ(words->proc, 1234567u);
  Decoding d(message);
  EXPECT_EQ(d.verdict(), Verdict::kBadVersion);
  EXPECT_EQ(d.header.xid, kXid);
  EXPECT_EQ(d.header.version, 99u);
}

// Shows: V1-ERR-03, V1-ERR-21
TEST(Version1Header, OtherVersionsAreTold) {
  for (uint32_t version : {0u, 2u, 3u, 0xffffffffu}) {
    Decoding d(join({fixed(kMsgProc, version), kNoLists, kRpc}));
    EXPECT_EQ(d.verdict(), Verdict::kBadVersion);
    EXPECT_EQ(d.header.xid, kXid);
  }
  for (size_t size = 0; size < 16; ++size)
    EXPECT_FALSE(peek(Bytes(size)));
}

// A driver uses it to prefetch, so it is usually the right key. For a message without a whole
// header it may be any value, but no byte beyond the message's end is read.
TEST(Version1Header, TheKeyOfAReadChunkCanBeGuessed) {
  const Bytes message = to_bytes(join({fixed(kMsgProc), read_entry(16, 100), kNoLists, kRpc}));
  Decoding d(message);
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(guess_read_key(message), d.header.lists.segments[0].handle);
  EXPECT_NE(guess_read_key(message), 0u);
  EXPECT_EQ(guess_read_key(to_bytes(join({fixed(kMsgProc), kNoLists, kRpc}))), 0u);
  for (size_t size = 0; size < 32; ++size) {
    const std::unique_ptr<std::byte[]> exact(new std::byte[size]);
    std::copy_n(message.data(), size, exact.get());
    EXPECT_EQ(guess_read_key({exact.get(), size}), 0u) << size;
  }
}

// Shows: V1-HDR-06
TEST(Version1Header, TypesHaveTheNumbersOfTheSpecification) {
  const std::pair<Words, MessageType> messages[] = {
      {join({fixed(0), kNoLists, kRpc}), MessageType::kMsg},
      {join({fixed(1), read_entry(0, 100), kNoLists}), MessageType::kNoMsg},
      {join({fixed(2), {8, 1024}, kNoLists, kRpc}), MessageType::kMsgp},
      {fixed(3), MessageType::kDone},
      {join({fixed(4), {2}}), MessageType::kError},
  };
  for (const auto& [words, type] : messages) {
    Decoding d(words);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.type, type);
    Bytes header = to_bytes(words);
    header.resize(d.decoded.header_length);
    EXPECT_EQ(encoded(d.header), header);
  }
}

// Shows: V1-HDR-05, V1-ERR-10
TEST(Version1Header, UnknownTypesAreRefused) {
  for (uint32_t proc : {5u, 6u, 7u, 8u, 9u, 0x80000000u, 0xffffffffu}) {
    Decoding d(join({fixed(proc), kNoLists, kRpc}));
    EXPECT_EQ(d.verdict(), Verdict::kBadType);
    EXPECT_EQ(d.header.xid, kXid);
  }
}

// Shows: V1-HDR-07, V1-HDR-12, V1-INLINE-02
TEST(Version1Header, SmallestMessageIs28BytesAndTheRpcMessageFollowsAtOnce) {
  Decoding d(join({fixed(kMsgProc), kNoLists, kRpc}));
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(d.decoded.header_length, 28u);
  EXPECT_EQ(encoded_length(d.header), 28u);
  EXPECT_EQ(d.header.lists.num_reads, 0);
  EXPECT_EQ(d.header.lists.num_writes, 0);
  EXPECT_FALSE(d.header.lists.has_reply);
  EXPECT_EQ(Decoding(join({fixed(kMsgProc), kNoLists})).verdict(), Verdict::kOk);
}

// Shows: V1-HDR-19, V1-ERR-21
TEST(Version1Header, ShortMessagesAreToldFromMalformedOnes) {
  for (uint32_t proc = 0; proc <= 4; ++proc) {
    uint32_t needs = proc == kDoneProc ? 16 : proc == kErrorProc ? 20 : 28;
    Bytes message = to_bytes(join({fixed(proc), {2}, zeros(20)}));
    for (size_t size = 0; size < needs; ++size)
      EXPECT_EQ(Decoding(Bytes(message.begin(), message.begin() + ptrdiff_t(size))).verdict(),
                Verdict::kTooShort);
    message.resize(needs);
    EXPECT_NE(Decoding(message).verdict(), Verdict::kTooShort);
  }
}

// Shows: V1-HDR-13, V1-HDR-18
TEST(Version1Header, BytesBehindHeadersWithoutMessageAreIgnored) {
  const Words messages[] = {
      join({fixed(kNoMsgProc), read_entry(0, 100), kNoLists}),
      fixed(kDoneProc),
      join({fixed(kErrorProc), {1, 1, 2}}),
      join({fixed(kErrorProc), {2}}),
  };
  for (const Words& words : messages) {
    Decoding plain(words);
    Decoding trailed(join({words, zeros(8)}));
    EXPECT_EQ(plain.verdict(), Verdict::kOk);
    EXPECT_EQ(trailed.verdict(), Verdict::kOk);
    EXPECT_EQ(plain.decoded.header_length, 4 * words.size());
    EXPECT_EQ(trailed.decoded.header_length, 4 * words.size());
  }
}

// Shows: V1-HDR-14, V1-DONE-04
TEST(Version1Header, DoneIsTheFixedWordsAlone) {
  Decoding d(fixed(kDoneProc));
  EXPECT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(d.header.type, MessageType::kDone);
  EXPECT_EQ(d.header.xid, kXid);
  EXPECT_EQ(encoded(d.header).size(), 16u);
}

// Shows: V1-MSGP-01, V1-MSGP-03, V1-MSGP-08
TEST(Version1Header, MsgpHasTwoWordsMoreAndIsOtherwiseAsMsg) {
  for (Direction role : {Direction::kCall, Direction::kReply}) {
    Decoding d(join({fixed(kMsgpProc), {8, 1024}, zeros(1), chunk({100}), zeros(2), kRpc}), role);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.type, MessageType::kMsgp);
    EXPECT_EQ(d.header.msgp_align, 8u);
    EXPECT_EQ(d.header.msgp_thresh, 1024u);
    EXPECT_EQ(d.header.lists.num_writes, 1);
    EXPECT_EQ(d.decoded.header_length, 36u + 24u);
  }
  Decoding smallest(join({fixed(kMsgpProc), {8, 1024}, kNoLists}));
  EXPECT_EQ(smallest.verdict(), Verdict::kOk);
  EXPECT_EQ(smallest.decoded.header_length, 36u);
  // Long enough to be answered, too short for its lists.
  EXPECT_EQ(Decoding(join({fixed(kMsgpProc), zeros(4)})).verdict(), Verdict::kTruncated);
}

// Shows: V1-ERR-01, V1-ERR-02, V1-HDR-14
TEST(Version1Header, ErrVersCarriesTheRangeOfVersions) {
  Decoding d(join({fixed(kErrorProc), {1, 1, 2}}), Direction::kReply);
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(d.header.type, MessageType::kError);
  EXPECT_EQ(d.header.error.code, ErrorCode::kVersion);
  EXPECT_EQ(d.header.error.low, 1u);
  EXPECT_EQ(d.header.error.high, 2u);

  Header answer;
  answer.xid = kXid;
  answer.version = 7;
  answer.credits = 32;
  answer.type = MessageType::kError;
  answer.error = {.code = ErrorCode::kVersion, .low = 1, .high = 1};
  EXPECT_EQ(encoded(answer), to_bytes(join({fixed(kErrorProc, 7), {1, 1, 1}})));
  EXPECT_EQ(Decoding(join({fixed(kErrorProc), {1, 1}})).verdict(), Verdict::kTruncated);
}

// Shows: V1-ERR-05
TEST(Version1Header, ErrVersIsUnderstoodWithAnyVersionWord) {
  for (uint32_t version : {1u, 2u, 7u, 0u}) {
    Decoding d(join({fixed(kErrorProc, version), {1, 3, 5}}), Direction::kReply);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.type, MessageType::kError);
    EXPECT_EQ(d.header.version, version);
    EXPECT_EQ(d.header.error.code, ErrorCode::kVersion);
    EXPECT_EQ(d.header.error.low, 3u);
    EXPECT_EQ(d.header.error.high, 5u);
  }
  // The words of other errors are those of their version.
  EXPECT_EQ(Decoding(join({fixed(kErrorProc, 2), {2}, zeros(8)}), Direction::kReply).verdict(),
            Verdict::kBadVersion);
  EXPECT_EQ(Decoding(join({fixed(kErrorProc, 2), {1, 3}}), Direction::kReply).verdict(),
            Verdict::kBadVersion);
}

// Shows: V1-ERR-01, V1-ERR-09
TEST(Version1Header, ErrChunkIsTakenWithAndWithoutItsExtraWordsAndSentWithout) {
  for (size_t extra = 0; extra <= 8; ++extra) {
    Decoding d(join({fixed(kErrorProc), {2}, zeros(extra)}), Direction::kReply);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.error.code, ErrorCode::kBadHeader);
    EXPECT_EQ(d.decoded.header_length, 20u);
    EXPECT_EQ(encoded(d.header), to_bytes(join({fixed(kErrorProc), {2}})));
  }
}

// Shows: V1-ERR-01, V1-ERR-09
TEST(Version1Header, ErrChunkNeedsNothingButItsCode) {
  Header answer;
  answer.xid = kXid;
  answer.credits = 32;
  answer.type = MessageType::kError;
  answer.error.code = ErrorCode::kBadHeader;
  EXPECT_EQ(encoded(answer), to_bytes(join({fixed(kErrorProc), {2}})));
}

// Shows: V1-ERR-15
TEST(Version1Header, UnknownErrorCodesAreErrors) {
  for (uint32_t code : {0u, 3u, 77u, 0xffffffffu}) {
    Decoding d(join({fixed(kErrorProc), {code}}), Direction::kReply);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.error.code, ErrorCode::kOther);
    EXPECT_EQ(d.header.error.raw, code);
    EXPECT_EQ(encoded(d.header), to_bytes(join({fixed(kErrorProc), {code}})));
  }
}

// Shows: V1-HDR-24
TEST(Version1Header, EncodeNeedsSpaceForTheWholeHeader) {
  Decoding d(join({fixed(kMsgProc), read_entry(4, 8), zeros(1), chunk({1, 2}), zeros(2), kRpc}));
  ASSERT_EQ(d.verdict(), Verdict::kOk);
  uint32_t length = encoded_length(d.header);
  EXPECT_EQ(length, d.decoded.header_length);
  for (uint32_t room = 0; room < length; ++room) {
    Bytes out(room, std::byte{0xee});
    EXPECT_EQ(encode(d.header, out), 0u);
    EXPECT_EQ(out, Bytes(room, std::byte{0xee}));
  }
  Bytes more(length + 8, std::byte{0xee});
  EXPECT_EQ(encode(d.header, more), length);
  EXPECT_EQ(more[length], std::byte{0xee});
}

TEST(Version1Header, EachVerdictHasAName) {
  std::vector<std::string> names;
  for (int v = 0; v <= static_cast<int>(Verdict::kTooManyBytes); ++v)
    names.push_back(to_string(Verdict(v)));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(std::count(names.begin(), names.end(), to_string(Verdict(200))), 0);
}

}  // namespace
}  // namespace rrdk::proto
