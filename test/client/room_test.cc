// The bound on the calls that wait (ClientOptions::max_queued): what is refused, what room() says,
// and when on_room() is called.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <optional>

#include "both_ways.h"
#include "rrdk/coroutine.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

// Counts the calls of on_room().
struct Bell {
  void hang(Caller& caller, uint32_t mark) {
    caller.on_room(mark, [](void* self) { static_cast<Bell*>(self)->ring(); }, this);
  }
  void ring() {
    rings.fetch_add(1, std::memory_order_release);
    if (then)
      then();
  }
  int rung() const { return rings.load(std::memory_order_acquire); }

  std::function<void()> then;
  std::atomic<int> rings = 0;
};

EndingCalls make_calls(Caller& caller, int count, uint32_t procedure = kKeep) {
  EndingCalls calls;
  for (int i = 0; i < count; ++i) {
    calls.push_back(std::make_unique<EndingCall>(caller));
    calls.back()->begin(procedure);
  }
  return calls;
}

bool submit(EndingCall& one) {
  return one.call.submit(
      [](Call&, void* self) {
        static_cast<EndingCall*>(self)->ends.fetch_add(1, std::memory_order_release);
      },
      &one);
}

int ended(const EndingCalls& calls) {
  int sum = 0;
  for (const auto& call : calls)
    sum += call->ended();
  return sum;
}

// One connection with four credits and a bound. Its server keeps calls of kKeep.
struct BoundedWorld : World {
  explicit BoundedWorld(uint32_t max_queued, Cores cores = Cores::kEmbedded)
      : World(cores, {.credits = 4, .first_credits = 4}, {.credits = 4, .max_queued = max_queued}),
        connection(connect()) {}

  // The server has `count` calls.
  void until_kept(size_t count) {
    until([&] { return keeper.kept() == count; });
  }
  void until_ended(const EndingCalls& calls, int count) {
    until([&] { return ended(calls) == count; });
  }
  // Answers what the server has, and what comes.
  void answer_until_ended(const EndingCalls& calls, int count) {
    until([&] {
      keeper.release();
      return ended(calls) == count;
    });
  }

  std::unique_ptr<ClientConnection> connection;
};

// The same once the window is open: it takes `max_queued` + 4 calls.
struct OpenWorld : BoundedWorld {
  explicit OpenWorld(uint32_t max_queued, Cores cores = Cores::kEmbedded)
      : BoundedWorld(max_queued, cores) {
    open_window(*connection);
  }
};

TEST(Room, HasNoEndWithoutABound) {
  World world;
  auto connection = world.connect();
  EXPECT_EQ(connection->room(), UINT32_MAX);
  auto calls = make_calls(*connection, 100);
  for (auto& call : calls)
    EXPECT_TRUE(submit(*call));
  EXPECT_EQ(connection->room(), UINT32_MAX);
  world.until([&] { return world.keeper.kept() != 0; });
  world.until([&] {
    world.keeper.release();
    return ended(calls) == 100;
  });
}

TEST(Room, SubmitTakesAsManyCallsAsItSays) {
  for (uint32_t max_queued : {0u, 3u}) {
    BoundedWorld world(max_queued);
    const auto& connection = world.connection;
    EXPECT_EQ(connection->room(), 1 + max_queued);  // until the first reply
    open_window(*connection);
    const uint32_t all = 4 + max_queued;
    auto calls = make_calls(*connection, static_cast<int>(all) + 1);
    for (uint32_t i = 0; i < all; ++i) {
      EXPECT_EQ(connection->room(), all - i);
      EXPECT_TRUE(submit(*calls[i]));
    }
    EXPECT_EQ(connection->room(), 0u);
    EndingCall& last = *calls[all];
    EXPECT_FALSE(submit(last));
    EXPECT_EQ(last.call.status(), CallStatus::kFull);
    EXPECT_FALSE(last.call.in_flight());
    EXPECT_FALSE(last.call.sent());
    EXPECT_EQ(connection->stats()[Counter::kCallsFull], 1u);
    // One that waits is not taken for one that was refused: nothing has been dropped.
    world.until_kept(4);
    EXPECT_EQ(ended(calls), 0);
    world.keeper.release();
    world.until_ended(calls, 4);
    EXPECT_EQ(connection->room(), 4u);
    // It is still begun.
    EXPECT_TRUE(submit(last));
    world.answer_until_ended(calls, static_cast<int>(all) + 1);
    for (auto& call : calls)
      EXPECT_EQ(call->call.status(), CallStatus::kOk);
    EXPECT_EQ(connection->room(), all);
  }
}

