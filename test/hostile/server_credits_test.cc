// Credits and XIDs at a server: absurd requests, more calls than were granted, replies that are not
// taken, and repeated XIDs.
#include "server_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kKeep = loopback::kKeep;

Message null_asking_for(uint32_t credits) {
  return {7, 1, credits, kMsg, 0, 0, 0, call(7, 0)};
}
// A call whose answer the handler keeps until release().
Message kept_call(uint32_t xid) {
  return {xid, 1, kCredits, kMsg, 0, 0, 0, call(xid, kKeep)};
}
// This many calls are with the handler, and no more come.
Step handler_has(size_t count) {
  return [count](Stage& stage) {
    stage.until("the handler has the calls", [&] { return stage.keeper.kept() >= count; });
    stage.passes(20);
    EXPECT_EQ(stage.keeper.kept(), count);
  };
}
Step release() {
  return [](Stage& stage) { stage.keeper.release(); };
}
Step say_kept(uint32_t first, uint32_t count) {
  return [=](Stage& stage) {
    for (uint32_t xid = first; xid < first + count; ++xid)
      stage.peer->say(kept_call(xid).bytes(*stage.peer));
  };
}
std::vector<Message> null_replies(uint32_t first, uint32_t count) {
  std::vector<Message> all;
  for (uint32_t xid = first; xid < first + count; ++xid)
    all.push_back(null_reply(xid));
  return all;
}
std::vector<Message> same(uint32_t count, const Message& message) {
  return std::vector<Message>(count, message);
}

ServerScenario too_many_overruns() {
  // Each round has eight calls too many; the 65th ends the connection.
  // Shows: V1-CREDIT-16
  ServerScenario scenario = {"SixtyFiveCallsTooMany",
                             {say(null_call(1)), hear(1)},
                             null_replies(1, 1),
                             {{Refusal::kCreditOverrun, 65}},
                             After::kEnds};
  for (uint32_t round = 0; round < 8; ++round) {
    uint32_t first = 100 * (round + 1);
    scenario.script.push_back(say_kept(first, 16));
    scenario.script.push_back(handler_has(16));
    scenario.script.push_back(release());
    scenario.script.push_back(hear(1 + 16 * (round + 1)));
    for (Message& reply : null_replies(first, 16))
      scenario.answers.push_back(reply);
  }
  scenario.script.push_back(say_kept(5000, 9));
  scenario.script.push_back(gone());
  scenario.script.push_back(release());
  return scenario;
}

// Many at once: the grants depend on how the calls are distributed over passes.
ServerScenario varying(ServerScenario scenario) {
  scenario.grants_vary = true;
  return scenario;
}

ServerScenario five_times_as_many(const char* name, uint32_t overruns, bool private_receives) {
  ServerScenario scenario =
      varying({name,
               {say(null_call(1)), hear(1), say_kept(2, 5 * kCredits), handler_has(2 * kCredits),
                release(), handler_has(2 * kCredits), release(), handler_has(kCredits), release()},
               null_replies(1, 5 * kCredits + 1),
               {{Refusal::kCreditOverrun, overruns}}});
  scenario.server.private_receives = private_receives;
  return scenario;
}

