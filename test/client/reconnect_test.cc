// A ClientConnection that outlives its connections: when it reconnects, and what happens meanwhile
// to its calls and to threads that cancel and destroy.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "../seed.h"
#include "client/client_impl.h"
#include "survival_world.h"
#include "test/name_server.h"

namespace rrdk::loopback {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(Backoff, DoublesAndDrawsFromTheUpperHalf) {
  std::mt19937_64 random(test::run_seed());
  Backoff backoff(10, 100);
  for (int round = 0; round < 100; ++round) {
    for (uint64_t step : {10, 20, 40, 80, 100, 100, 100}) {
      uint64_t delay = backoff.next_ns(static_cast<uint32_t>(random()));
      EXPECT_GE(delay, step * kMs / 2);
      EXPECT_LE(delay, step * kMs);
    }
    backoff.reset();
  }
}

TEST(Backoff, DrawsOverTheWholeRange) {
  std::mt19937_64 random(test::run_seed());
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (int i = 0; i < 10000; ++i) {
    uint64_t delay = Backoff(1000, 1000).next_ns(static_cast<uint32_t>(random()));
    least = std::min(least, delay);
    most = std::max(most, delay);
  }
  EXPECT_LT(least, 505 * kMs);
  EXPECT_GT(most, 995 * kMs);
}

TEST(Backoff, KeepsItsBoundsWhereTheyAreLargest) {
  Backoff backoff(UINT32_MAX, UINT32_MAX);
  for (uint32_t random : {0u, UINT32_MAX, 0u, UINT32_MAX}) {
    uint64_t delay = backoff.next_ns(random);
    EXPECT_GE(delay, UINT32_MAX * kMs / 2);
    EXPECT_LE(delay, UINT32_MAX * kMs);
  }
}

TEST(Reconnect, IsOffByDefault) {
  SurvivalWorld world({});
  world.connect();
  world.restart_server();
  world.until([&] { return !world.connection->alive(); });
  EXPECT_FALSE(world.connection->reconnecting());
  EndingCalls endings = submit(world, kEcho, 3);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kConnectionLost);
  EXPECT_EQ(world.stats()[Counter::kReconnections], 0u);
}

TEST(Reconnect, CallsThatAreMadeWithoutAServerAreAnsweredByTheNextOne) {
  SurvivalWorld world({.reconnect = at_once()});
  world.connect();
  EXPECT_FALSE(world.connection->error());
  world.stop_server();
  world.until([&] { return world.stats()[Counter::kAttemptsFailed] >= 3; });
  EXPECT_FALSE(world.connection->alive());
  EXPECT_TRUE(world.connection->reconnecting());
  EXPECT_EQ(world.stats()[Counter::kCredits], 0u);
  EXPECT_EQ(world.connection->info().id, 0u);
  EXPECT_EQ(world.connection->info().peer.to_string(), "not connected");
  auto error = world.connection->error();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find(world.uri), std::string::npos);

  EndingCalls endings = submit(world, kEcho, 100);
  world.until([&] { return world.stats()[Counter::kAttemptsFailed] >= 5; });
  EXPECT_EQ(world.stats()[Counter::kCallsInFlight], 100u);
  world.start_server();
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_TRUE(world.connection->alive());
  EXPECT_FALSE(world.connection->reconnecting());
  EXPECT_FALSE(world.connection->error());
  EXPECT_EQ(world.stats()[Counter::kReconnections], 1u);
  EXPECT_EQ(world.stats()[Counter::kCallsCarriedOver], 100u);
  EXPECT_EQ(world.stats()[Counter::kCallsResent], 0u);
}

