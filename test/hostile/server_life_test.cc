// Connections that begin and end in irregular ways, at a server.
#include "server_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kRead = loopback::kRead, kWrite = loopback::kWrite, kKeep = loopback::kKeep;

Message call_of(uint32_t xid, uint32_t procedure) {
  return {xid, 1, kCredits, kMsg, 0, 0, 0, call(xid, procedure)};
}
// The peer sends the message and is gone before the victim has looked.
Step say_and_leave(Message message) {
  return [message](Stage& stage) {
    stage.peer->say(message.bytes(*stage.peer));
    stage.peer->hang_up();
  };
}
ServerScenario left(const char* name, std::vector<Step> script, std::vector<Message> answers = {}) {
  return {name, std::move(script), std::move(answers), {}, After::kLeft};
}
Step handler_has(size_t count) {
  return [count](Stage& stage) {
    stage.until("the handler has the calls", [&] { return stage.keeper.kept() >= count; });
  };
}
Step release() {
  return [](Stage& stage) { stage.keeper.release(); };
}
// The peer before it hangs up, and another connection is made.
Step connect_again(bool wait) {
  return [wait](Stage& stage) {
    stage.peer->hang_up();
    stage.new_peer(stage.uri, {.private_data = usual_private_data()});
    stage.peer->connect();
    if (wait)
      stage.until("the next connection is there", [&] { return stage.peer->established(); });
  };
}

ServerScenario many_connections(const char* name, bool wait) {
  ServerScenario scenario = {name, {}, {}, {}};
  for (int i = 0; i < 20; ++i)
    scenario.script.push_back(connect_again(wait));
  scenario.script.push_back(connect_again(true));
  return scenario;
}

std::vector<ServerScenario> ends() {
  ServerScenario at_once = left("BeforeItIsAccepted", {hang_up()});
  at_once.waits = false;
  return {
      at_once,
      left("WithoutAWord", {hang_up()}),
      left("AfterACall", {say(null_call(7)), hear(1), hang_up()}, {null_reply(7)}),
      left("BehindACall", {say_and_leave(null_call(7))}),
      {"BehindAnError",
       {say_and_leave({7, 1, kCredits, 9})},
       {},
       {Refusal::kBadType},
       After::kLeft},
      left("DuringOurRead", {say_and_leave({7, 1, kCredits, kMsg, 1, 52, readable(60000), 0, 0, 0,
                                            call(7, kWrite), 0, 0, 60000})}),
      left("DuringOurWrite", {say_and_leave({7, 1, kCredits, kMsg, 0, 1, 1, writable(60000), 0, 0,
                                             call(7, kRead), 0, 0, 60000})}),
      left("DuringALongReply", {say_and_leave({7, 1, kCredits, kMsg, 0, 0, 1, 1, writable(60000),
                                               call(7, kRead), 0, 0, 50000})}),
      left("WithCallsInHandlers",
           {say(null_call(1)), hear(1), say(call_of(2, kKeep)), say(call_of(3, kKeep)),
            handler_has(2), hang_up(), gone(), release()},
           {null_reply(1)}),
      left("WithACallInAHandlerThatReads",
           {expose({call(7, kKeep)}), say({7, 1, kCredits, kNoMsg, 1, 0, request(40), 0, 0, 0}),
            handler_has(1), hang_up(), gone(), release()}),
      left("WithACallInAWorker",
           {say_and_leave({7, 1, kCredits, kMsg, 0, 0, 0, call(7, loopback::kWorker), 4, 5})}),
      left("WithAnswersByAThread",
           {say({7, 1, kCredits, kMsg, 0, 0, 0, call(7, loopback::kThread), 4, 5}), hang_up(),
            gone(), [](Stage& stage) { stage.keeper.join(); }}),
      left("WithAReplyThatIsDelayed",
           {say({7, 1, kCredits, kMsg, 0, 0, 0, call(7, loopback::kDelay), 13, 0}), pause(50),
            hang_up()}),
      {"WithRepliesThatWereNotTaken",
       {say_slowly(100, null_call(7)), pause(100), hang_up()},
       {},
       {},
       After::kLeft,
       {.private_data = usual_private_data(), .receives = 0}},
      {"WithCallsThatWereHeldBack",
       {[](Stage& stage) {
          for (uint32_t i = 0; i < 40; ++i)
            stage.peer->say(call_of(i, kKeep).bytes(*stage.peer));
        },
        handler_has(2 * kCredits), hang_up(), gone(),
        pause(2000),  // until the server knows, too: it would take the waiting ones
        release()},
       {},
       {{Refusal::kCreditOverrun, 2 * kCredits - 1}},
       After::kLeft},
      many_connections("TwentyConnectionsThatSayNothing", true),
      many_connections("TwentyConnectionsThatDoNotWait", false),
  };
}

