// Malformed headers, error messages and RPC replies, at a client.
#include "client_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr CallStatus kOk = CallStatus::kOk, kMalformed = CallStatus::kMalformedReply;

Message good_reply() {
  return {xid(0), 1, kCredits, kMsg, 0, 0, 0, success(xid(0)), 4, 5};
}
// Ignored: the call continues, and ends with the reply that follows.
ClientScenario ignored(const char* name, Message message, Refusal reason) {
  return {
      name, {{Ask::kEcho, kOk}}, {say(std::move(message)), pause(20), say(good_reply())}, {reason}};
}
ClientScenario malformed(const char* name, Message message, Refusal reason) {
  return {name, {{Ask::kEcho, kMalformed}}, {say(std::move(message))}, {reason}};
}
ClientScenario ends_as(const char* name, CallStatus status, Message message,
                       std::vector<Moved> counters = {}, After after = After::kServes) {
  return {name, {{Ask::kEcho, status}}, {say(std::move(message))}, std::move(counters), after};
}

std::vector<ClientScenario> headers() {
  return {
      {"AsItShouldBe", {{Ask::kEcho, kOk}}, {say(good_reply())}, {}},
      // Shows: V1-HDR-19
      ignored("Nothing", {}, Refusal::kTooShort),
      ignored("BelowTheFixedWords", good_reply().cut(15), Refusal::kTooShort),
      ignored("OneByteLessThanAnEmptyHeader", good_reply().cut(27), Refusal::kTooShort),
      // Shows: V1-DONE-03
      ignored("Done", {xid(0), 1, kCredits, kDone}, Refusal::kDone),
      malformed("CutOffInAList", {xid(0), 1, kCredits, kMsg, 0, 1, 1}, Refusal::kTruncated),
      malformed("CutOffInASegment", {xid(0), 1, kCredits, kMsg, 0, 1, 1, 0x4711, 8, 0},
                Refusal::kTruncated),
      malformed("UnknownType", {xid(0), 1, kCredits, 5, 0, 0, 0, success(xid(0)), 4, 5},
                Refusal::kBadType),
      malformed("LargestType", {xid(0), 1, kCredits, 0xffffffff, 0, 0, 0}, Refusal::kBadType),
      malformed("VersionTwo", {xid(0), 2, kCredits, kMsg, 0, 0, 0, success(xid(0)), 4, 5},
                Refusal::kBadVersion),
      malformed("VersionZero", {xid(0), 0, kCredits, kMsg, 0, 0, 0, success(xid(0)), 4, 5},
                Refusal::kBadVersion),
      malformed("ReadDiscriminatorTwo", {xid(0), 1, kCredits, kMsg, 2, 0, 0, success(xid(0)), 4, 5},
                Refusal::kBadDiscriminator),
      malformed("WriteDiscriminatorTwo",
                {xid(0), 1, kCredits, kMsg, 0, 2, 0, success(xid(0)), 4, 5},
                Refusal::kBadDiscriminator),
      malformed("ReplyDiscriminatorTwo",
                {xid(0), 1, kCredits, kMsg, 0, 0, 2, success(xid(0)), 4, 5},
                Refusal::kBadDiscriminator),
      // Shows: V1-MSGP-08
      {"AnMsgp",
       {{Ask::kEcho, kOk}},
       {say({xid(0), 1, kCredits, kMsgp, 8, 8, 0, 0, 0, success(xid(0)), 4, 5})},
       {}},
      {"LongerThanAnyReceive",
       {{Ask::kEcho, CallStatus::kConnectionLost}},
       {say({xid(0), 1, kCredits, kMsg, 0, 0, 0, success(xid(0)), 5000, filler(5000)})},
       {Refusal::kMessageTooLong},
       After::kEnds},
      // Shows: V1-ERR-12
      {"EightThatAreWrongAtOnce",
       std::vector<Asked>(8, {Ask::kEcho, kMalformed}),
       {pause(20),
        [](Stage& stage) {
          for (size_t i = 0; i < 8; ++i)
            stage.peer->say(Message{xid(i), 1, kCredits, 7}.bytes(*stage.peer));
        }},
       {{Refusal::kBadType, 8}}},
  };
}

