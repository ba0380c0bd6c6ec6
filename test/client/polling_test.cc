// Which thread polls a core, and the order of destruction: threads that poll where they must not,
// or not at all, and objects that are destroyed in the wrong order. A log line reports it, and
// nothing is lost.
#include <atomic>
#include <optional>
#include <thread>

#include "../server/loopback.h"
#include "../single_step.h"
#include "base/internals.h"
#include "calls/calls.h"
#include "log_lines.h"

namespace rrdk::loopback {
namespace {

constexpr Cores kEveryWay[] = {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers};

TEST(OnThePollCore, WaitingAndConnectingAreRefused) {
  struct Waiting {
    explicit Waiting(World& world_in, ClientConnection& connection)
        : world(world_in), inner(connection) {}
    World& world;
    Call inner;
    CallStatus waited = CallStatus::kOk;
    Errc connected = Errc::kSystem;
    std::atomic<bool> done = false;
  };
  for (Cores cores : kEveryWay) {
    LogLines log;
    World world(cores);
    auto connection = world.connect();
    Waiting waiting(world, *connection);
    Call call(*connection);
    call.begin(kBinding, 0);
    call.submit(
        [](Call&, void* argument) {
          auto& self = *static_cast<Waiting*>(argument);
          self.inner.begin(kBinding, 0);
          self.waited = self.inner.submit_and_wait();
          self.connected = self.world.client->connect(self.world.uri).error().code;
          self.done.store(true, std::memory_order_release);
        },
        &waiting);
    world.until([&] { return waiting.done.load(std::memory_order_acquire); });
    EXPECT_EQ(waiting.waited, CallStatus::kInvalidCall);
    EXPECT_EQ(waiting.inner.status(), CallStatus::kInvalidCall);
    EXPECT_EQ(waiting.connected, Errc::kInvalidArgument);
    EXPECT_EQ(log.count(LogLevel::kError, "submit_and_wait()", world.uri), 1);
  }
}

// Polls a core once, so that the core belongs to this thread, and then waits until it is released.
class Sleeper {
 public:
  explicit Sleeper(Runtime& runtime)
      : thread_([this, &runtime] {
          runtime.poll();
          polled_.store(true);
          polled_.notify_one();
          let_go_.wait(false);
        }) {
    polled_.wait(false);
  }
  ~Sleeper() {
    let_go();
    thread_.join();
  }
  void let_go() {
    let_go_.store(true);
    let_go_.notify_one();
  }

 private:
  std::atomic<bool> polled_ = false;
  std::atomic<bool> let_go_ = false;
  std::thread thread_;
};

TEST(UnpolledCore, ConnectEndsInTime) {
  World world({.embedded_cores = 1}, {}, {});
  auto hasty = std::move(Client::create(*world.runtime, {.connect_timeout_ms = 20}).value());
  {
    Sleeper sleeper(*world.runtime);
    auto connection = hasty->connect(world.uri);
    ASSERT_FALSE(connection);
    EXPECT_EQ(connection.error().code, Errc::kTimeout);
    EXPECT_NE(connection.error().message.find("no thread polls"), std::string::npos);
  }
  // The attempt that was given up does nothing later.
  auto connection = world.connect();
  open_window(*connection);
  world.until([&] { return world.server->stats()[Counter::kConnections] == 1; });
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsAccepted], 1u);
}

