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
  auto nobody = site.connect(0);
  auto neither = site.connect(0);
  auto none = site.connect(0);
  site.until([&] { return site.server->stats()[Counter::kConnections] == 6; });
}

using Clients = std::vector<std::unique_ptr<RawClient>>;

int64_t up(Clients& clients) {
  return std::ranges::count_if(clients, [](auto& client) {
    client->pump();
    return client->up() && !client->down();
  });
}

int64_t down(Clients& clients) {
  return std::ranges::count_if(clients, [](auto& client) {
    client->pump();
    return client->down();
  });
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

// When there are no buffers for another connection's Receives, older connections that never made a
// call make way, and those that have made one stay.
// Shows: SEC-10
TEST_P(Limits, SilentConnectionsMakeRoom) {
  LogLines log;
  Site site({.credits = 256, .first_credits = 256},
            GetParam());  // of 2048 buffers, a quarter is kept for calls
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  auto caller = site.connect(1);
  site.call(*caller, call);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (uint64_t name = 2; name < 10; ++name)
    silent.push_back(site.connect(name));
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
  EXPECT_GE(site.server->stats()[Counter::kClosedForRoom], 4u);
  site.until([&] {
    return std::ranges::count_if(silent, [](auto& client) {
             client->pump();
             return client->down();
           }) >= 4;
  });
  EXPECT_FALSE(silent.back()->down());
  call.xid = 2;
  EXPECT_EQ(site.call(*silent.back(), call).at(kResults + 1), 1u) << "it may make calls";
  EXPECT_EQ(site.call(*caller, call).at(kResults + 1), 1u)
      << "connections that have called are left alone";
  // No silent connection is left: now one is refused.
  std::vector<std::unique_ptr<RawClient>> busy;
  for (uint64_t name = 10; site.server->stats()[Counter::kConnectionsRefused] == 0; ++name) {
    ASSERT_LT(name, 30u);
    busy.push_back(site.knock(name));
    site.until([&] { return busy.back()->up() || busy.back()->down(); }, {busy.back().get()});
    if (busy.back()->up())
      site.call(*busy.back(), call);
  }
  EXPECT_EQ(log.count(LogLevel::kWarning, "refused", "buffers of 4096 bytes are left"), 1);
}

TEST_P(Limits, SilentConnectionsMakeRoomWhereTheirNumberIsLimited) {
  Site site({.max_connections = 2}, GetParam());
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  auto caller = site.connect(1);
  site.call(*caller, call);
  auto silent = site.connect(2);
  auto next = site.connect(3);
  site.until([&] { return silent->down(); }, {silent.get(), next.get()});
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u);
  site.call(*next, call);
  auto refused = site.knock(4);
  site.until([&] { return refused->down(); }, {refused.get()});
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 1u);
  site.until([&] { return site.server->stats()[Counter::kConnections] == 2; });
}

// From one address beside a neighbour's, and then from many addresses.
TEST_P(Limits, AFloodMakesRoomForItself) {
  constexpr uint32_t kMost = 6;
  constexpr uint64_t kPlace = uint64_t{7} << 32;
  Site site({.max_connections = kMost}, GetParam());
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  auto honest = site.connect(1);
  auto neighbour = site.connect(kPlace | 1);
  std::vector<std::unique_ptr<RawClient>> flood;
  for (uint32_t i = 0; i < 2 * kMost; ++i)
    flood.push_back(site.connect(kPlace | 2));
  EXPECT_EQ(site.call(*neighbour, call).at(kResults + 1), 1u);
  for (uint32_t i = 0; i < 2 * kMost; ++i)
    flood.push_back(site.connect(kPlace | (3 + i)));
  EXPECT_EQ(site.call(*honest, call).at(kResults + 1), 1u);
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 2 + 4 * kMost - kMost);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
}

// If Receives are shared, those of another core's connections do not help: each newcomer closes one
// connection of its own core.
// Shows: SEC-10
TEST_P(Limits, ForWantOfBuffersConnectionsOfTheSameCoreMakeRoom) {
  Site site({.credits = 256, .first_credits = 256}, GetParam());
  std::vector<std::unique_ptr<RawClient>> silent;
  for (uint64_t name = 2; site.server->stats()[Counter::kClosedForRoom] == 0; ++name) {
    ASSERT_LT(name, 20u);
    silent.push_back(site.connect(name));
  }
  for (uint64_t name = 20; name < 26; ++name)
    silent.push_back(site.connect(name));
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 7u);
  auto honest = site.connect(1);
  EXPECT_EQ(site.call(*honest, {.xid = 1, .procedure = kAgain, .arguments = {1}}).at(kResults + 1),
            1u);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
}