TEST(Room, ACallThatWaitsForItsEndIsRefusedToo) {
  OpenWorld world(0);
  const auto& connection = world.connection;
  auto calls = make_calls(*connection, 4);
  for (auto& call : calls)
    EXPECT_TRUE(submit(*call));
  Call other(*connection);
  other.begin(kBinding, 0);
  EXPECT_EQ(other.submit_and_wait(), CallStatus::kFull);
  std::optional<CallStatus> awaited;
  const auto waits = [&]() -> Coroutine {
    auto done = co_await rrdk::submit(other);
    awaited = done.status();
  };
  const Coroutine waiting = waits();
  EXPECT_EQ(awaited, CallStatus::kFull);
  EXPECT_EQ(connection->stats()[Counter::kCallsFull], 2u);
  world.until_kept(4);
  world.keeper.release();
  world.until_ended(calls, 4);
  EXPECT_EQ(other.submit_and_wait(), CallStatus::kOk);
}

TEST(Room, IsToldOnceForEachRefusalWhenTheMarkIsReached) {
  OpenWorld world(4);
  const auto& connection = world.connection;
  Bell bell;
  bell.hang(*connection, 6);
  auto calls = make_calls(*connection, 9);
  for (int i = 0; i < 8; ++i)
    EXPECT_TRUE(submit(*calls[i]));
  const auto pass = [&] {
    for (int i = 0; i < 20; ++i)
      world.runtime->poll(static_cast<uint32_t>(i % 2));
  };
  // No one has asked.
  world.until_kept(4);
  world.keeper.release();
  world.until_kept(4);
  pass();
  EXPECT_EQ(bell.rung(), 0);
  // Four calls have ended: there is room for four.
  for (int i = 0; i < 4; ++i) {
    calls[i]->begin(kKeep);
    EXPECT_TRUE(submit(*calls[i]));
  }
  EXPECT_FALSE(submit(*calls[8]));
  EXPECT_FALSE(submit(*calls[8]));
  EXPECT_EQ(connection->room(), 0u);
  world.keeper.release();
  world.until([&] { return ended(calls) == 8 && world.keeper.kept() == 4; });
  pass();
  EXPECT_EQ(connection->room(), 4u);
  EXPECT_EQ(bell.rung(), 0);  // the mark is 6
  world.keeper.release();
  world.until([&] { return bell.rung() != 0; });
  world.until_ended(calls, 12);
  pass();
  EXPECT_EQ(bell.rung(), 1);
  // Not again, until there is none again.
  EXPECT_TRUE(submit(*calls[8]));
  world.until_kept(1);
  world.keeper.release();
  world.until_ended(calls, 13);
  pass();
  EXPECT_EQ(bell.rung(), 1);
  // A program that only asks is told as well.
  for (int i = 0; i < 8; ++i) {
    calls[i]->begin(0);
    EXPECT_TRUE(submit(*calls[i]));
  }
  EXPECT_EQ(connection->room(), 0u);
  world.until([&] { return bell.rung() == 2; });
  world.until_ended(calls, 21);
}

// A gateway with more requests than there are buffers (2048): each has a Call of its own.
struct Gateway {
  static constexpr int kRequests = 6000;

  explicit Gateway(Caller& caller_in) : caller(caller_in) {
    bell.hang(caller, 8);
    bell.then = [this] { forward(); };
  }
  // Forwards requests while there is room; the callback goes on.
  void forward() {
    while (left != 0 && caller.room() != 0) {
      --left;
      auto call = std::make_unique<Call>(caller);
      call->begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
      if (!call->submit(end, this))
        ++refused;
      else
        (void)call.release();
    }
  }
  static void end(Call& call, void* self) {
    auto& gateway = *static_cast<Gateway*>(self);
    gateway.good += call.status() == CallStatus::kOk;
    ++gateway.ends;
    delete &call;
  }

