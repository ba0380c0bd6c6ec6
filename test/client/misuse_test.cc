// What happens when a program uses its calls wrongly, or gives a wrong address: the call at fault
// ends with an error that names it, and nothing else is affected.
#include <array>
#include <optional>

#include "../server/loopback.h"
#include "base/internals.h"
#include "log_lines.h"
#include "runtime/runtime_impl.h"

namespace rrdk::loopback {
namespace {

constexpr Cores kEveryWay[] = {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers};

void count_end(Call&, void* count) {
  static_cast<std::atomic<int>*>(count)->fetch_add(1, std::memory_order_release);
}

// A call that is in flight and not answered for now.
void submit_kept(World& world, Call& call, std::atomic<int>& ends) {
  size_t before = world.keeper.kept();
  call.begin(kBinding, kKeep);
  call.submit(count_end, &ends);
  world.until([&] { return world.keeper.kept() == before + 1; });
}

TEST(DestroyedInFlight, TheCallIsCancelledWithoutItsCallback) {
  for (Cores cores : kEveryWay) {
    LogLines log;
    World world(cores);
    auto connection = world.connect();
    open_window(*connection);
    std::atomic<int> ends = 0;
    {
      Call call(*connection);
      submit_kept(world, call, ends);
    }
    EXPECT_EQ(connection->stats()[Counter::kCallsInFlight], 0u);
    EXPECT_EQ(log.count(LogLevel::kError, world.uri, "procedure 9 (KEEP)"), 1);
    world.keeper.release();
    open_window(*connection);
    EXPECT_EQ(ends.load(), 0);
  }
}

TEST(DestroyedInFlight, IsSaidOncePerConnection) {
  LogLines log;
  World world;
  for (int i = 0; i < 2; ++i) {
    auto connection = world.connect();
    open_window(*connection);
    std::atomic<int> ends = 0;
    for (int calls = 0; calls < 5; ++calls) {
      {
        Call call(*connection);
        submit_kept(world, call, ends);
      }
      world.keeper.release();  // with its credit
      open_window(*connection);
    }
    EXPECT_EQ(log.count(LogLevel::kError, "destroyed in flight"), i + 1);
  }
}

// submit_and_wait() keeps its deadline without the core, which would otherwise report it.
TEST(UnpolledCore, AWaitForACallEndsAllTheSame) {
  LogLines log;
  World world;
  auto connection = world.connect();
  open_window(*connection);
  auto& patience_ns = Internals::of(*world.runtime).patience_ns;
  const uint64_t usual_ns = std::exchange(patience_ns, 1'000'000);
  Call call(*connection);
  call.begin(kBinding, kEcho).put_u32(0);
  call.set_timeout_ms(1);
  CallStatus status = CallStatus::kOk;
  std::thread([&] { status = call.submit_and_wait(); }).join();
  patience_ns = usual_ns;
  EXPECT_EQ(status, CallStatus::kTimeout);
  EXPECT_TRUE(call.in_flight());
  world.until([&] { return !call.in_flight(); });
  call.begin(kBinding, kEcho).put_u32(0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 2u);
  EXPECT_EQ(log.count(LogLevel::kError, "destroyed in flight"), 0);
}

// One thread polls both, and the call needs the core whose pass it is.
TEST(TwoRuntimes, NothingWaitsInACallbackOfTheOther) {
  LogLines log;
  World world;
  auto mine = world.connect();
  auto other = Runtime::create(*world.memory).value();
  auto client = Client::create(*other).value();
  auto its = client->connect_start(world.uri).value();
  world.until([&] {
    other->poll();
    return its->state() == ConnectionState::kUp;
  });
  struct Inner {
    ClientConnection& connection;
    Client& client;
    std::string uri;
    CallStatus status = CallStatus::kOk;
    bool is_connected = true;
  } inner{*its, *client, world.uri};
  {
    Call call(*mine);
    call.begin(kBinding, 0);
    call.submit(
        [](Call&, void* argument) {
          auto& asks = *static_cast<Inner*>(argument);
          Call nested(asks.connection);
          nested.begin(kBinding, 0);
          asks.status = nested.submit_and_wait();
          asks.is_connected = asks.client.connect(asks.uri).has_value();
        },
        &inner);
    world.until([&] { return !call.in_flight(); });
  }
  EXPECT_EQ(inner.status, CallStatus::kInvalidCall);
  EXPECT_FALSE(inner.is_connected);
  EXPECT_EQ(log.count(LogLevel::kError, "submit_and_wait() in a callback"), 1);
  its->close_start();
  world.until([&] {
    other->poll();
    return its->state() == ConnectionState::kClosed;
  });
}

TEST(DestroyedInFlight, InACallbackItsRestLivesUntilItHasEnded) {
  struct Killer {
    std::unique_ptr<Call> victim;
    std::atomic<int> ends = 0;
  };
  for (Cores cores : kEveryWay) {
    LogLines log;
    World world(cores);
    auto connection = world.connect();
    open_window(*connection);
    std::atomic<int> ends = 0;
    Killer killer;
    killer.victim = std::make_unique<Call>(*connection);
    submit_kept(world, *killer.victim, ends);
    Call call(*connection);
    call.begin(kBinding, 0);
    call.submit(
        [](Call&, void* argument) {
          auto& self = *static_cast<Killer*>(argument);
          self.victim.reset();
          self.ends.fetch_add(1, std::memory_order_release);
        },
        &killer);
    world.until([&] { return killer.ends.load(std::memory_order_acquire) == 1; });
    EXPECT_EQ(log.count(LogLevel::kError, "destroyed in flight"), 1);
    world.keeper.release();
    open_window(*connection);
    EXPECT_EQ(ends.load(), 0);
  }
}

// Both end in one pass: the second is already ending when the first one's callback runs.
TEST(DestroyedInFlight, ByTheCallbackOfACallThatTimesOutWithIt) {
  struct Pair {
    std::unique_ptr<Call> calls[2];
    std::atomic<int> ends = 0;
  };
  LogLines log;  // takes the errors
  World world;
  auto connection = world.connect();
  Pair pair;
  auto first_one_ends_both = [](Call&, void* argument) {
    auto& self = *static_cast<Pair*>(argument);
    for (auto& call : self.calls)
      call.reset();
    self.ends.fetch_add(1, std::memory_order_release);
  };
  Call ahead(*connection);  // has the only credit there is before the first reply
  ahead.begin(kBinding, kKeep);
  std::atomic<int> ends = 0;
  ahead.submit(count_end, &ends);
  for (auto& call : pair.calls) {
    call = std::make_unique<Call>(*connection);
    call->begin(kBinding, 0);
    call->set_timeout_ms(1);
    call->submit(first_one_ends_both, &pair);
  }
  world.until(
      [&] { return pair.ends.load() == 1 && connection->stats()[Counter::kCallsInFlight] == 1; });
  ahead.cancel();
  world.until([&] { return !ahead.in_flight(); });
  EXPECT_EQ(pair.ends.load(), 1);
}

// From a thread other than that of the callback, which submits it again and again.
TEST(DestroyedInFlight, AtAnyMomentOfACallThatRepeatsItself) {
  struct Busy {
    std::atomic<int> ends = 0;
    static void again(Call& call, void* argument) {
      static_cast<Busy*>(argument)->ends.fetch_add(1, std::memory_order_release);
      call.begin(kBinding, 0);
      call.submit(again, argument);
    }
  };
  LogLines log;  // takes the errors
  World world(Cores::kDedicated);
  auto connection = world.connect();
  open_window(*connection);  // a connection whose only credit is lost is given up (V1-CREDIT-23)
  for (int round = 0; round < 200; ++round) {
    Busy busy;
    {
      Call call(*connection);
      call.begin(kBinding, 0);
      call.submit(Busy::again, &busy);
      while (busy.ends.load(std::memory_order_acquire) < round % 8)
        std::this_thread::yield();
    }
    int ends = busy.ends.load();
    open_window(*connection);
    EXPECT_EQ(busy.ends.load(), ends);
  }
}

TEST(Call, MayBeDestroyedInItsOwnCallback) {
  struct Own {
    std::unique_ptr<Call> call;
    std::atomic<int> ends = 0;
  };
  for (Cores cores : kEveryWay) {
    LogLines log;
    World world(cores);
    auto connection = world.connect();
    for (int i = 1; i <= 100; ++i) {
      Own own;
      own.call = std::make_unique<Call>(*connection);
      own.call->begin(kBinding, 0);
      own.call->submit(
          [](Call&, void* argument) {
            auto& self = *static_cast<Own*>(argument);
            self.call.reset();
            self.ends.fetch_add(1, std::memory_order_release);
          },
          &own);
      world.until([&] { return own.ends.load(std::memory_order_acquire) == 1; });
    }
    EXPECT_EQ(log.count(LogLevel::kError, ""), 0);
  }
}

TEST(Call, IsInFlightUntilItsCallbackHasReturned) {
  struct Door {
    std::atomic<bool> entered = false;
    std::atomic<bool> open = false;
  } door;
  World world(Cores::kDedicated);
  auto connection = world.connect();
  Call call(*connection);
  call.begin(kBinding, 0);
  call.submit(
      [](Call&, void* argument) {
        auto& self = *static_cast<Door*>(argument);
        self.entered.store(true);
        while (!self.open.load())
          std::this_thread::yield();
      },
      &door);
  world.until([&] { return door.entered.load(); });
  EXPECT_TRUE(call.in_flight());
  door.open.store(true);
  world.until([&] { return !call.in_flight(); });
}

// Spans that no driver can resolve.
std::array<MemorySpan, 4> bad_spans(const RegisteredMemory& good) {
  static std::byte heap[4096];
  return {MemorySpan{heap, 4096, kNoRegion}, MemorySpan{heap, 4096, good.region()},
          MemorySpan{good.data() + good.size() - 100, 4096, good.region()},
          MemorySpan{good.data(), 4096, 1'000'000}};
}

TEST(BadMemory, FailsTheCallThatOffersOrSendsItAndNoOther) {
  World world;
  auto connection = world.connect();
  RegisteredMemory good = world.memory->allocate(65536).value();
  {
    Call call(*connection);
    for (const MemorySpan& bad : bad_spans(good)) {
      Encoder& read_args = call.begin(kBinding, kRead);
      read_args.put_u64(0);
      read_args.put_u32(4096);
      call.offer(bad);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidMemory);
      for (Ddp ddp : {Ddp::kEligible, Ddp::kNo}) {
        Encoder& write_args = call.begin(kBinding, kWrite);
        write_args.put_u64(0);
        write_args.put_item(bad, ddp);
        EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidMemory);
      }
      call.begin(kBinding, 0);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    }
    EXPECT_TRUE(connection->alive());
    EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 4u);
  }
}