// Queue pairs are limited for each core, descriptors for the process.
// Shows: SEC-10
TEST_P(Limits, SilentConnectionsMakeRoomWhereTheSystemHasNone) {
  constexpr uint32_t kOfACore = 3;
  for (const Errc code : {Errc::kLimit, Errc::kSystem}) {
    Site site({}, GetParam());
    const uint32_t cores = site.runtime->num_cores();
    const uint32_t all = kOfACore * cores;
    site.impossible = [&, code](uint32_t core) -> std::optional<Error> {
      uint64_t there = 0;
      for (uint32_t i = 0; i < cores; ++i)
        there +=
            code == Errc::kSystem || i == core ? site.runtime->stats(i)[Counter::kConnections] : 0;
      if (there < (code == Errc::kSystem ? all : kOfACore))
        return std::nullopt;
      return Error{code, "there can be no more"};
    };
    std::vector<std::unique_ptr<RawClient>> silent, honest;
    for (uint64_t name = 2; name < 2 + 2 * all; ++name)
      silent.push_back(site.connect(name));
    EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], all) << "one for each";
    RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
    for (uint32_t i = 0; i < all; ++i) {
      honest.push_back(site.connect(100 + i));
      EXPECT_EQ(site.call(*honest.back(), call).at(kResults + 1), 1u);
    }
    EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
    auto refused = site.knock(200);
    site.until([&] { return refused->down(); }, {refused.get()});
    EXPECT_TRUE(refused->refused()) << "all have called";
  }
}

// A failure that does not go away closes no more than a few.
TEST(Admission, LastingFailuresCloseFewConnections) {
  for (const auto& [code, most] : {std::pair(Errc::kLimit, 8u), std::pair(Errc::kSystem, 1u)}) {
    Site site;
    std::vector<std::unique_ptr<RawClient>> silent;
    for (uint64_t name = 2; name < 22; ++name)
      silent.push_back(site.connect(name, 4));
    site.impossible = [code](uint32_t) { return Error{code, "there is no such thing"}; };
    auto refused = site.knock(1);
    site.until([&] { return refused->down(); }, {refused.get()});
    EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], most);
    EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 1u);
  }
}

// For failures that do not concern descriptors one connection is closed, and not one for each
// newcomer.
TEST(Admission, OtherShortagesCloseOneConnection) {
  Site site;
  Clients silent, refused;
  for (uint64_t name = 2; name < 22; ++name)
    silent.push_back(site.connect(name, 4));
  site.impossible = [](uint32_t) { return Error{Errc::kSystem, "no memory can be locked"}; };
  for (uint64_t name = 100; name < 104; ++name)
    refused.push_back(site.knock_at_no_core(name));
  site.until([&] { return down(refused) == 4; });
  refused.push_back(site.knock(104));
  site.until([&] { return down(refused) == 5; });
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 5u);
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u);
}

// One after the other, each when it is known that the previous one helped.
TEST(Admission, SeveralThatLackDescriptorsCloseOneEach) {
  constexpr uint32_t kMost = 8;
  Site site;
  site.impossible = [&](uint32_t) -> std::optional<Error> {
    const uint64_t there = site.runtime->stats(0)[Counter::kConnections] +
                           site.runtime->stats(1)[Counter::kConnections];
    if (there < kMost)
      return std::nullopt;
    return Error{Errc::kSystem, "too many open files"};
  };
  Clients silent, honest;
  for (uint64_t name = 2; name < 2 + kMost; ++name)
    silent.push_back(site.connect(name, 4));
  for (uint64_t name = 100; name < 103; ++name)
    honest.push_back(site.knock_at_no_core(name));
  site.until([&] { return up(honest) == 3; });
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 3u);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
}