// The first address of the name refused, and the server was found at the second one. By now there
// is another server at the first.
TEST(Reconnect, BeginsWithTheAddressThatServedLast) {
  test::set_name("two.test", {"127.0.0.2", "127.0.0.3"});
  Keeper keeper;
  const Service service = {.binding = &kBinding, .procedures = kTable, .context = &keeper};
  Ends ends(options_for(Cores::kEmbedded), {}, {.reconnect = at_once()}, {service},
            "iwarp://127.0.0.3:0");
  const std::string port = ends.uri.substr(ends.uri.rfind(':'));
  auto connection = ends.client->connect("iwarp://two.test" + port).value();
  EXPECT_EQ(connection->info().peer.to_string(), "127.0.0.3" + port);
  auto other = Server::create(*ends.runtime).value();
  EXPECT_TRUE(other->add_service(service));
  EXPECT_TRUE(other->listen("iwarp://127.0.0.2" + port));
  auto ending = std::make_unique<EndingCall>(*connection);
  ending->begin(kKeep);
  ending->submit();
  ends.until([&] { return keeper.kept() == 1; });
  keeper.drop_one();
  ends.until([&] { return connection->stats()[Counter::kReconnections] == 1; });
  EXPECT_EQ(connection->info().peer.to_string(), "127.0.0.3" + port);
  ending.reset();
  connection.reset();
  other.reset();
  ends.end();
}

// Statistics cover all connections.
TEST(Reconnect, AgainAndAgain) {
  SurvivalWorld world({.reconnect = at_once()});
  world.connect();
  uint64_t last = 0;
  for (uint64_t round = 1; round <= 20; ++round) {
    EndingCalls endings = submit(world, kEcho, 10);
    world.until([&] { return all_ended(endings); });
    expect_status(endings, CallStatus::kOk);
    ConnectionInfo info = world.connection->info();
    EXPECT_EQ(info.replies, 10u) << "of this one alone";
    EXPECT_GT(info.id, std::exchange(last, info.id)) << "ids are not used twice";
    world.restart_server();
    world.until([&] { return world.stats()[Counter::kReconnections] == round; });
  }
  EXPECT_EQ(world.stats()[Counter::kCallsOk], 200u);
  EXPECT_GE(world.stats()[Counter::kWaitsCredit], 9u * 20u);  // one credit before each first reply
}

TEST(Reconnect, SentCallsEndAndUnsentCallsAreCarriedOver) {
  SurvivalWorld world({.reconnect = at_once()}, {.credits = 2});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls sent = submit(world, kKeep, 2);
  world.until([&] { return world.gate.held.size() == 2; });
  EndingCalls unsent = submit(world, kKeep, 5);  // no credit
  world.gate.holding = false;
  world.break_connection();
  world.until([&] { return all_ended(sent) && all_ended(unsent); });
  expect_status(sent, CallStatus::kConnectionLost);
  expect_status(unsent, CallStatus::kOk);
  EXPECT_EQ(world.stats()[Counter::kCallsCarriedOver], 5u);
  EXPECT_EQ(world.stats()[Counter::kCallsResent], 0u);
}

TEST(Reconnect, ItGivesUpWhenItIsTimeTo) {
  LogLines log;
  ReconnectOptions reconnect = at_once();
  reconnect.give_up_ms = 20;
  SurvivalWorld world({.reconnect = reconnect});
  world.connect();
  world.stop_server();
  EndingCalls endings = submit(world, kEcho, 3);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kConnectionLost);
  EXPECT_FALSE(world.connection->reconnecting());
  ASSERT_TRUE(world.connection->error());
  EXPECT_EQ(world.connection->error()->code, Errc::kTimeout);
  EXPECT_NE(world.connection->error()->message.find("given up"), std::string::npos);
  EXPECT_EQ(log.count(LogLevel::kWarning, world.uri, "given up"), 1);
  // For good.
  world.start_server();
  EndingCalls late = submit(world, kEcho, 1);
  world.until([&] { return all_ended(late); });
  expect_status(late, CallStatus::kConnectionLost);
}

