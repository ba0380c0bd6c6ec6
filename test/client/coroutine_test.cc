// Coroutines of programs (rrdk/coroutine.h): calls that are awaited, handlers that wait, and frames
// that go while they wait.
#include "rrdk/coroutine.h"

#include <optional>

#include "../server/loopback.h"
#include "log_lines.h"

namespace rrdk::loopback {
namespace {

// The header's example: a handler that asks another server before it answers.
constexpr uint32_t kCopy = 1;     // offset -> opaque<>, as READ of the store says
constexpr uint32_t kForward = 2;  // -> the status of a call that is kept there
constexpr uint32_t kSilent = 3;   // ends without an answer
constexpr uint32_t kBlock = 1000;
constexpr ProcedureBinding kFrontProcedures[] = {
    {.procedure = kCopy, .name = "COPY", .fixed_results = 4},
    {.procedure = kForward, .name = "FORWARD", .fixed_results = 4},
    {.procedure = kSilent, .name = "SILENT", .fixed_results = 4}};
constexpr Binding kFront = {
    .program = 0x20005900, .version = 1, .name = "front", .procedures = kFrontProcedures};

struct Front {
  ClientConnection* store = nullptr;
};

Served copy(ServerCall call, void* context) {
  auto& site = *static_cast<Front*>(context);
  Call read(*site.store);
  Encoder& args = read.begin(kBinding, kRead);
  args.put_u64(call.args().get_u64());
  args.put_u32(kBlock);
  read.expect_reply(kBlock);
  auto done = co_await submit(read);
  if (!done.ok())
    co_return std::move(call).reject(AcceptStat::kSystemErr);
  done.results().get_u32();
  call.results().put_opaque(done.results().get_item(kBlock));
  std::move(call).reply();
}

Served forward(ServerCall call, void* context) {
  Call kept(*static_cast<Front*>(context)->store);
  kept.begin(kBinding, kKeep);
  const CallStatus status = co_await submit(kept);
  call.results().put_u32(static_cast<uint32_t>(status));
  std::move(call).reply();
}

Served forget_it(ServerCall, void*) {
  co_return;
}

constexpr Procedure kFrontTable[] = {{kCopy, by_coroutine<copy>},
                                     {kForward, by_coroutine<forward>},
                                     {kSilent, by_coroutine<forget_it>}};

// Sequences with an owner.
struct Sum {
  int calls = 0;
  CallStatus last = CallStatus::kInvalidCall;
  bool over = false;
};

Coroutine call_often(ClientConnection& connection, int times, Sum& sum) {
  Call call(connection);
  for (int i = 0; i < times; ++i) {
    call.begin(kBinding, kEcho).put_u32(0);
    sum.last = co_await submit(call);
    ++sum.calls;
  }
  sum.over = true;
}

Coroutine wait_for(Call& call, Sum& sum) {
  sum.last = co_await submit(call);
  ++sum.calls;
}

Coroutine wait_in_frame(ClientConnection& connection, Sum& sum) {
  Call call(connection);
  call.begin(kBinding, kKeep);
  sum.last = co_await submit(call);
  ++sum.calls;
}

Encoder& begin_read(Call& call) {
  Encoder& args = call.begin(kBinding, kRead);
  args.put_u64(77);
  args.put_u32(kBlock);
  call.expect_reply(kBlock);
  return args;
}

bool has_block(Decoder& results) {
  return results.get_u32() == 7 && results.get_item(kBlock).size() == kBlock;
}

constexpr int kTimes = 10;

Coroutine read_in_one_condition(ClientConnection& connection, int& good) {
  Call call(connection);
  for (int i = 0; i < kTimes; ++i) {
    begin_read(call);
    if (co_await submit(call) == CallStatus::kOk && call.results().get_u32() == 7 &&
        call.results().get_item(kBlock).size() == kBlock)
      ++good;
  }
}

Coroutine read_in_statements(ClientConnection& connection, int& good, std::atomic<bool>& over) {
  Call call(connection);
  for (int i = 0; i < kTimes; ++i) {
    begin_read(call);
    auto done = co_await submit(call);
    if (done.ok() && has_block(done.results()))
      ++good;
    begin_read(call).fail();
    auto failed = co_await submit(call);
    const CallStatus status = failed;
    if (!failed.ok() && failed == CallStatus::kInvalidCall && status == failed.status() &&
        failed != CallStatus::kOk && to_string(failed) == to_string(status))
      ++good;
  }
  over.store(true, std::memory_order_release);
}

struct Coroutines : testing::TestWithParam<Cores> {
  World world{GetParam()};
  // When the core has finished all its work.
  void settle(ClientConnection& connection) { open_window(connection); }
};
INSTANTIATE_TEST_SUITE_P(Cores, Coroutines,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(Coroutines, AwaitCallsOneAfterTheOther) {
  auto connection = world.connect();
  Sum sum;
  Coroutine calls = call_often(*connection, 100, sum);
  world.until([&] { return connection->stats()[Counter::kCallsOk] == 100; });
  settle(*connection);
  EXPECT_TRUE(calls.done());
  EXPECT_TRUE(sum.over);
  EXPECT_EQ(sum.calls, 100);
  EXPECT_EQ(sum.last, CallStatus::kOk);
}

TEST_P(Coroutines, HaveStatusAndResultsInOneObject) {
  auto connection = world.connect();
  int good = 0;
  std::atomic<bool> over = false;
  Coroutine reads = read_in_statements(*connection, good, over);
  world.until([&] { return over.load(std::memory_order_acquire); });
  EXPECT_EQ(good, 2 * kTimes);
  settle(*connection);
}

TEST_P(Coroutines, AreHandlersThatAskOthers) {
  auto store = world.connect();
  Front front{store.get()};
  auto server = Server::create(*world.runtime).value();
  ASSERT_TRUE(
      server->add_service({.binding = &kFront, .procedures = kFrontTable, .context = &front}));
  auto connection = world.client->connect(server->listen("shm:" + socket_path()).value()).value();
  Call call(*connection);
  call.begin(kFront, kCopy).put_u64(77);
  call.expect_reply(kBlock);
  ASSERT_STREQ(to_string(call.submit_and_wait()), "ok");
  ItemView data = call.results().get_opaque(kBlock);
  ASSERT_EQ(data.size(), kBlock);
  EXPECT_EQ(data.data()[0], pattern(77));
  EXPECT_EQ(data.data()[kBlock - 1], pattern(77 + kBlock - 1));

  LogLines log;
  call.begin(kFront, kSilent);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
  EXPECT_EQ(server->stats()[Counter::kMistakeUnanswered], 1u);
  EXPECT_EQ(log.count(LogLevel::kError, "SILENT of front"), 1);

  // The call it waits for ends with the connection on which it was made.
  EndingCall waiting(*connection);
  waiting.call.begin(kFront, kForward);
  waiting.submit();
  world.until([&] { return world.keeper.kept() == 1; });
  store.reset();
  world.until([&] { return waiting.ended() == 1; });
  ASSERT_EQ(waiting.call.status(), CallStatus::kOk);
  EXPECT_EQ(static_cast<CallStatus>(waiting.call.results().get_u32()), CallStatus::kShutdown);
  connection.reset();
  server.reset();
}

// The Call outlives the coroutine that waited for it, and is used again.
TEST_P(Coroutines, GoWhileTheyWaitAndTheCallCanBeBegunAgain) {
  LogLines log;
  auto connection = world.connect();
  settle(*connection);
  Sum sum;
  Call call(*connection);
  call.begin(kBinding, kKeep);
  Coroutine waits = wait_for(call, sum);
  world.until([&] { return world.keeper.kept() == 1; });
  EXPECT_FALSE(waits.done());
  waits = {};
  world.until([&] { return !call.in_flight(); });
  EXPECT_EQ(sum.calls, 0);
  call.begin(kBinding, kEcho).put_u32(0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  world.keeper.release();
  settle(*connection);
  EXPECT_EQ(sum.calls, 0);
  EXPECT_EQ(log.count(LogLevel::kError, ""), 0);
}

TEST_P(Coroutines, GoWhileTheyWaitWithTheirCalls) {
  LogLines log;
  auto connection = world.connect();
  settle(*connection);
  Sum sum;
  Coroutine waits = wait_in_frame(*connection, sum);
  world.until([&] { return world.keeper.kept() == 1; });
  waits = {};
  world.keeper.release();
  settle(*connection);
  EXPECT_EQ(sum.calls, 0);
  EXPECT_EQ(connection->stats()[Counter::kCallsInFlight], 0u);
  EXPECT_EQ(log.count(LogLevel::kError, ""), 0) << "to call it off is no mistake";
}

// Destroyed where it would be resumed: in a callback of its core.
TEST_P(Coroutines, GoInACallbackOfTheirCore) {
  LogLines log;
  auto connection = world.connect();
  settle(*connection);
  struct Both {
    Sum sum;
    Coroutine waits;
  } both;
  both.waits = wait_in_frame(*connection, both.sum);
  world.until([&] { return world.keeper.kept() == 1; });
  Call call(*connection);
  call.begin(kBinding, 0);
  std::atomic<bool> gone = false;
  struct Means {
    Both& both;
    std::atomic<bool>& gone;
  } means{both, gone};
  call.submit(
      [](Call&, void* argument) {
        auto& mine = *static_cast<Means*>(argument);
        mine.both.waits = {};
        mine.gone.store(true, std::memory_order_release);
      },
      &means);
  world.until([&] { return gone.load(std::memory_order_acquire) && !call.in_flight(); });
  world.keeper.release();
  settle(*connection);
  EXPECT_EQ(both.sum.calls, 0);
  EXPECT_EQ(log.count(LogLevel::kError, ""), 0);
}

TEST_P(Coroutines, AreToldOfACallThatIsRefused) {
  LogLines log;
  auto connection = world.connect();
  Sum sum;
  Call call(*connection);
  call.begin(kBinding, kKeep);
  Coroutine first = wait_for(call, sum);
  world.until([&] { return world.keeper.kept() == 1; });
  Sum second_sum;
  Coroutine second = wait_for(call, second_sum);  // it is in flight
  EXPECT_TRUE(second.done());
  EXPECT_EQ(second_sum.last, CallStatus::kInvalidCall);
  world.keeper.release();
  world.until([&] { return !call.in_flight(); });
  EXPECT_EQ(sum.last, CallStatus::kOk);
  connection.reset();
  Coroutine third = wait_for(call, second_sum);  // its connection is gone
  EXPECT_TRUE(third.done());
  EXPECT_EQ(second_sum.last, CallStatus::kInvalidCall);
}

// The pattern that rrdk/coroutine.h warns about. In one thread, where an unsound compiler only
// takes successful calls for failed ones.
TEST(Compiler, ReadsResultsBehindAnAwaitWhenTheCallHasEnded) {
  World world;
  auto connection = world.connect();
  open_window(*connection);
  int good = 0;
  Coroutine reads = read_in_one_condition(*connection, good);
  world.until([&] { return reads.done(); });
#ifndef __clang__
  if (good != kTimes)
    GTEST_SKIP() << "GCC " << __VERSION__ << " is not sound: it read " << kTimes - good << " of "
                 << kTimes << " results before their calls had ended";
#endif
  EXPECT_EQ(good, kTimes);
}

// A procedure may have its own context, different from that of the Service.
TEST(Contexts, AProcedureMayHaveItsOwn) {
  auto tell = [](ServerCall call, void* context) {
    call.results().put_u32(*static_cast<uint32_t*>(context));
    std::move(call).reply();
  };
  uint32_t of_service = 1, of_procedure = 2;
  const Procedure table[] = {{.number = kCopy, .handler = tell},
                             {.number = kForward, .handler = tell, .context = &of_procedure}};
  Ends ends({.embedded_cores = 1}, {}, {},
            {{.binding = &kFront, .procedures = table, .context = &of_service}});
  auto connection = ends.client->connect(ends.uri).value();
  std::optional<Call> call(std::in_place, *connection);
  for (auto [procedure, answer] : {std::pair(kCopy, 1u), std::pair(kForward, 2u)}) {
    call->begin(kFront, procedure);
    ASSERT_EQ(call->submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(call->results().get_u32(), answer);
  }
  call.reset();
  connection.reset();
  ends.end();
}

}  // namespace
}  // namespace rrdk::loopback