// With this private data at connect the connection is established and serves.
ServerScenario greeting(const char* name, Bytes private_data) {
  return {name, {say(echo_call(7))}, {echo_reply(7)},
          {},   After::kServes,      {.private_data = std::move(private_data)}};
}
Bytes with_octet(size_t index, uint8_t value) {
  Bytes data = usual_private_data();
  data[index] = std::byte{value};
  return data;
}
Bytes garbage(size_t length) {
  return Bytes(length, std::byte{0xf6});
}
Bytes behind(size_t length) {
  Bytes data(length, std::byte{0x18});  // the last octet of the magic
  Bytes usual = usual_private_data();
  data.insert(data.end(), usual.begin(), usual.end());
  return data;
}
// A result of `bytes` in a reply without any chunk.
Message read_inline(uint32_t bytes) {
  return {7, 1, kCredits, kMsg, 0, 0, 0, call(7, kRead), 0, 0, bytes};
}
Message read_inline_reply(uint32_t bytes) {
  return {
      7, 1, kCredits, kMsg, 0, 0, 0, success(7), 7, bytes, Part([bytes](const Peer&, Bytes& to) {
        for (uint32_t i = 0; i < bytes; ++i)
          to.push_back(loopback::pattern(i));
      })};
}
// The largest reply that fits into `bytes` goes inline; with one word more there is no space for
// it.
ServerScenario threshold(const char* name, Bytes private_data, uint32_t bytes) {
  uint32_t fits = bytes - 28 - 32;
  return {name,
          {say(read_inline(fits)), hear(1), say(read_inline(fits + 4))},
          {read_inline_reply(fits), err_chunk(7)},
          {Refusal::kNoReplyRoom},
          After::kServes,
          {.private_data = std::move(private_data)}};
}

std::vector<ServerScenario> greetings() {
  constexpr uint32_t kWhole = 4096 - 28 - 40 - 4;  // data of a call that is as large as a Receive
  Bytes seven = usual_private_data();
  seven.pop_back();
  Bytes cut_off = behind(48);
  cut_off.pop_back();
  return {
      // Shows: V1-INLINE-06
      threshold("Nothing", {}, 1024),
      // Shows: PD-36
      {"NothingAndIsAnsweredAllTheSame",
       {say(echo_call(7)), hear(1),
        [](Stage& stage) {
          EXPECT_GE(stage.peer->victims_private_data.size(), 8u);
          EXPECT_EQ(word_at(stage.peer->victims_private_data, 0), 0xf6ab0e18u);
        }},
       {echo_reply(7)},
       {},
       After::kServes,
       {.private_data = {}}},
      // Shows: PD-39
      {"AMessageOfTheAdvertisedSizeAtOnce",
       {say({7, 1, kCredits, kMsg, 0, 0, 0, call(7, 1), kWhole, filler(kWhole)})},
       {{7, 1, kCredits, kMsg, 0, 0, 0, success(7), kWhole, filler(kWhole)}},
       {}},
      greeting("OneByte", garbage(1)),
      threshold("SevenBytes", seven, 1024),
      threshold("EightBytesOfGarbage", garbage(8), 1024),
      greeting("NineBytesOfGarbage", garbage(9)),
      threshold("FiftyFiveBytesOfGarbage", garbage(55), 1024),
      threshold("FiftySixBytesOfGarbage", garbage(56), 1024),
      threshold("WrongMagic", with_octet(0, 0xf7), 1024),
      threshold("WrongVersion", with_octet(4, 2), 1024),
      threshold("VersionZero", with_octet(4, 0), 1024),
      greeting("AllFlags", with_octet(5, 0xff)),
      threshold("SmallestReceives", with_octet(7, 0), 1024),
      // The server sends no more than its own limit.
      threshold("LargestReceives", with_octet(7, 255), 4096),
      threshold("SmallestSends", with_octet(6, 0), 4096),
      threshold("BehindFortyEightOctets", behind(48), 4096),
      threshold("CutOffAtTheEnd", cut_off, 1024),
      // Shows: PD-27
      {"NoRemoteInvalidation",
       {say({7, 1, kCredits, kMsg, 0, 1, 1, writable(8), 0, 0, call(7, kRead), 0, 0, 8}), hear(1),
        [](Stage& stage) { EXPECT_FALSE(stage.peer->heard[0].invalidated); }},
       {{7, 1, kCredits, kMsg, 0, 1, 1, writable(8), 0, 0, success(7), 7, 8}},
       {},
       After::kServes,
       {.private_data = without_remote_invalidation()}},
  };
}

RRDK_SERVER_SCENARIOS(ServerEnds, ends());
RRDK_SERVER_SCENARIOS(Greetings, greetings());

}  // namespace
}  // namespace rrdk::hostile