// Each outage has its own time: the previous one ended when the server answered again.
TEST(Reconnect, TheTimeToGiveUpBeginsAnewWithEachOutage) {
  ReconnectOptions reconnect = at_once();
  reconnect.give_up_ms = 1500;
  SurvivalWorld world({.reconnect = reconnect});
  world.connect();
  open_window(*world.connection);
  uint64_t begin = Runtime::now_ns();
  world.restart_server();
  world.until([&] { return world.stats()[Counter::kReconnections] == 1; });
  open_window(*world.connection);
  world.until([&] { return Runtime::now_ns() > begin + 1600 * kMs; });
  world.restart_server();
  EndingCalls endings = submit(world, kEcho, 1);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
}

// After an outage that made the delays long, the next one begins with short delays, like the first
// one of a connection.
TEST(Reconnect, TheDelaysBeginAnewWithEachOutage) {
  SurvivalWorld world(
      {.reconnect = {.enabled = true, .first_delay_ms = 1, .max_delay_ms = 3'600'000}});
  world.connect();
  open_window(*world.connection);
  world.stop_server();
  world.until([&] { return world.stats()[Counter::kAttemptsFailed] >= 8; });
  world.start_server();
  world.until([&] { return world.connection->alive(); });
  open_window(*world.connection);
  auto fresh = world.client->connect(world.uri, SurvivalWorld::kClientCore).value();
  open_window(*fresh);
  uint64_t before = world.stats()[Counter::kAttemptsFailed];
  world.stop_server();
  world.until([&] { return fresh->stats()[Counter::kAttemptsFailed] >= 7; });
  EXPECT_GE(world.stats()[Counter::kAttemptsFailed] - before, 4u);
  fresh.reset();
}

TEST(Reconnect, AConnectionThatIsThereIsNotEndedByTheTimeToConnect) {
  SurvivalWorld world({.connect_timeout_ms = 200, .reconnect = at_once()});
  world.connect();
  open_window(*world.connection);
  world.restart_server();
  world.until([&] { return world.stats()[Counter::kReconnections] == 1; });
  uint64_t established = Runtime::now_ns();
  world.until([&] { return Runtime::now_ns() > established + 400 * kMs; });
  open_window(*world.connection);
  EXPECT_EQ(world.stats()[Counter::kReconnections], 1u);
}

// The server answers only the first call of each connection.
// Shows: V1-ERR-16
TEST(Reconnect, AServerWithoutACommonVersionIsAskedLessAndLessOftenAndGivenUp) {
  LogLines log;
  SurvivalWorld world({.reconnect = {.enabled = true,
                                     .first_delay_ms = 1,
                                     .max_delay_ms = 3'600'000,
                                     .give_up_ms = 200}},
                      {.versions = {.one = false}});
  world.connect();
  EndingCalls endings = submit(world, kEcho, 5);  // one credit: the others wait
  std::vector<int> made(endings.size(), 1);
  world.until([&] {
    for (size_t i = 0; i < endings.size(); ++i) {
      if (endings[i]->call.in_flight() || !world.connection->reconnecting())
        continue;
      EXPECT_EQ(endings[i]->call.status(), CallStatus::kVersionError);
      endings[i]->begin(kEcho).put_opaque(std::span<const std::byte>());
      endings[i]->submit();
      ++made[i];
    }
    return !world.connection->alive() && !world.connection->reconnecting();
  });
  EXPECT_LE(world.stats()[Counter::kReconnections], 9u);  // 1/2 + 1 + 2 + ... + 128 ms
  EXPECT_GE(world.stats()[Refusal::kNoCommonVersion], 1u);
  EXPECT_EQ(log.count(LogLevel::kWarning, world.uri, "given up"), 1);
  for (size_t i = 0; i < endings.size(); ++i) {
    world.until([&] { return !endings[i]->call.in_flight(); });
    EXPECT_EQ(endings[i]->ended(), made[i]);
  }
}

