// The headers of version 2, both drafts, as words: draft-04 section 6.2, draft-00 section 4.2.
#include <gtest/gtest.h>

#include <algorithm>

#include "messages.h"

namespace rrdk::proto {
namespace {

constexpr uint32_t kOptionalProc = 5;
constexpr uint32_t kCall = 0, kReply = 1;
const Words kNoLists = {0, 0, 0};
const Words kRpcCall = {kXid, kCall, 2, 100003};
const Words kRpcReply = {kXid, kReply, 0, 0};

Limits draft(Wire wire, Limits limits = {}) {
  limits.versions = {.one = true, .two = wire};
  return limits;
}

struct Decoding2 {
  explicit Decoding2(const Words& words, Wire wire, Direction expected = Direction::kCall,
                     const Limits& limits = {})
      : decoded(decode(to_bytes(words), expected, draft(wire, limits), header)) {}
  Verdict verdict() const { return decoded.verdict; }

  Header header;
  Decoded decoded;
};

// A message of version 2 with chunk lists.
Words message(Wire wire, uint32_t proc, const Words& lists, const Words& rpc,
              uint32_t direction = kCall, uint32_t invalidate = 0) {
  Words start = fixed(proc, 2);
  if (wire == Wire::kDraft04)
    start = join({start, {direction, invalidate}});
  return join({start, lists, rpc});
}

const Wire kDrafts[] = {Wire::kDraft00, Wire::kDraft04};

// Shows: V2D0-HDR-01, V2D0-HDR-03, V2D4-HDR-01, V2D4-HDR-03, V2D4-HDR-06, V2X-04
TEST(Version2Header, ACallWithoutChunksHasTheseWords) {
  std::byte plain[kMinHeader04];
  encode_plain({Wire::kDraft04, Direction::kCall, kXid, 32, 0}, plain);
  EXPECT_TRUE(std::ranges::equal(plain, to_bytes({kXid, 2, 32, 0, 0, 0, 0, 0, 0})));
  encode_plain({Wire::kDraft00, Direction::kCall, kXid, 32, 0}, plain);
  EXPECT_TRUE(std::ranges::equal(std::span(plain).first(28), to_bytes({kXid, 2, 32, 0, 0, 0, 0})));

  for (Wire wire : kDrafts) {
    Decoding2 d(message(wire, kMsgProc, kNoLists, kRpcCall), wire);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.decoded.header_length, min_header(wire));
    EXPECT_EQ(d.header.wire, wire);
    EXPECT_EQ(d.header.version, 2u);
    EXPECT_EQ(d.header.credits, 32u);
    EXPECT_EQ(d.header.type, MessageType::kMsg);
    EXPECT_EQ(d.header.direction, Direction::kCall);
    EXPECT_EQ(encoded(d.header), to_bytes(message(wire, kMsgProc, kNoLists, {})));
  }
}

// Shows: V2D4-HDR-05, V2D4-DIR-01
TEST(Version2Header, Draft04SaysWhetherItIsACallOrAReply) {
  for (uint32_t direction : {kCall, kReply}) {
    const Words& rpc = direction == kCall ? kRpcCall : kRpcReply;
    for (const Words& lists : {kNoLists, join({{0}, chunk({100}), {0, 0}})}) {
      Decoding2 d(message(Wire::kDraft04, kMsgProc, lists, rpc, direction), Wire::kDraft04);
      ASSERT_EQ(d.verdict(), Verdict::kOk);
      EXPECT_EQ(d.header.direction, static_cast<Direction>(direction));
      EXPECT_EQ(encoded(d.header),
                to_bytes(message(Wire::kDraft04, kMsgProc, lists, {}, direction)));
    }
  }
}

// Shows: V2D4-DIR-07
TEST(Version2Header, ADirectionThatContradictsTheMessageIsRefused) {
  for (const Words& lists : {kNoLists, join({{0}, chunk({100}), {0, 0}})}) {
    Decoding2 call(message(Wire::kDraft04, kMsgProc, lists, kRpcReply, kCall), Wire::kDraft04);
    EXPECT_EQ(call.verdict(), Verdict::kBadDirection);
    EXPECT_EQ(call.header.direction, Direction::kCall);
    Decoding2 reply(message(Wire::kDraft04, kMsgProc, lists, kRpcCall, kReply), Wire::kDraft04);
    EXPECT_EQ(reply.verdict(), Verdict::kBadDirection);
    EXPECT_EQ(reply.header.direction, Direction::kReply);
    Decoding2 neither(message(Wire::kDraft04, kMsgProc, lists, kRpcCall, 7), Wire::kDraft04);
    EXPECT_EQ(neither.verdict(), Verdict::kBadDirection);
    EXPECT_EQ(neither.header.direction, Direction::kUnknown);
  }
}

// Shows: V2D0-BIDIR-02, BIDIR-04
TEST(Version2Header, WithoutAFieldForItTheDirectionIsTheMessages) {
  for (Direction expected : {Direction::kCall, Direction::kReply}) {
    for (uint32_t version : {1u, 2u}) {
      Words start = fixed(kMsgProc, version);
      Decoding2 call(join({start, kNoLists, kRpcCall}), Wire::kDraft00, expected);
      EXPECT_EQ(call.header.direction, Direction::kCall);
      Decoding2 reply(join({start, kNoLists, kRpcReply}), Wire::kDraft00, expected);
      EXPECT_EQ(reply.header.direction, Direction::kReply);
      Decoding2 neither(join({start, kNoLists, {kXid, 9, 0, 0}}), Wire::kDraft00, expected);
      EXPECT_EQ(neither.header.direction, expected);
    }
  }
}

// Shows: BIDIR-15
TEST(Version2Header, AReadListShowsThatAnRdmaNomsgIsACall) {
  Words long_call = join({fixed(kNoMsgProc), read_entry(0, 100), kNoLists});
  EXPECT_EQ(Decoding2(long_call, Wire::kDraft04, Direction::kReply).header.direction,
            Direction::kCall);
  Words long_reply = join({fixed(kNoMsgProc), {0, 0}, chunk({100})});
  EXPECT_EQ(Decoding2(long_reply, Wire::kDraft04, Direction::kReply).header.direction,
            Direction::kReply);
  EXPECT_EQ(Decoding2(long_reply, Wire::kDraft04, Direction::kCall).verdict(), Verdict::kNoMessage);
}

// Shows: V2D0-HDR-04, V2D4-HDR-04, V2D4-HDR-11, V2D4-HDR-12
TEST(Version2Header, TheListsAreThoseOfVersion1) {
  Words lists = join({read_entry(8, 100),
                      read_entry(8, 50),
                      {0},
                      chunk({100, 200}),
                      chunk({}),
                      {0},
                      chunk({4096})});
  Decoding one(join({fixed(kMsgProc), lists, kRpcCall}));
  ASSERT_EQ(one.verdict(), Verdict::kOk);
  Bytes bytes = encoded(one.header);
  for (Wire wire : kDrafts) {
    Decoding2 d(message(wire, kMsgProc, lists, kRpcCall, kCall, 7), wire);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.lists.num_segments, one.header.lists.num_segments);
    EXPECT_EQ(d.header.invalidate, wire == Wire::kDraft04 ? 7u : 0u);
    Bytes again = encoded(d.header);
    uint32_t lists_at = wire == Wire::kDraft04 ? 24 : 16;
    EXPECT_TRUE(
        std::ranges::equal(std::span(again).subspan(lists_at), std::span(bytes).subspan(16)));
  }
  Decoding2 long_call(
      message(Wire::kDraft04, kNoMsgProc, join({read_entry(0, 5000), kNoLists}), {}),
      Wire::kDraft04);
  EXPECT_EQ(long_call.verdict(), Verdict::kOk);
  EXPECT_EQ(long_call.header.type, MessageType::kNoMsg);
}