TEST(BadMemory, InAReplyFailsThatCallAndNoOther) {
  static constexpr ProcedureBinding kOne[] = {
      {.procedure = 1, .name = "BAD", .eligible_results = 1, .fixed_results = 4}};
  static constexpr Binding kBad = {
      .program = 0x20005601, .version = 1, .name = "bad", .procedures = kOne};
  static constexpr Procedure kBadTable[] = {{1, [](ServerCall call, void* span) {
                                               call.results().put_item(
                                                   *static_cast<MemorySpan*>(span), Ddp::kEligible);
                                               std::move(call).reply();
                                             }}};
  World world;
  RegisteredMemory good = world.memory->allocate(65536).value();
  MemorySpan bad;
  auto server = Server::create(*world.runtime).value();
  ASSERT_TRUE(server->add_service({.binding = &kBad, .procedures = kBadTable, .context = &bad}));
  auto connection = world.client->connect(server->listen("shm:" + socket_path()).value()).value();
  {
    Call call(*connection);
    for (const MemorySpan& span : bad_spans(good)) {
      bad = span;
      call.begin(kBad, 1);
      call.offer(good.span(0, 8192));
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
    }
    bad = good.span(0, 4096);
    call.begin(kBad, 1);
    call.offer(good.span(8192, 8192));
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
}

TEST(BadMemory, ABufferOfAnotherMemoryFailsThatCallAndNoOther) {
  static constexpr ProcedureBinding kOne[] = {
      {.procedure = 1, .name = "FAR", .eligible_results = 1, .fixed_results = 4}};
  static constexpr Binding kFar = {
      .program = 0x20005602, .version = 1, .name = "far", .procedures = kOne};
  static constexpr Procedure kFarTable[] = {
      {1, [](ServerCall call, void* far) {
         call.results().put_item(static_cast<Memory*>(far)->get(4096), 4096, Ddp::kEligible);
         std::move(call).reply();
       }}};
  World world;
  auto far = make_memory();
  ASSERT_TRUE(
      world.server->add_service({.binding = &kFar, .procedures = kFarTable, .context = far.get()}));
  auto connection = world.connect();
  {
    Call call(*connection);
    for (Ddp ddp : {Ddp::kEligible, Ddp::kNo}) {
      Encoder& args = call.begin(kBinding, kWrite);
      args.put_u64(0);
      args.put_item(far->get(4096), 4096, ddp);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidMemory);
    }
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(0);
    args.put_u32(4096);
    call.offer(far->get(4096), 4096);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidMemory);
    EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 0u);
    call.begin(kFar, 1);
    call.offer(world.memory->get(4096), 4096);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
    EXPECT_EQ(world.server->stats()[Counter::kMistakeInvalidMemory], 1u);
    call.begin(kBinding, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_TRUE(connection->alive());
  }
  EXPECT_TRUE(far->whole());
}

