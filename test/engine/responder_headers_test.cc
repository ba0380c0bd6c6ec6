// The responder against a scripted requester: valid and malformed headers, byte by byte.
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

// Shows: V1-HDR-01, V1-HDR-02, V1-HDR-03, V1-HDR-07, V1-HDR-12, V1-HDR-22, V1-CREDIT-02
TEST_F(ResponderTest, AnInlineReply) {
  connect({.credits = 8});
  peer_side->say(Wire{0x1234, 1, 5, kMsg, 0, 0, 0, 0x1234, 0, 42});
  EXPECT_EQ(only_answer(), (Wire{0x1234, 1, 5, kMsg, 0, 0, 0, 0x1234, 1, 42}.bytes()));
}

// Shows: V1-HDR-19, V1-ERR-21
TEST_F(ResponderTest, ShortMessagesAreDropped) {
  connect();
  size_t posted = end->qp.receives.size();
  Bytes message = Wire{1, 1, 4, kMsg, 0, 0, 0};
  for (size_t length = 0; length < 28; ++length)
    peer_side->say(Bytes(message.begin(), message.begin() + static_cast<long>(length)));
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().refusals[Refusal::kTooShort], 28u);
  EXPECT_EQ(end->qp.receives.size(), posted);
  expect_alive();
}

// Shows: V1-HDR-04, V1-ERR-01, V1-ERR-02, V1-ERR-03, V1-ERR-04, V1-HDR-14
TEST_F(ResponderTest, OtherVersionsGetErrVers) {
  ConnectionOptions options;
  options.limits.versions.two.reset();
  connect(options);
  for (uint32_t version : {0u, 2u, 3u, 7u, 0xffffffffu}) {
    peer_side->say(Wire{55, version, 4, kMsg, 9, 9, 9, 55, 0});
    Bytes answer = only_answer();
    ASSERT_EQ(answer.size(), 28u);
    EXPECT_EQ(word(answer, 0), 55u);
    EXPECT_EQ(word(answer, 1), version);
    EXPECT_EQ(word(answer, 3), kError);
    EXPECT_EQ(word(answer, 4), kErrVers);
    EXPECT_EQ(word(answer, 5), 1u);
    EXPECT_EQ(word(answer, 6), 1u);
  }
  EXPECT_EQ(counters().refusals[Refusal::kBadVersion], 5u);
  EXPECT_EQ(counters().breaches(), 0u) << "a peer of another version may try";
  EXPECT_EQ(end->calls, 0u);
  expect_alive();
}

// Shows: V1-ERR-11, V1-DONE-01, V1-DONE-02, V1-DONE-03
TEST_F(ResponderTest, ErrorsAndDoneAreDropped) {
  connect();
  size_t posted = end->qp.receives.size();
  for (uint32_t version : {1u, 2u, 9u})
    peer_side->say(Wire{1, version, 4, kError, kErrChunk, 0, 0});
  for (int i = 0; i < 1000; ++i)
    peer_side->say(Wire{1, 1, 4, kDone});
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().refusals[Refusal::kError], 3u);
  EXPECT_EQ(counters().refusals[Refusal::kDone], 1000u);
  EXPECT_EQ(end->qp.receives.size(), posted);
  expect_alive();
}

