// Replies to a client that refer to chunks, segments, lengths and keys that were not offered.
#include "client_scenario.h"

namespace rrdk::hostile {
namespace {

using fabric::Op;
using fabric::WcStatus;

constexpr CallStatus kOk = CallStatus::kOk, kMalformed = CallStatus::kMalformedReply;
constexpr CallStatus kLost = CallStatus::kConnectionLost;

// Replies to the first call: with these lists, and results behind a valid RPC header.
Message msg(std::initializer_list<Part> lists, std::initializer_list<Part> results = {}) {
  return {xid(0), 1, kCredits, kMsg, times(1, lists), success(xid(0)), times(1, results)};
}
Message no_msg(std::initializer_list<Part> lists) {
  return {xid(0), 1, kCredits, kNoMsg, times(1, lists)};
}
Message long_reply() {
  return {success(xid(0)), 4, 5};
}
constexpr uint32_t kLongReply = 32;

ClientScenario malformed(const char* name, Ask what, Message reply, Refusal reason) {
  return {name, {{what, kMalformed}}, {say(std::move(reply))}, {reason}};
}
ClientScenario accepted(const char* name, Ask what, Message reply) {
  return {name, {{what, kOk}}, {say(std::move(reply))}, {}};
}

std::vector<ClientScenario> write_lists() {
  Ask read = Ask::kRead;
  return {
      accepted("AsItShouldBe", read,
               msg({0, 1, 2, returned(0, 7, 600), returned(0, 11, 400), 0, 0}, {7, 1000})),
      // Shows: V1-WL-08
      accepted("LeftOut", read, msg({0, 0, 0}, {7, 0})),
      // Shows: V1-WL-08
      accepted("EmptyChunk", read, msg({0, 1, 0, 0, 0}, {7, 0})),
      accepted("NothingWritten", read,
               msg({0, 1, 2, returned(0, 7, 0), returned(0, 11, 0), 0, 0}, {7, 0})),
      // Shows: V1-ERR-24
      malformed("ToACallThatOfferedNone", Ask::kEcho,
                msg({0, 1, 1, segment(0x4711, 8, 0), 0, 0}, {4, 5}), Refusal::kWriteListCount),
      malformed("TwoChunksForOne", read,
                msg({0, 1, 2, returned(0, 7, 600), returned(0, 11, 400), 1, 0, 0, 0}, {7, 1000}),
                Refusal::kWriteListCount),
      malformed("OneSegmentOfTwo", read, msg({0, 1, 1, returned(0, 7, 600), 0, 0}, {7, 600}),
                Refusal::kAlteredSegment),
      malformed("ThreeSegmentsForTwo", read,
                msg({0, 1, 3, returned(0, 7, 600), returned(0, 11, 400), returned(0, 11, 0), 0, 0},
                    {7, 1000}),
                Refusal::kAlteredSegment),
      malformed("SegmentsInAnotherOrder", read,
                msg({0, 1, 2, returned(0, 11, 400), returned(0, 7, 600), 0, 0}, {7, 1000}),
                Refusal::kAlteredSegment),
      malformed(
          "AnotherHandle", read,
          msg({0, 1, 2, heard(0, 7, 1), 600, heard(0, 9), heard(0, 10), returned(0, 11, 400), 0, 0},
              {7, 1000}),
          Refusal::kAlteredSegment),
      malformed(
          "AnotherOffset", read,
          msg({0, 1, 2, heard(0, 7), 600, heard(0, 9), heard(0, 10, 4), returned(0, 11, 400), 0, 0},
              {7, 1000}),
          Refusal::kAlteredSegment),
      malformed(
          "AnotherUpperHalfOfTheOffset", read,
          msg({0, 1, 2, heard(0, 7), 600, heard(0, 9, 1), heard(0, 10), returned(0, 11, 400), 0, 0},
              {7, 1000}),
          Refusal::kAlteredSegment),
      // Shows: V1-WL-10
      malformed("OneByteMoreThanOffered", read,
                msg({0, 1, 2, returned(0, 7, 601), returned(0, 11, 400), 0, 0}, {7, 1001}),
                Refusal::kAlteredSegment),
      malformed("LargestLength", read,
                msg({0, 1, 2, returned(0, 7, 600), returned(0, 11, 0xffffffff), 0, 0}, {7, 1000}),
                Refusal::kTooManyBytes),
      malformed("LargestCount", read, msg({0, 1, 0xffffffff, returned(0, 7, 600), 0, 0}, {7, 0}),
                Refusal::kTruncated),
      malformed("MoreChunksThanAnyoneOffers", read, msg({0, times(17, {1, 0}), 0, 0}, {7, 0}),
                Refusal::kTooManyWriteChunks),
      // Shows: V1-RL-13
      malformed("AReadList", Ask::kEcho, msg({1, 24, segment(0x4711, 4, 0), 0, 0, 0}, {4, 5}),
                Refusal::kReadListInReply),
      malformed("AReadListOfWhatWasOffered", read, msg({1, 24, returned(0, 7, 4), 0, 0, 0}, {7, 0}),
                Refusal::kReadListInReply),
      malformed("APositionZeroChunk", Ask::kEcho,
                msg({1, 0, segment(0x4711, 4, 0), 0, 0, 0}, {4, 5}), Refusal::kPositionZeroInMsg),
      malformed("AReadListBeyondTheMessage", Ask::kEcho,
                msg({1, 4000, segment(0x4711, 4, 0), 0, 0, 0}, {4, 5}), Refusal::kBeyondMessage),
  };
}

std::vector<ClientScenario> reply_chunks() {
  Ask ask = Ask::kLong;
  return {
      // Shows: V1-RC-05
      {"AsItShouldBe",
       {{ask, kOk}},
       {write_to(0, 8, long_reply()), say(no_msg({0, 0, 1, 1, returned(0, 8, kLongReply)}))},
       {}},
      // Shows: V1-RC-05
      accepted("AnInlineReplyInstead", ask, msg({0, 0, 0}, {4, 5})),
      // Shows: V1-RC-10
      accepted("AnInlineReplyWithTheChunkUnused", ask,
               msg({0, 0, 1, 1, returned(0, 8, 0)}, {4, 5})),
      // Shows: V1-RC-11
      malformed("AnInlineReplyWithTheChunkUsed", ask,
                msg({0, 0, 1, 1, returned(0, 8, kLongReply)}, {4, 5}), Refusal::kMsgWithReplyChunk),
      malformed("AnInlineReplyWithAChunkThatWasNotOffered", Ask::kEcho,
                msg({0, 0, 1, 1, segment(0x4711, 8, 0)}, {4, 5}), Refusal::kMsgWithReplyChunk),
      malformed("ALongReplyWithoutAnOfferedChunk", Ask::kEcho,
                no_msg({0, 0, 1, 1, segment(0x4711, 40, 0)}), Refusal::kReplyChunkNotGiven),
      // Shows: V1-RC-14
      malformed("ALongReplyWithoutAChunk", ask, no_msg({0, 0, 0}), Refusal::kNoMessage),
      // Shows: V1-RC-14
      malformed("ALongReplyOfNoBytes", ask, no_msg({0, 0, 1, 1, returned(0, 8, 0)}),
                Refusal::kNoMessage),
      malformed("ALongReplyOfNoSegments", ask, no_msg({0, 0, 1, 0}), Refusal::kNoMessage),
      malformed("ALongReplyThatWasNotWritten", ask,
                no_msg({0, 0, 1, 1, returned(0, 8, kLongReply)}), Refusal::kNotTheReply),
      {"ALongReplyOfFourBytes",
       {{ask, kMalformed}},
       {write_to(0, 8, long_reply()), say(no_msg({0, 0, 1, 1, returned(0, 8, 4)}))},
       {Refusal::kNotTheReply}},
      {"ALongReplyWithAnotherXid",
       {{ask, kMalformed}},
       {write_to(0, 8, {success(xid(0, 1)), 4, 5}),
        say(no_msg({0, 0, 1, 1, returned(0, 8, kLongReply)}))},
       {Refusal::kNotTheReply}},
      {"ALongReplyThatIsACall",
       {{ask, kMalformed}},
       {write_to(0, 8, {xid(0), 0, 2, 0, 0, 0}),
        say(no_msg({0, 0, 1, 1, returned(0, 8, kLongReply)}))},
       {Refusal::kNotTheReply}},
      {"ALongReplyWhoseHeaderIsCutOff",
       {{ask, kMalformed}},
       {write_to(0, 8, long_reply()), say(no_msg({0, 0, 1, 1, returned(0, 8, 20)}))},
       {Refusal::kBadReplyHeader}},
      malformed("ALongReplyLongerThanItsChunk", ask, no_msg({0, 0, 1, 1, returned(0, 8, 100000)}),
                Refusal::kAlteredSegment),
      malformed("ALongReplyOfTheLargestLength", ask,
                no_msg({0, 0, 1, 1, returned(0, 8, 0xffffffff)}), Refusal::kTooManyBytes),
      malformed("ALongReplyInAnotherHandle", ask,
                no_msg({0, 0, 1, 1, heard(0, 8, 1), kLongReply, heard(0, 10), heard(0, 11)}),
                Refusal::kAlteredSegment),
      malformed("ALongReplyAtAnotherOffset", ask,
                no_msg({0, 0, 1, 1, heard(0, 8), kLongReply, heard(0, 10), heard(0, 11, 8)}),
                Refusal::kAlteredSegment),
      malformed("ALongReplyInTwoSegments", ask,
                no_msg({0, 0, 1, 2, returned(0, 8, 8), returned(0, 8, 24)}),
                Refusal::kAlteredSegment),
      malformed(
          "ALongReplyInTheWriteChunk", Ask::kBoth,
          no_msg({0, 1, 2, returned(0, 7, 600), returned(0, 11, 400), 0, 1, 1, returned(0, 7, 40)}),
          Refusal::kAlteredSegment),
      malformed("ALongReplyWithAReadList", ask,
                no_msg({1, 24, segment(0x4711, 4, 0), 0, 0, 1, 1, returned(0, 8, kLongReply)}),
                Refusal::kReadListInReply),
      // Shows: V1-HDR-18
      {"ALongReplyWithBytesBehindIt",
       {{ask, kOk}},
       {write_to(0, 8, long_reply()),
        say({xid(0), 1, kCredits, kNoMsg, 0, 0, 1, 1, returned(0, 8, kLongReply), filler(32)})},
       {Refusal::kTrailingBytes}},
  };
}

// A refused access ends the connection, and its calls.
ClientScenario refused_access(const char* name, Ask what, Op op, size_t word, uint32_t length,
                              uint32_t skip) {
  ClientScenario scenario = {name,
                             {{what, kLost}},
                             {access_segment(op, 0, word, length, skip, WcStatus::kRemoteAccess),
                              gone(), refused_accesses(1)},
                             {},
                             After::kEnds};
  if (what == Ask::kRead)
    scenario.script.push_back(nothing_written(0));
  return scenario;
}
// The same after a call has ended and its key is dead: its memory is not lent.
ClientScenario late_access(const char* name, Asked asked, std::vector<Step> script, Op op,
                           size_t word) {
  ClientScenario scenario = {name, {asked}, std::move(script), {}, After::kEnds};
  scenario.client.lend_ms = 0;
  scenario.script.push_back(access_segment(op, 0, word, 8, 0, WcStatus::kRemoteAccess));
  scenario.script.push_back(gone());
  scenario.script.push_back(refused_accesses(1));
  if (asked.what == Ask::kRead)
    scenario.script.push_back(nothing_written(0));
  return scenario;
}

std::vector<ClientScenario> keys() {
  Message good = msg({0, 1, 2, returned(0, 7, 600), returned(0, 11, 400), 0, 0}, {7, 1000});
  return {
      refused_access("AWriteBeyondItsSegment", Ask::kRead, Op::kWrite, 7, 601, 0),
      refused_access("AWriteBehindItsSegment", Ask::kRead, Op::kWrite, 7, 8, 600),
      refused_access("AWriteBeforeItsSegment", Ask::kRead, Op::kWrite, 7, 8, 0xfffffffc),
      refused_access("ARead", Ask::kRead, Op::kRead, 7, 8, 0),
      refused_access("AWriteToAnArgument", Ask::kWrite, Op::kWrite, 6, 8, 0),
      refused_access("AReadBeyondAnArgument", Ask::kWrite, Op::kRead, 6, 8001, 0),
      refused_access("AWriteBeyondTheReplyChunk", Ask::kLong, Op::kWrite, 8, 65536, 0),
      {"AWriteToAGuessedKey",
       {{Ask::kRead, kLost}},
       {[](Stage& stage) { stage.peer->access(Op::kWrite, 0x12345678, 0, Bytes(8)); }, gone(),
        refused_accesses(1), nothing_written(0)},
       {},
       After::kEnds},
      // Shows: V1-MEM-06
      late_access("AWriteBehindTheReply", {Ask::kRead, kOk}, {say(good), ended(0)}, Op::kWrite, 7),
      late_access("AWriteForACancelledCall", {Ask::kRead, CallStatus::kCancelled},
                  {cancel(0), ended(0)}, Op::kWrite, 7),
      late_access("AReadForACallThatTimedOut", {Ask::kWrite, CallStatus::kTimeout, 1}, {ended(0)},
                  Op::kRead, 6),
      {"AReadOfWhatATimedOutCallHasLent",
       {{Ask::kWrite, CallStatus::kTimeout, 1}},
       {ended(0), access_segment(Op::kRead, 0, 6, 8, 0, WcStatus::kSuccess)},
       {}},
      // Shows: PD-30
      {"InvalidatesAKeyOfItsCall", {{Ask::kRead, kOk}}, {say_invalidating(good, 0, 11)}, {}},
      // Shows: PD-31
      {"InvalidatesAKeyOfAnotherCall",
       {{Ask::kRead, kOk}, {Ask::kRead, kLost}},
       {pause(20), say_invalidating(good, 1, 7)},
       {Refusal::kForeignKey},
       After::kEnds},
      // Shows: PD-31
      {"InvalidatesAKeyWithAnUnknownXid",
       {{Ask::kRead, kLost}},
       {say_invalidating({xid(0, 0x800), 1, kCredits, kMsg, 0, 0, 0, success(xid(0, 0x800))}, 0,
                         7)},
       {Refusal::kForeignKey, Refusal::kUnknownXid},
       After::kEnds},
      {"InvalidatesAKeyWithAMessageThatIsTooShort",
       {{Ask::kRead, kLost}},
       {say_invalidating({xid(0)}, 0, 7)},
       {Refusal::kForeignKey, Refusal::kTooShort},
       After::kEnds},
      {"InvalidatesAKeyTwice",
       {{Ask::kRead, kOk}},
       {say_invalidating(good, 0, 7), ended(0), say_invalidating(good, 0, 7)},
       {Refusal::kAccessRefused},
       After::kEnds},
      {"InvalidatesAGuessedKey",
       {{Ask::kRead, kLost}},
       {say_invalidating(good, 0x12345678)},
       {Refusal::kAccessRefused},
       After::kEnds},
  };
}

RRDK_CLIENT_SCENARIOS(RepliedWriteLists, write_lists());
RRDK_CLIENT_SCENARIOS(RepliedReplyChunks, reply_chunks());
RRDK_CLIENT_SCENARIOS(KeysOfAClient, keys());

}  // namespace
}  // namespace rrdk::hostile