size_t times(const std::string& what, const std::string& in) {
  size_t count = 0;
  for (size_t at = in.find(what); at != std::string::npos; at = in.find(what, at + 1))
    ++count;
  return count;
}

TEST(WrongAddress, IsNamedOnceAndInFront) {
  struct Wrong {
    std::string uri;
    std::string place;  // contained in the line: a message could repeat the rest
    bool may_serve = false;
  };
  World world(Cores::kDedicated);
  for (const auto& [uri, place, may_serve] :
       {Wrong{"nonsense:/x", "nonsense"}, Wrong{"shm:", "shm::"},
        Wrong{"/run/x.sock", "/run/x.sock"},
        Wrong{"shm:/nowhere/at/all.sock", "/nowhere/at/all.sock"},
        Wrong{"iwarp://127.0.0.1:1", "127.0.0.1", true}, Wrong{"iwarp://h/path", "h/path"},
        Wrong{"iwarp://192.0.2.1.example.invalid:2049", "192.0.2.1"},
        Wrong{"iwarp://h:99999", "99999"}, Wrong{"iwarp://h?crc=7", "iwarp://h"}}) {
    SCOPED_TRACE(uri);
    const auto connection = world.client->connect(uri);
    ASSERT_FALSE(connection);
    EXPECT_TRUE(connection.error().message.starts_with(uri + ": ")) << connection.error().message;
    EXPECT_EQ(times(place, connection.error().message), 1u) << connection.error().message;
    if (may_serve)
      continue;
    const auto listening = world.server->listen(uri);
    ASSERT_FALSE(listening);
    EXPECT_TRUE(listening.error().message.starts_with(uri + ": ")) << listening.error().message;
    EXPECT_EQ(times(place, listening.error().message), 1u) << listening.error().message;
  }
  const auto nothing = world.client->connect("");
  ASSERT_FALSE(nothing);
  EXPECT_TRUE(nothing.error().message.starts_with("\"\": ")) << nothing.error().message;
}