  Caller& caller;
  Bell bell;
  int left = kRequests;
  int refused = 0;
  int ends = 0;
  int good = 0;
};

TEST(Room, AProgramThatWaitsForItMakesAllItsCalls) {
  {
    World world(Cores::kEmbedded, {}, {.max_queued = 64});
    auto connection = world.connect();
    Gateway gateway(*connection);
    gateway.forward();
    world.until([&] { return gateway.ends == Gateway::kRequests; });
    EXPECT_EQ(gateway.good, Gateway::kRequests);
    EXPECT_EQ(gateway.refused, 0);
  }
  // The same without a bound: memory is used up, and even the server has none left for a while.
  World world(Cores::kEmbedded, {}, {.call_timeout_ms = 200});
  auto connection = world.connect();
  Gateway gateway(*connection);
  gateway.forward();
  world.until([&] { return gateway.ends == Gateway::kRequests; });
  EXPECT_LT(gateway.good, Gateway::kRequests);
}

// A program that begins too many calls at once finds no memory for their arguments. It can wait,
// too.
struct Hoarder {
  explicit Hoarder(Caller& caller_in) : caller(caller_in) {
    bell.hang(caller, 1);
    bell.then = [this] { go_on(); };
  }
  bool make(Call* call) {
    call->begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    if (call->submit(end, this))
      return true;
    EXPECT_EQ(call->status(), CallStatus::kNoMemory);
    EXPECT_FALSE(call->in_flight());
    EXPECT_FALSE(call->submit(end, this)) << "it has to be begun again";
    EXPECT_EQ(call->status(), CallStatus::kNoMemory);
    waiting.push_front(call);
    return false;
  }
  void go_on() {
    while (!waiting.empty()) {
      Call* next = waiting.front();
      waiting.pop_front();
      if (!make(next))
        return;
    }
  }
  static void end(Call& call, void* self) {
    auto& hoarder = *static_cast<Hoarder*>(self);
    hoarder.good += call.status() == CallStatus::kOk;
    delete &call;
  }

  Caller& caller;
  Bell bell;
  std::deque<Call*> waiting;
  int good = 0;
};

