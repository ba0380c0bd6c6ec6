// Read lists with false positions, lengths, handles, offsets and contents.
#include "server_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kEcho = loopback::kEcho, kWrite = loopback::kWrite;
constexpr uint32_t kItem = 52;  // the Position of WRITE's argument
constexpr uint64_t kNearTheEnd = UINT64_MAX - 3;

// A call of WRITE(0, `count` bytes) whose argument is in the Read list `entries`.
Message write_call(uint32_t xid, std::initializer_list<Part> entries, uint32_t count) {
  return {xid, 1, kCredits, kMsg, times(1, entries), 0, 0, 0, call(xid, kWrite), 0, 0, count};
}
Message write_reply(uint32_t xid, uint32_t bytes, uint32_t wrong = 0) {
  return {xid, 1, kCredits, kMsg, 0, 0, 0, success(xid), bytes, wrong};
}
Message long_call(uint32_t xid, std::initializer_list<Part> entries) {
  return {xid, 1, kCredits, kNoMsg, times(1, entries), 0, 0, 0};
}
// A Read that the victim attempts and the fabric refuses ends the connection.
ServerScenario refused_access(const char* name, Message message) {
  return {name, {say(std::move(message))}, {}, {Refusal::kAccessRefused}, After::kEnds};
}
ServerScenario refused_header(const char* name, Message message, Refusal reason) {
  return {name, {say(std::move(message))}, {err_chunk(7)}, {reason}};
}
ServerScenario served(const char* name, Message message, uint32_t bytes) {
  return {name, {say(std::move(message))}, {write_reply(7, bytes)}, {}};
}
// Only the handler notices it: RPC's GARBAGE_ARGS.
ServerScenario garbage(const char* name, Message message) {
  return {name, {say(std::move(message))}, {rejection(7, 4)}, {}};
}

std::vector<ServerScenario> positions() {
  return {
      // Shows: V1-RL-10
      served("AsItShouldBe", write_call(7, {1, kItem, readable(64)}, 64), 64),
      // Shows: V1-RL-06
      refused_header("UnalignedPosition", write_call(7, {1, kItem + 1, readable(8)}, 8),
                     Refusal::kBadPosition),
      refused_header("LargestPosition", write_call(7, {1, 0xffffffff, readable(8)}, 8),
                     Refusal::kBadPosition),
      // Shows: V1-RL-08
      refused_header("PositionFarBeyond", write_call(7, {1, 10000, readable(8)}, 8),
                     Refusal::kBeyondMessage),
      // Shows: V1-RL-08
      refused_header("PositionOneWordBeyond", write_call(7, {1, kItem + 4, readable(8)}, 8),
                     Refusal::kBeyondMessage),
      refused_header("LargestAlignedPosition", write_call(7, {1, 0xfffffffc, readable(8)}, 8),
                     Refusal::kBeyondMessage),
      // Shows: V1-RL-08
      refused_header("OverlappingChunks",
                     write_call(7, {1, kItem, readable(8), 1, kItem + 4, readable(8)}, 8),
                     Refusal::kOverlap),
      refused_header("OverlapByRoundingUp",
                     write_call(7, {1, kItem - 8, readable(5), 1, kItem - 4, readable(4)}, 8),
                     Refusal::kOverlap),
      refused_header("OverlapInAnyOrder",
                     write_call(7, {1, kItem, readable(8), 1, kItem - 4, readable(8)}, 8),
                     Refusal::kOverlap),
      // Shows: V1-RL-02
      served("PiecesOfOnePosition",
             write_call(
                 7, {1, kItem, readable(1), 1, kItem, readable(6, 1), 1, kItem, readable(1, 7)}, 8),
             8),
      // Shows: V1-ERR-08
      garbage("ChunkBeforeTheArgument", write_call(7, {1, kItem - 8, readable(8)}, 8)),
      // Its bytes become the program number.
      {"ChunkInTheRpcHeader",
       {say(write_call(7, {1, 12, readable(4)}, 8))},
       {rejection(7, 1)},
       {Refusal::kNoProgram}},
      {"ChunkInPlaceOfTheMessageType",
       {say(write_call(7, {1, 4, readable(4)}, 8))},
       {},
       {Refusal::kNotACall},
       After::kEnds},
      // Shows: V1-RL-12, V1-ERR-23
      {"TwoItemsWhereOneIsEligible",
       {say({7, 1, kCredits, kMsg, 1, kItem, readable(8), 1, kItem + 12, readable(4), 0, 0, 0,
             call(7, kWrite), 0, 0, 8, 4})},
       {rejection(7, 4)},
       {Refusal::kBindingChunks}},
      // Shows: V1-ERR-23
      {"ItemOfAProcedureThatHasNone",
       {say({7, 1, kCredits, kMsg, 1, 44, readable(8), 0, 0, 0, call(7, kEcho), 8})},
       {rejection(7, 4)},
       {Refusal::kBindingChunks}},
      {"ItemOfNull",
       {say({7, 1, kCredits, kMsg, 1, 40, readable(8), 0, 0, 0, call(7, 0)})},
       {rejection(7, 4)},
       {Refusal::kBindingChunks}},
      // Shows: V1-LONG-11
      {"LongCallWithAnItemThatIsNone",
       {expose({call(7, kEcho), 8}), say(long_call(7, {1, 0, request(44), 1, 44, readable(8)}))},
       {rejection(7, 4)},
       {Refusal::kBindingChunks}},
  };
}