// When the thread that polled has ended, the waiting thread polls.
TEST(UnpolledCore, AWaitIsReportedOnceAndPollsWhenTheThreadHasEnded) {
  std::atomic<Sleeper*> sleeper = nullptr;
  LogLines log([&](const std::string&) {
    if (Sleeper* asleep = sleeper.load())
      asleep->let_go();
  });
  World world({.embedded_cores = 1}, {}, {});
  auto connection = world.connect();
  Call call(*connection);
  Sleeper asleep(*world.runtime);
  sleeper.store(&asleep);
  call.begin(kBinding, 0);
  call.set_timeout_ms(0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  sleeper.store(nullptr);
  EXPECT_EQ(log.count(LogLevel::kWarning, "submit_and_wait() on " + world.uri, "poll core 0"), 1);
}

// The wait gives up when the core has already decided to report the end, and the call is waited for
// again before the core does so: the second wait must not take that end for its own.
TEST(UnpolledCore, ALateEndDoesNotEndTheNextWait) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer's runtime cannot be run one instruction at a time";
  World world({.embedded_cores = 1}, {}, {});
  auto connection = world.connect();
  open_window(*connection);
  Internals::of(*world.runtime).patience_ns = 0;
  enum class Moment { kBefore, kGivenUp, kPassed };
  for (Moment moment = Moment::kBefore; moment != Moment::kPassed;) {
    Call call(*connection);
    Call::Impl& inner = Internals::of(call);
    std::atomic<bool> gave_up = false;
    std::atomic<bool> again = false;  // the core has noticed that the call is no longer in flight
    std::atomic<CallStatus> second = CallStatus::kTimeout;
    const size_t kept = world.keeper.kept();
    std::thread waiter([&] {
      call.begin(kBinding, kKeep);
      call.set_timeout_ms(1);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kTimeout);
      gave_up = true;
      while (inner.in_flight || !again)
        std::this_thread::yield();
      call.begin(kBinding, kKeep);
      call.set_timeout_ms(0);
      second = call.submit_and_wait();
    });
    world.until([&] { return world.keeper.kept() == kept + 1; });
    moment = Moment::kBefore;
    test::SingleStep::through(
        [&] {
          while (!gave_up || inner.delivering)
            world.runtime->poll();
        },
        [&](uint64_t) {
          if (moment == Moment::kBefore && inner.delivering && inner.in_flight) {
            while (!gave_up)
              std::this_thread::yield();
            moment = Moment::kGivenUp;
          } else if (moment == Moment::kGivenUp && !inner.in_flight) {
            again = true;
            while (!inner.in_flight)
              std::this_thread::yield();
            moment = Moment::kPassed;
          }
        });
    again = true;
    // Otherwise the wait had given up before the core came to it: try again.
    if (moment == Moment::kPassed) {
      EXPECT_FALSE(inner.end().is_here());
    }
    world.until([&] { return world.keeper.kept() == kept + 2; });
    world.keeper.release();
    world.until([&] { return second.load() != CallStatus::kTimeout; });
    EXPECT_EQ(second.load(), CallStatus::kOk);
    waiter.join();
  }
  Internals::of(*world.runtime).patience_ns = 5'000'000'000;
}

// Everything is destroyed in the order in which it was made, which is the wrong order.
TEST(Lifetime, ObjectsDestroyedTooEarlyLiveOn) {
  for (Cores cores : kEveryWay) {
    LogLines log;
    auto memory = make_memory();
    auto runtime = Runtime::create(*memory, options_for(cores)).value();
    auto server = Server::create(*runtime).value();
    ASSERT_TRUE(server->add_service({.binding = &kBinding, .procedures = kTable}));
    std::string uri = server->listen("shm:" + socket_path()).value();
    auto client = Client::create(*runtime).value();
    auto connection = client->connect(uri).value();
    std::optional<Call> call(std::in_place, *connection);
    memory.reset();
    EXPECT_EQ(log.count(LogLevel::kError, "a Memory is destroyed before a Runtime"), 1);
    runtime.reset();
    EXPECT_EQ(log.count(LogLevel::kError, "a Runtime is destroyed before the Servers"), 1);
    client.reset();
    for (int i = 0; i < 100; ++i) {
      call->begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
      EXPECT_EQ(call->submit_and_wait(), CallStatus::kOk);
    }
    call.reset();
    if (cores == Cores::kEmbedded) {
      connection.reset();
      server.reset();
    } else {
      server.reset();
      connection.reset();
    }
    EXPECT_EQ(log.count(LogLevel::kError, ""), 2);
  }
}

// The buffers that it gave out can be returned later.
TEST(Lifetime, AMemoryOutlivedByItsBuffersStays) {
  LogLines log;
  auto memory = make_memory();
  Buffer buffer = memory->get(4096);
  RegisteredMemory own = memory->allocate(4096).value();
  memory.reset();
  EXPECT_EQ(log.count(LogLevel::kError, "leaked: 1 of 2048 buffers of 4096 bytes"), 1);
  EXPECT_EQ(log.count(LogLevel::kError, "outlives its Memory"), 1);
  buffer.data()[4095] = own.data()[4095] = std::byte{1};
}