// A device without memory for what each core needs from it.
struct PoorDevice final : fabric::Device {
  explicit PoorDevice(const fabric::Capabilities& can) : can_(can) {}
  const fabric::Capabilities& capabilities() const override { return can_; }
  Result<std::unique_ptr<fabric::CompletionQueue>> create_completion_queue(uint32_t) override {
    return fail(Errc::kNoMemory, "there is no memory for a completion queue");
  }
  Result<std::unique_ptr<fabric::SharedReceiveQueue>> create_shared_receive_queue(
      uint32_t) override {
    return fail(Errc::kNoMemory, "not reached");
  }
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions&) override {
    return fail(Errc::kNoMemory, "not reached");
  }
  Result<std::unique_ptr<fabric::Listener>> listen(const fabric::Place&) override {
    return fail(Errc::kUnsupported, "not reached");
  }
  Result<void> connect(fabric::QueuePair&, const fabric::Place&,
                       std::span<const std::byte>) override {
    return fail(Errc::kUnsupported, "not reached");
  }
  std::vector<fabric::Event> poll_events(uint32_t) override { return {}; }
  int event_fd() const override { return -1; }

 private:
  const fabric::Capabilities can_;
};

TEST(Admission, AShortageForAllConnectionsClosesNone) {
  Site site({.private_receives = true});
  std::vector<std::unique_ptr<RawClient>> silent;
  for (uint64_t name = 2; name < 10; ++name)
    silent.push_back(site.connect(name, 4));
  runtime::OpenDevice poor("poor", std::make_unique<PoorDevice>(site.device().capabilities()));
  site.instead = &poor;
  auto refused = site.knock(1);
  site.until([&] { return refused->down(); }, {refused.get()});
  EXPECT_TRUE(refused->refused());
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 0u);
}

// Without a descriptor the device does not even receive the request.
// Shows: SEC-10
TEST(Admission, SilentConnectionsMakeRoomWhereNoRequestCanCome) {
  Site site;
  std::vector<std::unique_ptr<RawClient>> silent;
  for (uint64_t name = 2; name < 8; ++name)
    silent.push_back(site.connect(name));
  auto honest = std::make_unique<RawClient>(*site.memory, site.uri);  // the server has not looked
  {
    const rrdk::test::NoDescriptors now;
    site.until([&] { return site.server->stats()[Counter::kClosedForRoom] != 0; }, {honest.get()});
  }
  site.until([&] { return honest->up() || honest->down(); }, {honest.get()});
  EXPECT_EQ(site.call(*honest, {.xid = 1, .procedure = kAgain, .arguments = {1}}).at(kResults + 1),
            1u);
}

// A driver closes the descriptors of a closed connection later: meanwhile no other connections are
// closed needlessly.
TEST_P(Limits, DescriptorsThatComeBackLateAreWaitedFor) {
  Site site({}, GetParam());
  std::vector<std::unique_ptr<RawClient>> silent;
  for (uint64_t name = 2; name < 10; ++name)
    silent.push_back(site.connect(name));
  std::atomic<int> tries = 0;
  site.impossible = [&](uint32_t) -> std::optional<Error> {
    if (tries.fetch_add(1) == 5)
      return std::nullopt;
    return Error{Errc::kSystem, "too many open files"};
  };
  auto honest = site.connect(1);
  EXPECT_EQ(site.call(*honest, {.xid = 1, .procedure = kAgain, .arguments = {1}}).at(kResults + 1),
            1u);
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
}

// As soon as the client has more silent connections than any other.
TEST(Admission, AFloodReplacesItsOwnConnections) {
  constexpr uint32_t kMost = 32;
  Site site({.max_connections = kMost});
  Clients silent, flood;
  for (uint64_t name = 1; name <= kMost; ++name)
    silent.push_back(site.connect(name, 4));
  for (int i = 1; i <= 2; ++i) {
    flood.push_back(site.connect(100, 4));
    site.until([&] { return down(silent) == i; });
    EXPECT_TRUE(silent.at(i - 1)->down()) << "the oldest goes first";
  }
  for (int i = 1; i <= 8; ++i) {
    flood.push_back(site.connect(100, 4));
    site.until([&] { return down(flood) == i; });
    EXPECT_TRUE(flood.at(i - 1)->down());
  }
  EXPECT_EQ(down(silent), 2);
  auto honest = site.connect(101);
  EXPECT_EQ(site.call(*honest, {.xid = 1, .procedure = kAgain, .arguments = {1}}).at(kResults + 1),
            1u);
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 11u);
}