// A program may make any number of bindings while it runs, and a new one may have the address of
// one that was destroyed.
TEST(Binding, EachIsCheckedByItself) {
  static constexpr ProcedureBinding kTooSmall[] = {
      {.procedure = kRead, .name = "READ", .eligible_results = 1}};
  World world;
  auto connection = world.connect();
  Call call(*connection);
  std::optional<Binding> binding;
  auto ask = [&](const Binding& of) {
    call.begin(of, 0);
    return call.submit_and_wait();
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(binding.emplace(kBinding)), CallStatus::kOk);
    binding.emplace(kBinding).procedures = kTooSmall;
    EXPECT_EQ(ask(*binding), CallStatus::kInvalidCall);
  }
  std::vector<std::unique_ptr<Binding>> many;
  for (int i = 0; i < 600; ++i)
    many.push_back(std::make_unique<Binding>(kBinding));
  for (int i = 0; i < 2; ++i) {
    for (const auto& one : many)
      ASSERT_EQ(ask(*one), CallStatus::kOk);
  }
}

TEST(Binding, AnInvalidOneFailsItsCallsAndIsReportedOnce) {
  static constexpr ProcedureBinding kTooSmall[] = {
      {.procedure = kRead, .name = "READ", .eligible_results = 1}};
  static constexpr Binding kWrong = {
      .program = 0x20005600, .version = 3, .name = "wrong", .procedures = kTooSmall};
  LogLines log;
  World world;
  auto connection = world.connect();
  Call call(*connection);
  for (int i = 0; i < 3; ++i) {
    call.begin(kWrong, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidCall);
    call.begin(kBinding, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  EXPECT_EQ(log.count(LogLevel::kError, "\"wrong\"", "procedure 2"), 1);
}

TEST(Order, SubmitWithoutBeginEndsWithItsName) {
  LogLines log;
  World world;
  auto connection = world.connect();
  EndingCall ending(*connection);
  ending.submit();
  EXPECT_EQ(ending.ended(), 0);
  world.until([&] { return ending.ended() == 1; });
  EXPECT_EQ(ending.call.status(), CallStatus::kInvalidCall);
  ending.begin(0);
  ending.submit();
  world.until([&] { return ending.ended() == 2; });
  EXPECT_EQ(ending.call.status(), CallStatus::kOk);
  ending.submit();
  world.until([&] { return ending.ended() == 3; });
  EXPECT_EQ(ending.call.status(), CallStatus::kInvalidCall);
  EXPECT_EQ(log.count(LogLevel::kError, "without begin()"), 1);
  EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 1u);
}

TEST(Order, ACallInFlightIsNeitherBegunNorSubmitted) {
  LogLines log;
  World world;
  auto connection = world.connect();
  open_window(*connection);
  Buffer room = world.memory->get(4096);
  EndingCall ending(*connection);
  ending.begin(kKeep);
  ending.submit();
  world.until([&] { return world.keeper.kept() == 1; });
  Encoder& refused = ending.begin(kEcho);
  refused.put_u32(1);
  EXPECT_FALSE(refused.ok());
  ending.call.offer(room.first(4096));
  ending.call.set_timeout_ms(1);
  ending.submit();
  EXPECT_EQ(ending.call.submit_and_wait(), CallStatus::kInvalidCall);
  world.keeper.release();
  world.until([&] { return ending.ended() == 1; });
  EXPECT_EQ(ending.call.status(), CallStatus::kOk);
  open_window(*connection);
  EXPECT_EQ(ending.ended(), 1);
  EXPECT_EQ(log.count(LogLevel::kError, "begin() of a Call that is in flight"), 1);
  EXPECT_EQ(log.count(LogLevel::kError, "submit() of a Call that is in flight"), 1);
}

TEST(Order, ArgumentsWrittenAfterSubmitAreDropped) {
  World world;
  auto connection = world.connect();
  EndingCall ending(*connection);
  Encoder& args = ending.begin(kEcho);
  args.put_opaque(std::span<const std::byte>());
  ending.submit();
  uint64_t sent = args.position();
  args.put_u32(1);
  args.put_u64(1);
  EXPECT_FALSE(args.ok());
  EXPECT_EQ(args.position(), sent);
  world.until([&] { return ending.ended() == 1; });
  EXPECT_EQ(ending.call.status(), CallStatus::kOk);
}

TEST(Order, WithoutACompletionOnlyTheCallTells) {
  World world;
  auto connection = world.connect();
  Call call(*connection);
  call.begin(kBinding, 0);
  call.submit(nullptr, nullptr);
  world.until([&] { return !call.in_flight(); });
  EXPECT_EQ(call.status(), CallStatus::kOk);
}

TEST(Order, AnEncoderThatItsCallerFailedIsNotSent) {
  World world;
  auto connection = world.connect();
  Call call(*connection);
  call.begin(kBinding, kEcho).fail();
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidCall);
  EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 0u);
}

