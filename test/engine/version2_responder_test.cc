// A responder of version 2 against a scripted requester, word by word (draft-04 section 6.2,
// draft-00 section 4.2).
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kOptional = 5, kConnProp = 6, kReqProp = 7, kRespProp = 8, kUpdProp = 9;
constexpr uint32_t kCall = 0, kReply = 1;

class Version2Responder : public ResponderTest {
 protected:
  void connect(proto::Wire draft, ConnectionOptions options = {},
               proto::PrivateData peer = {true, 4096, 4096}) {
    options.limits.versions.two = draft;
    options.properties = false;
    draft_ = draft;
    ResponderTest::connect(options, peer);
  }
  // A call up to its lists.
  Wire start(uint32_t proc, uint32_t xid = 55, uint32_t invalidate = 0) const {
    Wire wire{xid, 2, 4, proc};
    if (draft_ == proto::Wire::kDraft04)
      wire.add({kCall, invalidate});
    return wire;
  }
  Wire plain(uint32_t xid = 55) const { return start(kMsg, xid).add({0, 0, 0, xid, kCall, 7}); }
  size_t lists_at() const { return draft_ == proto::Wire::kDraft04 ? 6 : 4; }

  void expect_error(const Bytes& message, std::initializer_list<uint32_t> words,
                    uint32_t xid = 55) {
    size_t reads = end->qp.count(Op::kRead);
    uint64_t calls = end->calls;
    peer_side->say(message);
    Bytes answer = only_answer();
    ASSERT_EQ(answer.size(), 16 + 4 * words.size());
    EXPECT_EQ(word(answer, 0), xid);
    EXPECT_EQ(word(answer, 1), word(message, 1));
    EXPECT_EQ(word(answer, 2), end->engine->responder().grant.last());
    EXPECT_EQ(word(answer, 3), kError);
    size_t index = 4;
    for (uint32_t expected : words)
      EXPECT_EQ(word(answer, index++), expected);
    EXPECT_EQ(end->qp.log.back().op, Op::kSend);  // V2D4-RINV-12
    EXPECT_EQ(end->qp.count(Op::kRead), reads);
    EXPECT_EQ(end->calls, calls);
  }
  void expect_silence(const Bytes& message) {
    uint64_t calls = end->calls;
    peer_side->say(message);
    EXPECT_TRUE(peer_side->take().empty());
    EXPECT_EQ(end->calls, calls);
  }
  void expect_served(uint32_t xid = 77) {
    peer_side->say(plain(xid));
    Bytes answer = only_answer();
    EXPECT_EQ(word(answer, 1), 2u);
    EXPECT_EQ(word(answer, 3), kMsg);
    EXPECT_FALSE(end->engine->wants_disconnect());
  }

  proto::Wire draft_ = proto::Wire::kDraft04;
};

class EachDraft : public Version2Responder, public testing::WithParamInterface<proto::Wire> {};

INSTANTIATE_TEST_SUITE_P(Drafts, EachDraft,
                         testing::Values(proto::Wire::kDraft00, proto::Wire::kDraft04),
                         [](const auto& draft) {
                           return draft.param == proto::Wire::kDraft00 ? "Draft00" : "Draft04";
                         });

// Shows: V2D0-NEG-03, V2D0-NEG-09, V2D4-NEG-03, V2D4-NEG-07, V2D4-NEG-11, V2X-10,
// V2D4-RINV-09
TEST_P(EachDraft, ACallIsAnsweredInItsOwnVersion) {
  connect(GetParam());
  for (uint32_t version : {2u, 1u, 2u}) {
    Wire one{55, 1, 4, kMsg, 0, 0, 0, 55, kCall, 7};
    peer_side->say(version == 1 ? one : plain());
    Bytes answer = only_answer();
    EXPECT_EQ(word(answer, 0), 55u);
    EXPECT_EQ(word(answer, 1), version);
    EXPECT_EQ(word(answer, 3), kMsg);
    size_t rpc = version == 1 ? 7 : lists_at() + 3;
    EXPECT_EQ(answer.size(), 4 * (rpc + 3));
    EXPECT_EQ(word(answer, rpc), 55u);
    if (rpc == 9) {
      EXPECT_EQ(word(answer, 4), kReply);  // V2D4-DIR-01
      EXPECT_EQ(word(answer, 5), 0u);      // no handle
    }
  }
}