// A cancel from another thread reaches the core when the call that it meant has ended and been
// submitted again.
TEST(Reconnect, ACancelThatComesTooLateDoesNotHitTheNextCall) {
  struct Twice {
    explicit Twice(ClientConnection& connection) : call(connection) {}
    Call call;
    int left = 2;
    void submit() {
      call.begin(kBinding, kKeep);
      call.submit(
          [](Call& ended, void* argument) {
            auto& self = *static_cast<Twice*>(argument);
            EXPECT_STREQ(to_string(ended.status()), to_string(CallStatus::kOk));
            if (--self.left != 0)
              self.submit();
          },
          this);
    }
  };
  SurvivalWorld world({});
  world.connect();
  open_window(*world.connection);
  Twice twice(*world.connection);
  uint64_t replies = world.server->stats()[Counter::kRepliesSent];
  twice.submit();
  world.poll_client();
  wait_until([&] { return world.server->stats()[Counter::kRepliesSent] > replies; },
             [&] { return world.runtime->poll(SurvivalWorld::kServerCore); });
  std::thread([&] { twice.call.cancel(); }).join();
  world.until([&] { return twice.left == 0; });
}

// Also while an attempt is in progress that gets no answer.
TEST(Reconnect, ItGivesUpWhileItConnects) {
  LogLines log;
  ReconnectOptions reconnect = at_once();
  reconnect.give_up_ms = 50;
  SurvivalWorld world({.reconnect = reconnect});
  world.connect();
  world.stop_server();
  world.start_server();
  EndingCalls endings = submit(world, kEcho, 3);
  world.until_silent([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kConnectionLost);
  world.until_silent([&] { return !world.connection->reconnecting(); });
}

// The listener at the address is no server.
TEST(Reconnect, AnUnansweredAttemptIsFollowedByAnother) {
  SurvivalWorld world({.connect_timeout_ms = 200, .reconnect = at_once()});
  world.connect();
  world.stop_server();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, world.uri.substr(4).c_str());
  int mute = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(mute, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(mute, 16), 0);
  uint64_t failed = world.stats()[Counter::kAttemptsFailed];
  world.until([&] { return world.stats()[Counter::kAttemptsFailed] >= failed + 2; });
  EXPECT_EQ(world.connection->error()->code, Errc::kTimeout);
  close(mute);
  world.start_server();
  EndingCalls endings = submit(world, kEcho, 3);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
}

// The states in which a call may be cancelled, time out, or lose its ClientConnection.
enum class Stage { kConnected, kBackingOff, kConnecting };

struct InStage : SurvivalWorld {
  explicit InStage(Stage stage_in)
      : SurvivalWorld({.call_timeout_ms = 0,
                       .reconnect = stage_in == Stage::kConnecting ? at_once() : some_day(),
                       .retransmit = true}),
        stage(stage_in) {
    connect();
    open_window(*connection);
    gate.holding = true;
  }
  // Calls that were sent, and calls that were not sent, in the stage.
  EndingCalls calls(uint32_t timeout_ms = 0) {
    EndingCalls endings;
    auto add = [&] {
      endings.push_back(std::make_unique<EndingCall>(*connection));
      endings.back()->begin(kKeep);
      endings.back()->call.set_timeout_ms(timeout_ms);
      endings.back()->submit();
    };
    add();
    add();
    until([&] { return gate.held.size() == 2; });
    if (stage == Stage::kConnected)
      return endings;
    gate.drop();
    runtime->poll(kServerCore);
    until_silent([&] { return !connection->alive(); });
    add();
    add();
    if (stage == Stage::kConnecting) {
      // The server's core is not polled: it listens, and accepts nothing.
      uint64_t failed = stats()[Counter::kAttemptsFailed];
      for (int i = 0; i < 100; ++i)
        poll_client();
      EXPECT_EQ(stats()[Counter::kAttemptsFailed], failed);
    }
    return endings;
  }
  Stage stage;
};

class Reconnecting : public testing::TestWithParam<Stage> {};
INSTANTIATE_TEST_SUITE_P(Stages, Reconnecting,
                         testing::Values(Stage::kConnected, Stage::kBackingOff,
                                         Stage::kConnecting));

