// Write lists and Reply chunks with false counts, lengths, rights and handles.
#include "server_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kEcho = loopback::kEcho, kRead = loopback::kRead;
constexpr uint32_t kOffset = 77;  // where in the pattern the results begin
constexpr uint64_t kNearTheEnd = UINT64_MAX - 3;

// A call of READ(kOffset, `count`) with these Write and Reply chunks; the lists' ends are in them.
Message read_call(uint32_t xid, std::initializer_list<Part> write_and_reply, uint32_t count) {
  return {xid, 1,       kCredits, kMsg, 0, times(1, write_and_reply), call(xid, kRead),
          0,   kOffset, count};
}
// Its reply, apart from the data that was written elsewhere.
Message read_reply(uint32_t xid, std::initializer_list<Part> write_and_reply, uint32_t count) {
  return {xid, 1, kCredits, kMsg, 0, times(1, write_and_reply), success(xid), 7, count};
}
ServerScenario refused_access(const char* name, Message message) {
  return {
      name, {say(std::move(message)), untouched()}, {}, {Refusal::kAccessRefused}, After::kEnds};
}
ServerScenario refused(const char* name, Message message, Refusal reason) {
  return {name, {say(std::move(message)), untouched()}, {err_chunk(7)}, {reason}};
}

std::vector<ServerScenario> write_lists() {
  return {
      // Shows: V1-WL-02, V1-WL-03
      {"AsItShouldBe",
       {say(read_call(7, {1, 1, writable(64), 0, 0}, 64)), hear(1), written(0, kOffset, 64)},
       {read_reply(7, {1, 1, writable(64), 0, 0}, 64)},
       {}},
      // Shows: V1-WL-04, V1-WL-05, V1-WL-06, V1-PAD-10
      {"MoreRoomThanIsNeeded",
       {say(read_call(7, {1, 3, writable(10), writable(10, 10), writable(44, 20), 0, 0}, 15)),
        hear(1), written(0, kOffset, 15)},
       {read_reply(7, {1, 3, writable(10), writable(5, 10), writable(0, 20), 0, 0}, 15)},
       {}},
      // Shows: V1-PAD-12
      {"RoomWithoutThePad",
       {say(read_call(7, {1, 1, writable(5), 0, 0}, 5)), hear(1), written(0, kOffset, 5)},
       {read_reply(7, {1, 1, writable(5), 0, 0}, 5)},
       {}},
      // Shows: V1-WL-15
      refused("TooSmall", read_call(7, {1, 1, writable(63), 0, 0}, 64), Refusal::kNoReplyRoom),
      refused("NoBytes", read_call(7, {1, 1, writable(0), 0, 0}, 64), Refusal::kNoReplyRoom),
      // Shows: V1-CHUNK-14
      {"NoSegments",
       {say(read_call(7, {1, 0, 0, 0}, 4)), hear(1), untouched()},
       {{7, 1, kCredits, kMsg, 0, 1, 0, 0, 0, success(7), 7, 4, Part([](const Peer&, Bytes& to) {
           for (uint32_t i = 0; i < 4; ++i)
             to.push_back(loopback::pattern(kOffset + i));
         })}},
       {}},
      // Shows: V1-ERR-07
      refused("LargestCount", read_call(7, {1, 0xffffffff, writable(64), 0, 0}, 64),
              Refusal::kTruncated),
      refused("CountOfSegmentsThatAreNotThere",
              read_call(7, {1, 0x10000000, writable(64), 0, 0}, 64), Refusal::kTruncated),
      // The words behind are taken for a segment, and the call's RPC version for a discriminator.
      refused("CountOneTooHigh",
              {7, 1, kCredits, kMsg, 0, 1, 2, writable(64), 0, 0, call(7, kRead), 0, kOffset, 64},
              Refusal::kBadDiscriminator),
      refused("CountOneTooLow", read_call(7, {1, 0, segment(0x4711, 64, 0), 0, 0}, 64),
              Refusal::kBadDiscriminator),
      // Shows: V1-WL-18
      refused("TooManyChunks", read_call(7, {times(17, {1, 1, writable(8)}), 0, 0}, 8),
              Refusal::kTooManyWriteChunks),
      // Shows: V1-WL-18, V1-WL-07, V1-ERR-23
      {"MoreChunksThanTheBindingHas",
       {say(read_call(7, {times(16, {1, 1, writable(8)}), 0, 0}, 8)), hear(1), untouched()},
       {{7, 1, kCredits, kMsg, 0, times(16, {1, 1, writable(0)}), 0, 0, accepted(7, 4)}},
       {Refusal::kBindingChunks}},
      {"ChunkForAProcedureThatHasNone",
       {say({7, 1, kCredits, kMsg, 0, 1, 1, writable(8), 0, 0, call(7, kEcho), 4, 5}), hear(1),
        untouched()},
       {{7, 1, kCredits, kMsg, 0, 1, 1, writable(0), 0, 0, accepted(7, 4)}},
       {Refusal::kBindingChunks}},
      // Shows: V1-CHUNK-15
      {"TooManySegments",
       {say({7, 1, kCredits, kMsg, 0, 1, 257, times(257, {writable(8)}), 0, 0, call(7, kRead), 0, 0,
             8}),
        untouched()},
       {err_chunk(7, 4)},
       {Refusal::kTooManySegments},
       After::kServes,
       {.private_data = usual_private_data()},
       {.credits = 4, .inline_size = 8192}},
      // Shows: V1-CHUNK-12
      refused("LargestLength", read_call(7, {1, 1, writable(0xffffffff), 0, 0}, 64),
              Refusal::kTooManyBytes),
      refused("SumThatWraps", read_call(7, {1, 2, writable(0xffffffff), writable(65), 0, 0}, 64),
              Refusal::kTooManyBytes),
      // Shows: V1-WL-17
      {"LongerThanTheMemoryButNotUsed",
       {say(read_call(7, {1, 1, writable(512u << 20), 0, 0}, 64)), hear(1),
        written(0, kOffset, 64)},
       {read_reply(7, {1, 1, writable(64), 0, 0}, 64)},
       {}},
      refused_access("LongerThanTheMemoryAndUsed",
                     read_call(7, {1, 1, writable(100000), 0, 0}, 70000)),
      refused_access("GuessedHandle", read_call(7, {1, 1, segment(0x12345678, 64, 0), 0, 0}, 64)),
      refused_access("HandleZero", read_call(7, {1, 1, segment(0, 64, 0), 0, 0}, 64)),
      // Shows: V1-ERR-18
      refused_access("RevokedHandle", read_call(7, {1, 1, revoked(64), 0, 0}, 64)),
      refused_access("HandleWithoutWriteRight", read_call(7, {1, 1, readable(64), 0, 0}, 64)),
      refused_access("OffsetNearTheEndOfAll",
                     read_call(7, {1, 1, readable_at(64, kNearTheEnd), 0, 0}, 64)),
      {"HandleOfAnotherConnection",
       {with_ally(), say(read_call(7, {1, 1, foreign(64), 0, 0}, 64)), untouched()},
       {},
       {Refusal::kAccessRefused},
       After::kEnds},
      {"RevokedWhileWeWrite",
       {[](Stage& stage) {
          stage.peer->say(read_call(7, {1, 1, writable(64), 0, 0}, 64).bytes(*stage.peer));
          stage.peer->revoke(Peer::kWritable);
        },
        untouched()},
       {},
       {Refusal::kAccessRefused},
       After::kEnds},
      // The first segment is written before the second is refused: a peer may do that to itself.
      {"GoodSegmentBeforeABadOne",
       {say(read_call(7, {1, 2, writable(8), segment(0x4711, 64, 0), 0, 0}, 64)), gone(),
        written(0, kOffset, 8)},
       {},
       {Refusal::kAccessRefused},
       After::kEnds},
      {"TheSameMemoryTwice",
       {say(read_call(7, {1, 2, writable(32), writable(32), 0, 0}, 64)), hear(1),
        written(0, kOffset + 32, 32)},
       {read_reply(7, {1, 2, writable(32), writable(32), 0, 0}, 64)},
       {}},
      // Shows: V1-WL-07
      {"ArgumentsThatAreGarbage",
       {say({7, 1, kCredits, kMsg, 0, 1, 2, writable(64), writable(64, 64), 0, 0, call(7, kRead),
             0}),
        hear(1), untouched()},
       {{7, 1, kCredits, kMsg, 0, 1, 2, writable(0), writable(0, 64), 0, 0, accepted(7, 4)}},
       {}},
  };
}