std::vector<ServerScenario> lengths() {
  return {
      // Shows: V1-CHUNK-13
      served("ZeroLengthBetweenOthers",
             write_call(7, {1, kItem, readable(4), 1, kItem, readable(0), 1, kItem, readable(4, 4)},
                        8),
             8),
      served("ZeroLengthAlone", write_call(7, {1, kItem, readable(0)}, 0), 0),
      // The server makes no Read from it, so its handle does not matter to the server.
      {"ZeroLengthOfAGuessedHandle",
       {say(write_call(7, {1, kItem, segment(0x4711, 0, 1)}, 0))},
       {write_reply(7, 0)},
       {},
       After::kServes,
       {.private_data = without_remote_invalidation()}},
      // But the peer asked for its invalidation, which its own fabric refuses.
      {"ZeroLengthOfAHandleThatCanNotBeInvalidated",
       {say(write_call(7, {1, kItem, segment(0x4711, 0, 1)}, 0))},
       {},
       {},
       After::kEnds},
      // Shows: V1-CHUNK-05
      garbage("CountAboveTheChunk", write_call(7, {1, kItem, readable(8)}, 12)),
      // Shows: V1-CHUNK-05
      garbage("CountBelowTheChunk", write_call(7, {1, kItem, readable(8)}, 4)),
      garbage("LargestCount", write_call(7, {1, kItem, readable(8)}, 0xffffffff)),
      garbage("CountOfAnEmptyChunk", write_call(7, {1, kItem, readable(0)}, 8)),
      garbage("MoreInlineBehindTheChunk", {7, 1, kCredits, kMsg, 1, kItem, readable(8), 0, 0, 0,
                                           call(7, kWrite), 0, 0, 8, 1, 2}),
      // Shows: V1-PAD-02, V1-PAD-05
      served("PadLeftOut", write_call(7, {1, kItem, readable(5)}, 5), 5),
      // Shows: V1-PAD-05
      served("PadAsASegment", write_call(7, {1, kItem, readable(5), 1, kItem, writable(0)}, 5), 5),
      garbage("PadOfSixBytes", write_call(7, {1, kItem, readable(5), 1, kItem, readable(6, 5)}, 5)),
      // Shows: V1-CHUNK-12
      refused_header("LargestLength", write_call(7, {1, kItem, readable(0xffffffff)}, 8),
                     Refusal::kTooManyBytes),
      // Shows: V1-CHUNK-12
      refused_header("SumThatWrapsToOne",
                     write_call(7, {1, kItem, readable(0xffffffff), 1, kItem, readable(2)}, 1),
                     Refusal::kTooManyBytes),
      refused_header("SumOfManyLargestLengths",
                     write_call(7, {times(128, {1, kItem, readable(0xffffffff)})}, 8),
                     Refusal::kTooManyBytes),
      // Shows: V1-LONG-16
      refused_header("LargerThanACallMayBe",
                     write_call(7, {1, kItem, readable(9u << 20)}, 9u << 20),
                     Refusal::kTooManyBytes),
      // Shows: V1-CHUNK-15
      refused_header("TooManySegments", write_call(7, {times(129, {1, kItem, readable(4)})}, 516),
                     Refusal::kTooManySegments),
      {"AsManySegmentsAsAllowed",
       {say(write_call(7, {times(128, {1, kItem, readable(4)})}, 512))},
       {write_reply(7, 512, 508)},
       {}},
      // Shows: V1-CHUNK-15
      refused_header(
          "TooManyPositions",
          write_call(7, {1, 0x10, readable(0), 1, 0x14, readable(0), 1, 0x18, readable(0),
                         1, 0x1c, readable(0), 1, 0x20, readable(0), 1, 0x24, readable(0),
                         1, 0x28, readable(0), 1, 0x2c, readable(0), 1, 0x30, readable(0),
                         1, 0x34, readable(0), 1, 4,    readable(0), 1, 8,    readable(0),
                         1, 12,   readable(0), 1, 0x38, readable(0), 1, 0x3c, readable(0),
                         1, 0x40, readable(0), 1, 0x44, readable(0)},
                     8),
          Refusal::kTooManyReadChunks),
  };
}