TEST(Polling, ByASecondThreadDuringAPassIsRefusedAndSaidOnce) {
  LogLines log;
  World world({.embedded_cores = 1}, {}, {});
  auto connection = world.connect();
  open_window(*connection);
  struct Pass {
    Runtime& runtime;
    uint32_t work = 0;  // passes of the second thread
    std::atomic<int> ends = 0;
  } pass{*world.runtime};
  Call call(*connection);
  call.begin(kBinding, 0);
  // This thread's pass lasts until the second thread has polled.
  call.submit(
      [](Call&, void* argument) {
        auto& self = *static_cast<Pass*>(argument);
        std::thread([&] {
          for (int i = 0; i < 3; ++i)
            self.work += self.runtime.poll();
        }).join();
        self.ends.fetch_add(1, std::memory_order_release);
      },
      &pass);
  uint64_t before = world.runtime->stats(0)[Counter::kPasses];
  uint64_t passes = 0;
  while (pass.ends.load(std::memory_order_acquire) == 0) {
    world.runtime->poll();
    ++passes;
  }
  EXPECT_EQ(pass.work, 0u);
  EXPECT_EQ(world.runtime->stats(0)[Counter::kPasses], before + passes);
  EXPECT_EQ(log.count(LogLevel::kError, "two threads poll core 0"), 1);
  open_window(*connection);
}

// While the threads try to take over from each other, a callback runs in a pass and observes it.
TEST(Polling, ByTwoThreadsAtOnceDoesNoHarm) {
  LogLines log;
  World world({.embedded_cores = 1}, {}, {});
  auto connection = world.connect();
  open_window(*connection);
  struct Echoes {
    explicit Echoes(World& world_in, Caller& caller) : world(world_in), call(caller) {}
    World& world;
    Call call;
    std::atomic<int> left = 10'000;
    std::atomic<int> bad = 0;
    std::atomic<int> nested = 0;  // passes within passes
    std::atomic<int> in_callbacks = 0;
    std::atomic<int> overlaps = 0;

    void again() {
      call.begin(kBinding, kEcho).put_u32(0);
      call.expect_reply(4);
      call.submit([](Call&, void* self) { static_cast<Echoes*>(self)->ended(); }, this);
    }
    // Whichever thread polls is the core's, and the only one.
    void ended() {
      if (in_callbacks.fetch_add(1) != 0)
        overlaps.fetch_add(1);
      if (call.status() != CallStatus::kOk)
        bad.fetch_add(1);
      uint64_t polls = world.runtime->stats(0)[Counter::kPasses];
      for (int i = 0; i < 10; ++i)
        world.runtime->poll();
      if (world.runtime->stats(0)[Counter::kPasses] != polls)
        nested.fetch_add(1);
      if (left.load() > 1)
        again();
      in_callbacks.fetch_sub(1);
      left.fetch_sub(1);
    }
  } echoes(world, *connection);
  auto poll = [&] {
    while (echoes.left.load() > 0)
      world.runtime->poll();
  };
  echoes.again();
  std::thread one(poll), other(poll);
  one.join();
  other.join();
  EXPECT_EQ(echoes.bad.load(), 0);
  EXPECT_EQ(echoes.nested.load(), 0);
  EXPECT_EQ(echoes.overlaps.load(), 0);
  EXPECT_LE(log.count(LogLevel::kError, "two threads poll core 0"), 1);
  open_window(*connection);
}

// Polling from one thread after the other is allowed.
TEST(Polling, MayGoOnInAnotherThread) {
  LogLines log;
  World world({.embedded_cores = 1}, {}, {});
  auto connection = world.connect();
  auto take_over = [&] {
    world.runtime->poll();
    open_window(*connection);
  };
  for (int i = 0; i < 20; ++i) {
    take_over();
    std::thread(take_over).join();
  }
  std::mutex turn;
  std::atomic<int> polls = 0;
  auto poll = [&] {
    while (polls.fetch_add(1) < 2000) {
      std::lock_guard lock(turn);
      world.runtime->poll();
    }
  };
  std::thread one(poll), other(poll);
  one.join();
  other.join();
  EXPECT_EQ(log.count(LogLevel::kError, ""), 0);
}

}  // namespace
}  // namespace rrdk::loopback
