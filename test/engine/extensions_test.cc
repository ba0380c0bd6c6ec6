// Messages of registered types, word by word: a server and a client against a script that plays the
// other end, in both drafts (draft-04 sections 4 and 6.2.2, draft-00 section 3).
#include "extensions_test.h"

#include <random>

#include "responder_test.h"
#include "test/seed.h"

namespace rrdk::engine::test {
namespace {

using Why = OptionError::Why;

constexpr uint32_t kOptional = 5;
constexpr uint32_t kCall = 0, kReply = 1;
constexpr uint32_t kAnswers = TestExtensions::kAnswers;

// Words that exist in both drafts, or only in draft-04.
class WithOptions : public ResponderTest, public testing::WithParamInterface<proto::Wire> {
 protected:
  bool is_00() const { return GetParam() == proto::Wire::kDraft00; }
  uint32_t bad_header() const { return 2; }
  uint32_t no_option() const { return is_00() ? 3 : 9; }
  uint32_t system() const { return is_00() ? 2 : 10; }
  Wire option(uint32_t direction, uint32_t xid, std::initializer_list<uint32_t> rest,
              uint32_t credits = 4) const {
    Wire wire{xid, 2, credits, kOptional};
    if (!is_00())
      wire.add(direction);
    return wire.add(rest);
  }
  size_t type_at() const { return is_00() ? 4 : 5; }
  ConnectionOptions with(const TestExtensions& known, ConnectionOptions options = {}) const {
    options.limits.versions.two = GetParam();
    options.properties = false;
    options.extensions = known.made.get();
    return options;
  }
  TestExtensions extensions;
};

INSTANTIATE_TEST_SUITE_P(Drafts, WithOptions,
                         testing::Values(proto::Wire::kDraft00, proto::Wire::kDraft04),
                         [](const auto& draft) {
                           return draft.param == proto::Wire::kDraft00 ? "Draft00" : "Draft04";
                         });

// Shows: V2D4-DIR-03, V2D4-DIR-04, V2D4-OPT-04, V2D0-OPT-06
TEST_P(WithOptions, ARequestIsAnsweredByAnOptionOfItsFeature) {
  ResponderTest::connect(with(extensions, {.credits = 3}));
  for (uint32_t type : {100u, 101u}) {
    peer_side->say(option(kCall, 55, {type, 8, kAnswers, 42}, 7));
    EXPECT_EQ(only_answer(), option(kReply, 55, {101, 8, kAnswers, 42}, 3).bytes());
  }
  EXPECT_EQ(extensions.served, (std::vector<uint32_t>{100, 101}));
  EXPECT_EQ(counters().options_served, 2u);
  // The same without that feature.
  end->disconnect();
  TestExtensions others(false);
  ResponderTest::connect(with(others));
  for (uint32_t type : {100u, 101u})
    expect_error(option(kCall, 55, {type, 8, kAnswers, 42}), no_option());
  EXPECT_EQ(counters().refusals[Refusal::kUnknownOption], 2u);
  peer_side->say(option(kCall, 55, {120, 4, kAnswers}));
  EXPECT_EQ(word(only_answer(), type_at()), 121u);
}

// The direction of the answer's message says that it is a reply.
// Shows: V2D4-DIR-02
TEST_P(WithOptions, AMessageBehindItIsHandedOver) {
  ResponderTest::connect(with(extensions));
  peer_side->say(option(kCall, 55, {110, 4, kAnswers, 55, kCall, 1, 2}));
  EXPECT_EQ(extensions.payload, Wire({55, kCall, 1, 2}).bytes());
  EXPECT_EQ(only_answer(), option(kReply, 55, {111, 4, kAnswers, 55, kReply, 1, 2}).bytes());
  for (const Wire& bad :
       {option(kCall, 55, {110, 4, kAnswers}), option(kCall, 55, {110, 4, kAnswers, 55}),
        option(kCall, 55, {110, 4, kAnswers, 54, kCall}),
        option(kCall, 55, {110, 4, kAnswers, 55, kReply}),
        option(kCall, 55, {100, 4, kAnswers, 55, kCall})})
    expect_error(bad, bad_header());
  EXPECT_EQ(counters().refusals[Refusal::kBadOption], 5u);
  EXPECT_EQ(extensions.errors[Why::kMalformed], 5u);
  EXPECT_EQ(extensions.served.size(), 1u);
}

TEST_P(WithOptions, FaultsInARequestAreReported) {
  ResponderTest::connect(with(extensions));
  expect_error(option(kCall, 55, {100, 0}), bad_header());
  expect_error(option(kCall, 55, {100, 3, 0}), bad_header());
  EXPECT_EQ(counters().refusals[Refusal::kBadOption], 2u);
  EXPECT_EQ(extensions.errors[Why::kMalformed], 2u);
  expect_error(option(kCall, 55, {102, 4, kAnswers}), bad_header());  // an answer's type
  EXPECT_EQ(counters().refusals[Refusal::kOptionDirection], 1u);
  EXPECT_EQ(extensions.errors[Why::kDirection], 1u);
  expect_error(option(kCall, 55, {100, 1028, kAnswers}).raw(Bytes(1024)), system());
  expect_error(option(kCall, 55, {110, 4, kAnswers, 55, kCall}).raw(Bytes(2044)), system());
  EXPECT_EQ(counters().refusals[Refusal::kLongOption], 2u);
  EXPECT_EQ(extensions.errors[Why::kTooLong], 2u);
  EXPECT_TRUE(extensions.served.empty());
  expect_error(option(kCall, 55, {100, 4, TestExtensions::kSaysNothing}), system());
  expect_error(option(kCall, 55, {100, 4, TestExtensions::kSaysNonsense}), system());
  EXPECT_EQ(counters().refusals[Refusal::kOptionNotServed], 2u);
  EXPECT_EQ(extensions.errors[Why::kNoAnswer], 2u);
  EXPECT_EQ(counters().options_served, 0u);
  // The largest ones are served.
  peer_side->say(
      option(kCall, 55, {110, 1024, kAnswers}).raw(Bytes(1020)).add({55, kCall}).raw(Bytes(2040)));
  EXPECT_EQ(only_answer().size(), (is_00() ? 24u : 28u) + 1024 + 2048);
  if (!is_00()) {
    peer_side->say(option(kReply, 55, {101, 4, kAnswers}));
    EXPECT_TRUE(peer_side->take().empty());
    EXPECT_EQ(counters().refusals[Refusal::kReplyToServer], 1u);
  }
  expect_alive();
}

// They count as calls: more than the credits allow end the connection, as calls do.
// Shows: V2D0-OPT-06
TEST_P(WithOptions, RequestsBeyondTheCreditsAreCountedUpToALimit) {
  ResponderTest::connect(with(extensions, {.credits = 4, .overrun_limit = 3}));
  for (int i = 0; i < 20; ++i) {  // each is answered before the next one comes
    peer_side->say(option(kCall, 55, {100, 4, kAnswers}));
    EXPECT_EQ(word(only_answer(), 2), 4u);
  }
  EXPECT_EQ(counters().refusals[Refusal::kCreditOverrun], 0u);
  end->handler = nullptr;
  for (uint32_t xid : {1u, 2u, 3u, 4u})  // calls that stay here: all credits are taken
    peer_side->say(Wire{xid, 1, 4, kMsg, 0, 0, 0, xid, kCall});
  ASSERT_EQ(end->held.size(), 4u);
  for (uint64_t beyond = 1; beyond <= 4; ++beyond) {
    EXPECT_FALSE(end->engine->wants_disconnect());
    peer_side->say(option(kCall, 55, {100, 4, kAnswers}));
    EXPECT_EQ(counters().refusals[Refusal::kCreditOverrun], beyond);
  }
  EXPECT_TRUE(end->engine->wants_disconnect());
}

class OptionsOfAClient : public WithOptions {
 protected:
  // A message of a registered type, as the upper layer sends it.
  struct Asking {
    Asking(uint32_t type, Bytes info_in, Bytes payload_in = {})
        : info(std::move(info_in)), payload(std::move(payload_in)) {
      option.type = type;
      option.info = info;
      option.payload = payload;
      option.room = room;
      call.option = &option;
    }
    Bytes info, payload;
    std::array<std::byte, kMostOptionInfo + kMostOptionPayload> room;
    Optional option;
    OutgoingCall call;
  };