// With a new Call, one that was used, and one that was begun before the connection went.
TEST(Order, ACallWhoseConnectionIsGoneIsRefused) {
  for (bool without_runtime : {false, true}) {
    LogLines log;
    auto world = std::make_unique<World>();
    auto connection = world->connect();
    EndingCall fresh(*connection), used(*connection), begun(*connection);
    used.begin(0);
    EXPECT_EQ(used.call.submit_and_wait(), CallStatus::kOk);
    begun.begin(0);
    connection.reset();
    std::shared_ptr<Memory> memory = std::move(world->memory);  // calls have buffers from it
    if (without_runtime) {
      world->client.reset();
      world->server.reset();
      world->runtime.reset();
    }
    for (EndingCall* ending : {&fresh, &used, &begun}) {
      ending->submit();
      EXPECT_FALSE(ending->call.in_flight());
      Encoder& args = ending->begin(kEcho);
      args.put_u32(1);
      EXPECT_FALSE(args.ok());
      ending->submit();
      EXPECT_EQ(ending->call.submit_and_wait(), CallStatus::kInvalidCall);
      EXPECT_EQ(ending->call.status(), CallStatus::kInvalidCall);
      ending->call.cancel();
      EXPECT_EQ(ending->ended(), 0);
    }
    EXPECT_EQ(log.count(LogLevel::kError, world->uri, "has been destroyed"), 1);
    if (!without_runtime) {
      auto another = world->connect();
      open_window(*another);
    }
    world->client.reset();
    world->server.reset();
    world->runtime.reset();
    world->memory = make_memory();  // at which its destructor looks
  }
}

}  // namespace
}  // namespace rrdk::loopback
