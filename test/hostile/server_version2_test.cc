// Messages of version 2 that are wrong, or almost right, at a server of either draft.
#include "server_scenario.h"
#include "version2.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kEcho = loopback::kEcho, kRead = loopback::kRead, kWrite = loopback::kWrite;
constexpr ServerOptions k00Server = {.versions = {.draft = RpcRdmaDraft::kDraft00},
                                     .credits = kCredits};

ServerScenario in_00(ServerScenario scenario) {
  scenario.server = k00Server;
  return scenario;
}
ServerScenario answered(const char* name, Message message, Message answer, Refusal reason) {
  return {name, {say(std::move(message))}, {std::move(answer)}, {reason}};
}
ServerScenario ignored(const char* name, Message message, Refusal reason) {
  return {name, {say(std::move(message))}, {}, {reason}};
}
// BAD_XDR, BAD_HEADER
ServerScenario bad(const char* name, Message message, Refusal reason) {
  return answered(name, std::move(message), error2(7, {kBadXdr}), reason);
}

// A call with all three lists.
Message full_call(Wire wire, uint32_t xid) {
  return call2(wire, xid,
               {1, 52, readable(8), 0, 1, 1, writable(64), 0, 1, 1, writable(64, 64),
                call(xid, kWrite), 0, 0, 8});
}
constexpr size_t kFullLists = 12 + 24 + 24 + 20;

ServerScenario cut_at_every_word(const char* name, Wire wire) {
  ServerScenario scenario = {name, {}, {}, {}};
  const size_t header = (wire == k04 ? 24 : 16) + kFullLists;
  uint32_t xid = 100;
  for (size_t length = wire == k04 ? 16 : 28; length < header; length += 4, ++xid) {
    scenario.script.push_back(say(full_call(wire, xid).cut(length)));
    scenario.answers.push_back(error2(xid, {kBadXdr}));
    scenario.script.push_back(hear(scenario.answers.size()));
  }
  scenario.counters = {{Refusal::kTruncated, scenario.answers.size()}};
  return scenario;
}
ServerScenario short_at_every_byte(const char* name, Wire wire) {
  const size_t shortest = wire == k04 ? 16 : 28;
  ServerScenario scenario = {name, {}, {}, {{Refusal::kTooShort, shortest}}};
  for (size_t length = 0; length < shortest; ++length)
    scenario.script.push_back(say(full_call(wire, 7).cut(length)));
  return scenario;
}