// Shows: V2D0-NEG-05, V2D4-NEG-04, V2X-16
TEST_F(Version2Responder, WithoutVersion2TheRangeIsTold) {
  ConnectionOptions options;
  options.limits.versions.two.reset();
  ResponderTest::connect(options);
  for (uint32_t proc : {0u, 1u, 5u, 6u, 7u, 8u, 9u})
    expect_error(Wire{55, 2, 4, proc, 0, 0}, {kErrVers, 1, 1});
  expect_error(Wire{55, 2, 4, kMsg}, {kErrVers, 1, 1});
  expect_silence(Wire{55, 2, 4, kError, 2});
  expect_alive();
}

// Shows: V2D4-ERR-05, V2D4-ERR-03
TEST_P(EachDraft, OtherVersionsAreToldTheRange) {
  connect(GetParam(), {.credits = 8});
  expect_error(Wire{55, 3, 4, kMsg, 0, 0, 0, 55, 0}, {kErrVers, 1, 2});
  expect_error(Wire{55, 0, 4, kOptional}, {kErrVers, 1, 2});
  expect_served();
  // An error grants what a reply would: what is asked for, up to the limit.
  for (uint32_t asked : {3u, 8u, 100u}) {
    Bytes message = start(kMsg).add({2, 0, 0});
    xdr::store_u32(&message[8], asked);
    expect_error(message, {2});
    EXPECT_EQ(end->engine->responder().grant.last(), std::min(asked, 8u));
  }
}

TEST_F(Version2Responder, AnEndWithVersion2AloneSaysSo) {
  ConnectionOptions options;
  options.limits.versions.one = false;
  connect(proto::Wire::kDraft04, options);
  expect_error(Wire{55, 1, 4, kMsg, 0, 0, 0, 55, 0}, {kErrVers, 2, 2});
  expect_served();
}

// Shows: V2D4-ERR-06, V2D4-ERR-18, V2D4-HDR-07, V2D4-HDR-10
TEST_F(Version2Responder, UnknownTypesAreToldInDraft04) {
  connect(proto::Wire::kDraft04);
  for (uint32_t proc : {2u, 3u, 10u, 0xffffffffu}) {
    expect_error(Wire{55, 2, 4, proc}, {3});
    expect_error(Wire{55, 2, 4, proc, 9}, {3});
  }
  expect_served();
}

// Shows: V2D0-ERR-03, V2D0-HDR-09, V2X-08, V2X-11
TEST_F(Version2Responder, ReservedTypesOfDraft00) {
  connect(proto::Wire::kDraft00);
  expect_error(Wire{55, 2, 4, kMsgp}, {2});
  expect_silence(Wire{55, 2, 4, kDone});
  for (uint32_t proc : {kConnProp, kReqProp, kRespProp, kUpdProp, 0xffffffffu})
    expect_error(Wire{55, 2, 4, proc, 0, 0, 0}, {2});
  expect_served();
}

// Shows: V2D4-ERR-07, V2D4-ERR-23, V2D4-DIR-07, V2D4-ERR-25
TEST_F(Version2Responder, UnparsableMessagesAreAnsweredIfTheyMayBeCalls) {
  connect(proto::Wire::kDraft04);
  expect_silence(Bytes(15));
  expect_error(Wire{55, 2, 4, kMsg}, {2});
  expect_error(Wire{55, 2, 4, kMsg, kCall, 0, 1}, {2});
  expect_silence(Wire{55, 2, 4, kMsg, kReply, 0, 1});
  expect_error(Wire{55, 2, 4, kMsg, 7, 0, 0, 0, 0, 55, 0}, {2});
  expect_error(Wire{55, 2, 4, kMsg, kCall, 0, 0, 0, 0, 55, kReply}, {2});
  expect_silence(Wire{55, 2, 4, kMsg, kReply, 0, 0, 0, 0, 55, kCall});
  expect_silence(Wire{55, 2, 4, kMsg, kReply, 0, 0, 0, 0, 55, kReply});
  // Invalid Positions, and a long call without its message.
  expect_error(start(kMsg).add({1, 41, 9, 4, 0, 0, 0, 0, 0, 55, 0}), {2});
  expect_error(start(kMsg).add({1, 400, 9, 4, 0, 0, 0, 0, 0, 55, 0}), {2});
  expect_error(start(kMsg).add({1, 0, 9, 4, 0, 0, 0, 0, 0, 55, 0}), {2});
  expect_error(start(kNoMsg).add({0, 0, 0}), {2});
  expect_served();
}

