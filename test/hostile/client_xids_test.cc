// XIDs and credits at a client: replies to no call, twice, too late and out of order, and invalid
// grants.
#include "client_scenario.h"

namespace rrdk::hostile {
namespace {

constexpr CallStatus kOk = CallStatus::kOk;

Message reply_to(size_t n, uint32_t grant = kCredits) {
  return {xid(n), 1, grant, kMsg, 0, 0, 0, success(xid(n)), 4, 5};
}
// Replies to the XID of the n-th call plus `plus`.
Message forged_reply(size_t n, uint32_t plus) {
  return {xid(n, plus), 1, kCredits, kMsg, 0, 0, 0, success(xid(n, plus)), 4, 5};
}
std::vector<Asked> echoes(size_t count, CallStatus status = kOk) {
  return std::vector<Asked>(count, {Ask::kEcho, status});
}
// This many calls have come, and no more come.
Step heard_calls(size_t count) {
  return [count](Stage& stage) {
    stage.until("the calls come", [&] { return stage.peer->heard.size() >= count; });
    stage.passes(30);
    EXPECT_EQ(stage.peer->heard.size(), count);
  };
}
Step reply_all(size_t first, size_t last, uint32_t grant = kCredits) {
  return [=](Stage& stage) {
    for (size_t n = first; n < last; ++n)
      stage.peer->say(reply_to(n, grant).bytes(*stage.peer));
  };
}

std::vector<ClientScenario> xids() {
  return {
      {"UnknownXid",
       echoes(1),
       {say(forged_reply(0, 0x8000)), say(reply_to(0))},
       {Refusal::kUnknownXid}},
      {"XidOfTheNextSlot",
       echoes(1),
       {say(forged_reply(0, 1)), say(reply_to(0))},
       {Refusal::kUnknownXid}},
      {"XidWithAnotherHighestBit",
       echoes(1),
       {say(forged_reply(0, 0x80000000)), say(reply_to(0))},
       {Refusal::kUnknownXid}},
      {"ThousandsOfUnknownXids",
       echoes(1),
       {say_times(2000, forged_reply(0, 0x8000)), say(reply_to(0))},
       {{Refusal::kUnknownXid, 2000}}},
      {"TwoRepliesToOneCall",
       echoes(1),
       {say(reply_to(0)), ended(0), say(reply_to(0))},
       {Refusal::kUnknownXid}},
      {"TwoRepliesAtOnce", echoes(1), {say_times(2, reply_to(0))}, {Refusal::kUnknownXid}},
      {"AnErrorBehindTheReply",
       echoes(1),
       {say(reply_to(0)), say({xid(0), 1, kCredits, kError, kErrChunk})},
       {Refusal::kUnknownXid}},
      {"AReplyBehindAnError",
       echoes(1, CallStatus::kChunkError),
       {say({xid(0), 1, kCredits, kError, kErrChunk}), say(reply_to(0))},
       {Refusal::kUnknownXid}},
      {"TheXidsOfTwoCallsInOneReply",
       {{Ask::kEcho, CallStatus::kMalformedReply}, {Ask::kEcho, kOk}},
       {heard_calls(2), say({xid(0), 1, kCredits, kMsg, 0, 0, 0, success(xid(1)), 4, 5}),
        say(reply_to(1))},
       {Refusal::kNotTheReply}},
      {"InReverseOrder",
       echoes(4),
       {heard_calls(4), say(reply_to(3)), say(reply_to(2)), say(reply_to(1)), say(reply_to(0))},
       {}},
      // Shows: V1-CREDIT-23
      {"AReplyToACancelledCall",
       {{Ask::kEcho, CallStatus::kCancelled}},
       {cancel(0), ended(0), say(reply_to(0))},
       {Refusal::kLateReply}},
      {"AReplyToACallThatTimedOut",
       {{Ask::kEcho, CallStatus::kTimeout, 1}},
       {ended(0), say(reply_to(0))},
       {Refusal::kLateReply}},
      {"TwoRepliesToACancelledCall",
       {{Ask::kEcho, CallStatus::kCancelled}},
       {cancel(0), ended(0), say(reply_to(0)), say(reply_to(0))},
       {Refusal::kLateReply, Refusal::kUnknownXid}},
      {"AnErrorForACancelledCall",
       {{Ask::kEcho, CallStatus::kCancelled}},
       {cancel(0), ended(0), say({xid(0), 1, kCredits, kError, kErrChunk})},
       {Refusal::kLateReply}},
      {"SomethingMalformedForACancelledCall",
       {{Ask::kEcho, CallStatus::kCancelled}},
       {cancel(0), ended(0), say({xid(0), 1, kCredits, 7})},
       {Refusal::kLateReply}},
      // Its keys went with it, and this peer could no longer invalidate them.
      {"ALateReplyWithItsChunks",
       {{Ask::kRead, CallStatus::kCancelled}},
       {cancel(0), ended(0),
        say({xid(0), 1, kCredits, kMsg, 0, 1, 2, returned(0, 7, 600), returned(0, 11, 400), 0, 0,
             success(xid(0)), 7, 1000})},
       {Refusal::kLateReply}},
  };
}

ClientScenario before_the_first_grant(const char* name, std::vector<Asked> asked,
                                      std::vector<Step> script) {
  ClientScenario scenario = {name, std::move(asked), std::move(script), {}};
  scenario.first_grant = false;
  return scenario;
}

std::vector<ClientScenario> credits() {
  return {
      // Shows: V1-CREDIT-11
      before_the_first_grant("OneCallBeforeTheFirstGrant", echoes(8),
                             {heard_calls(1), say(reply_to(0)), heard_calls(8), reply_all(1, 8)}),
      // Shows: V1-CREDIT-07
      before_the_first_grant(
          "GrantsOfZero", echoes(4),
          {heard_calls(1), say(reply_to(0, 0)), heard_calls(2), say(reply_to(1, 0)), heard_calls(3),
           say(reply_to(2, 0)), heard_calls(4), say(reply_to(3, 0))}),
      // Shows: V1-CREDIT-17
      before_the_first_grant("TheLargestGrant", echoes(20),
                             {heard_calls(1), say(reply_to(0, 0xffffffff)), heard_calls(9),
                              reply_all(1, 9, 0xffffffff), heard_calls(17),
                              reply_all(9, 17, 0xffffffff), heard_calls(20), reply_all(17, 20)}),
      // Shows: V1-CREDIT-21
      {"ErrVersGrantsNothing",
       {{Ask::kEcho, CallStatus::kVersionError}, {Ask::kEcho, kOk}, {Ask::kEcho, kOk}},
       {heard_calls(1), say({xid(0), 1, kCredits, kError, kErrVers, 1, 1}), heard_calls(2),
        say(reply_to(1)), heard_calls(3), say(reply_to(2))},
       {},
       After::kServes,
       {.private_data = usual_private_data()},
       {.credits = kCredits, .call_timeout_ms = 0},
       {},
       false},
      // Shows: V1-CREDIT-04, V1-CREDIT-10
      {"GrantsThatFallWhileCallsAreInFlight",
       echoes(12),
       {heard_calls(8), say(reply_to(0, 1)), heard_calls(8), reply_all(1, 7, 1), heard_calls(8),
        say(reply_to(7, 1)), heard_calls(9), say(reply_to(8, 3)), heard_calls(12),
        reply_all(9, 12)},
       {}},
      {"AnUnknownXidGrantsNothing",
       echoes(2),
       {heard_calls(1), say(forged_reply(0, 0x8000)), heard_calls(1), say(reply_to(0, 1)),
        heard_calls(2), say(reply_to(1))},
       {Refusal::kUnknownXid},
       After::kServes,
       {.private_data = usual_private_data()},
       {.credits = kCredits, .call_timeout_ms = 0},
       {},
       false},
      {"AMalformedReplyGivesTheCreditBack",
       {{Ask::kEcho, CallStatus::kMalformedReply}, {Ask::kEcho, kOk}},
       {heard_calls(1), say({xid(0), 1, kCredits, 7}), heard_calls(2), say(reply_to(1))},
       {Refusal::kBadType},
       After::kServes,
       {.private_data = usual_private_data()},
       {.credits = kCredits, .call_timeout_ms = 0},
       {},
       false},
      // Shows: V1-CREDIT-23
      {"NoAnswerBeforeTheFirstGrant",
       {{Ask::kEcho, CallStatus::kTimeout, 1}},
       {},
       {Refusal::kNoAnswers},
       After::kEnds,
       {.private_data = usual_private_data()},
       {.credits = kCredits, .call_timeout_ms = 0, .starved_ms = 20},
       {},
       false},
      // Shows: V1-CREDIT-23
      {"NoAnswerToAnything",
       std::vector<Asked>(8, {Ask::kEcho, CallStatus::kTimeout, 1}),
       {},
       {Refusal::kNoAnswers},
       After::kEnds,
       {.private_data = usual_private_data()},
       {.credits = kCredits, .call_timeout_ms = 0, .starved_ms = 20}},
      {"NoAnswerToSome",
       {{Ask::kEcho, CallStatus::kTimeout, 1}, {Ask::kRead, CallStatus::kTimeout, 1}},
       {ended(0), ended(1)},
       {}},
  };
}

RRDK_CLIENT_SCENARIOS(ClientXids, xids());
RRDK_CLIENT_SCENARIOS(ClientCredits, credits());

}  // namespace
}  // namespace rrdk::hostile