std::vector<ServerScenario> headers() {
  auto plain04 = [](uint32_t direction, uint32_t msg_type) {
    return Message{7,        2, kCredits,   kMsg, direction, 0, 0, 0, 0, 7,
                   msg_type, 2, 0x20005600, 3,    0,         0, 0, 0, 0};
  };
  return {
      {"AsItShouldBe",
       {say(null_call2(k04, 1)), say(echo_call2(k04, 2))},
       {null_reply2(k04, 1), echo_reply2(k04, 2)},
       {}},
      // Shows: V2D4-ERR-07, V2D4-ERR-23
      cut_at_every_word("CutAtEveryWord", k04),
      // Shows: V2D4-ERR-23
      short_at_every_byte("ShortAtEveryByte", k04),
      // Shows: V2D4-DIR-07
      bad("DirectionSeven", plain04(7, 0), Refusal::kBadDirection),
      bad("LargestDirection", plain04(0xffffffff, 0), Refusal::kBadDirection),
      // Shows: V2D4-DIR-07
      bad("AReplyThatSaysItIsACall", plain04(kForward, 1), Refusal::kBadDirection),
      // Shows: V2D4-DIR-07
      ignored("ACallThatSaysItIsAReply", plain04(kBackward, 0), Refusal::kReplyToServer),
      ignored("AReply", plain04(kBackward, 1), Refusal::kReplyToServer),
      // Shows: V2D4-ERR-23
      ignored("AReplyCutShort", {7, 2, kCredits, kMsg, kBackward, 0, 1}, Refusal::kReplyToServer),
      ignored("AReplyWithADiscriminatorTwo", {7, 2, kCredits, kMsg, kBackward, 0, 2, 0, 0},
              Refusal::kReplyToServer),
      bad("DiscriminatorTwo", call2(k04, 7, {0, 2, 0, call(7, 0)}), Refusal::kBadDiscriminator),
      bad("LargestCount", call2(k04, 7, {0, 1, 0xffffffff, writable(64), 0, 0, call(7, kRead)}),
          Refusal::kTruncated),
      // Shows: V2D4-ERR-25
      bad("APositionThatIsNone",
          call2(k04, 7, {1, 41, readable(8), 0, 0, 0, call(7, kWrite), 0, 0, 8}),
          Refusal::kBadPosition),
      // Shows: V2D4-ERR-25
      bad("ALongCallWithoutItsMessage", call2(k04, 7, {0, 0, 0}, kNoMsg), Refusal::kNoMessage),
      bad("AnotherXidInside", call2(k04, 7, {0, 0, 0, call(8, 0)}), Refusal::kXid),
      // Shows: V2D4-ERR-06, V2X-08, V2D4-ERR-03, V2D4-HDR-07
      answered("TypeTwo", {7, 2, kCredits, 2, 0, 0, 0, 0, 0}, error2(7, {kInvalProc}),
               Refusal::kBadType),
      answered("TypeThree", {7, 2, kCredits, 3}, error2(7, {kInvalProc}), Refusal::kBadType),
      answered("TypeTen", {7, 2, kCredits, 10, 0}, error2(7, {kInvalProc}), Refusal::kBadType),
      answered("LargestType", {7, 2, kCredits, 0xffffffff}, error2(7, {kInvalProc}),
               Refusal::kBadType),
      // Shows: V1-ERR-11
      {"ErrorsAreNotAnswered",
       {say(error2(7, {kErrVers, 1, 1})), say(error2(7, {kSystem})),
        say(error2(7, {kReadChunks, 0})), say(error2(7, {})), say(error2(7, {kReplyResource}))},
       {},
       {{Refusal::kError, 5}}},
      // Shows: V2D4-RINV-08
      {"AForeignHandle",
       {say({start2(k04, 7, kMsg, kForward, 0x12345678), 0, 0, 0, call(7, 0)})},
       {null_reply2(k04, 7)},
       {Refusal::kUnknownHandle}},
      // Shows: V2D4-RINV-08
      {"AForeignHandleBesideAChunk",
       {say({start2(k04, 7, kMsg, kForward, 0x12345678), 0, 1, 1, writable(64), 0, 0,
             call(7, kRead), 0, 0, 64}),
        hear(1), written(0, 0, 64),
        [](Stage& stage) { EXPECT_FALSE(stage.peer->heard[0].invalidated); }},
       {reply2(k04, 7, {0, 1, 1, writable(64), 0, 0}, {7, 64})},
       {Refusal::kUnknownHandle}},
      {"ManyUnknownTypes",
       {say_in_turn(1000, {7, 2, kCredits, 10})},
       std::vector<Message>(1000, error2(7, {kInvalProc})),
       {{Refusal::kBadType, 1000}}},
  };
}

std::vector<ServerScenario> options() {
  auto option = [](uint32_t direction, std::initializer_list<Part> rest) {
    return Message{7, 2, kCredits, kOptional, direction, times(1, rest)};
  };
  auto unknown = [](const char* name, Message message) {
    return answered(name, std::move(message), error2(7, {kInvalOption}), Refusal::kUnknownOption);
  };
  // They are no calls: their answers repeat the previous grant.
  const Message no_option = {7, 2, 1, kError, kInvalOption};
  auto properties = [&](const char* name, Message message) {
    return answered(name, std::move(message), no_option, Refusal::kProperties);
  };
  return {
      // Shows: V2D4-OPT-02, V2D4-OPT-03
      unknown("WithoutData", option(kForward, {77, 0})),
      unknown("WithDataAndAMessage", option(kForward, {1, 5, 1, 2, call(7, 0)})),
      bad("LargestLength", option(kForward, {77, 0xffffffff, 1, 2}), Refusal::kTruncated),
      bad("ALengthWhosePadWraps", option(kForward, {77, 0xfffffffd, 1, 2}), Refusal::kTruncated),
      bad("ALengthBehindTheEnd", option(kForward, {77, 9, 1, 2}), Refusal::kTruncated),
      bad("DataWithoutItsPad", option(kForward, {77, 7, 1, 2}).cut(35), Refusal::kTruncated),
      bad("WithoutALength", option(kForward, {77}), Refusal::kTruncated),
      bad("WithoutADirection", {7, 2, kCredits, kOptional}, Refusal::kTruncated),
      bad("DirectionThree", option(3, {77, 0}), Refusal::kBadDirection),
      ignored("AReply", option(kBackward, {77, 0}), Refusal::kReplyToServer),
      ignored("AReplyCutShort", option(kBackward, {77, 1000}), Refusal::kReplyToServer),
      // Shows: V2D4-POP-04, V2D4-POP-05
      properties("ConnProp", {7, 2, kCredits, kConnProp, 0, 0}),
      // Shows: V2D4-POP-04, V2D4-POP-05
      properties("ReqProp", {7, 2, kCredits, kReqProp, 1, 1, 4, 65536}),
      // Shows: V2D4-POP-04, V2D4-POP-05
      properties("UpdProp", {7, 2, kCredits, kUpdProp, 1, 1, 4, 1}),
      // Shows: V2D4-POP-26
      ignored("RespProp", {7, 2, kCredits, kRespProp, 0, 0, 0}, Refusal::kProperties),
      properties("PropertiesWithoutEnd", {7, 2, kCredits, kConnProp, 0xffffffff, 1, 0xffffffff}),
      properties("PropertiesWithoutABody", {7, 2, kCredits, kUpdProp}),
      {"ManyProperties",
       {say_in_turn(500, {7, 2, kCredits, kReqProp, 0})},
       std::vector<Message>(500, no_option),
       {{Refusal::kProperties, 500}}},
  };
}