// Shows: V1-HDR-05, V1-HDR-16, V1-HDR-17, V1-ERR-06, V1-ERR-07, V1-ERR-08, V1-ERR-09, V1-ERR-10,
// V1-ERR-25, V1-ERR-26, V1-LONG-08, V1-LONG-09, V1-LONG-16, V1-RL-06, V1-RL-08, V1-RL-09,
// V1-CHUNK-12, V1-CHUNK-15, V1-WL-18, PD-34, EXP-27, V1-CREDIT-06, V1-CREDIT-21
TEST_F(ResponderTest, MalformedHeadersGetErrChunk) {
  connect();
  uint32_t key = peer_side->expose(pattern(8000, 1), Rights::kRemoteRead);
  for (uint32_t proc : {5u, 6u, 9u, 0xffffffffu})
    expect_err_chunk(Wire{7, 1, 4, proc, 0, 0, 0, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 2, 0, 0, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 2, 0, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 0, 2, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 0, 0, 8, 0}, 7);          // another XID
  expect_err_chunk(Wire{7, 1, 4, kMsgp, 8, 99, 0, 0, 0, 8, 0}, 7);  // the same
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 0, 0}, 7);                // no message
  expect_err_chunk(Wire{7, 1, 4, kNoMsg, 0, 0, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kNoMsg, 0, 1, 1, key, 100, 0, 0, 0, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 1, 0xffffffff, 1, 0, 0, 0, 0, 0}, 7);
  for (uint32_t position : {41u, 0u, 10000u}) {
    Wire wire{7, 1, 4, kMsg, 1, position};
    peer_side->segment(wire, key, 100).add({0, 0, 0, 7, 0, 1, 2, 3});
    expect_err_chunk(wire, 7);
  }
  Wire malformed_later{7, 1, 4, kMsg, 1, 8};
  peer_side->segment(malformed_later, key, 100).add({0, 5, 0, 7, 0});
  expect_err_chunk(malformed_later, 7);
  Wire overlapping{7, 1, 4, kMsg, 1, 8};
  peer_side->segment(overlapping, key, 100).add({1, 12});
  peer_side->segment(overlapping, key, 100).add({0, 0, 0, 7, 0, 1, 2});
  expect_err_chunk(overlapping, 7);
  Wire wraps{7, 1, 4, kMsg, 1, 8};
  wraps.segment(key, 0xffffffff, 0).add({1, 8}).segment(key, 2, 0).add({0, 0, 0, 7, 0});
  expect_err_chunk(wraps, 7);
  Wire large{7, 1, 4, kNoMsg, 1, 0};
  large.segment(key, 1u << 30, 0).add({0, 0, 0});
  expect_err_chunk(large, 7);
  Wire nine_mib{7, 1, 4, kNoMsg, 1, 0};
  nine_mib.segment(key, 9u << 20, 0).add({0, 0, 0});
  expect_err_chunk(nine_mib, 7);
  Wire chunks{7, 1, 4, kMsg, 0};
  for (int i = 0; i < 17; ++i)
    chunks.add({1, 0});
  expect_err_chunk(chunks.add({0, 0, 7, 0}), 7);
  EXPECT_EQ(counters().refusals[Refusal::kTooManyBytes], 3u);
  EXPECT_EQ(counters().refusals[Refusal::kTooManyWriteChunks], 1u);
  EXPECT_EQ(counters().refusals[Refusal::kXid], 3u);
  expect_alive();
}

// Shows: V1-HDR-20
TEST_F(ResponderTest, ATruncatedHeaderReadsNothing) {
  connect();
  uint32_t key = peer_side->expose(Bytes(400), Rights::kRemoteRead);
  Wire wire{7, 1, 4, kMsg, 1, 8};
  peer_side->segment(wire, key, 10).add({0, 1, 1, 1, 10, 0, 0, 0, 1, 1, 1, 10, 0, 0, 7, 0});
  Bytes whole = wire;
  for (size_t length = 28; length < whole.size() - 8; ++length) {
    peer_side->say(Bytes(whole.begin(), whole.begin() + static_cast<long>(length)));
    EXPECT_EQ(word(only_answer(), 4), kErrChunk);
  }
  EXPECT_EQ(end->qp.count(Op::kRead), 0u);
  expect_alive();
}

// Shows: V1-MSGP-03, V1-MSGP-02
TEST_F(ResponderTest, MsgpIsTakenAsMsg) {
  connect();
  peer_side->say(Wire{7, 1, 4, kMsgp, 8, 1024, 0, 0, 0, 7, 0, 5});
  EXPECT_EQ(only_answer(), (Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 1, 5}.bytes()));
}

}  // namespace
}  // namespace rrdk::engine::test