std::vector<ClientScenario> errors() {
  return {
      // Shows: V1-ERR-14, V1-CREDIT-22
      ends_as("ErrChunk", CallStatus::kChunkError, {xid(0), 1, kCredits, kError, kErrChunk}),
      // Shows: V1-ERR-09, V1-HDR-18
      ends_as("ErrChunkOfRfc5666", CallStatus::kChunkError,
              {xid(0), 1, kCredits, kError, kErrChunk, filler(32)}, {Refusal::kTrailingBytes}),
      ends_as("ErrChunkWithFourThousandBytes", CallStatus::kChunkError,
              {xid(0), 1, kCredits, kError, kErrChunk, filler(4000)}, {Refusal::kTrailingBytes}),
      ignored("AnErrorWithoutACode", {xid(0), 1, kCredits, kError}, Refusal::kTooShort),
      ends_as("ErrVersOfOurVersion", CallStatus::kVersionError,
              {xid(0), 1, kCredits, kError, kErrVers, 1, 1}),
      // Shows: V1-ERR-05
      ends_as("ErrVersOfAnyVersion", CallStatus::kVersionError,
              {xid(0), 99, kCredits, kError, kErrVers, 0, 0xffffffff}),
      malformed("ErrVersWithoutARange", {xid(0), 1, kCredits, kError, kErrVers},
                Refusal::kTruncated),
      malformed("ErrVersWithHalfARange", {xid(0), 1, kCredits, kError, kErrVers, 1},
                Refusal::kTruncated),
      // Shows: V1-ERR-16
      ends_as("ErrVersOfLaterVersions", CallStatus::kVersionError,
              {xid(0), 1, kCredits, kError, kErrVers, 3, 5}, {Refusal::kNoCommonVersion},
              After::kEnds),
      // Shows: V1-ERR-16
      ends_as("ErrVersOfNoVersion", CallStatus::kVersionError,
              {xid(0), 1, kCredits, kError, kErrVers, 2, 1}, {Refusal::kNoCommonVersion},
              After::kEnds),
      ends_as("ErrVersOfVersionZero", CallStatus::kVersionError,
              {xid(0), 0, kCredits, kError, kErrVers, 0, 0}, {Refusal::kNoCommonVersion},
              After::kEnds),
      // Shows: V1-ERR-15
      ends_as("ErrorCodeZero", CallStatus::kRemoteError, {xid(0), 1, kCredits, kError, 0},
              {Refusal::kUnknownError}),
      // Shows: V1-ERR-15
      ends_as("ErrorCodeThree", CallStatus::kRemoteError, {xid(0), 1, kCredits, kError, 3},
              {Refusal::kUnknownError}),
      ends_as("LargestErrorCode", CallStatus::kRemoteError,
              {xid(0), 1, kCredits, kError, 0xffffffff}, {Refusal::kUnknownError}),
      malformed("ErrChunkOfAnotherVersion", {xid(0), 2, kCredits, kError, kErrChunk},
                Refusal::kBadVersion),
      ignored("AnErrorForNoCall", {xid(0, 0x800), 1, kCredits, kError, kErrChunk},
              Refusal::kUnknownXid),
      // It would end the connection if it answered a call.
      ignored("ErrVersForNoCall", {xid(0, 0x800), 1, kCredits, kError, kErrVers, 3, 5},
              Refusal::kUnknownXid),
      {"AThousandErrorsForNoCall",
       {{Ask::kEcho, kOk}},
       {say_times(1000, {xid(0, 0x800), 1, kCredits, kError, kErrChunk}), say(good_reply())},
       {{Refusal::kUnknownXid, 1000}}},
  };
}

// Behind a valid header.
Message msg(std::initializer_list<Part> rpc) {
  return {xid(0), 1, kCredits, kMsg, 0, 0, 0, times(1, rpc)};
}