std::vector<ServerScenario> limits() {
  auto reads = [](uint32_t count) {
    return Part([=](const Peer& peer, Bytes& to) {
      for (uint32_t i = 0; i < count; ++i)
        times(1, {1, 40 + 8 * i, readable(8)}).append(peer, to);
    });
  };
  return {
      // Shows: V2D4-ERR-08
      answered("ReadChunks", call2(k04, 7, {reads(17), 0, 0, 0, call(7, kWrite)}),
               error2(7, {kReadChunks, 16}), Refusal::kTooManyReadChunks),
      // Shows: V2D4-ERR-09
      answered("WriteChunks",
               call2(k04, 7, {0, times(17, {1, 1, writable(8)}), 0, 0, call(7, kRead), 0, 0, 8}),
               error2(7, {kWriteChunks, 16}), Refusal::kTooManyWriteChunks),
      // Shows: V2D4-ERR-18
      answered("BothAndADiscriminatorTwo",
               call2(k04, 7, {reads(17), 0, times(17, {1, 1, writable(8)}), 2, 0, call(7, kRead)}),
               error2(7, {kBadXdr}), Refusal::kBadDiscriminator),
      // Shows: V2D4-ERR-14
      answered("Bytes",
               call2(k04, 7, {0, 1, 1, writable(0xffffffff), 0, 0, call(7, kRead), 0, 0, 64}),
               error2(7, {kSystem}), Refusal::kTooManyBytes),
      // Shows: V2D4-ERR-11
      answered("AWriteChunkThatIsTooShort",
               call2(k04, 7, {0, 1, 1, writable(63), 0, 0, call(7, kRead), 0, 0, 64}),
               error2(7, {kWriteResource, 1, 64}), Refusal::kNoReplyRoom),
      // Shows: V2D4-RINV-12
      {"AWriteChunkThatIsTooShortWithAHandle",
       {[](Stage& stage) {
          Bytes message = call2(k04, 7, {0, 1, 1, writable(8), 0, 0, call(7, kRead), 0, 0, 5000})
                              .bytes(*stage.peer);
          xdr::store_u32(&message[20], word_at(message, 9));  // the Write chunk's own
          stage.peer->say(message);
        },
        hear(1), [](Stage& stage) { EXPECT_FALSE(stage.peer->heard[0].invalidated); }},
       {error2(7, {kWriteResource, 1, 5000})},
       {Refusal::kNoReplyRoom}},
      // Shows: V2D4-ERR-12
      answered("NoReplyChunk", call2(k04, 7, {0, 0, 0, call(7, kRead), 0, 0, 5000}),
               error2(7, {kReplyResource, 24 + 8 + 5000}), Refusal::kNoReplyRoom),
  };
}