TEST(Room, ACallWithoutMemoryIsMadeWhenOthersHaveEnded) {
  World world(Cores::kEmbedded, {}, {.max_queued = 100'000});
  auto connection = world.connect();
  open_window(*connection);
  constexpr int kCalls = 3000;
  Hoarder hoarder(*connection);
  for (int i = 0; i < kCalls; ++i)
    hoarder.make(new Call(*connection));
  EXPECT_GT(hoarder.waiting.size(), 500u);
  world.until([&] { return hoarder.good == kCalls; });
}

// Calls that wait for credits may hold all memory of the client. A reply that is kept then leaves
// its Receive without a buffer, and the arguments' buffer takes its place.
TEST(CallsThatHoldAllMemory, AreAnsweredAllTheSame) {
  for (const char* where : {"iwarp://127.0.0.1:0", "shm"}) {
    SCOPED_TRACE(where);
    Keeper keeper;
    Ends server(options_for(Cores::kDedicated), {.credits = 4, .first_credits = 4}, {},
                {{.binding = &kBinding, .procedures = kTable, .context = &keeper}},
                where == std::string("shm") ? "shm:" + socket_path() : where);
    auto memory = Memory::create(
        {.classes = {{4096, 512}}, .hugepages = HugepagePolicy::kNever, .prefault = false});
    auto runtime = Runtime::create(**memory, options_for(Cores::kEmbedded)).value();
    auto client = Client::create(*runtime, {.credits = 4, .call_timeout_ms = 0}).value();
    auto connection = client->connect(server.uri).value();
    open_window(*connection);
    EndingCalls calls;
    do {
      calls.push_back(std::make_unique<EndingCall>(*connection));
      calls.back()->begin(kEcho).put_opaque(std::span<const std::byte>());
    } while (memory.value()->get(1));
    const auto make_all = [&](int times) {
      for (auto& call : calls)
        call->submit();
      wait_until([&] { return ended(calls) == times * static_cast<int>(calls.size()); },
                 [&] { return runtime->poll(0); });
      EXPECT_TRUE(std::ranges::all_of(
          calls, [](auto& call) { return call->call.status() == CallStatus::kOk; }));
    };
    make_all(1);
    for (auto& call : calls)
      call->begin(kEcho).put_opaque(std::span<const std::byte>());
    make_all(2);
    calls.clear();
    connection.reset();
    client.reset();
    runtime.reset();
    EXPECT_TRUE(memory.value()->whole());
    server.end();
  }
}

TEST(Room, WhileThereIsNoConnectionIsTheBoundAlone) {
  SurvivalWorld world({.credits = 4, .reconnect = at_once(), .max_queued = 3});
  world.connect();
  open_window(*world.connection);
  EXPECT_EQ(world.connection->room(), 7u);
  world.stop_server();
  world.until([&] { return world.connection->state() == ConnectionState::kReconnecting; });
  EXPECT_EQ(world.connection->room(), 3u);
  auto calls = make_calls(*world.connection, 4, kEcho);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(submit(*calls[i]));
  EXPECT_FALSE(submit(*calls[3]));
  Bell bell;
  bell.hang(*world.connection, 1);
  for (int i = 0; i < 100; ++i)
    world.poll_all();
  EXPECT_EQ(bell.rung(), 0);
  EXPECT_EQ(ended(calls), 0);
  world.start_server();
  world.until([&] { return bell.rung() == 1; });
  EXPECT_TRUE(submit(*calls[3]));
  world.until([&] { return ended(calls) == 4; });
}

// Those that wait for room are told that there will be no connection: their calls end then.
TEST(Room, IsThereOnceTheConnectionIsLostForGood) {
  SurvivalWorld world({.credits = 4, .max_queued = 0});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  auto calls = make_calls(*world.connection, 5);
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(submit(*calls[i]));
  Bell bell;
  bell.hang(*world.connection, 1);
  EXPECT_FALSE(submit(*calls[4]));
  world.until([&] { return world.gate.held.size() == 4; });
  world.stop_server();
  world.until([&] { return bell.rung() == 1; });
  world.until([&] { return world.connection->state() == ConnectionState::kClosed; });
  EXPECT_TRUE(submit(*calls[4]));
  world.until([&] { return ended(calls) == 5; });
  EXPECT_EQ(calls[4]->call.status(), CallStatus::kConnectionLost);
  EXPECT_EQ(world.connection->room(), 4u);
}

// A call that is given up keeps its credit until the server answers.
TEST(Room, LacksTheCreditsOfCallsThatWereGivenUp) {
  OpenWorld world(2);
  const auto& connection = world.connection;
  auto calls = make_calls(*connection, 1);
  EXPECT_TRUE(submit(*calls[0]));
  world.until_kept(1);
  EXPECT_EQ(connection->room(), 5u);
  calls[0]->call.cancel();
  world.until_ended(calls, 1);
  EXPECT_EQ(connection->room(), 5u);
  world.keeper.release();
  world.until([&] { return connection->room() == 6; });
}

// No end of a call tells that there is room when their answers come.
TEST(Room, IsToldWhenCreditsOfCallsThatWereGivenUpComeBack) {
  OpenWorld world(0);
  const auto& connection = world.connection;
  Bell bell;
  bell.hang(*connection, 1);
  auto calls = make_calls(*connection, 5);
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(submit(*calls[i]));
  world.until_kept(4);
  for (int i = 0; i < 4; ++i)
    calls[i]->call.cancel();
  world.until_ended(calls, 4);
  EXPECT_FALSE(submit(*calls[4]));
  EXPECT_EQ(calls[4]->call.status(), CallStatus::kFull);
  EXPECT_EQ(bell.rung(), 0);
  world.keeper.release();
  world.until([&] { return bell.rung() == 1; });
  EXPECT_TRUE(submit(*calls[4]));
  world.answer_until_ended(calls, 5);
}

TEST(Room, ItsCallbackMayDestroyTheConnection) {
  OpenWorld world(0);
  const auto& connection = world.connection;
  auto calls = make_calls(*connection, 4);
  for (auto& call : calls)
    EXPECT_TRUE(submit(*call));
  EXPECT_EQ(connection->room(), 0u);
  Bell bell;
  bell.then = [&] { world.connection.reset(); };
  bell.hang(*connection, 1);
  world.until_kept(4);
  world.keeper.release();
  world.until([&] { return bell.rung() == 1 && ended(calls) == 4; });
  EXPECT_EQ(connection, nullptr);
}

// Several threads share a bound. No more calls are ever taken than it allows, and no thread waits
// for room in vain.
TEST(Room, IsSharedByThreads) {
  constexpr uint32_t kThreads = 3, kCalls = 2000, kMost = 4 + 2;
  OpenWorld world(2, Cores::kDedicated);
  const auto& connection = world.connection;
  std::mutex mutex;
  std::condition_variable told;
  uint64_t rings = 0;
  Bell bell;
  bell.then = [&] {
    const std::lock_guard lock(mutex);
    ++rings;
    told.notify_all();
  };
  bell.hang(*connection, 1);
  std::atomic<uint32_t> taken = 0, most = 0, good = 0;
  struct Job {
    std::atomic<uint32_t>& taken;
    std::atomic<uint32_t>& good;
  } job{taken, good};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<std::unique_ptr<Call>> calls;
      for (uint32_t i = 0; i < kMost + 2; ++i)
        calls.push_back(std::make_unique<Call>(*connection));
      for (uint32_t made = 0; made < kCalls;) {
        Call& call = *calls[made % calls.size()];
        if (call.in_flight()) {
          std::this_thread::yield();
          continue;
        }
        call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
        uint64_t seen = 0;
        {
          const std::lock_guard lock(mutex);
          seen = rings;
        }
        taken.fetch_add(1);
        const bool is_taken = call.submit(
            [](Call& ended, void* argument) {
              auto& its = *static_cast<Job*>(argument);
              its.good.fetch_add(ended.status() == CallStatus::kOk);
              its.taken.fetch_sub(1);
            },
            &job);
        if (is_taken) {
          ++made;
          continue;
        }
        taken.fetch_sub(1);
        EXPECT_EQ(call.status(), CallStatus::kFull);
        std::unique_lock lock(mutex);
        EXPECT_TRUE(told.wait_for(lock, std::chrono::seconds(60), [&] { return rings != seen; }));
      }
      while (std::ranges::any_of(calls, [](const auto& call) { return call->in_flight(); }))
        std::this_thread::yield();
    });
  }
  while (good.load() != kThreads * kCalls && !testing::Test::HasFailure()) {
    most.store(std::max(most.load(), taken.load()));
    std::this_thread::yield();
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(good, kThreads * kCalls);
  // Each thread counts a call before it is taken, and the core uncounts it after its place is free.
  EXPECT_LE(most, kMost + kThreads + 1);
  EXPECT_EQ(connection->room(), kMost);
}

