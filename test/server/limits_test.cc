// What one client may hold of a server: connections, idle ones among them, and replies that it does
// not take.
#include <algorithm>

#include "../client/log_lines.h"
#include "site.h"

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
  EXPECT_EQ(site.server->stats().refused_per_client, 1u);
  EXPECT_EQ(site.server->stats().connections_refused, 1u);
  EXPECT_EQ(log.count(LogLevel::kWarning, "refused", "max_connections_per_client allows, 2"), 1);
  site.cut(one);
  three = site.connect(1);
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  for (RawClient* client : {two.get(), three.get(), other.get()})
    EXPECT_EQ(site.call(*client, call).at(kResults + 1), 1u);
  // Of those whose clients are not known, each counts for itself.
  auto nobody = site.connect(0);
  auto neither = site.connect(0);
  auto none = site.connect(0);
  EXPECT_EQ(site.server->stats().connections, 6u);
}

// Shows: SEC-11
TEST(Admission, IsDecidedByWhoThePeerIs) {
  struct Door {
    std::vector<std::string> seen;
    bool open = false;
  } door;
  World world(Cores::kEmbedded, {.admit =
                                     [](const std::string& peer, void* argument) {
                                       auto& asked = *static_cast<Door*>(argument);
                                       asked.seen.push_back(peer);
                                       return asked.open;
                                     },
                                 .admit_argument = &door});
  auto refused = world.client->connect(world.uri);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_EQ(world.server->stats().connections_refused, 1u);
  ASSERT_EQ(door.seen.size(), 1u);
  EXPECT_NE(door.seen[0].find(std::to_string(::getpid())), std::string::npos) << door.seen[0];
  EXPECT_NE(door.seen[0].find("uid " + std::to_string(::getuid())), std::string::npos);
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
  Site site({.idle_timeout_ms = 20}, GetParam());
  // On a slow machine it may be idle for too long before its call is there.
  std::unique_ptr<RawClient> busy;
  while (site.service.keeper.kept() == 0) {
    busy = site.connect();
    Site::send(*busy, {.xid = 7, .procedure = kAgainKept});
    site.until([&] { return site.service.keeper.kept() == 1 || busy->down(); }, {busy.get()});
  }
  site.until([&] { return site.server->stats().connections == 1; }, {busy.get()});
  uint64_t closed = site.server->stats().closed_idle;
  uint32_t before = available(*site.memory);
  auto idle = site.knock(1);
  site.until([&] { return idle->down(); }, {idle.get(), busy.get()});
  site.until([&] { return site.server->stats().connections == 1; });
  idle.reset();
  EXPECT_FALSE(busy->down()) << "it has a call";
  EXPECT_EQ(site.server->stats().closed_idle, closed + 1);
  EXPECT_EQ(site.server->stats().connections_ended, 0u);
  EXPECT_GE(log.count(LogLevel::kInfo, "no calls for 20 ms", "idle_timeout_ms"), 1);
  if (GetParam() == Cores::kEmbedded) {
    EXPECT_EQ(available(*site.memory), before);
  }
  site.service.keeper.release();
  EXPECT_EQ(site.answer(*busy).at(kResults), 1u);
  site.until([&] { return busy->down(); }, {busy.get()});
  site.until([&] { return site.server->stats().connections == 0; });
  EXPECT_EQ(site.server->stats().closed_idle, closed + 2);
}

// A client that asks, and never looks at the answers: they wait in the server's memory.
// Shows: SEC-10
TEST_P(Limits, RepliesThatNobodyTakes) {
  LogLines log;
  Site site({.send_timeout_ms = 20}, GetParam());
  auto good = site.connect(2);
  uint32_t before = available(*site.memory);
  auto bad = site.connect(1, 0);
  for (uint32_t xid = 1; xid <= 5; ++xid)
    Site::send(*bad, {.xid = xid, .procedure = kAppendData, .arguments = {1000}});
  site.until([&] { return site.server->stats().closed_stalled == 1; });
  site.until([&] { return site.server->stats().connections == 1; });
  EXPECT_EQ(log.count(LogLevel::kWarning, "has taken no reply for 20 ms", "send_timeout_ms"), 1);
  EXPECT_EQ(site.server->stats().connections_ended, 1u);
  bad.reset();
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  EXPECT_EQ(site.call(*good, call).at(kResults + 1), 1u);
  if (GetParam() == Cores::kEmbedded) {
    // All its buffers are back; the call just made has one, and heads of calls are kept.
    EXPECT_GE(available(*site.memory) + 16, before);
  }
}

TEST_P(Limits, NoneUnlessAskedFor) {
  Site site({.send_timeout_ms = 0}, GetParam());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 8; ++i)
    clients.push_back(site.connect(1));
  EXPECT_EQ(site.server->stats().refused_per_client, 0u);
}

}  // namespace
}  // namespace rrdk::loopback