// Shows: V2D4-HDR-02, V2D4-HDR-10, V2D4-ERR-06, V2D4-ERR-18, V2X-08
TEST(Version2Header, Draft04DefinesEightTypes) {
  for (uint32_t proc : {2u, 3u, 10u, 11u, 0xffffffffu}) {
    Decoding2 d(fixed(proc, 2), Wire::kDraft04);
    EXPECT_EQ(d.verdict(), Verdict::kBadType) << proc;
  }
  for (uint32_t proc = 6; proc <= 9; ++proc) {
    Decoding2 d(join({fixed(proc, 2), zeros(3)}), Wire::kDraft04);
    EXPECT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(static_cast<uint32_t>(d.header.type), proc);
  }
}

// Shows: V2D0-HDR-02, V2D0-HDR-05, V2D0-HDR-09, V2D0-ERR-03, V2X-11
TEST(Version2Header, Draft00ReservesTwoTypesAndDefinesNoProperties) {
  Decoding2 msgp(fixed(2, 2), Wire::kDraft00);
  EXPECT_EQ(msgp.verdict(), Verdict::kBadType);
  EXPECT_EQ(msgp.decoded.header_length, 16u);
  Decoding2 done(fixed(3, 2), Wire::kDraft00);
  EXPECT_EQ(done.verdict(), Verdict::kOk);
  EXPECT_EQ(done.header.type, MessageType::kDone);
  for (uint32_t proc : {6u, 7u, 8u, 9u, 0xffffffffu})
    EXPECT_EQ(Decoding2(fixed(proc, 2), Wire::kDraft00).verdict(), Verdict::kBadType);
}

