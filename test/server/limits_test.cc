// What one client may hold of a server: connections, including idle ones, and replies that it does
// not take.
#include <gmock/gmock.h>

#include <algorithm>

#include "../client/log_lines.h"
#include "base/rcu.h"
#include "site.h"
#include "test/no_descriptors.h"

namespace rrdk::loopback {
namespace {

constexpr size_t kResults = 13;  // of a reply without chunks: the first word of results

struct Limits : testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, Limits,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(Limits, ConnectionsOfOneClient) {
  LogLines log;
  Site site({.max_connections_per_client = 2}, GetParam());
  auto one = site.connect(1);
  auto two = site.connect(1);
  auto three = site.knock(1);
  site.until([&] { return three->down(); }, {three.get()});
  EXPECT_TRUE(three->refused());
  auto other = site.connect(2);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefusedPerClient], 1u);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 1u);
  EXPECT_EQ(log.count(LogLevel::kWarning, "refused", "max_connections_per_client allows, 2"), 1);
  site.cut(one);
  three = site.connect(1);
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  for (RawClient* client : {two.get(), three.get(), other.get()})
    EXPECT_EQ(site.call(*client, call).at(kResults + 1), 1u);
  // A client without an identity counts by itself on each connection.
  auto unnamed = site.connect(0);
  auto neither = site.connect(0);
  auto none = site.connect(0);
  site.until([&] { return site.server->stats()[Counter::kConnections] == 6; });
}

// Not on the core with the fewest connections, if these are busy.
TEST(Placement, IsOnTheCoreWithTheLeastLoad) {
  Site site;
  auto on_core = [&](uint32_t core) { return site.runtime->stats(core)[Counter::kConnections]; };
  auto one = site.connect();
  const uint32_t first = on_core(0) == 1 ? 0 : 1;
  auto two = site.connect();
  EXPECT_EQ(on_core(1 - first), 1u) << "while nothing happens, their number decides";
  auto three = site.connect();
  const uint32_t fewest = on_core(0) == 1 ? 0 : 1;
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  for (; call.xid <= 300; ++call.xid)
    site.call(fewest == first ? *one : *two, call);
  auto four = site.connect();
  EXPECT_EQ(on_core(fewest), 1u);
  EXPECT_EQ(on_core(1 - fewest), 3u);
}

// By default a client leaves as many places for all others as it has, however many it asks for.
TEST(Admission, NoClientTakesMoreThanHalf) {
  constexpr uint32_t kBuffers = 2048;  // of headers, in the site's memory
  Site site({.first_credits = 32});
  std::vector<std::unique_ptr<RawClient>> clients;
  do {
    clients.push_back(site.knock(1, 2));
    site.until([&] { return clients.back()->up() || clients.back()->down(); },
               {clients.back().get()});
    ASSERT_LE(clients.size(), kBuffers / 32);
  } while (!clients.back()->refused());
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefusedPerClient], 1u);
  EXPECT_GT(clients.size(), kBuffers / 32 / 4);
  EXPECT_LE(clients.size() - 1, kBuffers / 32 / 2);
  auto other = site.connect(2);
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  EXPECT_EQ(site.call(*other, call).at(kResults + 1), 1u);
}

// Shows: SEC-11
TEST(Admission, IsDecidedByThePeersIdentity) {
  struct Door {
    std::vector<Peer> seen;
    bool open = false;
  } door;
  World world(Cores::kEmbedded,
              {.on_open = [](ServerConnection& connection, void* argument) -> Result<void> {
                 auto& asked = *static_cast<Door*>(argument);
                 asked.seen.push_back(connection.peer());
                 return asked.open ? Result<void>() : fail(Errc::kPermission, "not today\n");
               },
               .connection_argument = &door});
  auto refused = world.client->connect(world.uri);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_THAT(refused.error().message, testing::EndsWith("does not admit this client: not today?"));
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsRefused], 1u);
  ASSERT_EQ(door.seen.size(), 1u);
  EXPECT_EQ(door.seen[0].driver, "shm");
  EXPECT_EQ(door.seen[0].process, (ProcessIdentity{::getpid(), ::getuid(), ::getgid()}));
  EXPECT_EQ(door.seen[0].to_string(),
            "pid " + std::to_string(::getpid()) + " (uid " + std::to_string(::getuid()) + ")");
  door.open = true;
  auto connection = world.connect();
  open_window(*connection);
}