TEST_P(Reconnecting, CallsTimeOut) {
  InStage world(GetParam());
  EndingCalls endings = world.calls(30);
  world.until_silent([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kTimeout);
  EXPECT_EQ(world.stats()[Counter::kCallsTimedOut], endings.size());
}

TEST_P(Reconnecting, CallsAreCancelledOnce) {
  InStage world(GetParam());
  EndingCalls endings = world.calls();
  for (auto& ending : endings) {
    ending->call.cancel();
    ending->call.cancel();
    EXPECT_EQ(ending->ended(), 0);  // never within cancel()
  }
  world.until_silent([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kCancelled);
}

TEST_P(Reconnecting, CallsAreDestroyed) {
  LogLines log;
  InStage world(GetParam());
  world.calls();
  EXPECT_EQ(world.stats()[Counter::kCallsInFlight], 0u);
}

TEST_P(Reconnecting, TheConnectionIsDestroyed) {
  InStage world(GetParam());
  EndingCalls endings = world.calls();
  world.connection.reset();
  expect_status(endings, CallStatus::kShutdown);
}

TEST_P(Reconnecting, CallsEndOnceAfterAll) {
  if (GetParam() == Stage::kBackingOff)
    GTEST_SKIP() << "its delay is longer than the test";
  InStage world(GetParam());
  EndingCalls endings = world.calls();
  world.until([&] {
    world.gate.answer();
    return all_ended(endings);
  });
  expect_status(endings, CallStatus::kOk);
}

// Breaks the connection under a call with a deadline until the call ends. Returns how often.
uint64_t breaks_until_the_deadline(uint32_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPasses = 100;  // in one pass a core checks which deadlines have passed
  SurvivalWorld world({.reconnect = at_once(), .retransmit = true});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCall ending(*world.connection);
  ending.begin(kKeep);
  ending.call.set_timeout_ms(timeout_ms);
  ending.submit();
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms + 10);
  const auto ended = [&] { return ending.ended() != 0; };
  uint64_t breaks = 0;
  for (;;) {
    const bool late = Clock::now() > deadline;
    for (int pass = 0; pass < kPasses && !ended(); ++pass)
      world.poll_all();
    if (ended())
      break;
    EXPECT_FALSE(late) << "it goes on after its deadline, after " << breaks << " connections";
    if (late)
      break;
    world.until([&] { return !world.gate.held.empty() || ended(); });
    if (world.gate.held.empty())
      continue;
    world.break_connection();
    world.until([&] { return world.connection->alive() || ended(); });
    ++breaks;
  }
  EXPECT_EQ(ending.call.status(), CallStatus::kTimeout);
  return breaks;
}

// The time counts from submit(), and does not restart with each connection. A machine that is too
// busy to lose two connections in that time gets more time.
TEST(Reconnect, ADeadlineHoldsOverAllConnections) {
  for (uint32_t timeout_ms = 50; !HasFailure() && breaks_until_the_deadline(timeout_ms) < 2;
       timeout_ms *= 2)
    ASSERT_LT(timeout_ms, 100'000u);
}

// In their callbacks calls may do everything that they may do elsewhere, whatever has happened to
// the connection.
TEST(Reconnect, CallbacksSubmitAgain) {
  struct Again {
    explicit Again(ClientConnection& connection) : call(connection) {}
    Call call;
    int left = 200;
    int failed = 0;
    void submit() {
      call.begin(kBinding, kKeep);
      call.submit(
          [](Call& ended, void* argument) {
            auto& self = *static_cast<Again*>(argument);
            self.failed += ended.status() != CallStatus::kOk;
            if (--self.left != 0)
              self.submit();
          },
          this);
    }
  };
  SurvivalWorld world({.reconnect = at_once()});
  world.connect();
  std::vector<std::unique_ptr<Again>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(std::make_unique<Again>(*world.connection));
    calls.back()->submit();
  }
  auto left = [&] {
    int sum = 0;
    for (auto& call : calls)
      sum += call->left;
    return sum;
  };
  for (int next = 3000; left() != 0; next -= 1000) {
    world.until([&] { return left() <= std::max(next, 0); });
    if (next > 0)
      world.restart_server();
  }
  for (auto& call : calls)
    EXPECT_LE(call->failed, 3);
}

// Random breaks, cancels, timeouts and destructions: every call ends exactly once.
class Storm : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Retransmitting, Storm, testing::Bool());

