// Calls in both directions of one connection, in one process: what the public interface promises.
#include "both_ways.h"

#include "log_lines.h"

namespace rrdk::loopback {
namespace {

struct BothWays : testing::TestWithParam<std::tuple<Cores, Wire>> {
  Cores cores() const { return std::get<0>(GetParam()); }
  const Wire& wire() const { return std::get<1>(GetParam()); }
};
std::string name_of(const testing::TestParamInfo<std::tuple<Cores, Wire>>& info) {
  constexpr const char* kNames[] = {"Embedded", "Dedicated", "Workers"};
  return std::string(kNames[static_cast<int>(std::get<0>(info.param))]) +
         std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(Ways, BothWays,
                         testing::Combine(testing::Values(Cores::kEmbedded, Cores::kDedicated,
                                                          Cores::kWorkers),
                                          testing::ValuesIn(kWires)),
                         name_of);

// Shows: EXP-18
TEST_P(BothWays, AHandlerCallsItsCallerAndAnswersWithWhatCameBack) {
  BothWorld world(cores(), wire());
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  EXPECT_EQ(world.call_back(kTell, 200), 200u) << "more than there are credits";
  EXPECT_EQ(world.call_back(kTellWorker, 64), 64u);
  EXPECT_EQ(world.call_back(kTellAsk, 64), 64u) << "handlers of these call the server themselves";
  EXPECT_EQ(world.call_back(0, 1), 0u) << "NULL has no results";
  Stats served = world.server->stats();
  EXPECT_EQ(served[Counter::kCallsMade], 330u);
  EXPECT_EQ(served[Counter::kCallsOk], 330u);
  EXPECT_EQ(served[Counter::kCallsFailed], 0u);
  EXPECT_GT(served[Counter::kWaitsCredit], 0u);
  EXPECT_EQ(served[Counter::kCallsReceived], 5u + 64u);
  Stats stats = world.connection->stats();
  EXPECT_EQ(stats[Counter::kCallsReceived], 330u);
  EXPECT_EQ(stats[Counter::kRepliesSent], 330u);
  EXPECT_EQ(stats[Counter::kCallsRejected], 0u);
  EXPECT_EQ(stats[Counter::kCallsMade], 5u + 64u);
}

TEST_P(BothWays, AtOnceWithCallsInFlightAllTheTime) {
  BothWorld world(cores(), wire());
  auto back = world.subscribe();
  Stream forward;
  Stream backward;
  forward.start(*world.connection, kHostBinding, kPlus, 64);
  backward.start(*back, kGuestBinding, kTell, 64);
  world.until([&] { return forward.rights() > 5000 && backward.rights() > 5000; });
  EXPECT_EQ(world.server->stats()[Counter::kProtocolBreaches], 0u);
  EXPECT_EQ(world.connection->stats()[Counter::kProtocolBreaches], 0u);
  back.reset();
  world.disconnect();
  world.until([&] { return forward.over() && backward.over(); });
  world.host.release();
}

// One credit in each direction: if they were shared, both ends would wait for each other.
TEST_P(BothWays, ForwardCallsOfBackwardHandlersDoNotWaitForTheirOwnCaller) {
  ServerOptions server = server_options(wire());
  ClientOptions client = client_options(wire());
  server.credits = client.credits = 2;  // one for the call that waits for all the others
  server.backward_credits = client.backward_credits = 1;
  BothWorld world(cores(), server, client);
  EXPECT_EQ(world.call_back(kTell, 1), 1u);  // opens the windows
  EXPECT_EQ(world.call_back(kTellAsk, 20), 20u);
}

// Shows: BIDIR-06, BIDIR-22, V1-CREDIT-20
TEST_P(BothWays, NoMoreAreOnTheirWayThanTheClientGranted) {
  ServerOptions server = server_options(wire());
  ClientOptions client = client_options(wire());
  client.backward_credits = 2;
  BothWorld world(cores(), server, client);
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  std::vector<std::unique_ptr<Word>> words;
  for (uint32_t i = 0; i < 10; ++i) {
    words.push_back(std::make_unique<Word>(*back));
    words.back()->submit(kGuestBinding, kTellKept, i);
  }
  size_t ended = 0;
  while (ended < words.size()) {
    world.until([&] { return world.guest.keeper.kept() == std::min<size_t>(2, 10 - ended); });
    // A call without a credit does not come, however long one waits: calls of the other direction
    // pass it.
    world.plus();
    EXPECT_EQ(world.guest.keeper.kept(), std::min<size_t>(2, 10 - ended));
    ended += world.guest.keeper.kept();
    world.guest.keeper.release();
  }
  world.until([&] { return words.back()->ended() == 1; });
  for (auto& word : words)
    EXPECT_TRUE(word->right());
  words.clear();
}

// Shows: BIDIR-14
TEST_P(BothWays, AClientWithoutServicesIsNotDisturbed) {
  ServerOptions server = server_options(wire());
  server.backward_timeout_ms = 20;
  BothWorld world(cores(), server, client_options(wire()), false);
  auto back = world.subscribe();
  Word word(*back);
  word.submit(kGuestBinding, kTell, 1);
  world.until([&] { return word.ended() == 1; });
  // In draft-04 a client can say that it takes no calls; in the other versions it cannot.
  bool says_so = wire().version == RpcRdmaVersion::kTwo && wire().draft == RpcRdmaDraft::kDraft04;
  EXPECT_STREQ(to_string(word.call.status()),
               to_string(says_so ? CallStatus::kRemoteError : CallStatus::kTimeout));
  EXPECT_EQ(world.connection->stats()[Refusal::kBackwardCall], says_so ? 0u : 1u);
  EXPECT_EQ(world.connection->stats()[Counter::kRepliesSent], 0u);
  world.plus();
  EXPECT_TRUE(back->alive());
}

TEST_P(BothWays, CallsTheClientDoesNotOfferAreRefused) {
  BothWorld world(cores(), wire());
  auto back = world.subscribe();
  Call call(*back);
  auto status_of = [&](const Binding& binding, uint32_t procedure) {
    call.begin(binding, procedure);
    std::atomic<bool> ended = false;
    call.submit([](Call&, void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); },
                &ended);
    world.until([&] { return ended.load() && !call.in_flight(); });
    return call.status();
  };
  Binding other = kGuestBinding;
  other.version = 9;
  EXPECT_EQ(status_of(kHostBinding, kPlus), CallStatus::kProgUnavail);
  EXPECT_EQ(status_of(other, kTell), CallStatus::kProgMismatch);
  EXPECT_EQ(call.mismatch_low(), 1u);
  EXPECT_EQ(status_of(kGuestBinding, kTellOther), CallStatus::kProgMismatch);
  EXPECT_EQ(call.mismatch_low(), 3u);
  EXPECT_EQ(call.mismatch_high(), 7u);
  EXPECT_EQ(status_of(kGuestBinding, 77), CallStatus::kProcUnavail);
  EXPECT_EQ(status_of(kBinding, 70'000), CallStatus::kOk) << "one entry for all that have none";
  EXPECT_EQ(call.results().get_u32(), 100u);
  EXPECT_EQ(status_of(kGuestBinding, kTellBack), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), 1u) << "there is no way back of the way back";
  EXPECT_EQ(world.connection->stats()[Counter::kCallsRejected], 4u);
}

// Shows: BIDIR-08
TEST_P(BothWays, MessagesThatDoNotFitInlineAreNotSent) {
  BothWorld world(cores(), wire());
  auto back = world.subscribe();
  std::vector<std::byte> bytes(16384);
  EndingCall fits(*back);
  fits.call.begin(kGuestBinding, kTellLong).put_opaque(std::span(bytes).first(2000));
  fits.submit();
  EndingCall does_not(*back);
  does_not.call.begin(kGuestBinding, kTellLong).put_opaque(bytes);
  does_not.submit();
  world.until([&] { return fits.ended() == 1 && does_not.ended() == 1; });
  EXPECT_EQ(fits.call.status(), CallStatus::kOk);
  EXPECT_EQ(fits.call.results().get_u32(), 2000u);
  EXPECT_EQ(does_not.call.status(), CallStatus::kTooLarge);
  EXPECT_TRUE(back->alive());
}

TEST_P(BothWays, CancelAndDeadlinesAreAsOnTheClient) {
  BothWorld world(cores(), wire());
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  EndingCall cancelled(*back);
  cancelled.call.begin(kGuestBinding, kTellKept).put_u32(1);
  cancelled.submit();
  EndingCall late(*back);
  late.call.begin(kGuestBinding, kTellKept).put_u32(2);
  late.call.set_timeout_ms(5);
  late.submit();
  world.until([&] { return world.guest.keeper.kept() == 2; });
  cancelled.call.cancel();
  world.until([&] { return cancelled.ended() == 1 && late.ended() == 1; });
  EXPECT_EQ(cancelled.call.status(), CallStatus::kCancelled);
  EXPECT_EQ(late.call.status(), CallStatus::kTimeout);
  EXPECT_EQ(world.server->stats()[Counter::kCallsTimedOut], 1u);
  world.guest.keeper.release();
  EXPECT_EQ(world.call_back(kTell, 64), 64u) << "late replies give their credits back";
}

// Shows: BIDIR-17
TEST_P(BothWays, ALostConnectionEndsCurrentAndLaterCalls) {
  BothWorld world(cores(), wire());
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  EXPECT_TRUE(back->alive());
  EXPECT_EQ(back, world.host.last()) << "each call of a connection gets the same";
  std::vector<std::unique_ptr<Word>> words;
  for (uint32_t i = 0; i < 10; ++i) {
    words.push_back(std::make_unique<Word>(*back));
    words.back()->submit(kGuestBinding, kTellKept, i);
  }
  world.until([&] { return world.guest.keeper.kept() == 10; });
  world.guest.keeper.drop_one();
  world.until([&] {
    return std::ranges::all_of(words, [](const auto& word) { return word->ended() == 1; });
  });
  for (auto& word : words)
    EXPECT_STREQ(to_string(word->call.status()), to_string(CallStatus::kConnectionLost));
  EXPECT_FALSE(back->alive());
  Word after(*back);
  after.submit(kGuestBinding, kTell, 1);
  world.until([&] { return after.ended() == 1; });
  EXPECT_EQ(after.call.status(), CallStatus::kConnectionLost);
  words.clear();
  // A client that connects again is another client.
  world.disconnect();
  world.connect();
  auto other = world.subscribe();
  EXPECT_NE(other, back);
  EXPECT_TRUE(other->alive());
  EXPECT_EQ(world.call_back(kTell, 5), 5u);
}

// The end that closes knows the reason.
TEST_P(BothWays, AServerThatClosesEndsItsOwnCallsWithShutdown) {
  for (bool drains : {true, false}) {
    BothWorld world(cores(), wire());
    EXPECT_EQ(world.call_back(kTell, 1), 1u);
    auto back = world.subscribe();
    std::vector<std::unique_ptr<Word>> words;
    for (uint32_t i = 0; i < 10; ++i) {
      words.push_back(std::make_unique<Word>(*back));
      words.back()->submit(kGuestBinding, kTellKept, i);
    }
    world.until([&] { return world.guest.keeper.kept() == 10; });
    if (drains) {
      EXPECT_EQ(world.server->drain(20'000), 0u);
    } else {
      world.host.release();
      back.reset();
      world.server.reset();
    }
    for (auto& word : words) {
      world.until([&] { return word->ended() == 1; });
      EXPECT_STREQ(to_string(word->call.status()), to_string(CallStatus::kShutdown));
    }
    words.clear();
  }
}

TEST_P(BothWays, AClientThatGoesWaitsForItsHandlers) {
  BothWorld world(cores(), wire());
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  Word word(*back);
  word.submit(kGuestBinding, kTellKept, 1);
  world.until([&] { return world.guest.keeper.kept() == 1; });
  std::atomic<bool> gone = false;
  std::thread answers([&] {
    while (back->alive())
      std::this_thread::yield();
    EXPECT_FALSE(gone.load()) << "a handler has one of its calls";
    world.guest.keeper.release();
  });
  world.connection.reset();
  gone = true;
  answers.join();
  EXPECT_EQ(world.guest.keeper.kept(), 0u);
  world.until([&] { return word.ended() == 1; });
  EXPECT_EQ(word.call.status(), CallStatus::kConnectionLost);
}

TEST_P(BothWays, TheBackwardClientMayBeReleasedInACallbackOrByItsLastHolder) {
  struct Last {
    std::shared_ptr<BackwardClient> back;
    std::unique_ptr<Call> call;
    std::atomic<int> ends = 0;
  };
  BothWorld world(cores(), wire());
  Last last;
  last.back = world.subscribe();
  world.host.release();
  last.call = std::make_unique<Call>(*last.back);
  last.call->begin(kGuestBinding, kTellKept).put_u32(1);
  last.call->submit(
      [](Call&, void* argument) {
        auto& self = *static_cast<Last*>(argument);
        self.back.reset();
        self.call.reset();
        self.ends.fetch_add(1, std::memory_order_release);
      },
      &last);
  world.until([&] { return world.guest.keeper.kept() == 1; });
  world.guest.keeper.drop_one();
  world.until([&] { return last.ends.load(std::memory_order_acquire) == 1; });
  world.disconnect();
  // On its own thread, after the connection is made.
  world.connect();
  auto back = world.subscribe();
  world.host.release();
  world.disconnect();
  world.until([&] { return !back->alive(); });
  back.reset();
  EXPECT_EQ(world.server->stats()[Counter::kCallsMade], 1u) << "past connections count";
}

TEST(BothWaysOnWorkers, AHandlerThereWaitsForEachOfItsCalls) {
  for (const Wire& wire : kWires) {
    BothWorld world(Cores::kWorkers, wire);
    EXPECT_EQ(world.call_back(kTell, 20, kAskWorker), 20u);
    EXPECT_EQ(world.call_back(kTellAsk, 20, kAskWorker), 20u);
  }
}

TEST(BothWaysOptions, AServerWithoutBackwardCreditsCannotCall) {
  BothWorld world(Cores::kEmbedded, ServerOptions{}, ClientOptions{});
  Call call(*world.connection);
  call.begin(kHostBinding, kSubscribe);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
  ASSERT_EQ(world.host.errors.size(), 1u);
  EXPECT_EQ(world.host.errors[0].code, Errc::kUnsupported);
  EXPECT_NE(world.host.errors[0].message.find("backward_credits"), std::string::npos);
}

// A call on its way to the client is a use of the connection.
TEST(BothWaysOptions, AConnectionWithCallsBackIsNotIdle) {
  ServerOptions server = server_options(kWires[0]);
  server.idle_timeout_ms = 20;
  BothWorld world(Cores::kEmbedded, server, client_options(kWires[0]));
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  Word word(*back);
  word.submit(kGuestBinding, kTellKept, 1);
  world.until([&] { return world.guest.keeper.kept() == 1; });
  // Later than the last call of the first one.
  auto idle = world.client->connect(world.uri).value();
  world.until([&] { return world.server->stats()[Counter::kClosedIdle] == 1; });
  EXPECT_EQ(word.ended(), 0);
  EXPECT_TRUE(back->alive());
  world.guest.keeper.release();
  world.until([&] { return word.ended() == 1; });
  EXPECT_TRUE(word.right());
  back.reset();
  world.host.release();
  world.until([&] { return world.server->stats()[Counter::kClosedIdle] == 2; });
}

// A connection whose calls have ended each time the server looks is not idle either.
TEST(BothWaysOptions, AConnectionCalledNowAndThenIsNotIdle) {
  ServerOptions server = server_options(kWires[0]);
  server.idle_timeout_ms = 500;
  BothWorld world(Cores::kEmbedded, server, client_options(kWires[0]));
  auto back = world.subscribe();
  auto idle = world.client->connect(world.uri).value();
  Word word(*back);
  for (int told = 1; world.server->stats()[Counter::kClosedIdle] == 0; ++told) {
    word.submit(kGuestBinding, kTell, 1);
    world.until([&] { return word.ended() == told || !back->alive(); });
    ASSERT_TRUE(back->alive());
    uint64_t then = Runtime::now_ns() + 10'000'000;
    world.until([&] { return Runtime::now_ns() >= then; });
  }
  EXPECT_TRUE(back->alive());
}

// An answer that is too long for the driver to copy waits to be posted: the call behind it waits,
// too.
TEST(BothWaysOptions, ACallBehindALongAnswerInACallbackFollowsIt) {
  constexpr uint32_t kInline = 8192;
  constexpr uint32_t kLong = 6000;
  const ServerOptions server = {.credits = 8, .inline_size = kInline, .backward_credits = 8};
  const ClientOptions client = {.credits = 8, .inline_size = kInline, .backward_credits = 8};
  BothWorld world(Cores::kEmbedded, server, client);
  auto back = world.subscribe();
  EndingCall many(*back);
  many.call.begin(kGuestBinding, kTellMany).put_u32(kLong);
  many.submit();
  world.until([&] { return world.guest.keeper.kept() == 1; });
  for (int i = 0; i != 16; ++i)
    world.plus();  // until nothing more changes between calls
  struct Callback {
    Guest& guest;
    Word before, behind;
  } calls{world.guest, Word(*world.connection), Word(*world.connection)};
  Call first(*world.connection);
  first.begin(kHostBinding, kPlus).put_u32(1);
  first.submit(
      [](Call&, void* argument) {
        auto& [guest, before, behind] = *static_cast<Callback*>(argument);
        before.submit(kHostBinding, kPlus, 6);
        guest.keeper.release();
        behind.submit(kHostBinding, kPlus, 7);
      },
      &calls);
  world.until([&] { return calls.behind.ended() == 1 && many.ended() == 1; });
  EXPECT_TRUE(calls.before.right());
  EXPECT_TRUE(calls.behind.right());
  EXPECT_EQ(many.call.results().get_opaque(kLong).size(), kLong);
}

TEST(BothWaysOptions, ServicesComeBeforeTheFirstConnection) {
  BothWorld world;
  auto late = world.client->add_service(
      {.binding = &kHostBinding, .procedures = kHostTable, .context = &world.host});
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::kInvalidArgument);
}

// The Receives for replies are part of a connection's needs.
TEST(BothWaysOptions, AConnectionWithoutRoomForRepliesIsRefused) {
  LogLines log;
  auto memory = make_memory();  // 2048 buffers, of which a quarter is kept for calls
  auto runtime = Runtime::create(*memory, options_for(Cores::kEmbedded)).value();
  {
    auto server = Server::create(
                      *runtime, {.credits = 64, .private_receives = true, .backward_credits = 1600})
                      .value();
    std::string uri = server->listen("shm:" + socket_path()).value();
    auto client = Client::create(*runtime, {.credits = 4}).value();
    EXPECT_FALSE(client->connect(uri));
    EXPECT_EQ(server->stats()[Counter::kConnectionsRefused], 1u);
  }
  EXPECT_EQ(log.count(LogLevel::kWarning, "backward_credits"), 1);
  runtime.reset();
  EXPECT_TRUE(memory->whole());
}

TEST(BothWaysMisuse, AServerReportsBackwardClientsStillHeld) {
  LogLines log;
  BothWorld world;
  auto back = world.subscribe();
  world.host.release();
  world.disconnect();
  world.server.reset();
  EXPECT_EQ(log.count(LogLevel::kError, "1 BackwardClients are still held"), 1);
  Word word(*back);
  word.submit(kGuestBinding, kTell, 1);
  world.until([&] { return word.ended() == 1; });
  EXPECT_EQ(word.call.status(), CallStatus::kConnectionLost);
}

// After it has reconnected and called again, a client is called on its new connection.
TEST(BothWaysReconnect, ACallThatWasKeptIsAnsweredBeforeTheNextConnection) {
  ClientOptions options = client_options(kWires[0]);
  options.reconnect = {.enabled = true, .first_delay_ms = 1, .max_delay_ms = 2};
  BothWorld world(Cores::kEmbedded, server_options(kWires[0]), options);
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  Word words[2] = {Word(*back), Word(*back)};
  for (Word& word : words)
    word.submit(kGuestBinding, kTellKept, 1);
  world.until([&] { return world.guest.keeper.kept() == 2; });
  world.guest.keeper.drop_one();
  world.until([&] { return words[0].ended() == 1 && words[1].ended() == 1; });
  EXPECT_FALSE(back->alive());
  EXPECT_EQ(world.connection->stats()[Counter::kReconnections], 0u);
  world.guest.keeper.release();
  world.until([&] { return world.connection->stats()[Counter::kReconnections] == 1; });
  EXPECT_EQ(world.call_back(kTell, 10), 10u);
  EXPECT_EQ(world.connection->stats()[Counter::kCallsReceived], 13u) << "past connections count";
}

}  // namespace
}  // namespace rrdk::loopback