// Shows: V2D0-ERR-02
TEST_F(Version2Responder, Draft00HasOneErrorForAllFaults) {
  ConnectionOptions options;
  options.limits.read_chunks = 1;
  connect(proto::Wire::kDraft00, options);
  expect_silence(Wire{55, 2, 4, kMsg, 0, 0});  // fewer than 28 bytes
  expect_error(start(kMsg).add({0, 0, 1}), {2});
  expect_error(start(kMsg).add({1, 41, 9, 4, 0, 0, 0, 0, 0, 55, 0}), {2});
  expect_error(start(kMsg).add({1, 8, 9, 4, 0, 0, 1, 12, 9, 4, 0, 0, 0, 0, 0, 55, 0, 0}), {2});
  expect_served();
}

// Shows: V2D4-ERR-08, V2D4-ERR-09, V2D4-ERR-10, V2D4-ERR-18, V2D4-HDR-07
TEST_F(Version2Responder, LimitsAreTold) {
  ConnectionOptions options;
  options.limits.read_chunks = 4;
  options.limits.write_chunks = 4;
  options.limits.chunk_segments = 16;
  connect(proto::Wire::kDraft04, options);
  auto reads = [&](uint32_t count) {
    Wire wire = start(kMsg);
    for (uint32_t i = 0; i < count; ++i)
      wire.add({1, 8 + 4 * i, 9, 4, 0, 0});
    return wire;
  };
  auto writes = [&](uint32_t chunks, uint32_t segments) {
    Wire wire = start(kMsg).add(0);
    for (uint32_t i = 0; i < chunks; ++i) {
      wire.add({1, segments});
      for (uint32_t k = 0; k < segments; ++k)
        wire.add({9, 4, 0, 0});
    }
    return wire.add({0, 0, 55, 0});
  };
  expect_error(reads(5).add({0, 0, 0, 55, 0}), {4, 4});
  expect_error(writes(5, 1), {5, 4});
  expect_error(writes(1, 17), {6, 16});
  Wire reply = start(kMsg).add({0, 0, 1, 17});
  for (uint32_t k = 0; k < 17; ++k)
    reply.add({9, 4, 0, 0});
  expect_error(reply.add({55, 0}), {6, 16});
  EXPECT_EQ(counters().refusals[Refusal::kTooManyReadChunks], 1u);
  EXPECT_EQ(counters().refusals[Refusal::kTooManyWriteChunks], 1u);
  EXPECT_EQ(counters().refusals[Refusal::kTooManySegments], 2u);
  expect_served();
}

// Shows: V2D4-ERR-11, V2D4-ERR-12, V2D4-ERR-22
TEST_F(Version2Responder, MissingRoomIsToldInBytes) {
  connect(proto::Wire::kDraft04);
  uint32_t small = peer_side->expose(Bytes(100), Rights::kRemoteWrite);
  uint32_t large = peer_side->expose(Bytes(8192), Rights::kRemoteWrite);
  results({8192, 4095});
  Wire call = start(kMsg).add(0);
  for (uint32_t key : {large, small}) {
    call.add({1, 1});
    peer_side->segment(call, key, static_cast<uint32_t>(peer_side->at(key).bytes.size()));
  }
  peer_side->say(call.add({0, 0, 55, 0}));
  Bytes answer = only_answer();
  ASSERT_EQ(answer.size(), 28u);
  EXPECT_EQ(word(answer, 4), 7u);
  EXPECT_EQ(word(answer, 5), 2u);
  EXPECT_EQ(word(answer, 6), 4095u);

  results({}, 10000);
  peer_side->say(plain());
  answer = only_answer();
  ASSERT_EQ(answer.size(), 24u);
  EXPECT_EQ(word(answer, 4), 8u);
  EXPECT_EQ(word(answer, 5), 10008u);
  EXPECT_EQ(counters().refusals[Refusal::kNoReplyRoom], 2u);
}

