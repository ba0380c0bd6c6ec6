// Silent peers: when they are asked, when they are given up, and what follows.
#include "client/client_impl.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

using Verdict = SilenceWatch::Verdict;
constexpr uint64_t kMs = 1'000'000;

// Looks each millisecond, as ticks come.
struct Clocked {
  SilenceWatch watch{100, 3};
  uint64_t now_ns = 50 * kMs;
  uint64_t heard = 0;
  bool can_ask = true;

  // The milliseconds until the verdict, at most `most`.
  int until(Verdict verdict, int most = 10000) {
    for (int ms = 1; ms <= most; ++ms) {
      now_ns += kMs;
      if (watch.look(now_ns, heard, can_ask) == verdict)
        return ms;
    }
    return most;
  }
};

TEST(SilenceWatch, AsksThenGivesUp) {
  Clocked clocked;
  EXPECT_EQ(clocked.until(Verdict::kAsk), 101);  // time begins with the first look
  EXPECT_EQ(clocked.until(Verdict::kGone), 300);
}

// The product does not fit into 64 bits.
TEST(SilenceWatch, IsPatientForAsLongAsItIsTold) {
  SilenceWatch watch{1u << 31, 1u << 31};
  constexpr uint64_t kSilenceNs = (uint64_t{1} << 31) * kMs;
  uint64_t now_ns = kMs;
  while (watch.look(now_ns, 0, true) == Verdict::kFine)
    now_ns += kSilenceNs / 8;
  for (int looks = 0; looks < 1000; ++looks) {
    now_ns += kSilenceNs / 8;
    ASSERT_EQ(watch.look(now_ns, 0, true), Verdict::kFine) << looks;
  }
}

TEST(SilenceWatch, AnythingThatComesEndsTheSilence) {
  Clocked clocked;
  clocked.until(Verdict::kAsk);
  EXPECT_EQ(clocked.until(Verdict::kGone, 250), 250);
  ++clocked.heard;
  EXPECT_EQ(clocked.until(Verdict::kAsk), 101);
  EXPECT_EQ(clocked.until(Verdict::kGone), 300);
  clocked.watch.restart();
  clocked.heard = 0;
  EXPECT_EQ(clocked.until(Verdict::kAsk), 101);
}

TEST(SilenceWatch, APeerThatCannotBeAskedIsNotGivenUp) {
  Clocked clocked;
  clocked.can_ask = false;
  EXPECT_EQ(clocked.until(Verdict::kAsk, 1000), 1000);
  EXPECT_EQ(clocked.until(Verdict::kGone, 1000), 1000);
  clocked.can_ask = true;
  EXPECT_EQ(clocked.until(Verdict::kAsk), 1);
}

TEST(SilenceWatch, TimeWithoutPollingDoesNotCount) {
  Clocked clocked;
  clocked.until(Verdict::kAsk);
  clocked.now_ns += 3'600'000 * kMs;
  EXPECT_EQ(clocked.watch.look(clocked.now_ns, 0, true), Verdict::kFine);
  EXPECT_GT(clocked.until(Verdict::kGone), 200);
}

constexpr ClientOptions kQuick = {.call_timeout_ms = 0, .keepalive_ms = 3};

ClientOptions quick_and_again() {
  ClientOptions options = kQuick;
  options.reconnect = at_once();
  options.retransmit = true;
  return options;
}

TEST(Keepalive, ASilentPeerIsGivenUpByName) {
  LogLines log;
  SurvivalWorld world(kQuick);
  world.connect();
  open_window(*world.connection);
  world.until_silent([&] { return !world.connection->alive(); });
  auto error = world.connection->error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Errc::kTimeout);
  EXPECT_NE(error->message.find("silent"), std::string::npos);
  EXPECT_EQ(world.stats()[Counter::kKeepalives], 1u);
  EXPECT_EQ(world.stats()[Counter::kKeepaliveEnds], 1u);
  EXPECT_EQ(world.stats()[Counter::kCallsMade], 1u);  // ours are not of the program
  EXPECT_EQ(log.count(LogLevel::kInfo, "connection to " + world.uri + " ended: ", "silent"), 1);
}