uint32_t available(const Memory& memory) {
  uint32_t sum = 0;
  for (const PoolAudit& pool : memory.audit())
    sum += pool.available;
  return sum;
}

// Shows: SEC-10
TEST_P(Limits, IdleConnections) {
  LogLines log;
  Site site({.private_receives = true, .idle_timeout_ms = 20}, GetParam());
  // On a slow machine it may be idle for too long before its call arrives.
  std::unique_ptr<RawClient> busy;
  while (site.service.keeper.kept() == 0) {
    busy = site.connect();
    Site::send(*busy, {.xid = 7, .procedure = kAgainKept});
    site.until([&] { return site.service.keeper.kept() == 1 || busy->down(); }, {busy.get()});
  }
  site.until([&] { return site.server->stats()[Counter::kConnections] == 1; }, {busy.get()});
  uint64_t closed = site.server->stats()[Counter::kClosedIdle];
  uint32_t before = available(*site.memory);
  auto idle = site.knock(1);
  site.until([&] { return idle->down(); }, {idle.get(), busy.get()});
  site.until([&] { return site.server->stats()[Counter::kConnections] == 1; });
  idle.reset();
  EXPECT_FALSE(busy->down()) << "it has a call";
  EXPECT_EQ(site.server->stats()[Counter::kClosedIdle], closed + 1);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsEnded], 0u);
  EXPECT_GE(log.count(LogLevel::kInfo, "no calls for 20 ms", "idle_timeout_ms"), 1);
  if (GetParam() == Cores::kEmbedded) {
    EXPECT_EQ(available(*site.memory), before);
  }
  site.service.keeper.release();
  EXPECT_EQ(site.answer(*busy).at(kResults), 1u);
  site.until([&] { return busy->down(); }, {busy.get()});
  site.until([&] { return site.server->stats()[Counter::kConnections] == 0; });
  EXPECT_EQ(site.server->stats()[Counter::kClosedIdle], closed + 2);
}

// A client that makes calls and never takes the replies: they wait in the server's memory.
// Shows: SEC-10
TEST_P(Limits, RepliesThatAreNotTaken) {
  LogLines log;
  Site site({.private_receives = true, .send_timeout_ms = 20}, GetParam());
  auto good = site.connect(2);
  uint32_t before = available(*site.memory);
  auto bad = site.connect(1, 0);
  // More than the fabric holds for the client: those are no longer the server's.
  for (uint32_t xid = 1; xid <= 100; ++xid)
    Site::send(*bad, {.xid = xid, .procedure = kAppendData, .arguments = {1000}});
  site.until([&] { return site.server->stats()[Counter::kClosedStalled] == 1; });
  site.until([&] { return site.server->stats()[Counter::kConnections] == 1; });
  EXPECT_EQ(log.count(LogLevel::kWarning, "has taken no reply for 20 ms", "send_timeout_ms"), 1);
  EXPECT_EQ(site.server->stats()[Counter::kEndedByLimit], 1u);
  bad.reset();
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  EXPECT_EQ(site.call(*good, call).at(kResults + 1), 1u);
  if (GetParam() == Cores::kEmbedded) {
    // All its buffers are back, except one for the call just made and the heads of calls, which are
    // kept.
    EXPECT_GE(available(*site.memory) + 16, before);
  }
}

