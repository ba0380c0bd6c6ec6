// Malformed transport headers: short, truncated, of other versions and types, with invalid
// discriminators, and with extra bytes.
#include "server_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kEcho = loopback::kEcho, kWrite = loopback::kWrite;

// A call with all three lists: 28 + 24 + 24 + 20 bytes of header.
Message full_call(uint32_t xid) {
  return {xid,
          1,
          kCredits,
          kMsg,
          times(1, {1, 52, readable(8), 0}),
          times(1, {1, 1, writable(64), 0}),
          times(1, {1, 1, writable(64, 64)}),
          call(xid, kWrite),
          0,
          0,
          8};
}
constexpr size_t kFullHeader = 28 + 24 + 24 + 20;

// The header, truncated at every word from its 28th byte on.
ServerScenario truncated_at_every_word() {
  // Shows: V1-HDR-20, V1-ERR-07
  ServerScenario scenario = {"TruncatedAtEveryWord", {}, {}, {}};
  uint32_t xid = 100;
  for (size_t length = 28; length < kFullHeader; length += 4, ++xid) {
    scenario.script.push_back(say(full_call(xid).cut(length)));
    scenario.answers.push_back(err_chunk(xid));
  }
  scenario.counters = {{Refusal::kTruncated, scenario.answers.size()}};
  return scenario;
}

ServerScenario short_at_every_byte() {
  // Shows: V1-HDR-19, V1-ERR-21
  ServerScenario scenario = {"ShortAtEveryByte", {}, {}, {{Refusal::kTooShort, 28}}};
  for (size_t length = 0; length < 28; ++length)
    scenario.script.push_back(say(full_call(7).cut(length)));
  return scenario;
}