  void connect(ConnectionOptions options = {}, Speaks speaks = Speaks::kTwo) {
    options.role = Role::kRequester;
    options.speaks = speaks;
    begin(with(extensions, options), {true, 4096, 4096}, 16);
  }
  uint32_t send(Asking& asking) {
    end->engine->submit(asking.call);
    end->run();
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 1u);
    last_sent = sent.empty() ? Bytes(64) : sent[0];
    return word(last_sent, 0);
  }
  void submit(OutgoingCall& call) {
    Encoder e(call.message, *memory, 1024, 4096);
    e.put_u64(0);
    e.finish();
    end->engine->submit(call);
    end->run();
  }
  Wire rpc_reply(uint32_t xid) const {
    Wire wire{xid, 2, 4, kMsg};
    if (!is_00())
      wire.add({kReply, 0});
    return wire.add({0, 0, 0, xid, kReply, 1});
  }
  void expect_end(Asking& asking, CallStatus status) {
    ASSERT_EQ(end->ended.size(), 1u);
    EXPECT_EQ(end->ended[0], &asking.call);
    EXPECT_EQ(asking.call.status, status) << to_string(asking.call.status);
    end->ended.clear();
  }
  // Ignored messages change nothing.
  void expect_ignored(const Wire& message, Refusal reason) {
    uint64_t before = counters().refusals[reason];
    peer_side->say(message);
    EXPECT_TRUE(peer_side->take().empty());
    EXPECT_TRUE(end->ended.empty());
    EXPECT_EQ(counters().refusals[reason], before + 1) << to_string(reason);
  }
  Bytes last_sent;
};

INSTANTIATE_TEST_SUITE_P(Drafts, OptionsOfAClient,
                         testing::Values(proto::Wire::kDraft00, proto::Wire::kDraft04),
                         [](const auto& draft) {
                           return draft.param == proto::Wire::kDraft00 ? "Draft00" : "Draft04";
                         });

// Shows: V2D4-DIR-03, V2D4-DIR-04
TEST_P(OptionsOfAClient, ARequestHasTheWordsOfACall) {
  connect({.credits = 9});
  Asking asking(100, Wire{kAnswers, 7});
  uint32_t xid = send(asking);
  EXPECT_EQ(last_sent, option(kCall, xid, {100, 8, kAnswers, 7}, 9).bytes());
  peer_side->say(option(kReply, xid, {101, 4, 5}, 6));
  expect_end(asking, CallStatus::kOk);
  EXPECT_EQ(asking.option.answer_type, 101u);
  EXPECT_EQ(Bytes(asking.option.answer_info.begin(), asking.option.answer_info.end()),
            Wire({5}).bytes());
  EXPECT_TRUE(asking.option.answer_payload.empty());
  EXPECT_EQ(end->engine->requester().window.size(), 6u);
  EXPECT_EQ(end->engine->requester().window.in_flight(), 0u);
  // Their XIDs come from the same space as those of calls.
  Asking next(110, Wire{kAnswers}, Wire{0, kCall, 8, 9});
  uint32_t other = send(next);
  EXPECT_NE(other, xid);
  EXPECT_EQ(last_sent, option(kCall, other, {110, 4, kAnswers, other, kCall, 8, 9}, 9).bytes());
  peer_side->say(option(kReply, other, {111, 4, 5, other, kReply, 3}));
  expect_end(next, CallStatus::kOk);
  EXPECT_EQ(Bytes(next.option.answer_payload.begin(), next.option.answer_payload.end()),
            Wire({other, kReply, 3}).bytes());
  EXPECT_EQ(counters().options_sent, 2u);
}

// Shows: V2D0-OPT-06
TEST_P(OptionsOfAClient, ARequestWaitsForACreditAndItsEndGivesItBack) {
  connect({.credits = 4});
  Asking first(100, Wire{kAnswers}), second(100, Wire{kAnswers}), third(100, Wire{kAnswers});
  uint32_t xid = send(first);  // the one credit before the first answer
  end->engine->submit(second.call);
  OutgoingCall call;
  submit(call);
  end->engine->submit(third.call);
  end->run();
  EXPECT_TRUE(peer_side->take().empty());
  auto next = [&] {
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? Bytes(64) : sent[0];
  };
  peer_side->say(option(kReply, xid, {101, 4, 5}, 1));  // an answer
  expect_end(first, CallStatus::kOk);
  Bytes sent = next();
  EXPECT_EQ(word(sent, 3), kOptional);
  peer_side->say(Wire{word(sent, 0), 2, 1, kError, no_option()});  // an error
  expect_end(second, CallStatus::kRemoteError);
  sent = next();
  EXPECT_EQ(word(sent, 3), kMsg);
  peer_side->say(rpc_reply(word(sent, 0)));
  EXPECT_EQ(call.status, CallStatus::kOk);
  end->ended.clear();
  sent = next();
  EXPECT_EQ(word(sent, 3), kOptional);
  peer_side->say(option(kReply, word(sent, 0), {101, 4, 5}));
  expect_end(third, CallStatus::kOk);
  EXPECT_EQ(end->engine->requester().window.in_flight(), 0u);
}

TEST_P(OptionsOfAClient, ErrorsAreToldApart) {
  connect();
  Asking unknown(100, Wire{kAnswers}), refused(100, Wire{kAnswers});
  uint32_t xid = send(unknown);
  peer_side->say(Wire{xid, 2, 4, kError, no_option()});
  expect_end(unknown, CallStatus::kRemoteError);
  EXPECT_EQ(unknown.call.error.code, proto::ErrorCode::kBadOption);
  EXPECT_EQ(extensions.errors[Why::kUnsupported], 1u);
  // If a first message is refused in this way, that does not mean that the peer speaks the other
  // draft.
  EXPECT_EQ(end->engine->version(), 2u);
  xid = send(refused);
  peer_side->say(Wire{xid, 2, 4, kError, system()});
  EXPECT_EQ(end->ended.size(), 1u);
  EXPECT_NE(refused.call.error.code, proto::ErrorCode::kBadOption);
  EXPECT_EQ(extensions.errors[Why::kRefused], 1u);
}

TEST_P(OptionsOfAClient, DoNotExistInVersion1) {
  connect({}, Speaks::kAuto);
  Asking asking(100, Wire{kAnswers}), another(100, Wire{kAnswers});
  uint32_t xid = send(asking);
  peer_side->say(Wire{xid, 2, 4, kError, kErrVers, 1, 1});
  expect_end(asking, CallStatus::kVersionError);
  EXPECT_EQ(end->engine->version(), 1u);
  EXPECT_TRUE(peer_side->take().empty());
  end->engine->submit(another.call);
  end->run();
  expect_end(another, CallStatus::kVersionError);
  EXPECT_TRUE(peer_side->take().empty());
  OutgoingCall call;
  submit(call);
  xid = word(peer_side->take().at(0), 0);
  peer_side->say(Wire{xid, 1, 4, kMsg, 0, 0, 0, xid, kReply, 1});
  EXPECT_EQ(call.status, CallStatus::kOk);
}

TEST_P(OptionsOfAClient, UnknownOrInvalidOnesAreNotSent) {
  connect();
  Asking settles(100, Wire{kAnswers});
  peer_side->say(option(kReply, send(settles), {101, 4, 5}));
  end->ended.clear();
  Asking unknown(77, Wire{kAnswers}), wrong(100, Bytes(3)), long_one(100, Bytes(1028)),
      no_message(110, Wire{kAnswers}), reply(110, Wire{kAnswers}, Wire{0, kReply}),
      message(100, Wire{kAnswers}, Wire{0, kCall});
  for (Asking* asking : {&unknown, &wrong, &long_one, &no_message, &reply, &message}) {
    end->engine->submit(asking->call);
    end->run();
    expect_end(*asking, CallStatus::kTooLarge);
  }
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(end->engine->requester().window.in_flight(), 0u);
}

TEST_P(OptionsOfAClient, AFaultyAnswerEndsItsRequestAndNoOther) {
  connect({.credits = 4});
  Asking settles(100, Wire{kAnswers}), waits(100, Wire{kAnswers});
  peer_side->say(option(kReply, send(settles), {101, 4, 5}));
  end->ended.clear();
  uint32_t waiting = send(waits);
  struct Fault {
    std::initializer_list<uint32_t> words;
    Refusal reason;
  };
  const Fault faults[] = {
      {{77, 4, 5}, Refusal::kUnknownOption},    {{120, 4, 5}, Refusal::kUnknownOption},
      {{101, 0}, Refusal::kBadOption},          {{101, 3, 5}, Refusal::kBadOption},
      {{101, 4, 5, 6, 7}, Refusal::kBadOption},
  };
  uint32_t told = 0;
  for (const Fault& fault : faults) {
    Asking asking(100, Wire{kAnswers});
    uint32_t xid = send(asking);
    uint64_t before = counters().refusals[fault.reason];
    peer_side->say(option(kReply, xid, fault.words));
    expect_end(asking, CallStatus::kMalformedReply);
    EXPECT_EQ(counters().refusals[fault.reason], before + 1);
    EXPECT_EQ(extensions.errors[Why::kBadAnswer], ++told);
  }
  Asking large(100, Wire{kAnswers}), by_reply(100, Wire{kAnswers}),
      foreign(110, Wire{kAnswers}, Wire{0, kCall});
  peer_side->say(option(kReply, send(large), {101, 1028}).raw(Bytes(1028)));
  expect_end(large, CallStatus::kMalformedReply);
  EXPECT_EQ(counters().refusals[Refusal::kLongOption], 1u);
  peer_side->say(rpc_reply(send(by_reply)));
  expect_end(by_reply, CallStatus::kMalformedReply);
  EXPECT_EQ(counters().refusals[Refusal::kNotTheReply], 1u);
  uint32_t xid = send(foreign);
  peer_side->say(option(kReply, xid, {111, 4, 5, xid + 1, kReply}));
  expect_end(foreign, CallStatus::kMalformedReply);
  peer_side->say(option(kReply, waiting, {101, 4, 5}));
  expect_end(waits, CallStatus::kOk);
  EXPECT_EQ(end->engine->requester().window.in_flight(), 0u);
}

TEST_P(OptionsOfAClient, UnsolicitedAnswersChangeNothing) {
  connect({.credits = 4});
  Asking settles(100, Wire{kAnswers});
  uint32_t past = send(settles);
  peer_side->say(option(kReply, past, {101, 4, 5}));
  end->ended.clear();
  OutgoingCall call;
  submit(call);
  uint32_t xid = word(peer_side->take().at(0), 0);
  expect_ignored(option(kReply, xid, {101, 4, 5}), Refusal::kUnsolicitedOption);  // a call's
  expect_ignored(option(kReply, past, {101, 4, 5}), Refusal::kUnsolicitedOption);
  expect_ignored(option(kReply, xid + 1, {100, 4, 5}), Refusal::kUnsolicitedOption);
  expect_ignored(option(kReply, xid, {77, 4, 5}), Refusal::kUnknownOption);
  EXPECT_EQ(extensions.errors[Why::kUnsolicited], 3u);
  if (!is_00()) {
    expect_ignored(option(kCall, xid, {100, 4, kAnswers}), Refusal::kOptionDirection);
    expect_ignored(option(kCall, xid, {77, 4, 5}), Refusal::kUnknownOption);
    EXPECT_EQ(extensions.errors[Why::kDirection], 1u);
  }
  EXPECT_TRUE(extensions.served.empty());
  peer_side->say(rpc_reply(xid));
  EXPECT_EQ(call.status, CallStatus::kOk);
  end->ended.clear();
  // A request that was given up holds its credit until it is answered.
  Asking late(100, Wire{kAnswers});
  late.call.deadline_ns = 5;
  xid = send(late);
  end->engine->on_tick(6);
  end->run();
  expect_end(late, CallStatus::kTimeout);
  EXPECT_EQ(end->engine->requester().window.in_flight(), 1u);
  expect_ignored(option(kReply, xid, {101, 4, 5}), Refusal::kLateReply);
  EXPECT_EQ(end->engine->requester().window.in_flight(), 0u);
}

// A call from the server that waits in its Receive, where a peer over shm can still change it.
TEST_P(OptionsOfAClient, AClientServesNoneEvenIfAWaitingCallBecomesOne) {
  connect({.credits = 4, .backward_credits = 1});
  Asking settles(100, Wire{kAnswers});
  peer_side->say(option(kReply, send(settles), {101, 4, 5}));
  end->ended.clear();
  std::byte* last = nullptr;
  for (uint32_t xid : {1u, 2u, 3u}) {  // twice the credits are taken in
    last = end->qp.receives.front().buffer.data;
    Wire call{xid, 2, 4, kMsg};
    if (!is_00())
      call.add({kCall, 0});
    peer_side->say(call.add({0, 0, 0, xid, kCall, 1}));
  }
  ASSERT_EQ(end->held.size(), 2u);
  peer_side->take();
  const Bytes now = option(kCall, 3, {100, 4, kAnswers}).bytes();
  std::ranges::copy(now, last);
  ServedCall& first = *end->held.front();
  end->held.erase(end->held.begin());
  Encoder e(first.reply, *memory, 900, 4096);
  e.put_u32(first.xid);
  e.put_u32(kReply);
  e.finish();
  end->engine->reply(first);
  end->run();
  EXPECT_TRUE(extensions.served.empty());
  EXPECT_EQ(counters().refusals[Refusal::kOptionDirection], 1u);
  EXPECT_EQ(extensions.errors[Why::kDirection], 1u);
  peer_side->take();
}

TEST_P(OptionsOfAClient, TheyEndWithTheirConnection) {
  connect();
  Asking sent(100, Wire{kAnswers}), queued(100, Wire{kAnswers});
  send(sent);
  end->engine->submit(queued.call);
  end->engine->cancel(queued.call);
  end->run();
  expect_end(queued, CallStatus::kCancelled);
  end->disconnect();
  expect_end(sent, CallStatus::kConnectionLost);
}

// Messages that are almost valid, at both ends: each gets one answer or no answer, nothing is lost,
// and the checked values are within their bounds.
TEST_P(OptionsOfAClient, NearlyRightOnesDoNoHarm) {
  std::mt19937_64 random(rrdk::test::run_seed());
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  auto near_option = [&](uint32_t direction, uint32_t xid) {
    constexpr uint32_t kTypes[] = {100, 101, 102, 110, 111, 120, 77};
    if (below(8) == 0)
      direction = below(3);
    uint32_t words = below(4) != 0 ? 1 + below(3) : below(300);
    uint32_t length = below(8) != 0 ? 4 * words : below(4 * words + 16);
    Wire wire = option(direction, xid, {kTypes[below(7)], length});
    for (uint32_t i = 0; i < words; ++i)
      wire.add(i == 0 ? below(4) : below(256));
    if (below(2) == 0)
      wire.add({below(8) != 0 ? xid : below(100), below(8) != 0 ? direction : below(3)});
    Bytes bytes = wire.raw(Bytes(below(8) == 0 ? below(700) : 0));
    if (below(16) == 0)
      bytes.resize(below(static_cast<uint32_t>(bytes.size())));
    return bytes;
  };
  ResponderTest::connect(with(extensions, {.credits = 4}));
  for (int i = 0; i < 3000; ++i) {
    peer_side->say(near_option(kCall, 55));
    ASSERT_LE(peer_side->take().size(), 1u);
  }
  EXPECT_FALSE(extensions.served.empty());
  EXPECT_FALSE(end->engine->wants_disconnect());
  EXPECT_EQ(end->engine->responder().calls(), 0u);
  expect_alive();
  end->disconnect();

  connect({.credits = 4});
  uint32_t answered = 0;
  for (int i = 0; i < 1000; ++i) {
    Asking asking(below(2) != 0 ? 100 : 120, Wire{kAnswers});
    uint32_t xid = send(asking);
    while (end->ended.empty())
      peer_side->say(near_option(kReply, xid));
    ASSERT_EQ(end->ended.size(), 1u);
    answered += asking.call.status == CallStatus::kOk;
    end->ended.clear();
    ASSERT_LE(end->engine->requester().window.in_flight(), 0u);
  }
  EXPECT_GT(answered, 0u);
  EXPECT_FALSE(end->engine->wants_disconnect());
}

}  // namespace
}  // namespace rrdk::engine::test