// No more than when they come one by one.
TEST(Admission, ABurstTakesTwoConnectionsOfOthers) {
  constexpr uint32_t kMost = 8;
  constexpr uint32_t kBurst = 16;
  Site site({.max_connections = kMost});
  Clients silent, flood;
  for (uint64_t name = 1; name <= kMost; ++name)
    silent.push_back(site.connect(name, 4));
  for (uint32_t round = 1; round <= 2; ++round) {
    for (uint32_t i = 0; i < kBurst; ++i)
      flood.push_back(site.knock_at_no_core(uint64_t{7} << 32 | i));
    site.until([&] { return up(flood) + down(flood) == round * kBurst && down(silent) >= 2; });
    EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 2 * round) << "then its own";
    EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], round * (kBurst - 2));
  }
}

// A client with one place left.
TEST(Admission, ABurstTakesNoMoreThanItsClientMayHave) {
  constexpr uint32_t kBurst = 32;
  Site site({.max_connections = 8, .max_connections_per_client = 3});
  Clients silent, burst;
  auto one = site.connect(100);
  auto two = site.connect(100);
  for (RawClient* client : {one.get(), two.get()})
    site.call(*client, {.xid = 1, .procedure = kAgain, .arguments = {1}});
  for (uint64_t name = 1; name <= 6; ++name)
    silent.push_back(site.connect(name, 4));
  for (uint32_t i = 0; i < kBurst; ++i)
    burst.push_back(site.knock_at_no_core(100));
  site.until([&] { return up(burst) + down(burst) == kBurst; });
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefusedPerClient], kBurst - 1);
  site.until([&] { return down(silent) >= 1; });
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u);
}

// There are more than one scan visits.
TEST(Admission, AFloodReplacesItsOwnAmongMany) {
  constexpr uint32_t kMost = 100;
  constexpr uint32_t kHonest = 4;
  Site site({.max_connections = kMost, .max_connections_per_client = kMost});
  std::vector<std::unique_ptr<RawClient>> honest, flood;
  for (uint64_t name = 1; name <= kHonest; ++name)
    honest.push_back(site.connect(name, 1));
  for (uint32_t i = 0; i < 2 * kMost - kHonest; ++i)
    flood.push_back(site.connect(100, 0));
  RawCall call = {.xid = 1, .procedure = kAgain, .arguments = {1}};
  for (auto& client : honest)
    EXPECT_EQ(site.call(*client, call).at(kResults + 1), 1u);
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], kMost);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
}

// A thread that reads for ever must not make the memory grow with each peer that comes and goes.
// Other servers are not affected.
TEST(Admission, EndsWhenDestroyedConnectionsCannotBeFreed) {
  constexpr uint32_t kSome = 300;  // connections of a moment
  constexpr uint32_t kMany = 3790;
  LogLines log;
  Site site({.max_connections = 2});
  Site other({.max_connections = 2});
  {
    const base::ReadSection reading;
    for (uint32_t i = 0; i < kSome; ++i) {
      auto client = site.connect(1, 0);
      site.cut(client);
    }
    *site.server->gone_links += kMany;  // as if kMany more had come and gone
    std::unique_ptr<RawClient> client;
    for (int i = 0; client == nullptr || client->up(); ++i) {
      ASSERT_LE(i, 20);
      if (client != nullptr)
        site.cut(client);
      client = site.knock(1, 0);
      site.until([&] { return client->up() || client->down(); }, {client.get()});
    }
    other.connect(1);
    *site.server->gone_links -= kMany;
    ASSERT_TRUE(client->rejection());
    EXPECT_EQ(client->rejection()->why, proto::Rejection::kConnections);
    EXPECT_EQ(log.count(LogLevel::kWarning, "refused", "cannot be freed"), 1);
  }
  std::unique_ptr<RawClient> client;
  while (client == nullptr || client->down()) {
    client = site.knock(1);
    site.until([&] { return client->up() || client->down(); }, {client.get()});
  }
  EXPECT_EQ(site.call(*client, {.xid = 1, .procedure = kAgain, .arguments = {1}}).at(kResults + 1),
            1u);
}

TEST(Admission, ClosesNoneWhenTheClientsLimitIsReached) {
  Site site({.max_connections = 4, .max_connections_per_client = 2});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (uint64_t name : {1, 1, 2, 3})
    clients.push_back(site.connect(name));
  auto more = site.knock(1);
  site.until([&] { return more->down(); }, {more.get()});
  ASSERT_TRUE(more->rejection());
  EXPECT_EQ(more->rejection()->why, proto::Rejection::kClient);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefusedPerClient], 1u);
  site.until([&] { return site.server->stats()[Counter::kConnections] == clients.size(); });
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 0u);
}

