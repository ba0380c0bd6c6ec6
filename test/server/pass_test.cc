// Passes of a core that has much to do: with the smallest budget, and callbacks that take longer
// than that, each pass makes or ends one connection, calls of other connections go on meanwhile,
// and all of it ends.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "loopback.h"
#include "raw_client.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kSmallestUs = 1;
constexpr size_t kConnections = 40;

void slow_step() {
  const uint64_t end = Runtime::now_ns() + 2 * kSmallestUs * 1000;
  while (Runtime::now_ns() < end) {
  }
}

// How often something happened in all passes, and at most in one.
struct Times {
  uint32_t all = 0;
  uint32_t in_pass = 0;
  uint32_t most = 0;

  void note() {
    ++all;
    most = std::max(most, ++in_pass);
    slow_step();
  }
  void end_pass() { in_pass = 0; }
};

struct SlowWorld : Ends {
  explicit SlowWorld(const std::string& where, uint32_t budget_us = kSmallestUs)
      : Ends({.pass_budget_us = budget_us},
             {.max_connections_per_client = 1000,
              .on_open = [](ServerConnection&, void* argument) -> Result<void> {
                static_cast<AllTimes*>(argument)->opened.note();
                return {};
              },
              .on_close = [](ServerConnection&, const Ending&,
                             void* argument) { static_cast<AllTimes*>(argument)->closed.note(); },
              .connection_argument = &times},
             {}, {{.binding = &kBinding, .procedures = kTable}}, where) {
    busy = client->connect(uri).value();
    open_window(*busy);
    times = {};
  }
  ~SlowWorld() {
    connections.clear();
    busy.reset();
    end();
  }

  uint32_t pass() {
    const uint32_t work = runtime->poll();
    times.opened.end_pass();
    times.closed.end_pass();
    times.begun.end_pass();
    return work;
  }
  template <typename Done>
  void until(Done&& done) {
    wait_until(done, [this] { return pass(); });
  }
  void begin_connections() {
    for (size_t i = 0; i < kConnections; ++i) {
      auto connection = client->connect_start(
          uri, {.on_state =
                    [](ClientConnection&, ConnectionState state, const Error*, void* argument) {
                      if (state == ConnectionState::kConnecting)
                        static_cast<AllTimes*>(argument)->begun.note();
                    },
                .argument = &times});
      ASSERT_TRUE(connection) << connection.error().message;
      connections.push_back(std::move(*connection));
    }
  }
  void until_all(ConnectionState state) {
    until([&] {
      return std::ranges::all_of(connections,
                                 [&](const auto& each) { return each->state() == state; });
    });
  }

  struct AllTimes {
    Times opened, closed, begun;
  } times;
  std::unique_ptr<ClientConnection> busy;  // with calls
  std::vector<std::unique_ptr<ClientConnection>> connections;
};