std::vector<ServerScenario> headers() {
  return {
      {"Nothing", {say({})}, {}, {Refusal::kTooShort}},
      // Shows: V1-HDR-19, V1-ERR-21
      {"BelowTheFixedWords", {say(null_call(7).cut(15))}, {}, {Refusal::kTooShort}},
      {"FixedWordsOnly", {say({7, 1, kCredits, kMsg})}, {}, {Refusal::kTooShort}},
      {"OneByteLessThanAnEmptyHeader", {say(null_call(7).cut(27))}, {}, {Refusal::kTooShort}},
      {"MsgpBelowAnEmptyHeader", {say({7, 1, kCredits, kMsgp, 8, 1024})}, {}, {Refusal::kTooShort}},
      {"NoMsgBelowAnEmptyHeader", {say({7, 1, kCredits, kNoMsg, 0, 0})}, {}, {Refusal::kTooShort}},
      short_at_every_byte(),
      truncated_at_every_word(),
      {"CutWithinAWord", {say(full_call(7).cut(30))}, {err_chunk(7)}, {Refusal::kTruncated}},

      // Shows: V1-ERR-02, V1-ERR-03, V1-ERR-04
      {"VersionZero",
       {say({7, 0, kCredits, kMsg, 0, 0, 0, call(7, 0)})},
       {err_vers(7, 0)},
       {Refusal::kBadVersion}},
      // Shows: V1-ERR-02, V1-ERR-03, V1-ERR-04
      {"VersionThree",
       {say({7, 3, kCredits, kMsg, 0, 0, 0, 0, 0, call(7, 0)})},
       {err_vers(7, 3)},
       {Refusal::kBadVersion}},
      // Shows: V1-HDR-04, V1-ERR-03
      {"LargestVersionAndNothingToParse",
       {say({7, 0xffffffff, kCredits, 99})},
       {err_vers(7, 0xffffffff)},
       {Refusal::kBadVersion}},
      // Shows: V1-ERR-11
      {"ErrVersIsNotAnswered",
       {say({7, 1, kCredits, kError, kErrVers, 1, 1})},
       {},
       {Refusal::kError}},
      // Shows: V1-ERR-11
      {"ErrChunkIsNotAnswered", {say({7, 1, kCredits, kError, kErrChunk})}, {}, {Refusal::kError}},
      {"AnErrorCutOff", {say({7, 1, kCredits, kError})}, {}, {Refusal::kError}},
      // Shows: V1-ERR-11
      {"ErrorsOfOtherVersions",
       {say({7, 2, kCredits, kError, kErrChunk}), say({7, 9, kCredits, kError, kErrVers, 1, 1})},
       {},
       {{Refusal::kError, 2}}},

      // Shows: V1-ERR-10, V1-HDR-05
      {"TypeFive",
       {say({7, 1, kCredits, 5, 0, 0, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadType}},
      // Shows: V1-ERR-10
      {"LargestType",
       {say({7, 1, kCredits, 0xffffffff, 0, 0, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadType}},
      {"TypeNineWithoutABody", {say({7, 1, kCredits, 9})}, {err_chunk(7)}, {Refusal::kBadType}},
      // Shows: V1-DONE-03
      {"ThousandsOfDone", {say_times(1000, {7, 1, kCredits, kDone})}, {}, {{Refusal::kDone, 1000}}},
      {"DoneWithABody", {say({7, 1, kCredits, kDone, 0, 0, 0, call(7, 0)})}, {}, {Refusal::kDone}},

      // Shows: V1-HDR-17, V1-ERR-07
      {"ReadDiscriminatorTwo",
       {say({7, 1, kCredits, kMsg, 2, 0, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},
      // Shows: V1-HDR-17, V1-ERR-07
      {"WriteDiscriminatorTwo",
       {say({7, 1, kCredits, kMsg, 0, 2, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},
      // Shows: V1-HDR-17, V1-ERR-07
      {"ReplyDiscriminatorTwo",
       {say({7, 1, kCredits, kMsg, 0, 0, 2, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},
      {"LargestDiscriminator",
       {say({7, 1, kCredits, kMsg, 0xffffffff, 0, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},
      // Shows: V1-HDR-17, V1-RL-09
      {"DiscriminatorBehindAReadEntry",
       {say({7, 1, kCredits, kMsg, 1, 52, readable(8), 3, 0, 0, call(7, kWrite)})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},
      {"DiscriminatorBehindAWriteChunk",
       {say({7, 1, kCredits, kMsg, 0, 1, 1, writable(64), 0x100, 0, call(7, kEcho), 0})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},

      // Shows: V1-HDR-18
      {"BytesBehindALongCall",
       {expose(Message{call(7, 0)}),
        say({7, 1, kCredits, kNoMsg, 1, 0, request(40), 0, 0, 0, filler(32)})},
       {null_reply(7)},
       {Refusal::kTrailingBytes}},
      {"AListOfNothingButEntries",
       {say({7, 1, kCredits, kMsg, times(40, {1, 52, readable(0)})})},
       {err_chunk(7)},
       {Refusal::kTruncated}},
      // Shows: V1-MSGP-03
      {"MsgpIsAMsgWithTwoWordsMore",
       {say({7, 1, kCredits, kMsgp, 0xffffffff, 0xffffffff, 0, 0, 0, call(7, kEcho), 4, 5})},
       {echo_reply(7)},
       {}},
      {"MsgpWhoseListsAreCutOff",
       {say({7, 1, kCredits, kMsgp, 8, 1024, 0})},
       {err_chunk(7)},
       {Refusal::kTruncated}},
      // Shows: V1-INLINE-04
      {"LongerThanAnyReceive",
       {say({7, 1, kCredits, kMsg, 0, 0, 0, call(7, kEcho), 4096, filler(4096)})},
       {},
       {Refusal::kMessageTooLong},
       After::kEnds},
      // Shows: V1-ERR-25
      {"WrongOnesBetweenGoodOnes",
       {say(null_call(1)), say({2, 1, kCredits, 9, 0, 0, 0}), say(echo_call(3)),
        say({4, 7, kCredits, 0}), say(echo_call(5)), say({6, 1, kCredits, kMsg, 7, 0, 0}),
        say(null_call(7))},
       {null_reply(1), err_chunk(2), echo_reply(3), err_vers(4, 7), echo_reply(5), err_chunk(6),
        null_reply(7)},
       {Refusal::kBadType, Refusal::kBadVersion, Refusal::kBadDiscriminator}},
  };
}

RRDK_SERVER_SCENARIOS(ServerHeaders, headers());

}  // namespace
}  // namespace rrdk::hostile