// Two connections, one on each core, of which the first has called.
struct LastMoment : testing::Test {
  LastMoment() : site({.max_connections = 2}) {
    caller = site.connect(1);
    site.call(*caller, {.xid = 1, .procedure = kAgain, .arguments = {1}});
    silent = site.connect(2);
    EXPECT_EQ(site.runtime->stats(1)[Counter::kConnections], 1u);
  }
  Site site;
  std::unique_ptr<RawClient> caller, silent;
};

TEST_F(LastMoment, AConnectionStaysWhoseFirstCallHasCome) {
  Site::send(*silent, {.xid = 1, .procedure = kAgain, .arguments = {5}});
  auto next = site.knock_at_core(0, 3);
  site.until([&] { return next->down(); }, {next.get()});
  EXPECT_TRUE(next->refused()) << "both have called";
  EXPECT_EQ(site.answer(*silent).at(kResults + 1), 5u);
  EXPECT_FALSE(silent->down());
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 0u);
}

// Its call waits in its Receive, because there is no memory for another call object.
TEST_F(LastMoment, AConnectionStaysWhoseFirstCallWaits) {
  Site::send(*silent, {.xid = 1, .procedure = kAgain, .arguments = {5}});
  std::vector<Buffer> all;
  for (uint32_t bytes : {4096u, 65536u, 1u << 20, 4u << 20}) {
    for (Buffer one = site.memory->get(bytes); one; one = site.memory->get(bytes))
      all.push_back(std::move(one));
  }
  for (int i = 0; i < 8; ++i)
    site.runtime->poll(1);
  auto next = site.knock_at_core(0, 3, 0);
  site.until([&] { return next->down(); }, {next.get()});
  EXPECT_TRUE(next->refused());
  EXPECT_FALSE(silent->down());
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 0u);
  EXPECT_EQ(site.server->stats()[Counter::kCallsReceived], 1u);
  all.clear();
  EXPECT_EQ(site.answer(*silent).at(kResults + 1), 5u);
}

// For the newcomer that the place was freed for: another newcomer at that moment is too late.
TEST_F(LastMoment, APlaceThatWasFreedForOneIsNotAnothers) {
  auto next = site.knock_at_core(0, 3);
  wait_until([&] { return site.runtime->stats(1)[Counter::kConnections] == 0; },
             [&] { return site.runtime->poll(1); });
  auto late = site.knock_at_core(0, 4);
  site.until([&] { return next->up() && late->down(); }, {next.get(), late.get()});
  EXPECT_TRUE(late->refused());
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u);
}

// Only the core of the connection that goes and that of the newcomer take part.
TEST_F(LastMoment, ABusyCoreKeepsNoNewcomerWaiting) {
  auto next = site.knock_at_core(1, 3);
  wait_until([&] { return next->up(); },
             [&] {
               next->pump();
               return site.runtime->poll(1);
             });
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u);
}

TEST_F(LastMoment, AConnectionStaysWhoseSuccessorHasHungUp) {
  auto next = site.knock_at_core(0, 3);
  next.reset();
  wait_until([&] { return site.newest->has_hung_up(); }, [] { return 0; });
  site.until([&] { return site.server->stats()[Counter::kConnectionsRefused] == 1; },
             {silent.get()});
  EXPECT_FALSE(silent->down());
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 0u);
  auto another = site.connect(4);
  site.until([&] { return silent->down(); }, {silent.get()});
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 1u) << "for this one it may go";
}

TEST_F(LastMoment, AConnectionThatEndsForAnotherReasonIsNotCounted) {
  site.server->visit([&](const ConnectionInfo& connection) {
    if (connection.core == 1) {
      EXPECT_TRUE(site.server->close(connection.id, "it is not wanted any more"));
    }
  });
  auto next = site.knock_at_core(0, 3);
  site.until([&] { return next->up(); }, {next.get()});
  EXPECT_EQ(site.server->stats()[Counter::kClosedForRoom], 0u);
  EXPECT_EQ(site.server->stats()[Counter::kConnectionsRefused], 0u);
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
  Site site({.credits = kCalls});
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
  Site site({.credits = kCalls, .first_credits = kCalls});
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