TEST(Keepalive, APeerThatAnswersIsKept) {
  SurvivalWorld world(kQuick);
  world.connect();
  open_window(*world.connection);
  uint64_t served = world.server->stats()[Counter::kCallsReceived];
  world.until([&] { return world.stats()[Counter::kKeepalives] >= 10; });
  EXPECT_TRUE(world.connection->alive());
  EXPECT_EQ(world.stats()[Counter::kKeepaliveEnds], 0u);
  EXPECT_GE(world.server->stats()[Counter::kCallsReceived], served + 9);
}

// It asks for the program that calls used, not for another Binding at the same address.
TEST(Keepalive, TheBindingMayBeGone) {
  SurvivalWorld world(kQuick);
  world.connect();
  Binding binding = kBinding;
  {
    Call call(*world.connection);
    call.begin(binding, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  binding = {.program = 1, .version = 1, .name = "other", .procedures = {}};
  world.until([&] { return world.stats()[Counter::kKeepalives] >= 10; });
  EXPECT_EQ(world.server->stats()[Counter::kCallsRejected], 0u);
}

TEST(Keepalive, IsOffByDefault) {
  SurvivalWorld world({});
  world.connect();
  open_window(*world.connection);
  world.until([&] { return world.runtime->stats(0)[Counter::kPasses] > 10000; });
  EXPECT_EQ(world.stats()[Counter::kKeepalives], 0u);
}

TEST(Keepalive, WithoutAProgramNothingIsSent) {
  SurvivalWorld world(kQuick);
  world.connect();
  ClientOptions options = kQuick;
  options.keepalive_binding = &kBinding;
  auto other_client = Client::create(*world.runtime, options).value();
  auto other = other_client->connect(world.uri, 0).value();
  world.until([&] { return other->stats()[Counter::kKeepalives] >= 5; });
  EXPECT_EQ(world.stats()[Counter::kKeepalives], 0u);
  EXPECT_TRUE(world.connection->alive());
  other.reset();
}

// Slow calls hold all the credits; a connection beside it shows that time passes.
TEST(Keepalive, WithoutACreditSilenceIsNoEvidence) {
  SurvivalWorld world(kQuick, {.credits = 2});
  world.connect();
  open_window(*world.connection);
  auto other = world.client->connect(world.uri, 0).value();
  open_window(*other);
  world.gate.holding = true;
  EndingCalls endings = submit(world, kKeep, 2);
  world.until([&] { return world.gate.held.size() == 2; });
  uint64_t before = world.stats()[Counter::kKeepalives];
  uint64_t others = other->stats()[Counter::kKeepalives];
  world.until([&] { return other->stats()[Counter::kKeepalives] >= others + 20; });
  EXPECT_EQ(world.stats()[Counter::kKeepalives], before);
  EXPECT_TRUE(world.connection->alive());
  world.gate.answer();
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  world.until([&] { return world.stats()[Counter::kKeepalives] > before; });
  other.reset();
}

// The call is seen once on each connection, with the same XID.
// Shows: V1-CREDIT-23
TEST(Keepalive, ItsEndIsTheReconnectionsBeginning) {
  SurvivalWorld world(quick_and_again());
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls endings = submit(world, kKeep, 1);
  world.until([&] { return world.gate.held.size() == 1; });
  world.until_silent([&] { return !world.connection->alive(); });
  EXPECT_TRUE(world.connection->reconnecting());
  EXPECT_EQ(world.gate.xids.size(), 1u);
  world.until([&] { return world.gate.xids.size() == 2; });
  EXPECT_EQ(world.gate.xids[0], world.gate.xids[1]);
  world.gate.answer();
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_GE(world.stats()[Counter::kKeepaliveEnds], 1u);
  world.gate.drop();
}

TEST(Keepalive, AConnectionDestroyedWhileItAsksIsWhole) {
  SurvivalWorld world(quick_and_again());
  world.connect();
  open_window(*world.connection);
  world.until_silent([&] { return world.stats()[Counter::kKeepalives] == 1; });
  world.connection.reset();
}

}  // namespace
}  // namespace rrdk::loopback