std::vector<ServerScenario> position_zero() {
  return {
      // Shows: V1-LONG-08
      refused_header("PositionZeroInAMsg", write_call(7, {1, 0, readable(52)}, 8),
                     Refusal::kPositionZeroInMsg),
      refused_header("PositionZeroBesideAnItem",
                     write_call(7, {1, kItem, readable(8), 1, 0, readable(8)}, 8),
                     Refusal::kPositionZeroInMsg),
      // Shows: V1-LONG-09
      refused_header("LongCallWithoutLists", {7, 1, kCredits, kNoMsg, 0, 0, 0},
                     Refusal::kNoMessage),
      // Shows: V1-LONG-09
      refused_header("LongCallWithAWriteListOnly",
                     {7, 1, kCredits, kNoMsg, 0, 1, 1, writable(8), 0, 0}, Refusal::kNoMessage),
      refused_header("LongCallWithAReplyChunkOnly",
                     {7, 1, kCredits, kNoMsg, 0, 0, 1, 1, writable(64)}, Refusal::kNoMessage),
      refused_header("LongCallWithoutPositionZero", long_call(7, {1, kItem, readable(8)}),
                     Refusal::kNoMessage),
      refused_header("LongCallOfNoBytes", long_call(7, {1, 0, readable(0)}), Refusal::kNoMessage),
      // The message is not at the position of a long call.
      refused_header("LongCallWithTheMessageInline", {7, 1, kCredits, kNoMsg, 0, 0, 0, call(7, 0)},
                     Refusal::kNoMessage),
      // Shows: V1-LONG-15, V1-HDR-16
      {"LongCallWithAnotherXid",
       {expose({call(8, 0)}), say(long_call(7, {1, 0, request(40)}))},
       {err_chunk(7)},
       {Refusal::kXid}},
      {"LongCallOfThreeBytes",
       {expose({call(7, 0)}), say(long_call(7, {1, 0, request(3)}))},
       {err_chunk(7)},
       {Refusal::kXid}},
      {"LongCallOfAnXid",
       {expose({call(7, 0)}), say(long_call(7, {1, 0, request(4)}))},
       {},
       {Refusal::kNotACall},
       After::kEnds},
      {"LongCallThatIsAReply",
       {expose({7, 1, 0, 0, 0, 0}), say(long_call(7, {1, 0, request(24)}))},
       {},
       {Refusal::kNotACall},
       After::kEnds},
      {"LongCallThatEndsInItsHeader",
       {expose({call(7, 0)}), say(long_call(7, {1, 0, request(36)}))},
       {rejection(7, 4)},
       {Refusal::kGarbageCall}},
      // Shows: V1-LONG-02
      {"LongCallInUnalignedPieces",
       {expose({call(7, 0)}),
        say(long_call(7, {1, 0, request(13), 1, 0, request(0), 1, 0, request(27, 13)}))},
       {null_reply(7)},
       {}},
      // Shows: V1-LONG-04, V1-LONG-05
      {"LongCallWithAnItem",
       {expose({call(7, kWrite), 0, 0, 64}),
        say(long_call(7, {1, 0, request(52), 1, kItem, readable(64)}))},
       {write_reply(7, 64)},
       {}},
      refused_header("ItemBeyondALongCall",
                     long_call(7, {1, 0, readable(52), 1, kItem + 4, readable(8)}),
                     Refusal::kBeyondMessage),
      // Shows: V1-LONG-16
      refused_header("LongCallOfOneGibibyte", long_call(7, {1, 0, readable(1u << 30)}),
                     Refusal::kTooManyBytes),
      refused_header("LongCallOfTheLargestLength", long_call(7, {1, 0, readable(0xffffffff)}),
                     Refusal::kTooManyBytes),
  };
}