class PassBudget : public testing::TestWithParam<const char*> {
 protected:
  static bool over_shm() { return std::string(GetParam()) == "shm"; }
  static std::string where() { return over_shm() ? "shm:" + socket_path() : "iwarp://127.0.0.1:0"; }
};
INSTANTIATE_TEST_SUITE_P(Over, PassBudget, testing::Values("shm", "iwarp"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(PassBudget, ConnectionsAreMadeOneByOneWhileCallsGoOn) {
  SlowWorld world(where());
  world.begin_connections();
  Repeating calls(*world.busy, kEcho);
  calls.again();
  world.until([&] { return world.times.begun.all == kConnections; });
  // A call takes a few passes; over iwarp a core looks for other connections in each 32nd.
  EXPECT_GE(calls.good, over_shm() ? kConnections / 8 : 0);
  world.until_all(ConnectionState::kUp);
  EXPECT_GE(calls.good, over_shm() ? kConnections / 4 : 1);
  EXPECT_EQ(world.times.begun.most, 1u);
  EXPECT_EQ(world.times.opened.all, kConnections);
  EXPECT_EQ(world.times.opened.most, 1u);
  world.busy->close_start();
  world.until([&] { return calls.ended() != 0; });
}

TEST_P(PassBudget, AServerEndsItsConnectionsOneByOne) {
  SlowWorld world(where());
  world.begin_connections();
  world.until_all(ConnectionState::kUp);
  bool closed = false;
  world.server->close_start([](void* done) { *static_cast<bool*>(done) = true; }, &closed);
  world.until([&] { return closed; });
  EXPECT_EQ(world.times.closed.all, kConnections + 1);
  EXPECT_EQ(world.times.closed.most, 1u);
  world.until_all(ConnectionState::kClosed);
}

TEST_P(PassBudget, ADrainEndsThemOneByOne) {
  SlowWorld world(where());
  world.begin_connections();
  world.until_all(ConnectionState::kUp);
  uint32_t rest = 77;
  world.server->drain_start(
      60'000, [](uint32_t left, void* argument) { *static_cast<uint32_t*>(argument) = left; },
      &rest);
  world.until([&] { return rest != 77; });
  EXPECT_EQ(rest, 0u);
  EXPECT_EQ(world.times.closed.all, kConnections + 1);
  EXPECT_EQ(world.times.closed.most, 1u);
}

// Those of a peer that closes them all, and calls of another connection go on.
TEST_P(PassBudget, ConnectionsOfAPeerEndOneByOneWhileCallsGoOn) {
  SlowWorld world(where());
  world.begin_connections();
  world.until_all(ConnectionState::kUp);
  Repeating calls(*world.busy, kEcho);
  calls.again();
  for (const auto& each : world.connections)
    each->close_start();
  world.until([&] { return world.times.closed.all == kConnections; });
  EXPECT_GE(calls.good, over_shm() ? kConnections / 8 : 1);
  EXPECT_EQ(world.times.closed.most, 1u);
  world.until_all(ConnectionState::kClosed);
  world.busy->close_start();
  world.until([&] { return calls.ended() != 0; });
}

// With the smallest budget a pass copies little, and small calls of another connection pass by.
TEST_P(PassBudget, LargeDataIsMovedOverPasses) {
  constexpr uint32_t kBytes = 4 << 20;
  SlowWorld world(where());
  auto bulk = world.client->connect(world.uri).value();
  open_window(*bulk);
  {
    RegisteredMemory data = world.memory->allocate(kBytes).value();
    for (uint32_t i = 0; i < kBytes; ++i)
      data.data()[i] = pattern(i);
    Repeating calls(*world.busy, kEcho);
    calls.again();
    EndingCall write(*bulk);
    Encoder& args = write.begin(kWrite);
    args.put_u64(0);
    args.put_item(data.span(0, kBytes), Ddp::kEligible);
    write.submit();
    world.until([&] { return write.ended() != 0; });
    ASSERT_EQ(write.call.status(), CallStatus::kOk);
    EXPECT_EQ(write.call.results().get_u32(), kBytes);
    EXPECT_EQ(write.call.results().get_u32(), 0u);  // none was wrong
    EXPECT_GE(calls.good, 4u);
    EndingCall read(*bulk);
    RegisteredMemory room = world.memory->allocate(kBytes).value();
    Encoder& wanted = read.begin(kRead);
    wanted.put_u64(0);
    wanted.put_u32(kBytes);
    read.call.offer(room.span(0, kBytes));
    const uint64_t before = calls.good;
    read.submit();
    world.until([&] { return read.ended() != 0; });
    ASSERT_EQ(read.call.status(), CallStatus::kOk);
    EXPECT_TRUE(std::ranges::equal(std::span(room.data(), kBytes), std::span(data.data(), kBytes)));
    EXPECT_GE(calls.good, before + 4);
    world.busy->close_start();
    world.until([&] { return calls.ended() != 0; });
    bulk->close_start();
    world.until([&] { return bulk->state() == ConnectionState::kClosed; });
    bulk.reset();
  }
}

// Two connections whose data is more than a pass moves get on alike: the second one's call ends a
// few passes after the first one's.
TEST_P(PassBudget, ConnectionsWithLargeDataTakeTurns) {
  constexpr uint32_t kBytes = 4 << 20;
  SlowWorld world(where());
  auto other = world.client->connect(world.uri).value();
  open_window(*other);
  {
    RegisteredMemory data = world.memory->allocate(kBytes).value();
    EndingCall first(*world.busy), second(*other);
    for (EndingCall* write : {&first, &second}) {
      Encoder& args = write->begin(kWrite);
      args.put_u64(0);
      args.put_item(data.span(0, kBytes), Ddp::kEligible);
      write->submit();
    }
    uint32_t passes = 0, one = 0;
    world.until([&] {
      ++passes;
      const int ended = first.ended() + second.ended();
      one += ended == 1;
      return ended == 2;
    });
    EXPECT_GE(passes, 4u);
    EXPECT_LE(one, passes / 4);
    EXPECT_EQ(first.call.status(), CallStatus::kOk);
    EXPECT_EQ(second.call.status(), CallStatus::kOk);
  }
  other->close_start();
  world.until([&] { return other->state() == ConnectionState::kClosed; });
}

// Its handler takes long, and looks meanwhile for replies to calls of the same pass.
struct LookingSite {
  RawClient* client = nullptr;
  uint32_t in_pass = 0;  // calls that were served
  size_t before = 0;     // replies that were there before the pass
  bool overtaken = false;

  static void serve(ServerCall call, void* argument) {
    LookingSite& site = *static_cast<LookingSite*>(argument);
    const uint64_t end = Runtime::now_ns() + 20'000;
    while (Runtime::now_ns() < end)
      site.client->pump();
    site.overtaken |= site.client->received.size() > site.before;
    ++site.in_pass;
    std::move(call).reply();
  }
};

TEST(LongPass, ItsFirstRepliesLeaveBeforeItsLastCallsAreServed) {
  constexpr uint32_t kCalls = 32;
  // Not idempotent, so not in the driver's lane.
  constexpr Procedure kLooking[] = {{kOnce, LookingSite::serve, Dispatch::kInline, false}};
  LookingSite site;
  Ends ends({}, {.credits = kCalls}, {},
            {{.binding = &kBinding, .procedures = kLooking, .context = &site}},
            "iwarp://127.0.0.1:0");
  {
    RawClient client(*ends.memory, ends.uri, kCalls);
    site.client = &client;
    ends.until([&] { return client.pump(), client.up(); });
    // A new connection has its first calls served in small turns.
    uint32_t xid = 0, most = 0;
    for (int round = 0; round != 20 && !site.overtaken; ++round) {
      client.received.clear();
      for (uint32_t i = 0; i != kCalls; ++i)
        client.send(
            RawCall{.xid = ++xid, .procedure = kOnce}.message(kBinding.program, kBinding.version));
      while (client.received.size() < kCalls) {
        site.in_pass = 0;
        site.before = client.received.size();
        ends.runtime->poll();
        most = std::max(most, site.in_pass);
        client.pump();
      }
    }
    EXPECT_GE(most, kCalls / 2) << "no pass had many calls to serve";
    EXPECT_TRUE(site.overtaken);
  }
  ends.end();
}

}  // namespace
}  // namespace rrdk::loopback