TEST_P(Storm, EveryCallEndsOnce) {
  LogLines log;
  std::mt19937_64 random(test::run_seed());
  auto one_in = [&](uint64_t n) { return random() % n == 0; };
  SurvivalWorld world({.credits = 8, .reconnect = at_once(), .retransmit = GetParam()});
  world.connect();
  EndingCalls endings;
  std::vector<int> submitted;
  for (int i = 0; i < 40; ++i)
    endings.push_back(std::make_unique<EndingCall>(*world.connection));
  submitted.resize(endings.size());
  for (int step = 0; step < 4000; ++step) {
    size_t k = random() % endings.size();
    EndingCall& ending = *endings[k];
    if (!ending.call.in_flight()) {
      ASSERT_EQ(ending.ended(), submitted[k]);
      ending.begin(kKeep);
      ending.call.set_timeout_ms(one_in(4) ? static_cast<uint32_t>(1 + random() % 5) : 0);
      if (one_in(4))
        ending.call.set_retransmit(one_in(2));
      ending.submit();
      ++submitted[k];
    } else if (one_in(8)) {
      ending.call.cancel();
    } else if (one_in(40)) {
      endings[k] = std::make_unique<EndingCall>(*world.connection);
      submitted[k] = 0;
    }
    world.gate.holding = one_in(2);
    if (one_in(20))
      world.gate.answer();
    if (one_in(100))
      world.gate.drop();
    if (one_in(300))
      world.restart_server();
    for (uint64_t polls = random() % 30; polls != 0; --polls)
      world.poll_all();
  }
  world.gate.holding = false;
  world.until([&] {
    world.gate.answer();
    return std::ranges::none_of(endings, [](auto& e) { return e->call.in_flight(); });
  });
  for (size_t k = 0; k < endings.size(); ++k)
    EXPECT_EQ(endings[k]->ended(), submitted[k]);
  EXPECT_GT(world.stats()[Counter::kReconnections], 0u);
  EXPECT_EQ(world.stats()[Counter::kCallsInFlight], 0u);
}

// Submits and cancels come from a thread other than the core's, while connections come and go.
TEST(Reconnect, OnCoresOfTheirOwn) {
  World world(Cores::kDedicated, {}, {.reconnect = at_once(), .retransmit = true});
  auto connection = world.connect();
  EndingCalls endings;
  for (int i = 0; i < 8; ++i)
    endings.push_back(std::make_unique<EndingCall>(*connection));
  std::mt19937_64 random(test::run_seed());
  std::vector<int> submitted(endings.size());
  for (int round = 0; round < 10; ++round) {
    for (int step = 0; step < 500; ++step) {
      size_t k = random() % endings.size();
      if (!endings[k]->call.in_flight()) {
        endings[k]->begin(kEcho).put_opaque(std::span<const std::byte>());
        endings[k]->submit();
        ++submitted[k];
      } else if (random() % 8 == 0) {
        endings[k]->call.cancel();
      }
      EXPECT_LT(connection->stats()[Counter::kCallsInFlight], 9u);
    }
    world.server.reset();
    world.server = Server::create(*world.runtime).value();
    ASSERT_TRUE(world.server->add_service(
        {.binding = &kBinding, .procedures = kTable, .context = &world.keeper}));
    ASSERT_TRUE(world.server->listen(world.uri));
  }
  for (size_t k = 0; k < endings.size(); ++k) {
    world.until([&] { return !endings[k]->call.in_flight(); });
    EXPECT_EQ(endings[k]->ended(), submitted[k]);
  }
  world.until([&] { return connection->alive(); });
}

}  // namespace
}  // namespace rrdk::loopback
