// The functions of a server that do not wait: listen_start(), remove_service_start(), drain_start()
// and close_start(); and what remains of a server whose destructor has waited long enough.
#include <algorithm>
#include <optional>

#include "../client/log_lines.h"
#include "base/internals.h"
#include "loopback.h"
#include "runtime/runtime_impl.h"

namespace rrdk::loopback {
namespace {

struct Told {
  std::atomic<int> times = 0;
  uint32_t rest = 0;
  std::function<void()> then;

  static void take(void* self) {
    auto& told = *static_cast<Told*>(self);
    if (told.then)
      told.then();
    told.times.fetch_add(1, std::memory_order_release);
  }
  static void take_rest(uint32_t rest, void* self) {
    static_cast<Told*>(self)->rest = rest;
    take(self);
  }
  bool once() const { return times.load(std::memory_order_acquire) == 1; }
};

class Endings : public testing::TestWithParam<Cores> {
 protected:
  // A call that a handler has kept.
  void keep_one() {
    connection = world.connect();
    kept.emplace(*connection);
    kept->begin(kKeep);
    kept->submit();
    world.until([&] { return world.keeper.kept() == 1; });
  }

  World world{GetParam()};
  std::unique_ptr<ClientConnection> connection;
  std::optional<EndingCall> kept;
};
INSTANTIATE_TEST_SUITE_P(Cores, Endings,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

class EndingsOnThreads : public Endings {};
INSTANTIATE_TEST_SUITE_P(Cores, EndingsOnThreads,
                         testing::Values(Cores::kDedicated, Cores::kWorkers));

TEST_P(Endings, ACloseIsToldWhenKeptCallsAreAnswered) {
  keep_one();
  Told closed, again;
  world.server->close_start(Told::take, &closed);
  world.until([&] { return kept->ended() == 1; });
  EXPECT_EQ(kept->call.status(), CallStatus::kConnectionLost);
  EXPECT_FALSE(world.client->connect(world.uri));
  EXPECT_EQ(closed.times, 0);
  EXPECT_EQ(world.server->stats()[Counter::kConnections], 1u);
  world.keeper.release();
  world.until([&] { return closed.once(); });
  EXPECT_EQ(world.server->stats()[Counter::kConnections], 0u);
  EXPECT_EQ(world.server->listen("shm:" + socket_path()).error().code, Errc::kShutdown);
  world.server->close_start(Told::take, &again);
  world.until([&] { return again.once(); });
  EXPECT_EQ(closed.times, 1);
}

TEST_P(Endings, AHandlerLearnsThatItsAnswerIsNotWanted) {
  const auto wanted = [this] {
    std::lock_guard lock(world.keeper.mutex);
    return world.keeper.calls.back().wanted();
  };
  keep_one();
  EXPECT_TRUE(wanted());
  connection->close_start();
  world.until([&] { return !wanted(); });
  world.keeper.release();
  keep_one();
  EXPECT_TRUE(wanted()) << "another connection";
  Told closed;
  world.server->close_start(Told::take, &closed);
  world.until([&] { return !wanted(); });
  world.keeper.release();
  world.until([&] { return closed.once(); });
  EXPECT_FALSE(ServerCall().wanted());
}

TEST_P(Endings, AServerMayBeDestroyedInTheCallbackOfItsClose) {
  keep_one();
  world.keeper.release();
  Told closed;
  closed.then = [&] { world.server.reset(); };
  world.server->close_start(Told::take, &closed);
  world.until([&] { return closed.once(); });
  EXPECT_EQ(world.server, nullptr);
}

// Its Runtime is destroyed by a thread that the callback has woken, while the callback still runs.
TEST_P(EndingsOnThreads, AfterThatCallbackTheRuntimeMayBeDestroyed) {
  constexpr uint64_t kEnoughToBreakNs = 50'000'000;
  LogLines log;
  std::atomic<bool> gone = false;
  Told closed;
  closed.then = [&] {
    world.server.reset();
    gone = true;
    const uint64_t until = Runtime::now_ns() + kEnoughToBreakNs;
    while (log.count(LogLevel::kError, "Runtime", "destroyed before") == 0 &&
           Runtime::now_ns() < until)
      std::this_thread::yield();
  };
  world.server->close_start(Told::take, &closed);
  wait_until([&] { return gone.load(); }, [] { return 0; });
  world.end();
  EXPECT_EQ(log.count(LogLevel::kError, "Runtime", "destroyed before"), 0);
  EXPECT_EQ(closed.times, 1);
}

TEST_P(Endings, AServerThatNeverListenedCloses) {
  auto server = Server::create(*world.runtime).value();
  Told closed;
  server->close_start(Told::take, &closed);
  world.until([&] { return closed.once(); });
}

TEST_P(Endings, ADrainIsToldWhenAllIsAnswered) {
  keep_one();
  Told drained;
  world.server->drain_start(60'000, Told::take_rest, &drained);
  EXPECT_EQ(world.server->listen("shm:" + socket_path()).error().code, Errc::kShutdown);
  EXPECT_EQ(drained.times, 0);
  world.keeper.release();
  world.until([&] { return drained.once(); });
  EXPECT_EQ(drained.rest, 0u);
  world.until([&] { return kept->ended() == 1; });
  EXPECT_EQ(kept->call.status(), CallStatus::kOk);
}

TEST_P(Endings, ADrainThatTakesTooLongSaysHowManyAreLeft) {
  keep_one();
  Told drained, closed;
  world.server->drain_start(1, Told::take_rest, &drained);
  world.server->close_start(Told::take, &closed);
  world.until([&] { return drained.once(); });
  EXPECT_EQ(drained.rest, 1u);
  EXPECT_EQ(closed.times, 0);
  world.keeper.release();
  world.until([&] { return closed.once(); });
}

// One after the other, from within callbacks, as a reactor does.
TEST_P(Endings, InCallbacksAlone) {
  struct Site {
    World& world;
    Told closed;
  } site{world, {}};
  connection = world.connect();
  open_window(*connection);
  world.server->drain_start(
      60'000,
      [](uint32_t rest, void* argument) {
        auto& mine = *static_cast<Site*>(argument);
        EXPECT_EQ(rest, 0u);
        mine.world.server->close_start(Told::take, &mine.closed);
      },
      &site);
  world.until([&] { return site.closed.once(); });
}

// Calls that are kept for too long: the objects that handlers use may be destroyed nevertheless.
TEST_P(Endings, TheDestructorDoesNotWaitForEver) {
  struct Entered {
    std::atomic<int> closes = 0;
  } entered;
  ServerOptions options;
  options.on_close = [](ServerConnection&, const Ending&, void* argument) {
    static_cast<Entered*>(argument)->closes.fetch_add(1);
  };
  options.connection_argument = &entered;
  LogLines log;
  Keeper keeper;
  auto server = Server::create(*world.runtime, options).value();
  ASSERT_TRUE(
      server->add_service({.binding = &kBinding, .procedures = kTable, .context = &keeper}));
  auto mine = world.client->connect(server->listen("shm:" + socket_path()).value()).value();
  EndingCall ending(*mine);
  ending.begin(kKeep);
  ending.submit();
  world.until([&] { return keeper.kept() == 1; });
  Internals::of(*world.runtime).patience_ns = 1'000'000;
  server.reset();
  Internals::of(*world.runtime).patience_ns = 5'000'000'000;
  EXPECT_EQ(log.count(LogLevel::kError, "~Server()", "ServerCalls"), 1);
  const int closes = entered.closes;
  keeper.release();
  world.until([&] { return ending.ended() == 1; });
  world.until([&] { return log.count(LogLevel::kInfo, "left of a Server", "has closed") == 1; });
  EXPECT_EQ(entered.closes, closes);
}

struct Listened {
  std::optional<Result<std::string>> outcome;
  std::atomic<bool> told = false;

  static void take(Result<std::string>&& uri, void* self) {
    auto& listened = *static_cast<Listened*>(self);
    listened.outcome = std::move(uri);
    listened.told.store(true, std::memory_order_release);
  }
};

TEST_P(Endings, ListeningIsToldWithItsAddress) {
  auto server = Server::create(*world.runtime).value();
  ASSERT_TRUE(
      server->add_service({.binding = &kBinding, .procedures = kTable, .context = &world.keeper}));
  auto listen = [&](const std::string& uri) {
    Listened listened;
    server->listen_start(uri, Listened::take, &listened);
    world.until([&] { return listened.told.load(std::memory_order_acquire); });
    return std::move(*listened.outcome);
  };
  for (const char* uri : {"iwarp://localhost:0", "shm:@rrdk-listen-start"}) {
    Result<std::string> bound = listen(uri);
    ASSERT_TRUE(bound) << bound.error().message;
    auto there = world.client->connect(*bound);
    ASSERT_TRUE(there) << there.error().message;
    open_window(**there);
  }
  EXPECT_EQ(listen("shm:@rrdk-listen-start").error().code, Errc::kAddressInUse);
  EXPECT_EQ(listen("nonsense").error().code, Errc::kBadUri);
  Listened late;
  server->close_start(nullptr, nullptr);
  server->listen_start("shm:@rrdk-too-late", Listened::take, &late);
  world.until([&] { return late.told.load(std::memory_order_acquire); });
  EXPECT_EQ(late.outcome->error().code, Errc::kShutdown);
}

// A server that has closed is asked for more and then destroyed: its cores must not refer to it.
TEST_P(Endings, MoreMayBeAskedOfAServerThatHasClosed) {
  for (int i = 0; i != 50; ++i) {
    auto server = Server::create(*world.runtime).value();
    std::atomic<bool> told = false;
    server->close_start(
        [](void* to) {
          static_cast<std::atomic<bool>*>(to)->store(true, std::memory_order_release);
        },
        &told);
    world.until([&] { return told.load(std::memory_order_acquire); });
    server->drain_start(0, nullptr, nullptr);
    server.reset();
  }
}

// A handler on a worker, for which the removal waits.
struct Gate {
  std::atomic<bool> entered = false, open = false, left = false;
};
constexpr uint32_t kPass = 1;
constexpr uint32_t kRemove = 2;
constexpr ProcedureBinding kGateProcedures[] = {{.procedure = kPass, .name = "PASS"},
                                                {.procedure = kRemove, .name = "REMOVE"}};
constexpr Binding kGated = {
    .program = 0x20005901, .version = 1, .name = "gate", .procedures = kGateProcedures};

void pass(ServerCall call, void* context) {
  auto& gate = *static_cast<Gate*>(context);
  gate.entered = true;
  while (!gate.open)
    std::this_thread::yield();
  gate.left = true;
  std::move(call).reply();
}

TEST(RemovalStart, IsToldWhenHandlersHaveReturned) {
  World world(Cores::kWorkers);
  Gate gate;
  const Procedure table[] = {{kPass, pass, Dispatch::kWorker}};
  ASSERT_TRUE(
      world.server->add_service({.binding = &kGated, .procedures = table, .context = &gate}));
  auto connection = world.connect();
  open_window(*connection);
  EndingCall ending(*connection);
  ending.call.begin(kGated, kPass);
  ending.submit();
  world.until([&] { return gate.entered.load(); });
  Told removed;
  bool had_left = false;
  removed.then = [&] { had_left = gate.left; };
  ASSERT_TRUE(world.server->remove_service_start(kGated.program, 1, Told::take, &removed));
  EXPECT_EQ(
      world.server->remove_service_start(kGated.program, 1, Told::take, &removed).error().code,
      Errc::kNotFound);
  Call call(*connection);
  call.begin(kGated, kPass);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kProgUnavail);
  EXPECT_EQ(removed.times, 0);
  gate.open = true;
  world.until([&] { return removed.once(); });
  EXPECT_TRUE(had_left);
  world.until([&] { return ending.ended() == 1; });
}

// In a handler of the service itself, which another service replaces.
struct Changing {
  Server* server = nullptr;
  Told removed;
  uint32_t added = 0;
};

void change(ServerCall call, void* context) {
  auto& site = *static_cast<Changing*>(context);
  EXPECT_TRUE(site.server->remove_service_start(kGated.program, 1, Told::take, &site.removed));
  static constexpr Binding kNext = {
      .program = 0x20005901, .version = 2, .name = "gate", .procedures = kGateProcedures};
  static constexpr Procedure kTableNext[] = {
      {kPass, [](ServerCall mine, void*) { std::move(mine).reply(); }}};
  EXPECT_TRUE(site.server->add_service({.binding = &kNext, .procedures = kTableNext}));
  std::move(call).reply();
}

TEST(RemovalStart, MayBeginInAHandler) {
  for (Dispatch where : {Dispatch::kInline, Dispatch::kWorker}) {
    World world(Cores::kWorkers);
    Changing site{world.server.get(), {}, 0};
    const Procedure table[] = {{kRemove, change, where}};
    ASSERT_TRUE(
        world.server->add_service({.binding = &kGated, .procedures = table, .context = &site}));
    auto connection = world.connect();
    Call call(*connection);
    call.begin(kGated, kRemove);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    world.until([&] { return site.removed.once(); });
    call.begin(kGated, kRemove);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kProgMismatch);
    EXPECT_EQ(call.mismatch_low(), 2u);
  }
}

}  // namespace
}  // namespace rrdk::loopback