TEST(Room, BelongsToBackwardCallsToo) {
  ServerOptions server = server_options(kWires[0]);
  server.backward_max_queued = 1;
  ClientOptions client = client_options(kWires[0]);
  client.backward_credits = 2;
  BothWorld world(Cores::kEmbedded, server, client);
  EXPECT_EQ(world.call_back(kTell, 1), 1u);
  auto back = world.subscribe();
  EXPECT_EQ(back->room(), 3u);
  std::vector<std::unique_ptr<Call>> calls;
  std::atomic<int> good = 0;
  const auto tell = [&](Call& call) {
    return call.submit(
        [](Call& told, void* count) {
          *static_cast<std::atomic<int>*>(count) += told.status() == CallStatus::kOk;
        },
        &good);
  };
  for (int i = 0; i < 4; ++i) {
    calls.push_back(std::make_unique<Call>(*back));
    calls.back()->begin(kGuestBinding, kTellKept).put_u32(7);
    EXPECT_EQ(tell(*calls.back()), i != 3);
  }
  EXPECT_EQ(calls[3]->status(), CallStatus::kFull);
  EXPECT_EQ(world.server->stats()[Counter::kCallsFull], 1u);
  Bell bell;
  bell.then = [&] { EXPECT_TRUE(tell(*calls[3])); };
  bell.hang(*back, 1);
  world.until([&] {
    world.guest.keeper.release();
    return good == 4;
  });
  EXPECT_EQ(bell.rung(), 1);
  calls.clear();
}

}  // namespace
}  // namespace rrdk::loopback
