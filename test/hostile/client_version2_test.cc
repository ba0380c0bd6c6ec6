// Messages that a server of version 2, of either draft, may send that are wrong, or almost right,
// at a client.
#include "client_scenario.h"
#include "version2.h"

namespace rrdk::hostile {
namespace {

constexpr CallStatus kOk = CallStatus::kOk, kMalformed = CallStatus::kMalformedReply;
constexpr CallStatus kRefused = CallStatus::kChunkError, kRemote = CallStatus::kRemoteError;
constexpr CallStatus kVersion = CallStatus::kVersionError;

ClientOptions speaking(RpcRdmaVersion version, RpcRdmaDraft draft = RpcRdmaDraft::kDraft04) {
  ClientOptions options;
  options.version = version;
  options.version2.draft = draft;
  options.credits = kCredits;
  options.version2.properties = false;
  options.call_timeout_ms = 0;
  return options;
}
ClientScenario with(ClientOptions options, ClientScenario scenario) {
  scenario.client = std::move(options);
  return scenario;
}
ClientScenario in_04(ClientScenario scenario) {
  return with(speaking(RpcRdmaVersion::kTwo), std::move(scenario));
}
ClientScenario in_00(ClientScenario scenario) {
  return with(speaking(RpcRdmaVersion::kTwo, RpcRdmaDraft::kDraft00), std::move(scenario));
}
// The first call of a connection, of a client that may fall back.
ClientScenario first(ClientScenario scenario) {
  scenario.first_grant = false;
  return with(speaking(RpcRdmaVersion::kAuto), std::move(scenario));
}

Message good_reply() {
  return echo_reply2(k04, xid(0));
}
Message good_reply1() {
  return {xid(0), 1, kCredits, kMsg, 0, 0, 0, success(xid(0)), 4, 5};
}
ClientScenario ignored(const char* name, Message message, Refusal reason) {
  return in_04({name,
                {{Ask::kEcho, kOk}},
                {say(std::move(message)), pause(20), say(good_reply())},
                {reason}});
}
ClientScenario ends_as(const char* name, CallStatus status, Message message,
                       std::vector<Moved> counters = {}, After after = After::kServes) {
  return in_04({name, {{Ask::kEcho, status}}, {say(std::move(message))}, counters, after});
}
// A client's answer to properties that it was told to ignore.
Message no_option() {
  return {xid(0), 2, 1, kError, kInvalOption};
}
ClientScenario refused(const char* name, Message message) {
  ClientScenario scenario = ignored(name, std::move(message), Refusal::kProperties);
  scenario.errors = {no_option()};
  return scenario;
}
// A call from the peer, or a message that claims to be a call: the client takes none.
Message no_service(uint32_t code = kSystem) {
  return {xid(0), 2, 1, kError, code};
}
ClientScenario answered(const char* name, Message message, Refusal reason, Message error) {
  ClientScenario scenario = ignored(name, std::move(message), reason);
  scenario.errors = {std::move(error)};
  return scenario;
}
ClientScenario malformed(const char* name, Message message, Refusal reason) {
  return ends_as(name, kMalformed, std::move(message), {reason});
}
Message msg04(uint32_t direction, std::initializer_list<Part> lists, uint32_t msg_type) {
  return {
      start2(k04, xid(0), kMsg, direction), times(1, lists), xid(0), msg_type, 0, 0, 0, 0, 4, 5};
}

std::vector<ClientScenario> headers() {
  auto option = [](uint32_t direction, std::initializer_list<Part> rest) {
    return Message{xid(0), 2, kCredits, kOptional, direction, times(1, rest)};
  };
  return {
      in_04({"AsItShouldBe", {{Ask::kEcho, kOk}}, {say(good_reply())}, {}}),
      in_00({"AsItShouldBeInDraft00", {{Ask::kEcho, kOk}}, {say(echo_reply2(k00, xid(0)))}, {}}),
      // Shows: V2D4-RINV-09
      in_04({"AHandleInAReply",
             {{Ask::kEcho, kOk}},
             {say({start2(k04, xid(0), kMsg, kBackward, 123), 0, 0, 0, success(xid(0)), 4, 5})},
             {}}),
      ignored("Short", good_reply().cut(15), Refusal::kTooShort),
      // Shows: V2D4-ERR-23
      ignored("WithoutADirection", good_reply().cut(16), Refusal::kTruncated),
      malformed("CutInTheLists", good_reply().cut(28), Refusal::kTruncated),
      ignored("DirectionSeven", msg04(7, {0, 0, 0}, 1), Refusal::kBadDirection),
      answered("AReplyThatSaysItIsACall", msg04(kForward, {0, 0, 0}, 1), Refusal::kBadDirection,
               no_service(kBadXdr)),
      // Shows: V2D4-PROP-30
      answered("ACall", msg04(kForward, {0, 0, 0}, 0), Refusal::kBackwardCall, no_service()),
      answered("ACallWithAChunk", msg04(kForward, {1, 32, segment(0x4711, 8, 0), 0, 0, 0}, 0),
               Refusal::kBackwardCall, no_service()),
      malformed("ACallThatSaysItIsAReply", msg04(kBackward, {0, 0, 0}, 0), Refusal::kBadDirection),
      malformed("TypeTwo", {xid(0), 2, kCredits, 2}, Refusal::kBadType),
      malformed("TypeThree", {xid(0), 2, kCredits, 3}, Refusal::kBadType),
      malformed("TypeTen", {xid(0), 2, kCredits, 10}, Refusal::kBadType),
      malformed("LargestType", {xid(0), 2, kCredits, 0xffffffff}, Refusal::kBadType),
      // Shows: V2D4-OPT-05
      ignored("AnOption", option(kBackward, {77, 0}), Refusal::kUnknownOption),
      ignored("AnOptionThatIsACall", option(kForward, {77, 0}), Refusal::kUnknownOption),
      malformed("AnOptionOfTheLargestLength", option(kBackward, {77, 0xffffffff, 1}),
                Refusal::kTruncated),
      malformed("AnOptionWhosePadWraps", option(kBackward, {77, 0xfffffffd, 1}),
                Refusal::kTruncated),
      ignored("ACallWithAnOptionOfTheLargestLength", option(kForward, {77, 0xffffffff, 1}),
              Refusal::kBackwardCall),
      // Shows: V2D4-POP-04, V2D4-POP-05
      refused("ConnProp", {xid(0), 2, kCredits, kConnProp, 1, 1, 4, 0, 0}),
      refused("ReqProp", {xid(0), 2, kCredits, kReqProp, 0xffffffff}),
      // Shows: V2D4-POP-04
      ignored("RespProp", {xid(0), 2, kCredits, kRespProp, 1, 1, 1, 1, 0}, Refusal::kProperties),
      refused("UpdProp", {xid(0), 2, kCredits, kUpdProp}),
      in_04({"AThousandCalls",
             {{Ask::kEcho, kOk}},
             {say_in_turn(1000, msg04(kForward, {0, 0, 0}, 0)), say(good_reply())},
             {{Refusal::kBackwardCall, 1000}},
             After::kServes,
             {.private_data = usual_private_data()},
             {},
             {},
             true,
             0,
             std::vector<Message>(1000, no_service())}),
      in_04({"AThousandConnProps",
             {{Ask::kEcho, kOk}},
             {say_times(1000, {xid(0), 2, kCredits, kConnProp, 0, 0}), say(good_reply())},
             {{Refusal::kProperties, 1000}},
             After::kServes,
             {.private_data = usual_private_data()},
             {},
             {},
             true,
             0,
             {no_option()},
             true}),
      // Shows: V2D0-SEC-01
      in_00({"AWriteBeyondItsSegmentInDraft00",
             {{Ask::kRead, CallStatus::kConnectionLost}},
             {access_segment(fabric::Op::kWrite, 0, 7, 601, 0, fabric::WcStatus::kRemoteAccess),
              gone(), refused_accesses(1), nothing_written(0)},
             {},
             After::kEnds}),
      // Shows: V2D0-SEC-01
      in_00({"AWriteBehindTheReplyInDraft00",
             {{Ask::kRead, kOk}},
             {say(reply2(k00, xid(0), {0, 1, 2, returned(0, 7, 600), returned(0, 11, 400), 0, 0},
                         {7, 1000})),
              ended(0),
              access_segment(fabric::Op::kWrite, 0, 7, 8, 0, fabric::WcStatus::kRemoteAccess),
              gone(), refused_accesses(1), nothing_written(0)},
             {},
             After::kEnds}),
      in_00({"ReservedTypesOfDraft00",
             {{Ask::kEcho, kMalformed}},
             {say({xid(0), 2, kCredits, 3}), say({xid(0), 2, kCredits, 2})},
             {Refusal::kDone, Refusal::kBadType}}),
      // Shows: V2D0-ERR-05
      in_00({"AnErrorThatOnlyDraft04Has",
             {{Ask::kEcho, kRemote}},
             {say(error2(xid(0), {kReplyResource, 100}))},
             {Refusal::kUnknownError, Refusal::kTrailingBytes}}),
      in_00({"AReplyOfDraft04",
             {{Ask::kEcho, kMalformed}},
             {say(good_reply())},
             {Refusal::kBadDiscriminator}}),
  };
}

std::vector<ClientScenario> errors() {
  std::vector<ClientScenario> all = {
      ends_as("BadXdr", kRefused, error2(xid(0), {kBadXdr})),
      ends_as("InvalProc", kRemote, error2(xid(0), {kInvalProc})),
      ends_as("InvalOption", kRemote, error2(xid(0), {kInvalOption})),
      // Shows: V2D4-ERR-15
      ends_as("System", kRemote, error2(xid(0), {kSystem})),
      // Shows: V2D4-ERR-24
      ends_as("CodeEleven", kRemote, error2(xid(0), {11}), {Refusal::kUnknownError}),
      // Shows: V2D4-ERR-24
      ends_as("CodeZero", kRemote, error2(xid(0), {0}), {Refusal::kUnknownError}),
      ignored("WithoutACode", error2(xid(0), {}), Refusal::kTooShort),
      ends_as("WithWordsTooMany", kRemote, error2(xid(0), {kSystem, 1, 2}),
              {Refusal::kTrailingBytes}),
      malformed("ReadChunksWithoutAMaximum", error2(xid(0), {kReadChunks}), Refusal::kTruncated),
      malformed("WriteResourceWithoutALength", error2(xid(0), {kWriteResource, 1}),
                Refusal::kTruncated),
      malformed("ReplyResourceWithoutALength", error2(xid(0), {kReplyResource}),
                Refusal::kTruncated),
      // A call without chunks beyond the peer's limit is not sent again, whatever the peer says.
      ends_as("AMaximumThatIsNotExceeded", kRefused, error2(xid(0), {kReadChunks, 1000})),
      ends_as("AMaximumOfZeroForACallWithoutChunks", kRefused, error2(xid(0), {kSegments, 0})),
      ignored("ForNoCall", error2(xid(0, 0x800), {kReadChunks, 0}), Refusal::kUnknownXid),
      // Shows: V2D4-ERR-20
      in_04({"NoReadChunks",
             {{Ask::kWrite, kRefused}},
             {say(error2(xid(0), {kReadChunks, 0})), hear(2),
              [](Stage& stage) { EXPECT_EQ(word_at(stage.peer->heard_message(1), 3), kNoMsg); },
              say(error2(xid(0), {kReadChunks, 0}))},
             {}}),
      in_04({"NoReadChunksToTwoCallsAtOnce",
             {{Ask::kWrite, kRefused}, {Ask::kWrite, kRefused}},
             {hear(2), say(error2(xid(0), {kReadChunks, 0})), say(error2(xid(1), {kReadChunks, 0})),
              hear(4), say(error2(xid(0), {kBadXdr})), say(error2(xid(1), {kBadXdr}))},
             {}}),
      in_04({"NoReadChunksThenNoSegments",
             {{Ask::kWrite, kRefused}},
             {say(error2(xid(0), {kReadChunks, 0})), hear(2), say(error2(xid(0), {kSegments, 0}))},
             {}}),
      in_04({"NoWriteChunks",
             {{Ask::kRead, kRefused}},
             {say(error2(xid(0), {kWriteChunks, 0})), hear(2),
              say(error2(xid(0), {kWriteChunks, 0}))},
             {}}),
      // Shows: V2D4-ERR-16
      in_04({"ReplyResourceAgainAndAgain",
             {{Ask::kNull, kRefused}},
             {say(error2(xid(0), {kReplyResource, 10000})), hear(2),
              say(error2(xid(0), {kReplyResource, 20000}))},
             {}}),
      // Shows: V2D4-ERR-16
      in_04({"ReplyResourceOfTheLargestLength",
             {{Ask::kNull, kRefused}},
             {say(error2(xid(0), {kReplyResource, 0xffffffff}))},
             {}}),
      // Shows: V2D4-ERR-16
      ends_as("ReplyResourceOfACallThatMayNotBeRepeated", kRefused,
              error2(xid(0), {kReplyResource, 10000})),
      in_04({"WriteResourceOfAChunkThatIsNotThere",
             {{Ask::kNull, kRefused}},
             {say(error2(xid(0), {kWriteResource, 0xffffffff, 0xffffffff}))},
             {}}),
  };
  for (ClientScenario& scenario : all) {
    const std::string_view name = scenario.name;
    if (name.starts_with("NoReadChunks") || name.starts_with("NoWriteChunks"))
      scenario.resent = name.ends_with("AtOnce") ? 2 : 1;
    else if (name == "ReplyResourceAgainAndAgain")
      scenario.resent = 1;
  }
  return all;
}

std::vector<ClientScenario> versions() {
  auto again = [](ClientScenario scenario) {
    scenario.resent = 1;
    return scenario;
  };
  Message only_one = error2(xid(0), {kErrVers, 1, 1});
  return {
      // Shows: V2D4-NEG-05, V2D4-NEG-12
      again(first(
          {"FallsBack", {{Ask::kEcho, kOk}}, {say(only_one), hear(2), say(good_reply1())}, {}})),
      again(first({"ErrVersAgainAndAgain",
                   {{Ask::kEcho, kVersion}},
                   {say(only_one), hear(2), say(only_one)},
                   {}})),
      again(first({"ErrVersAndThenNoVersion",
                   {{Ask::kEcho, kVersion}},
                   {say(only_one), hear(2), say({xid(0), 1, kCredits, kError, kErrVers, 2, 9})},
                   {Refusal::kNoCommonVersion},
                   After::kEnds})),
      again(first({"FallsBackAndIsAnsweredInVersion2",
                   {{Ask::kEcho, kMalformed}},
                   {say(only_one), hear(2), say(good_reply())},
                   {Refusal::kBadVersion}})),
      // The message that was to settle the version does not settle it.
      first({"TheFirstReplyIsOfVersion1",
             {{Ask::kEcho, kMalformed}},
             {say(good_reply1())},
             {Refusal::kBadVersion}}),
      first({"ErrVersOfVersion2Alone",
             {{Ask::kEcho, kVersion}},
             {say(error2(xid(0), {kErrVers, 2, 2}))},
             {}}),
      first({"ErrVersOfNoVersion",
             {{Ask::kEcho, kVersion}},
             {say(error2(xid(0), {kErrVers, 9, 3}))},
             {Refusal::kNoCommonVersion},
             After::kEnds}),
      first({"ErrVersCutShort",
             {{Ask::kEcho, kMalformed}},
             {say(error2(xid(0), {kErrVers, 1}))},
             {Refusal::kTruncated}}),
      with(speaking(RpcRdmaVersion::kAuto), {"ErrVersInTheMiddle",
                                             {{Ask::kEcho, kVersion}},
                                             {say(only_one)},
                                             {Refusal::kNoCommonVersion},
                                             After::kEnds}),
      with(speaking(RpcRdmaVersion::kAuto), {"ErrVersInTheMiddleOfWhatIsSpoken",
                                             {{Ask::kEcho, kVersion}},
                                             {say(error2(xid(0), {kErrVers, 1, 2}))},
                                             {}}),
      // Shows: V2D4-NEG-11
      with(speaking(RpcRdmaVersion::kAuto),
           {"ARepliesVersionIsItsCalls",
            {{Ask::kEcho, kMalformed}, {Ask::kEcho, kOk}},
            {hear(2), say(good_reply1()), say(echo_reply2(k04, xid(1)))},
            {Refusal::kBadVersion}}),
      with(speaking(RpcRdmaVersion::kAuto), {"AnErrorOfVersion1",
                                             {{Ask::kEcho, kRefused}},
                                             {say({xid(0), 1, kCredits, kError, kErrChunk})},
                                             {}}),
      in_04({"Version1ToWhoDoesNotSpeakIt",
             {{Ask::kEcho, kMalformed}},
             {say(good_reply1())},
             {Refusal::kBadVersion}}),
      with(speaking(RpcRdmaVersion::kOne), {"Version2ToWhoDoesNotSpeakIt",
                                            {{Ask::kEcho, kMalformed}},
                                            {say(good_reply())},
                                            {Refusal::kBadVersion}}),
  };
}

RRDK_CLIENT_SCENARIOS(ClientVersion2, headers());
RRDK_CLIENT_SCENARIOS(ClientVersion2Errors, errors());
RRDK_CLIENT_SCENARIOS(ClientVersions, versions());

}  // namespace
}  // namespace rrdk::hostile