// A peer that connects and stays silent is disconnected, whatever idle_timeout_ms is; a client that
// has made a call may stay.
// Shows: SEC-10
TEST_P(Limits, ConnectionsThatNeverMakeACall) {
  LogLines log;
  Site site({.first_call_timeout_ms = 20}, GetParam());
  std::unique_ptr<RawClient> caller;
  while (caller == nullptr || caller->down()) {  // on a slow machine its call may come too late
    caller = site.knock(2);
    site.until([&] { return caller->up() || caller->down(); }, {caller.get()});
    if (caller->up())
      site.call(*caller, {.xid = 1, .procedure = kAgain, .arguments = {1}});
  }
  uint64_t closed = site.server->stats()[Counter::kClosedSilent];
  for (int i = 0; i < 3; ++i) {
    auto silent = site.knock(1);
    site.until([&] { return silent->down(); }, {silent.get(), caller.get()});
  }
  site.until([&] { return site.server->stats()[Counter::kConnections] == 1; }, {caller.get()});
  EXPECT_FALSE(caller->down()) << "it has made a call";
  EXPECT_EQ(site.server->stats()[Counter::kClosedSilent], closed + 3);
  EXPECT_EQ(site.server->stats()[Counter::kClosedIdle], 0u);
  EXPECT_GE(log.count(LogLevel::kInfo, "no call in its first 20 ms", "first_call_timeout_ms"), 1);
}

// With the default options of a server and of its memory.
class OneHost : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Drivers, OneHost, testing::Values("shm:", "iwarp://127.0.0.1:0"));

TEST_P(OneHost, HasFortyConnectionsOfAServerWithDefaultOptions) {
  ASSERT_TRUE(ensure_eal());
  auto memory = Memory::create({.hugepages = HugepagePolicy::kNever}).value();
  auto runtime = Runtime::create(*memory, options_for(Cores::kEmbedded)).value();
  Keeper keeper;
  auto server = Server::create(*runtime).value();
  ASSERT_TRUE(
      server->add_service({.binding = &kBinding, .procedures = kTable, .context = &keeper}));
  std::string where = GetParam();
  std::string uri = server->listen(where == "shm:" ? where + socket_path() : where).value();
  auto client = Client::create(*runtime).value();
  {
    std::vector<std::unique_ptr<ClientConnection>> connections;
    for (int i = 0; i < 40; ++i) {
      auto connection = client->connect(uri);
      ASSERT_TRUE(connection) << i << ": " << connection.error().message;
      connections.push_back(std::move(*connection));
    }
    for (auto& connection : connections) {
      Call call(*connection);
      call.begin(kBinding, kEcho).put_u32(0);
      call.expect_reply(4);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    }
    EXPECT_EQ(server->stats()[Counter::kConnectionsAccepted], 40u);
    EXPECT_EQ(server->stats()[Counter::kClosedForRoom], 0u);
  }
  client.reset();
  server.reset();
  runtime.reset();
  EXPECT_TRUE(memory->whole());
}

// A client that is refused is told why.
TEST_P(OneHost, IsToldWhichLimitItHasReached) {
  std::string where = GetParam();
  if (where == "shm:")
    where += socket_path();
  auto refusal = [&](const ServerOptions& options) {
    Ends ends(options_for(Cores::kEmbedded), options, {}, {}, where);
    std::string message;
    {
      auto first = ends.client->connect(ends.uri);
      auto second = first ? ends.client->connect(ends.uri) : std::move(first);
      EXPECT_FALSE(second);
      if (!second)
        message = second.error().message;
    }
    ends.end();
    return message;
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal({.max_connections_per_client = 1}),
              HasSubstr("as many connections of this client as it takes"));
  EXPECT_THAT(refusal({.on_open = [](ServerConnection&, void*) -> Result<void> {
                return fail(Errc::kPermission, "ask the operator");
              }}),
              HasSubstr("does not admit this client: ask the operator"));
}

// If a connection cannot be made, the error names the real cause.
TEST(Admission, SaysOfACoreThatIsFullThatThereAreTooManyConnections) {
  using proto::Rejection;
  Site site;
  const std::pair<Errc, Rejection> told[] = {{Errc::kLimit, Rejection::kConnections},
                                             {Errc::kSystem, Rejection::kConnections},
                                             {Errc::kNoMemory, Rejection::kBuffers},
                                             {Errc::kShutdown, Rejection::kClosing}};
  for (const auto& [code, why] : told) {
    site.impossible = [&](uint32_t) { return Error{code, "there can be no more"}; };
    auto client = site.knock(1);
    site.until([&] { return client->down(); }, {client.get()});
    ASSERT_TRUE(client->rejection()) << to_string(code);
    EXPECT_EQ(client->rejection()->why, why) << to_string(code);
  }
  site.impossible = nullptr;
  site.connect(1);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], std::size(told));
}

