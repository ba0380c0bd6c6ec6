// Which connections make room for newcomers when a server has no space for all: those that never
// made a call, and no others.
#include <gmock/gmock.h>

#include <algorithm>

#include "../client/log_lines.h"
#include "base/rcu.h"
#include "site.h"
#include "test/no_descriptors.h"

namespace rrdk::loopback {
namespace {

constexpr size_t kResults = 13;  // of a reply without chunks: the first word of results

struct MakingRoom : testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, MakingRoom,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

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

// When there are no buffers for another connection's Receives, older connections that never made a
// call make way, and those that have made one stay.
// Shows: SEC-10
TEST_P(MakingRoom, SilentConnectionsMakeRoom) {
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

TEST_P(MakingRoom, SilentConnectionsMakeRoomWhereTheirNumberIsLimited) {
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
TEST_P(MakingRoom, AFloodMakesRoomForItself) {
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
TEST_P(MakingRoom, ForWantOfBuffersConnectionsOfTheSameCoreMakeRoom) {
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
TEST_P(MakingRoom, SilentConnectionsMakeRoomWhereTheSystemHasNone) {
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
TEST(RoomForNewcomers, LastingFailuresCloseFewConnections) {
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
TEST(RoomForNewcomers, OtherShortagesCloseOneConnection) {
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
TEST(RoomForNewcomers, SeveralThatLackDescriptorsCloseOneEach) {
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
  std::vector<fabric::Event> poll_events(uint32_t, base::Budget&) override { return {}; }
  int event_fd() const override { return -1; }

 private:
  const fabric::Capabilities can_;
};

TEST(RoomForNewcomers, AShortageForAllConnectionsClosesNone) {
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
TEST(RoomForNewcomers, SilentConnectionsMakeRoomWhereNoRequestCanCome) {
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
TEST_P(MakingRoom, DescriptorsThatComeBackLateAreWaitedFor) {
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
TEST(RoomForNewcomers, AFloodReplacesItsOwnConnections) {
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
TEST(RoomForNewcomers, ABurstTakesTwoConnectionsOfOthers) {
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
TEST(RoomForNewcomers, ABurstTakesNoMoreThanItsClientMayHave) {
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
TEST(RoomForNewcomers, AFloodReplacesItsOwnAmongMany) {
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
TEST(RoomForNewcomers, EndsWhenDestroyedConnectionsCannotBeFreed) {
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

TEST(RoomForNewcomers, ClosesNoneWhenTheClientsLimitIsReached) {
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

}  // namespace
}  // namespace rrdk::loopback