std::vector<ServerScenario> handles() {
  return {
      refused_access("GuessedHandle", write_call(7, {1, kItem, segment(0x12345678, 8, 0)}, 8)),
      refused_access("HandleZero", write_call(7, {1, kItem, segment(0, 8, 0)}, 8)),
      refused_access("LargestHandle", write_call(7, {1, kItem, segment(0xffffffff, 8, 0)}, 8)),
      refused_access("RevokedHandle", write_call(7, {1, kItem, revoked(8)}, 8)),
      refused_access("HandleWithoutReadRight", write_call(7, {1, kItem, writable(8)}, 8)),
      {"HandleOfAnotherConnection",
       {with_ally(), say(write_call(7, {1, kItem, foreign(8)}, 8))},
       {},
       {Refusal::kAccessRefused},
       After::kEnds},
      // Shows: V1-ERR-18
      refused_access("OffsetNearTheEndOfAll",
                     write_call(7, {1, kItem, readable_at(8, kNearTheEnd)}, 8)),
      refused_access("OffsetZero", write_call(7, {1, kItem, readable_at(8, 0)}, 8)),
      refused_access("OffsetBelowTheMemory", write_call(7, {1, kItem, readable_below(8)}, 8)),
      refused_access("LengthBeyondTheMemory",
                     write_call(7, {1, kItem, readable(8, Peer::kBytes - 4)}, 8)),
      refused_access("OneByteBeyondTheMemory",
                     write_call(7, {1, kItem, readable(Peer::kBytes + 1)}, Peer::kBytes + 1)),
      refused_access("GoodSegmentBeforeABadOne",
                     write_call(7, {1, kItem, readable(8), 1, kItem, segment(1, 8, 0)}, 16)),
      refused_access("GuessedHandleOfALongCall", long_call(7, {1, 0, segment(0x12345678, 40, 0)})),
      {"RevokedWhileWeRead",
       {[](Stage& stage) {
         stage.peer->say(write_call(7, {1, kItem, readable(8)}, 8).bytes(*stage.peer));
         stage.peer->revoke(Peer::kReadable);
       }},
       {},
       {Refusal::kAccessRefused},
       After::kEnds},
      // Other calls on the same connection fail, too, and no more replies are sent.
      {"GoodCallsBehindABadHandle",
       {[](Stage& stage) {
         stage.peer->say(write_call(7, {1, kItem, segment(9, 8, 0)}, 8).bytes(*stage.peer));
         stage.peer->say(write_call(8, {1, kItem, segment(9, 8, 0)}, 8).bytes(*stage.peer));
       }},
       {},
       {Refusal::kAccessRefused, Refusal::kCreditOverrun},
       After::kEnds},
  };
}

RRDK_SERVER_SCENARIOS(ReadListPositions, positions());
RRDK_SERVER_SCENARIOS(ReadListLengths, lengths());
RRDK_SERVER_SCENARIOS(PositionZeroChunks, position_zero());
RRDK_SERVER_SCENARIOS(ReadListHandles, handles());

}  // namespace
}  // namespace rrdk::hostile