constexpr uint32_t kLong = 8000;             // does not fit inline
constexpr uint32_t kLongReply = kLong + 32;  // the whole reply: header, status, count, data

std::vector<ServerScenario> reply_chunks() {
  return {
      // Shows: V1-RC-06, V1-RC-12
      {"AsItShouldBe",
       {say(read_call(7, {0, 1, 1, writable(9000)}, kLong)), hear(1)},
       {{7, 1, kCredits, kNoMsg, 0, 0, 1, 1, writable(kLongReply)}},
       {}},
      // Shows: V1-RC-12
      {"PiecesOfOddSizes",
       {say(read_call(7,
                      {0, 1, 4, writable(3), writable(0, 3), writable(8030, 3), writable(9, 9000)},
                      kLong)),
        hear(1)},
       {{7, 1, kCredits, kNoMsg, 0, 0, 1, 4, writable(3), writable(0, 3), writable(8029, 3),
         writable(0, 9000)}},
       {}},
      // Shows: V1-RC-10, V1-RC-04, V1-RC-09
      {"NotNeeded",
       {say({7, 1, kCredits, kMsg, 0, 0, 1, 2, writable(64), writable(64, 64), call(7, 0)}),
        hear(1), untouched()},
       {{7, 1, kCredits, kMsg, 0, 0, 1, 2, writable(0), writable(0, 64), success(7)}},
       {}},
      // Nothing is written to it, so its handle does not matter.
      {"NotNeededAndGuessed",
       {say({7, 1, kCredits, kMsg, 0, 0, 1, 2, segment(0x4711, 64, 1), writable(64), call(7, 0)})},
       {{7, 1, kCredits, kMsg, 0, 0, 1, 2, segment(0x4711, 0, 1), writable(0), success(7)}},
       {}},
      // Shows: V1-RC-07
      refused("NotThere", read_call(7, {0, 0}, kLong), Refusal::kNoReplyRoom),
      // Shows: V1-RC-07
      refused("OneWordTooSmall", read_call(7, {0, 1, 1, writable(kLongReply - 4)}, kLong),
              Refusal::kNoReplyRoom),
      // Shows: V1-CHUNK-14
      refused("NoSegments", read_call(7, {0, 1, 0}, kLong), Refusal::kNoReplyRoom),
      refused("LargestCount", read_call(7, {0, 1, 0xffffffff, writable(9000)}, kLong),
              Refusal::kTruncated),
      refused("LargestLength", read_call(7, {0, 1, 1, writable(0xffffffff)}, kLong),
              Refusal::kTooManyBytes),
      refused("SumThatWraps", read_call(7, {0, 1, 2, writable(0xffffffff), writable(9001)}, kLong),
              Refusal::kTooManyBytes),
      refused("CountOneTooHigh", Message{read_call(7, {0, 1, 2, writable(9000)}, kLong)}.cut(60),
              Refusal::kTruncated),
      refused_access("GuessedHandle", read_call(7, {0, 1, 1, segment(0x12345678, 9000, 0)}, kLong)),
      refused_access("RevokedHandle", read_call(7, {0, 1, 1, revoked(9000)}, kLong)),
      refused_access("HandleWithoutWriteRight", read_call(7, {0, 1, 1, readable(9000)}, kLong)),
      refused_access("OffsetNearTheEndOfAll",
                     read_call(7, {0, 1, 1, readable_at(9000, kNearTheEnd)}, kLong)),
      {"RevokedWhileWeWrite",
       {[](Stage& stage) {
          stage.peer->say(read_call(7, {0, 1, 1, writable(9000)}, kLong).bytes(*stage.peer));
          stage.peer->revoke(Peer::kWritable);
        },
        untouched()},
       {},
       {Refusal::kAccessRefused},
       After::kEnds},
      // Shows: V1-ERR-26, PD-34
      {"ErrorsInvalidateNothing",
       {say(read_call(7, {0, 1, 1, writable(8)}, kLong)), hear(1),
        say(read_call(8, {0, 1, 1, writable(9000)}, kLong)), hear(2),
        [](Stage& stage) {
          EXPECT_FALSE(stage.peer->heard[0].invalidated);
          EXPECT_EQ(stage.peer->heard[1].invalidated, stage.peer->key(Peer::kWritable));
        }},
       {err_chunk(7), {8, 1, kCredits, kNoMsg, 0, 0, 1, 1, writable(kLongReply)}},
       {Refusal::kNoReplyRoom}},
  };
}

RRDK_SERVER_SCENARIOS(WriteLists, write_lists());
RRDK_SERVER_SCENARIOS(ReplyChunks, reply_chunks());

}  // namespace
}  // namespace rrdk::hostile