// Shows: V2X-01, V2X-02, V2D4-ERR-23
TEST(Version2Header, WhichDraftIsMeantIsNeverGuessed) {
  Words from_00 = message(Wire::kDraft00, kMsgProc, kNoLists, kRpcCall);
  EXPECT_EQ(Decoding2(from_00, Wire::kDraft00).verdict(), Verdict::kOk);
  EXPECT_NE(Decoding2(from_00, Wire::kDraft04).verdict(), Verdict::kOk);
  // Sixteen bytes: too short to be answered in draft-00, a truncated header in draft-04.
  EXPECT_EQ(Decoding2(fixed(kMsgProc, 2), Wire::kDraft00).verdict(), Verdict::kTooShort);
  Decoding2 cut(fixed(kMsgProc, 2), Wire::kDraft04);
  EXPECT_EQ(cut.verdict(), Verdict::kTruncated);
  EXPECT_EQ(cut.header.direction, Direction::kUnknown);
  for (uint32_t direction : {kCall, kReply}) {
    Decoding2 lists(join({fixed(kMsgProc, 2), {direction, 0, 1}}), Wire::kDraft04);
    EXPECT_EQ(lists.verdict(), Verdict::kTruncated);
    EXPECT_EQ(lists.header.direction, static_cast<Direction>(direction));
  }
}

struct ErrorVector {
  ErrorBody error;
  Words words;
};

// Shows: V2D4-ERR-01, V2D4-ERR-02, V2D4-HDR-07, V2D4-DIR-06, V2D4-ERR-21, V2X-14
TEST(Version2Header, Draft04HasTenErrors) {
  const ErrorVector vectors[] = {
      {{.code = ErrorCode::kVersion, .raw = 1, .low = 1, .high = 2}, {1, 1, 2}},
      {{.code = ErrorCode::kBadHeader, .raw = 2}, {2}},
      {{.code = ErrorCode::kBadProc, .raw = 3}, {3}},
      {{.code = ErrorCode::kReadChunks, .raw = 4, .maximum = 16}, {4, 16}},
      {{.code = ErrorCode::kWriteChunks, .raw = 5, .maximum = 8}, {5, 8}},
      {{.code = ErrorCode::kSegments, .raw = 6, .maximum = 32}, {6, 32}},
      {{.code = ErrorCode::kWriteResource, .raw = 7, .index = 2, .length = 4096}, {7, 2, 4096}},
      {{.code = ErrorCode::kReplyResource, .raw = 8, .length = 10000}, {8, 10000}},
      {{.code = ErrorCode::kBadOption, .raw = 9}, {9}},
      {{.code = ErrorCode::kSystem, .raw = 10}, {10}},
  };
  for (const ErrorVector& v : vectors) {
    Header header;
    header.xid = kXid;
    header.version = 2;
    header.credits = 32;
    header.wire = Wire::kDraft04;
    header.type = MessageType::kError;
    header.error = v.error;
    Words words = join({fixed(kErrorProc, 2), v.words});
    EXPECT_EQ(encoded(header), to_bytes(words));
    Decoding2 d(words, Wire::kDraft04, Direction::kReply);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.direction, Direction::kReply);
    EXPECT_EQ(d.header.error.code, v.error.code);
    EXPECT_EQ(d.header.error.raw, v.error.raw);
    EXPECT_EQ(d.header.error.low, v.error.low);
    EXPECT_EQ(d.header.error.high, v.error.high);
    EXPECT_EQ(d.header.error.maximum, v.error.maximum);
    EXPECT_EQ(d.header.error.index, v.error.index);
    EXPECT_EQ(d.header.error.length, v.error.length);
    words.pop_back();
    EXPECT_NE(Decoding2(words, Wire::kDraft04, Direction::kReply).verdict(), Verdict::kOk);
  }
}

