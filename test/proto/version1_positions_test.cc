// Where Read chunks lie in the stream, and where the message is: RFC 5666 sections 3.4, 3.7 and 5.
#include <gtest/gtest.h>

#include "messages.h"

namespace rrdk::proto {
namespace {

Verdict of_msg(const Words& reads, size_t inline_bytes, Direction role = Direction::kCall) {
  Bytes message = to_bytes(join({fixed(kMsgProc), reads, {0, 0, 0}}));
  message.resize(message.size() + inline_bytes);
  return Decoding(message, role).verdict();
}

Verdict of_nomsg(const Words& reads, const Words& writes = {}, const Words& reply = {0},
                 Direction role = Direction::kCall) {
  return Decoding(join({fixed(kNoMsgProc), reads, {0}, writes, {0}, reply}), role).verdict();
}

// Shows: V1-RL-05, V1-RL-06
TEST(Version1Positions, AreMultiplesOfFour) {
  for (uint32_t position : {41u, 42u, 43u, 1u, 0xffffffffu})
    EXPECT_EQ(of_msg(read_entry(position, 8), 100), Verdict::kBadPosition);
  EXPECT_EQ(of_msg(read_entry(40, 8), 100), Verdict::kOk);
}

// Shows: V1-RL-08
TEST(Version1Positions, LieWithinTheInlineStream) {
  EXPECT_EQ(of_msg(read_entry(10000, 8), 100), Verdict::kBeyondMessage);
  EXPECT_EQ(of_msg(read_entry(104, 8), 100), Verdict::kBeyondMessage);
  // An item may be the last of the message.
  EXPECT_EQ(of_msg(read_entry(100, 8), 100), Verdict::kOk);
  EXPECT_EQ(of_msg(read_entry(4, 8), 0), Verdict::kBeyondMessage);
}

// Shows: V1-RL-03, V1-RL-04, EXP-04
TEST(Version1Positions, CountTheChunksBeforeThem) {
  // 48 bytes inline, a chunk of 5 and its pad, a count word inline, a chunk of 8.
  EXPECT_EQ(of_msg(join({read_entry(48, 5), read_entry(60, 8)}), 52), Verdict::kOk);
  EXPECT_EQ(of_msg(join({read_entry(48, 5), read_entry(64, 8)}), 52), Verdict::kBeyondMessage);
  EXPECT_EQ(of_msg(join({read_entry(48, 5), read_entry(64, 8)}), 56), Verdict::kOk);
}

// Shows: V1-RL-08
TEST(Version1Positions, ChunksDoNotOverlap) {
  EXPECT_EQ(of_msg(join({read_entry(48, 9), read_entry(56, 8)}), 100), Verdict::kOverlap);
  EXPECT_EQ(of_msg(join({read_entry(48, 8), read_entry(56, 8)}), 100), Verdict::kOk);
  EXPECT_EQ(of_msg(join({read_entry(48, 1000), read_entry(52, 8)}), 100), Verdict::kOverlap);
  // In any order of the list.
  EXPECT_EQ(of_msg(join({read_entry(52, 8), read_entry(48, 8)}), 100), Verdict::kOverlap);
}

// Shows: V1-PAD-02, V1-PAD-04, V1-PAD-05, V1-PAD-06
TEST(Version1Positions, PadOfAChunkIsSentOrNot) {
  EXPECT_EQ(of_msg(join({read_entry(44, 5), read_entry(52, 8)}), 44), Verdict::kOk);
  EXPECT_EQ(of_msg(join({read_entry(44, 8), read_entry(52, 8)}), 44), Verdict::kOk);
  EXPECT_EQ(of_msg(join({read_entry(44, 5), read_entry(44, 3), read_entry(52, 8)}), 44),
            Verdict::kOk);
  // Only whole chunks are rounded up, not segments.
  EXPECT_EQ(of_msg(join({read_entry(44, 1), read_entry(44, 3), read_entry(48, 8)}), 44),
            Verdict::kOk);
}

// Shows: V1-CHUNK-12
TEST(Version1Positions, LargeLengthsDoNotWrapAround) {
  Limits limits;
  limits.read_bytes = ~uint64_t{0};
  for (uint32_t length : {0xffffffffu, 0xfffffffcu, 0xffffffc0u}) {
    Words reads = join({read_entry(64, length), read_entry(128, 8)});
    Decoding d(join({fixed(kMsgProc), reads, {0, 0, 0}, zeros(64)}), Direction::kCall, limits);
    EXPECT_EQ(d.verdict(), Verdict::kOverlap);
  }
}

// Shows: V1-LONG-08
TEST(Version1Positions, MessageIsNotBothInlineAndInAChunk) {
  EXPECT_EQ(of_msg(read_entry(0, 100), 100), Verdict::kPositionZeroInMsg);
  EXPECT_EQ(of_msg(read_entry(0, 100), 0), Verdict::kPositionZeroInMsg);
  EXPECT_EQ(of_msg(join({read_entry(40, 4), read_entry(0, 100)}), 100),
            Verdict::kPositionZeroInMsg);
  EXPECT_EQ(Decoding(join({fixed(kMsgpProc), {8, 8}, read_entry(0, 100), {0, 0, 0}, zeros(10)}))
                .verdict(),
            Verdict::kPositionZeroInMsg);
}

// Shows: V1-LONG-01, V1-LONG-03, V1-LONG-04
TEST(Version1Positions, LongCallHasItsMessageInThePositionZeroChunk) {
  EXPECT_EQ(of_nomsg(read_entry(0, 100)), Verdict::kOk);
  for (uint32_t segments : {2u, 40u}) {
    Words reads;
    for (uint32_t i = 0; i < segments; ++i)
      reads = join({reads, read_entry(0, 64, i)});
    EXPECT_EQ(of_nomsg(reads), Verdict::kOk);
  }
  EXPECT_EQ(of_nomsg(join({read_entry(0, 3000), read_entry(200, 65536)})), Verdict::kOk);
  EXPECT_EQ(of_nomsg(join({read_entry(200, 65536), read_entry(0, 3000)})), Verdict::kOk);
}

// Shows: V1-LONG-05, V1-RL-08
TEST(Version1Positions, PositionZeroChunkIsTheReducedStream) {
  // 100 bytes, with a chunk of 8 bytes at byte 40 and one of 4 at the end.
  EXPECT_EQ(of_nomsg(join({read_entry(0, 100), read_entry(40, 8), read_entry(108, 4)})),
            Verdict::kOk);
  EXPECT_EQ(of_nomsg(join({read_entry(0, 100), read_entry(40, 8), read_entry(112, 4)})),
            Verdict::kBeyondMessage);
  EXPECT_EQ(of_nomsg(join({read_entry(0, 100), read_entry(40, 8), read_entry(44, 4)})),
            Verdict::kOverlap);
  EXPECT_EQ(of_nomsg(join({read_entry(0, 36), read_entry(40, 8)})), Verdict::kBeyondMessage);
}

// Shows: V1-LONG-09
TEST(Version1Positions, LongCallWithoutMessageIsRefused) {
  EXPECT_EQ(of_nomsg({}), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg({}, chunk({100})), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg({}, {}, chunk({100})), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg(read_entry(40, 100)), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg(read_entry(0, 0)), Verdict::kNoMessage);
}

// Shows: V1-LONG-13
TEST(Version1Positions, LongCallMayAskForALongReply) {
  EXPECT_EQ(of_nomsg(read_entry(0, 100), {}, chunk({1000})), Verdict::kOk);
}

// Shows: V1-RC-14, V1-RC-15
TEST(Version1Positions, LongReplyNeedsBytesInItsReplyChunk) {
  EXPECT_EQ(of_nomsg({}, {}, chunk({256, 44, 0}), Direction::kReply), Verdict::kOk);
  EXPECT_EQ(of_nomsg({}, chunk({65536}), chunk({200}), Direction::kReply), Verdict::kOk);
  EXPECT_EQ(of_nomsg({}, {}, {0}, Direction::kReply), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg({}, chunk({100}), {0}, Direction::kReply), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg({}, {}, chunk({}), Direction::kReply), Verdict::kNoMessage);
  EXPECT_EQ(of_nomsg({}, {}, chunk({0, 0}), Direction::kReply), Verdict::kNoMessage);
}

// Shows: V1-RC-10
TEST(Version1Positions, InlineReplyMayReturnAnUnusedReplyChunk) {
  for (const Words& reply : {Words{0}, chunk({0, 0}), chunk({})}) {
    Decoding d(join({fixed(kMsgProc), {0, 0}, reply, zeros(6)}), Direction::kReply);
    EXPECT_EQ(d.verdict(), Verdict::kOk);
    EXPECT_EQ(d.header.lists.reply.length, 0u);
  }
}

// Shows: V1-RL-13
TEST(Version1Positions, ReadListOfAReplyIsTheEnginesToRefuse) {
  Decoding d(join({fixed(kMsgProc), read_entry(24, 8), {0, 0, 0}, zeros(6)}), Direction::kReply);
  EXPECT_EQ(d.verdict(), Verdict::kOk);
  EXPECT_EQ(d.header.lists.num_reads, 1);
}

}  // namespace
}  // namespace rrdk::proto