std::vector<ServerScenario> credits() {
  return {
      // Shows: V1-CREDIT-18, V1-CREDIT-05
      {"AsksForZero", {say(null_asking_for(0))}, {null_reply(7, 1)}, {}},
      {"AsksForOne", {say(null_asking_for(1))}, {null_reply(7, 1)}, {}},
      {"AsksForAll", {say(null_asking_for(0xffffffff))}, {null_reply(7, kCredits)}, {}},
      {"AsksForZeroAgainAndAgain",
       {say_in_turn(50, null_asking_for(0))},
       same(50, null_reply(7, 1)),
       {}},
      // Shows: V1-CREDIT-06
      {"ErrorsGrantAtLeastOne",
       {say({7, 1, 0, kMsg, 2, 0, 0, call(7, 0)})},
       {err_chunk(7, 1)},
       {Refusal::kBadDiscriminator}},
      {"ErrorsGrantNoMoreThanThereIs",
       {say({7, 1, 0xffffffff, kMsg, 2, 0, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kBadDiscriminator}},
      // Shows: V1-CREDIT-16
      {"TwoCallsBeforeTheFirstGrant",
       {say_kept(1, 2), handler_has(2), release(), hear(2)},
       null_replies(1, 2),
       {Refusal::kCreditOverrun}},
      // Shows: V1-CREDIT-16
      varying({"OneCallTooMany",
               {say(null_call(1)), hear(1), say_kept(2, kCredits + 1), handler_has(kCredits + 1),
                release(), hear(kCredits + 2)},
               null_replies(1, kCredits + 2),
               {Refusal::kCreditOverrun}}),
      // More than twice the credits do not reach a handler: they wait in their Receives, and the
      // rest in the fabric. Shared Receives back all credits nevertheless: half of each sixteen
      // calls is too many.
      five_times_as_many("FiveTimesAsManyAsGranted", 8 + 8, false),
      // Private Receives are full: the first sixteen answers grant less and less, the last one a
      // single credit; each bound holds until the peer knows about a lower one.
      five_times_as_many("FiveTimesAsManyAsGrantedOfItsOwn", 8 + 9 + 1, true),
      too_many_overruns(),
      {"ManyCalls", {say_in_turn(2000, null_call(7))}, same(2000, null_reply(7)), {}},
      varying({"ManyErrorsAtOnce",
               {say_times(1000, {7, 1, kCredits, 9, 0, 0, 0})},
               same(1000, err_chunk(7)),
               {{Refusal::kBadType, 1000}}}),
      varying({"RepliesThatAreTakenLate",
               {say_slowly(40, null_call(7)), pause(200),
                [](Stage& stage) {
                  EXPECT_TRUE(stage.peer->heard.empty());
                  stage.peer->post_receives(64);
                }},
               same(40, null_reply(7)),
               {},
               After::kServes,
               {.private_data = usual_private_data(), .receives = 0}}),
      {"RepliesThatAreNeverTaken",
       {say_slowly(400, null_call(7)), pause(500)},
       {},
       {},
       After::kStays,
       {.private_data = usual_private_data(), .receives = 0}},
      {"ErrorsThatAreNeverTaken",
       {say_times(100, {7, 1, kCredits, 9, 0, 0, 0}), pause(500)},
       {},
       {{Refusal::kBadType, 100}},
       After::kStays,
       {.private_data = usual_private_data(), .receives = 0}},
  };
}

std::vector<ServerScenario> xids() {
  return {
      // Shows: V1-HDR-16
      {"AnotherXidInTheMessage",
       {say({7, 1, kCredits, kMsg, 0, 0, 0, call(8, 0)})},
       {err_chunk(7)},
       {Refusal::kXid}},
      {"AnotherXidInAnMsgp",
       {say({7, 1, kCredits, kMsgp, 0, 0, 0, 0, 0, call(8, 0)})},
       {err_chunk(7)},
       {Refusal::kXid}},
      // The data that is taken for the message begins with the two words of padding.
      {"AnMsgpWithPadding",
       {say({7, 1, kCredits, kMsgp, 8, 8, 0, 0, 0, 0, 0, call(7, 0)})},
       {err_chunk(7)},
       {Refusal::kXid}},
      // Shows: V1-MSGP-06
      {"AnMsgpWithPaddingBeforeTheData",
       {say({7, 1, kCredits, kMsgp, 8, 4, 0, 0, 0, call(7, loopback::kEcho), 4, filler(4), 5})},
       {rejection(7, 4)},
       {}},
      {"NoMessageAtAll", {say({7, 1, kCredits, kMsg, 0, 0, 0})}, {err_chunk(7)}, {Refusal::kXid}},
      {"ThreeBytesOfAMessage", {say(null_call(7).cut(31))}, {err_chunk(7)}, {Refusal::kXid}},
      {"XidZero", {say(null_call(0))}, {null_reply(0)}, {}},
      {"LargestXid", {say(null_call(0xffffffff))}, {null_reply(0xffffffff)}, {}},
      {"TheSameXidAfterwards",
       {say(echo_call(7)), hear(1), say(echo_call(7))},
       {echo_reply(7), echo_reply(7)},
       {}},
      {"TheSameXidInAnError",
       {say({7, 1, kCredits, 9}), hear(1), say(echo_call(7))},
       {err_chunk(7), echo_reply(7)},
       {Refusal::kBadType}},
      {"TheSameXidTwiceInFlight",
       {say(null_call(1)), hear(1), say_kept(7, 1), say_kept(7, 1), handler_has(2), release()},
       {null_reply(1), null_reply(7), null_reply(7)},
       {}},
  };
}

RRDK_SERVER_SCENARIOS(ServerCredits, credits());
RRDK_SERVER_SCENARIOS(ServerXids, xids());

}  // namespace
}  // namespace rrdk::hostile