// Shows: V2D4-ERR-24
TEST(Version2Header, UnknownErrorsAreErrors) {
  for (uint32_t code : {0u, 11u, 0xffffffffu}) {
    for (Wire wire : kDrafts) {
      Decoding2 d(join({fixed(kErrorProc, 2), {code}}), wire, Direction::kReply);
      ASSERT_EQ(d.verdict(), Verdict::kOk);
      EXPECT_EQ(d.header.error.code, ErrorCode::kOther);
      EXPECT_EQ(d.header.error.raw, code);
    }
  }
  Decoding2 d(join({fixed(kErrorProc, 2), {9}}), Wire::kDraft00, Direction::kReply);
  EXPECT_EQ(d.header.error.code, ErrorCode::kOther);  // V2X-06
}

// Shows: V2D0-ERR-01, V2D0-ERR-02, V2D0-ERR-04, V2X-05, V2X-06
TEST(Version2Header, Draft00HasThreeErrorsAndWritesTheOthersAsBadHeader) {
  Header header;
  header.xid = kXid;
  header.version = 2;
  header.credits = 32;
  header.wire = Wire::kDraft00;
  header.type = MessageType::kError;
  for (ErrorCode code : {ErrorCode::kBadHeader, ErrorCode::kBadProc, ErrorCode::kReadChunks,
                         ErrorCode::kWriteChunks, ErrorCode::kSegments, ErrorCode::kWriteResource,
                         ErrorCode::kReplyResource, ErrorCode::kSystem}) {
    header.error = {.code = code};
    EXPECT_EQ(encoded(header), to_bytes(join({fixed(kErrorProc, 2), {2}})));
  }
  header.error = {.code = ErrorCode::kBadOption};
  EXPECT_EQ(encoded(header), to_bytes(join({fixed(kErrorProc, 2), {3}})));
  Decoding2 bad_header(join({fixed(kErrorProc, 2), {2}}), Wire::kDraft00, Direction::kReply);
  EXPECT_EQ(bad_header.header.error.code, ErrorCode::kBadHeader);
  Decoding2 bad_option(join({fixed(kErrorProc, 2), {3}}), Wire::kDraft00, Direction::kReply);
  EXPECT_EQ(bad_option.header.error.code, ErrorCode::kBadOption);
}

// Shows: V2X-15
TEST(Version2Header, AVersionErrorIsTheSameInAllVersions) {
  Words words = join({fixed(kErrorProc, 9), {1, 1, 2}});
  for (Wire wire : {Wire::kVersion1, Wire::kDraft00, Wire::kDraft04}) {
    Header header;
    header.xid = kXid;
    header.version = 9;
    header.credits = 32;
    header.wire = wire;
    header.type = MessageType::kError;
    header.error = {.code = ErrorCode::kVersion, .low = 1, .high = 2};
    EXPECT_EQ(encoded(header), to_bytes(words));
  }
  for (Wire wire : kDrafts) {
    Decoding2 d(words, wire, Direction::kReply);
    ASSERT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.error.code, ErrorCode::kVersion);
    EXPECT_EQ(d.header.error.high, 2u);
  }
}

// Shows: V2D4-OPT-01, V2D0-OPT-01, V2D0-HDR-07, V2D4-HDR-08, V2D4-DIR-02, V2X-07
TEST(Version2Header, AnOptionHasATypeItsDataAndPerhapsAMessage) {
  for (Wire wire : kDrafts) {
    for (uint32_t size : {0u, 1u, 4u, 5u}) {
      for (uint32_t direction : {kCall, kReply}) {
        Header header;
        header.xid = kXid;
        header.credits = 32;
        header.wire = wire;
        header.type = MessageType::kOptional;
        header.direction = static_cast<Direction>(direction);
        header.option.type = 77;
        Bytes data(size, std::byte{0xab});
        Bytes out(64);
        uint32_t length = encode_option(header, data, out);
        uint32_t start = wire == Wire::kDraft04 ? 28 : 24;
        ASSERT_EQ(length, start + (size + 3) / 4 * 4);
        EXPECT_EQ(encode_option(header, data, std::span(out).first(length - 1)), 0u);
        out.resize(length);
        Bytes behind = to_bytes(kRpcCall);
        out.insert(out.end(), behind.begin(), behind.end());

        Header again;
        Decoded decoded = decode(out, Direction::kCall, draft(wire), again);
        ASSERT_EQ(decoded.verdict, Verdict::kOk);
        EXPECT_EQ(decoded.header_length, length);
        EXPECT_EQ(again.type, MessageType::kOptional);
        EXPECT_EQ(again.option.type, 77u);
        EXPECT_EQ(again.option.offset, start);
        EXPECT_EQ(again.option.length, size);
        Direction seen = wire == Wire::kDraft04 ? header.direction : Direction::kCall;
        EXPECT_EQ(again.direction, seen);
      }
    }
  }
}