// Many connections with default options, from a memory budget for both ends that is several times
// smaller than Receives for each credit would need.
TEST_P(OneHost, HasManyConnectionsOutOfALittleMemory) {
  constexpr uint32_t kMany = 120;  // of which each has three descriptors at either end
  constexpr uint64_t kBudget = 24 << 20;
  static_assert(kBudget < kMany * 64 * uint64_t{4096});
  ASSERT_TRUE(ensure_eal());
  auto memory = Memory::create({.bytes = kBudget, .hugepages = HugepagePolicy::kNever}).value();
  auto runtime = Runtime::create(*memory, options_for(Cores::kEmbedded)).value();
  auto server = Server::create(*runtime).value();
  ASSERT_TRUE(server->add_service({.binding = &kBinding, .procedures = kTable}));
  std::string where = GetParam();
  std::string uri = server->listen(where == "shm:" ? where + socket_path() : where).value();
  auto client = Client::create(*runtime).value();
  {
    std::vector<std::unique_ptr<ClientConnection>> connections;
    std::vector<std::unique_ptr<Call>> calls;
    for (uint32_t i = 0; i < kMany; ++i) {
      auto connection = client->connect(uri);
      ASSERT_TRUE(connection) << i << ": " << connection.error().message;
      connections.push_back(std::move(*connection));
    }
    for (int times = 0; times < 3; ++times) {
      uint32_t ended = 0;
      for (auto& connection : connections) {
        calls.push_back(std::make_unique<Call>(*connection));
        calls.back()->begin(kBinding, kEcho).put_u32(0);
        calls.back()->expect_reply(4);
        calls.back()->submit([](Call&, void* count) { ++*static_cast<uint32_t*>(count); }, &ended);
      }
      wait_until(
          [&] { return ended == kMany; },
          [&] { return runtime->poll(0) + (runtime->num_cores() > 1 ? runtime->poll(1) : 0); });
      for (auto& call : calls)
        EXPECT_EQ(call->status(), CallStatus::kOk);
      calls.clear();
    }
    EXPECT_EQ(server->stats()[Counter::kConnectionsAccepted], kMany);
    EXPECT_EQ(server->stats()[Counter::kClosedForRoom], 0u);
  }
  client.reset();
  server.reset();
  runtime.reset();
  EXPECT_TRUE(memory->whole());
}

// A large result that waits to be sent counts for its client: of 16 such buffers a client gets
// half, and the next call is refused.
// Shows: SEC-09
TEST(Results, InBuffersCountAsTheirClients) {
  Site site({.credits = 32, .max_chunk_bytes = 64u << 20});
  auto greedy = site.connect(1);
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  site.call(*greedy, call);
  for (uint32_t xid = 2; xid < 22; ++xid)
    Site::send(*greedy, {.xid = xid, .procedure = kLater, .arguments = {1u << 20}});
  site.until([&] { return site.server->stats()[Counter::kWaitsShare] != 0; }, {greedy.get()});
  EXPECT_EQ(site.memory->audit_fitting(1u << 20).available, 16u - 9u);
  EXPECT_EQ(site.service.runs, 10u);
  auto other = site.connect(2);
  EXPECT_EQ(site.call(*other, call).at(kResults + 1), 1u);
  site.cut(greedy);
}