std::vector<ServerScenario> draft00() {
  std::vector<ServerScenario> all = {
      {"AsItShouldBe",
       {say(null_call2(k00, 1)), say(echo_call2(k00, 2))},
       {null_reply2(k00, 1), echo_reply2(k00, 2)},
       {}},
      // Shows: V2D0-ERR-02
      cut_at_every_word("CutAtEveryWord", k00),
      // Shows: V2D0-ERR-02
      short_at_every_byte("ShortAtEveryByte", k00),
      // Shows: V2D0-ERR-03
      bad("TypeTwo", {7, 2, kCredits, 2, 0, 0, 0, 0, 0}, Refusal::kBadType),
      // Shows: V2D0-ERR-03
      ignored("TypeThree", {7, 2, kCredits, 3}, Refusal::kDone),
      // Shows: V2D0-ERR-03, V2X-11
      bad("ConnProp", {7, 2, kCredits, kConnProp, 0, 0}, Refusal::kBadType),
      bad("TypeTen", {7, 2, kCredits, 10, 0}, Refusal::kBadType),
      bad("LargestType", {7, 2, kCredits, 0xffffffff}, Refusal::kBadType),
      bad("DiscriminatorTwo", call2(k00, 7, {0, 2, 0, call(7, 0)}), Refusal::kBadDiscriminator),
      // Shows: V2D0-OPT-02
      answered("AnOption", {7, 2, kCredits, kOptional, 77, 4, 1}, error2(7, {kInvalOption00}),
               Refusal::kUnknownOption),
      // Shows: V2D0-OPT-07
      bad("AnOptionOfTheLargestLength", {7, 2, kCredits, kOptional, 77, 0xffffffff, 1, 2},
          Refusal::kTruncated),
      bad("AnOptionWhosePadWraps", {7, 2, kCredits, kOptional, 77, 0xfffffffd, 1, 2},
          Refusal::kTruncated),
      ignored("AReply", echo_reply2(k00, 7), Refusal::kReplyToServer),
      {"ErrorsAreNotAnswered",
       {say(error2(7, {kErrVers, 1, 1})), say(error2(7, {kInvalOption00})), say(error2(7, {}))},
       {},
       {{Refusal::kError, 3}}},
      // Shows: V2X-01, V2X-02
      // Three empty lists, and behind them a message that begins with two words of zero.
      bad("ACallOfDraft04", echo_call2(k04, 7), Refusal::kXid),
      bad("TooManyWriteChunks",
          call2(k00, 7, {0, times(17, {1, 1, writable(8)}), 0, 0, call(7, kRead), 0, 0, 8}),
          Refusal::kTooManyWriteChunks),
      // Shows: V2D0-ERR-04
      bad("NoReplyChunk", call2(k00, 7, {0, 0, 0, call(7, kRead), 0, 0, 5000}),
          Refusal::kNoReplyRoom),
  };
  for (ServerScenario& scenario : all)
    scenario = in_00(std::move(scenario));
  return all;
}

std::vector<ServerScenario> mixed() {
  return {
      // Shows: V2D4-NEG-07, V2D4-NEG-11
      {"EachCallInAnotherVersion",
       {say(null_call(1)), say(null_call2(k04, 2)), say({3, 3, kCredits, kMsg, 0, 0, 0}),
        say(echo_call(4)), say(echo_call2(k04, 5)), say({6, 0, kCredits, kOptional}),
        say(null_call2(k04, 7)), say(null_call(8))},
       {null_reply(1),
        null_reply2(k04, 2),
        {3, 3, kCredits, kError, kErrVers, 1, 2},
        echo_reply(4),
        echo_reply2(k04, 5),
        {6, 0, kCredits, kError, kErrVers, 1, 2},
        null_reply2(k04, 7),
        null_reply(8)},
       {{Refusal::kBadVersion, 2}}},
      // Shows: V2X-02
      {"OneOfEachVersionInTheOthersWords",
       {say({1, 1, kCredits, kMsg, kForward, 0, 0, 0, 0, call(1, 0)}),
        say({2, 2, kCredits, kMsg, 0, 0, 0, call(2, kEcho), 4, 5}), say(null_call(3))},
       {err_chunk(1), error2(2, {kBadXdr}), null_reply(3)},
       {{Refusal::kXid, 1}, {Refusal::kBadDiscriminator, 1}}},
      {"WrongOnesBetweenGoodOnes",
       {say(null_call2(k04, 1)), say({2, 2, kCredits, 10}), say(echo_call2(k04, 3)),
        say({4, 2, kCredits, kMsg, 9}), say(echo_call(5)), say({6, 1, kCredits, kConnProp, 0, 0}),
        say(null_call2(k04, 7))},
       {null_reply2(k04, 1), error2(2, {kInvalProc}), echo_reply2(k04, 3), error2(4, {kBadXdr}),
        echo_reply(5), err_chunk(6), null_reply2(k04, 7)},
       {{Refusal::kBadType, 2}, {Refusal::kBadDirection, 1}}},
  };
}

RRDK_SERVER_SCENARIOS(ServerVersion2, headers());
RRDK_SERVER_SCENARIOS(ServerVersion2Options, options());
RRDK_SERVER_SCENARIOS(ServerVersion2Limits, limits());
RRDK_SERVER_SCENARIOS(ServerDraft00, draft00());
RRDK_SERVER_SCENARIOS(ServerMixedVersions, mixed());

}  // namespace
}  // namespace rrdk::hostile