// Shows: V2D4-OPT-02, V2D4-OPT-03, V2D4-POP-03, V2D0-OPT-02, V2D0-OPT-03
TEST_P(EachDraft, UnknownOptionsAreTold) {
  connect(GetParam());
  bool is_00 = GetParam() == proto::Wire::kDraft00;
  for (uint32_t type : {0u, 1u, 77u, 0xffffffffu}) {
    Wire option{55, 2, 4, kOptional};
    if (!is_00)
      option.add(kCall);
    expect_error(option.add({type, 4, 1}), {is_00 ? 3u : 9u});
  }
  if (!is_00)
    expect_silence(Wire{55, 2, 4, kOptional, kReply, 77, 0});
  // Data that runs past the end.
  Wire cut{55, 2, 4, kOptional};
  if (!is_00)
    cut.add(kCall);
  expect_error(cut.add({77, 1000, 1, 2, 3}), {2});
  expect_served();
}

// Shows: V2D4-INL-01, V2D4-INL-02, V2D0-INL-01, V2D0-INL-02, V2D0-INL-03, V2D0-INL-04,
// V2D0-INL-05, V2D4-INL-04
TEST_P(EachDraft, SendsOf4096BytesGoBothWaysDespiteVersion1Sizes) {
  connect(GetParam(), {.send_size = 1024, .receive_size = 1024}, {false, 1024, 1024});
  Wire call = plain();
  call.raw(Bytes(4096 - call.bytes().size()));
  peer_side->say(call);
  Bytes answer = only_answer();
  EXPECT_EQ(answer.size(), 4096u);
  EXPECT_EQ(word(answer, 3), kMsg);
  // Version 1 on the same connection has its own sizes.
  results({}, 2000);
  peer_side->say(Wire{56, 1, 4, kMsg, 0, 0, 0, 56, 0});
  EXPECT_EQ(word(only_answer(), 3), kError);
}

// Shows: V2D4-RINV-03, V2D4-RINV-04, V2D4-RINV-08, V2D4-RINV-09, V2D4-RINV-11, V2X-12
TEST_F(Version2Responder, TheCallNamesTheHandleThatIsInvalidated) {
  connect(proto::Wire::kDraft04, {}, {false, 4096, 4096});  // R is version 1's
  uint32_t first = peer_side->expose(Bytes(100), Rights::kRemoteWrite);
  uint32_t second = peer_side->expose(Bytes(100), Rights::kRemoteWrite);
  results({100, 100});
  auto call = [&](uint32_t invalidate) {
    Wire wire = start(kMsg, 55, invalidate).add(0);
    for (uint32_t key : {first, second}) {
      wire.add({1, 1});
      peer_side->segment(wire, key, 100);
    }
    peer_side->say(wire.add({0, 0, 55, 0}));
    EXPECT_EQ(word(only_answer(), 5), 0u);
    return peer_side->invalidated;
  };
  EXPECT_EQ(call(0), std::nullopt);
  EXPECT_EQ(call(second), second);
  EXPECT_EQ(call(first), first);
  EXPECT_EQ(call(4711), std::nullopt);
  EXPECT_EQ(counters().refusals[Refusal::kUnknownHandle], 1u);
}

// Shows: V2D4-RINV-07
TEST_F(Version2Responder, WithoutTheAbilityNothingIsInvalidated) {
  connect(proto::Wire::kDraft04, {.sends_invalidations = false});
  uint32_t key = peer_side->expose(Bytes(100), Rights::kRemoteWrite);
  results({100});
  Wire wire = start(kMsg, 55, key).add({0, 1, 1});
  peer_side->segment(wire, key, 100);
  peer_side->say(wire.add({0, 0, 55, 0}));
  EXPECT_EQ(word(only_answer(), 3), kMsg);
  EXPECT_EQ(peer_side->invalidated, std::nullopt);
}

// Shows: V2D0-RINV-01
TEST_F(Version2Responder, Draft00InvalidatesNothing) {
  connect(proto::Wire::kDraft00);
  uint32_t key = peer_side->expose(Bytes(100), Rights::kRemoteWrite);
  results({100});
  Wire wire = start(kMsg).add({0, 1, 1});
  peer_side->segment(wire, key, 100);
  peer_side->say(wire.add({0, 0, 55, 0}));
  EXPECT_EQ(word(only_answer(), 3), kMsg);
  EXPECT_EQ(peer_side->invalidated, std::nullopt);
}

}  // namespace
}  // namespace rrdk::engine::test