// A reply on a connection that is closing does not wait, however long its handler wanted to delay
// it.
TEST(Results, AreNotDelayedOnALostConnection) {
  Site site;
  auto client = site.connect(1);
  Site::send(*client, {.xid = 1, .procedure = kAgainKept});
  site.until([&] { return site.service.keeper.kept() == 1; }, {client.get()});
  client->disconnect();
  site.until([&] { return site.server->stats()[Counter::kConnectionsEnded] == 1; }, {client.get()});
  EXPECT_EQ(site.server->stats()[Counter::kConnections], 1u) << "the call is still there";
  std::vector<ServerCall> kept;
  kept.swap(site.service.keeper.calls);
  std::move(kept.front()).reply_after(60'000'000'000);
  for (int pass = 0; pass < 1000; ++pass)
    site.poll();
  EXPECT_EQ(site.server->stats()[Counter::kConnections], 0u);
}

// Connections that wait for their turns when they are lost stay until their turns come, and go
// then.
TEST(Turns, LostConnectionsStayUntilTheirTurn) {
  constexpr uint32_t kClients = 32, kCalls = 16;
  Site site({.credits = kCalls}, {.embedded_cores = 2, .pass_budget_us = 0});
  Buffer data = site.memory->get(65536);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (uint64_t name = 1; name <= kClients; ++name)
    clients.push_back(site.connect(name, kCalls));
  for (auto& client : clients) {
    uint32_t key = client->expose(data.first(65536), fabric::Rights::kRemoteRead);
    // The first call reads several turns' worth: the others wait meanwhile.
    Site::send(*client,
               {.xid = 1,
                .procedure = kAgain,
                .arguments = {1},
                .lists = Words{1, 44} + segment(key, 65536, data.data()) + Words{0, 0, 0}});
    for (uint32_t xid = 2; xid <= kCalls; ++xid)
      Site::send(*client, {.xid = xid, .procedure = kAgain, .arguments = {1}});
  }
  site.until([&] { return site.server->stats()[Counter::kWaitsTurn] == kClients * (kCalls - 1); });
  for (auto& client : clients)
    client->disconnect();
  // In one pass the core sees that they have closed, and then handles all at once: too many
  // for each to have had its turn.
  site.poll();
  EXPECT_LT(site.service.runs, kClients * kCalls * 3 / 4) << "too few wait";
  uint32_t events = 0;
  wait_until([&] { return events == kClients; }, [&] { return events += site.route_events(); });
  site.poll();
  EXPECT_GT(site.server->stats()[Counter::kConnections], 0u) << "none waits any more";
  site.until([&] { return site.server->stats()[Counter::kConnections] == 0; });
}

// Twelve connections of one client together get no more of the core than the only connection of
// each other client.
// Shows: SEC-09
TEST(Turns, AreSharedByTheConnectionsOfAClient) {
  constexpr uint32_t kCalls = 32;
  // Without a budget: a pass that has spent it gives fewer turns.
  Site site({.credits = kCalls, .first_credits = kCalls},
            {.embedded_cores = 2, .pass_budget_us = 0});
  const RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  const auto connect = [&](uint64_t name) {
    auto client = site.connect(name, kCalls);
    site.call(*client, call);  // which grants the others
    return client;
  };
  std::vector<std::unique_ptr<RawClient>> greedy, polite;
  for (int i = 0; i < 12; ++i)
    greedy.push_back(connect(1));
  for (uint64_t name = 2; name <= 4; ++name)
    polite.push_back(connect(name));
  for (uint32_t xid = 2; xid < 2 + kCalls; ++xid) {
    for (auto* clients : {&greedy, &polite}) {
      for (auto& client : *clients)
        Site::send(*client, {.xid = xid, .procedure = kAgain, .arguments = {1}});
    }
  }
  for (auto* clients : {&polite, &greedy}) {
    site.until([&] {
      return std::ranges::all_of(*clients, [&](const auto& client) {
        client->pump();
        return client->received.size() == kCalls;
      });
    });
  }
  // Four calls of each connection were started as they came, the others in turns: this holds from
  // then on, until the first of the polite clients has had all its calls served.
  std::vector<uint32_t> runs;
  uint32_t began = 0, over = UINT32_MAX;
  for (const auto& client : polite) {
    for (const Received& answer : client->received)
      runs.push_back(answer.at(kResults));
    began = std::max(began, client->received.at(4).at(kResults));
    over = std::min(over, client->received.back().at(kResults));
  }
  ASSERT_LT(began, over);
  const auto of_polite =
      std::ranges::count_if(runs, [&](uint32_t run) { return run > began && run <= over; });
  constexpr int kTurn = 16;
  EXPECT_LE(over - began - of_polite, of_polite + kTurn) << "of the greedy one's calls meanwhile";
}

TEST_P(Limits, DefaultIsNoLimitPerClient) {
  Site site({.first_call_timeout_ms = 0, .send_timeout_ms = 0}, GetParam());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i)
    clients.push_back(site.connect(1));
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefusedPerClient], 0u);
}

}  // namespace
}  // namespace rrdk::loopback