// Shows: V2D0-OPT-07
TEST(Version2Header, AnOptionsDataStaysWithinTheMessage) {
  Words start = join({fixed(kOptionalProc, 2), {0}});
  for (uint32_t length : {9u, 1000u, 0xfffffffdu, 0xffffffffu}) {
    EXPECT_EQ(
        Decoding2(join({fixed(kOptionalProc, 2), {77, length, 1, 2}}), Wire::kDraft00).verdict(),
        Verdict::kTruncated);
    EXPECT_EQ(Decoding2(join({start, {77, length, 1, 2}}), Wire::kDraft04).verdict(),
              Verdict::kTruncated);
  }
  EXPECT_EQ(Decoding2(join({fixed(kOptionalProc, 2), {3, 77, 0}}), Wire::kDraft04).verdict(),
            Verdict::kBadDirection);
}

// Shows: V2D4-ERR-18, V2D4-ERR-19
TEST(Version2Header, TheFirstOfSeveralFaultsIsNamed) {
  Limits limits;
  limits.read_chunks = 4;
  limits.write_chunks = 4;
  limits.chunk_segments = 16;
  auto verdict = [&](const Words& lists, const Words& rpc = kRpcCall) {
    return Decoding2(message(Wire::kDraft04, kMsgProc, lists, rpc), Wire::kDraft04,
                     Direction::kCall, limits)
        .verdict();
  };
  Words five_reads, five_writes, seventeen;
  for (uint32_t i = 1; i <= 5; ++i) {
    five_reads = join({five_reads, read_entry(4 * i, 4)});
    five_writes = join({five_writes, chunk({4})});
  }
  for (uint32_t i = 0; i != 17; ++i)
    seventeen = join({seventeen, read_entry(4, 4)});
  EXPECT_EQ(verdict(join({five_reads, kNoLists})), Verdict::kTooManyReadChunks);
  EXPECT_EQ(verdict(join({five_reads, seventeen, {0}, five_writes, {0, 0}})),
            Verdict::kTooManyReadChunks);
  EXPECT_EQ(verdict(join({seventeen, {0}, five_writes, {0, 0}})), Verdict::kTooManyWriteChunks);
  EXPECT_EQ(verdict(join({seventeen, kNoLists})), Verdict::kTooManySegments);
  EXPECT_EQ(verdict(join({{0, 0}, chunk(std::vector<uint32_t>(17, 4))})),
            Verdict::kTooManySegments);
  EXPECT_EQ(verdict(join({{0}, chunk(std::vector<uint32_t>(17, 4)), {0, 0}})),
            Verdict::kTooManySegments);
  // An XDR error counts for more, wherever it is.
  EXPECT_EQ(verdict(join({five_reads, seventeen, {0, 0, 2}})), Verdict::kBadDiscriminator);
  EXPECT_EQ(verdict(join({five_reads, {0, 0}}), {}), Verdict::kTruncated);

  // The message's own chunk is not counted.
  limits.read_chunks = 1;
  auto long_call = [&](const Words& reads) {
    return Decoding2(message(Wire::kDraft04, kNoMsgProc, join({reads, kNoLists}), {}),
                     Wire::kDraft04, Direction::kCall, limits)
        .verdict();
  };
  EXPECT_EQ(long_call(join({read_entry(0, 100), read_entry(40, 4)})), Verdict::kOk);
  EXPECT_EQ(long_call(join({read_entry(0, 100), read_entry(40, 4), read_entry(44, 4)})),
            Verdict::kTooManyReadChunks);
}

}  // namespace
}  // namespace rrdk::proto