ClientScenario cut_off_at_every_word() {
  ClientScenario scenario = {"RpcHeaderCutOffAtEveryWord",
                             std::vector<Asked>(6, {Ask::kEcho, kMalformed}),
                             {pause(20)},
                             {{Refusal::kNotTheReply, 2}, {Refusal::kBadReplyHeader, 4}}};
  for (size_t i = 0; i < 6; ++i)
    scenario.script.push_back(
        say(Message{xid(i), 1, kCredits, kMsg, 0, 0, 0, success(xid(i))}.cut(28 + 4 * i)));
  return scenario;
}

std::vector<ClientScenario> rpc() {
  constexpr Refusal kBad = Refusal::kBadReplyHeader;
  return {
      // Shows: V1-HDR-16, V1-ERR-13
      malformed("AnotherXid", msg({success(xid(0, 1)), 4, 5}), Refusal::kNotTheReply),
      malformed("NoMessage", msg({}), Refusal::kNotTheReply),
      malformed("MessageTypeTwo", msg({xid(0), 2, 0, 0, 0, 0}), Refusal::kNotTheReply),
      ignored("ACall", msg({xid(0), 0, 2, 0x20005600, 3, 0, 0, 0, 0, 0}), Refusal::kBackwardCall),
      ignored("ACallWithChunks", {xid(0), 1, kCredits, kMsg,   1, 40, segment(0x4711, 8, 0),
                                  0,      0, 0,        xid(0), 0, 2,  0x20005600,
                                  3,      1, 0,        0,      0, 0},
              Refusal::kBackwardCall),
      {"AThousandCalls",
       {{Ask::kEcho, kOk}},
       {say_times(1000, msg({xid(0), 0, 2, 0x20005600, 3, 0, 0, 0, 0, 0})), say(good_reply())},
       {{Refusal::kBackwardCall, 1000}}},
      cut_off_at_every_word(),
      malformed("ReplyStatTwo", msg({xid(0), 1, 2, 0, 0, 0}), kBad),
      malformed("VerifierOneByteTooLong", msg({xid(0), 1, 0, 0, 401, filler(404), 0, 4, 5}), kBad),
      malformed("LargestVerifier", msg({xid(0), 1, 0, 0, 0xffffffff, 0}), kBad),
      malformed("VerifierThatIsNotThere", msg({xid(0), 1, 0, 0, 400, 0}), kBad),
      {"LongVerifierOfAnUnknownFlavour",
       {{Ask::kEcho, kOk}},
       {say(msg({xid(0), 1, 0, 0x7fffffff, 400, filler(400), 0, 4, 5}))},
       {}},
      malformed("AcceptStatSix", msg({accepted(xid(0), 6)}), kBad),
      malformed("LargestAcceptStat", msg({accepted(xid(0), 0xffffffff)}), kBad),
      malformed("MismatchWithoutARange", msg({accepted(xid(0), 2)}), kBad),
      malformed("MismatchWithHalfARange", msg({accepted(xid(0), 2), 1}), kBad),
      malformed("RejectStatTwo", msg({xid(0), 1, 1, 2, 0, 0}), kBad),
      malformed("DenialWithoutAReason", msg({xid(0), 1, 1}), kBad),
      malformed("AuthErrorWithoutAReason", msg({xid(0), 1, 1, 1}), kBad),
      ends_as("UnknownAuthError", CallStatus::kAuthError, msg({xid(0), 1, 1, 1, 0xffffffff})),
      ends_as("RpcMismatchOfOurVersion", CallStatus::kRpcMismatch, msg({xid(0), 1, 1, 0, 2, 2})),
      ends_as("ProgramMismatchOfNoVersion", CallStatus::kProgMismatch,
              msg({accepted(xid(0), 2), 0xffffffff, 0})),
      // The application finds out whether the results are whole.
      ends_as("ResultsThatAreMissing", kOk, msg({success(xid(0))})),
      ends_as("ResultsThatAreTooMany", kOk, msg({success(xid(0)), filler(4000)})),
  };
}

RRDK_CLIENT_SCENARIOS(ClientHeaders, headers());
RRDK_CLIENT_SCENARIOS(ErrorMessages, errors());
RRDK_CLIENT_SCENARIOS(RpcReplies, rpc());

}  // namespace
}  // namespace rrdk::hostile
