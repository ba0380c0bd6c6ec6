// A graceful end: running calls are answered, new ones are not run, and no reply is cut off.
#include "site.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kPatientMs = 60'000;
constexpr size_t kResults = 13;  // of a reply without chunks: the first word of results

struct Drain : testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, Drain,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

// A server whose handler holds a call, and idle connections on each of its cores.
struct Busy {
  explicit Busy(Cores cores, int num_idle = 4) : site({}, cores) {
    for (int i = 0; i < num_idle; ++i)
      idle.push_back(site.connect());
    client = site.connect();
    Site::send(*client, {.xid = 7, .procedure = kAppendKept});
    site.until([&] { return site.service.keeper.kept() == 1; });
  }
  // For a thread beside the one that drains. The idle connections go at once, and then each core
  // drains.
  void wait_until_draining() {
    while (site.server->stats()[Counter::kConnections] != 1)
      std::this_thread::yield();
  }
  void pump_all() {
    auto all_down = [&] {
      return client->down() && std::ranges::all_of(idle, [](auto& c) { return c->down(); });
    };
    site.until([&] {
      client->pump();
      for (auto& each : idle)
        each->pump();
      return all_down();
    });
  }

  Site site;
  std::vector<std::unique_ptr<RawClient>> idle;
  std::unique_ptr<RawClient> client;
};

TEST_P(Drain, AnswersTheCallsThatRun) {
  Busy busy(GetParam());
  std::thread answer([&] {
    busy.wait_until_draining();
    busy.site.service.keeper.release();
  });
  EXPECT_EQ(busy.site.server->drain(kPatientMs), 0u);
  answer.join();
  busy.pump_all();
  ASSERT_EQ(busy.client->received.size(), 1u);
  EXPECT_EQ(busy.client->received[0].at(kResults), 1u);
  Stats stats = busy.site.server->stats();
  EXPECT_EQ(stats[Counter::kConnections], 0u);
  EXPECT_EQ(stats[Counter::kConnectionsEnded], 0u) << "the server ended them";
  EXPECT_EQ(stats[Counter::kCallsNotRun], 0u);
}

TEST_P(Drain, EndsListeningForGood) {
  Busy busy(GetParam());
  busy.site.service.keeper.release();
  busy.site.server->drain(kPatientMs);
  auto again = busy.site.server->listen("shm:" + socket_path());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::kShutdown);
}

TEST_P(Drain, RunsNoFurtherCalls) {
  Busy busy(GetParam());
  std::thread more([&] {
    busy.wait_until_draining();
    Site::send(*busy.client, {.xid = 8, .procedure = kAppend, .arguments = {1}});
    Site::send(*busy.client, {.xid = 7, .procedure = kAppendKept});  // not even a repeated one
    while (busy.site.server->stats()[Counter::kCallsNotRun] != 2)
      std::this_thread::yield();
    busy.site.service.keeper.release();
  });
  EXPECT_EQ(busy.site.server->drain(kPatientMs), 0u);
  more.join();
  busy.pump_all();
  ASSERT_EQ(busy.client->received.size(), 1u);
  EXPECT_EQ(busy.client->received[0].xid(), 7u);
  EXPECT_EQ(busy.site.service.runs, 1u);
}

// The thread that drains an embedded runtime polls it, and accepts no connections meanwhile.
struct DrainByThreads : Drain {};
INSTANTIATE_TEST_SUITE_P(Cores, DrainByThreads,
                         testing::Values(Cores::kDedicated, Cores::kWorkers));

TEST_P(DrainByThreads, AcceptsNoConnections) {
  Busy busy(GetParam());
  std::thread late([&] {
    busy.wait_until_draining();
    auto knocking = busy.site.knock(2);
    busy.site.until([&] { return knocking->down(); }, {knocking.get()});
    EXPECT_TRUE(knocking->refused());
    busy.site.service.keeper.release();
  });
  EXPECT_EQ(busy.site.server->drain(kPatientMs), 0u);
  late.join();
  EXPECT_EQ(busy.site.server->stats()[Counter::kConnectionsRefused], 1u);
}

TEST_P(Drain, ClosesTheRestWhenTimeIsUp) {
  Busy busy(GetParam(), 0);
  EXPECT_EQ(busy.site.server->drain(1), 1u);
  busy.site.until([&] { return busy.client->down(); }, {busy.client.get()});
  EXPECT_TRUE(busy.client->received.empty());
  EXPECT_EQ(busy.site.server->stats()[Counter::kConnections], 1u)
      << "its call is still with the handler";
  busy.site.service.keeper.release();
  busy.site.until([&] { return busy.site.server->stats()[Counter::kConnections] == 0; });
  EXPECT_EQ(busy.site.server->drain(1), 0u);
}

TEST_P(Drain, AnswersThoseThatWaitForACallThatTheyRepeat) {
  Busy busy(GetParam());
  auto again = busy.site.connect();
  Site::send(*again, {.xid = 7, .procedure = kAppendKept});
  busy.site.until([&] { return busy.site.server->stats()[Counter::kReplayWaits] == 1; });
  std::thread answer([&] {
    while (busy.site.server->stats()[Counter::kConnections] != 2)
      std::this_thread::yield();
    busy.site.service.keeper.release();
  });
  EXPECT_EQ(busy.site.server->drain(kPatientMs), 0u);
  answer.join();
  EXPECT_EQ(busy.site.answer(*again).at(kResults), 1u);
}

TEST_P(Drain, EndsAtOnceWithoutConnections) {
  Site site({}, GetParam());
  EXPECT_EQ(site.server->drain(kPatientMs), 0u);
  EXPECT_EQ(site.server->drain(0), 0u);
}

// The client sees each reply that the server has sent, under load and for every way of sending.
TEST_P(Drain, LosesNoReply) {
  for (int round = 0; round < 5; ++round) {
    World world(GetParam());
    std::vector<std::unique_ptr<ClientConnection>> connections;
    RegisteredMemory room = world.memory->allocate(3 * 4096).value();
    std::vector<std::unique_ptr<Repeating>> loads;
    for (size_t i = 0; i < 3; ++i) {
      connections.push_back(world.connect());
      for (uint32_t procedure : {kEcho, kWorker, kRead, kEcho, kWorker}) {
        loads.push_back(
            std::make_unique<Repeating>(*connections.back(), procedure, room.span(i * 4096, 4096)));
        loads.back()->again();
      }
    }
    world.until([&] { return std::ranges::all_of(loads, [](auto& l) { return l->good > 20; }); });
    EXPECT_EQ(world.server->drain(kPatientMs), 0u);
    uint64_t good = 0;
    for (auto& load : loads) {
      world.until([&] { return load->ended() == 1; });
      EXPECT_EQ(load->call.status(), CallStatus::kConnectionLost);
      good += load->good;
    }
    EXPECT_EQ(good, world.server->stats()[Counter::kRepliesSent]);
    EXPECT_EQ(world.server->stats()[Counter::kCallsReceived],
              world.server->stats()[Counter::kRepliesSent]);
    loads.clear();
  }
}

}  // namespace
}  // namespace rrdk::loopback
