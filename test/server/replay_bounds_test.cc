// What the duplicate request cache forgets, and what it must not.
#include <array>
#include <deque>
#include <vector>

#include "../client/log_lines.h"
#include "server/client_table.h"
#include "server/replay_cache.h"
#include "site.h"
#include "test/seed.h"

namespace rrdk::loopback {
namespace {

constexpr size_t kResults = 13;  // of a reply without chunks: the first word of results

TEST(ReplayBounds, TheOldestAreForgotten) {
  constexpr uint32_t kHeld = 40;
  Site site({.credits = 16, .replay = {.entries = 40, .bytes = 4096, .max_reply = 1024}});
  auto client = site.connect();
  auto run = [&](uint32_t xid, uint32_t length) {
    RawCall call = {.xid = xid, .procedure = kAppendData, .arguments = {length}};
    return site.call(*client, call).at(kResults);
  };
  for (uint32_t i = 1; i <= kHeld; ++i)
    EXPECT_EQ(run(i, 4), i);
  EXPECT_EQ(site.server->stats()[Counter::kReplayForgotten], 0u);
  EXPECT_EQ(run(kHeld, 4), kHeld);
  EXPECT_EQ(run(kHeld + 1, 4), kHeld + 1);  // instead of 1
  EXPECT_EQ(run(kHeld, 4), kHeld);
  EXPECT_EQ(run(1, 4), kHeld + 2);  // which then runs again: its client had the reply long ago
  EXPECT_EQ(site.server->stats()[Counter::kReplayForgotten], 2u);
  // Fewer replies, if they are large: with their overhead three of these fit.
  for (uint32_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(run(100 + i, 940), kHeld + 2 + i);
    for (uint32_t back = 0; back < 3 && back < i; ++back)
      EXPECT_EQ(run(100 + i - back, 940), kHeld + 2 + i - back);
  }
  uint32_t before = site.service.runs;
  run(150 - kHeld + 1, 940);  // SYSTEM_ERR
  EXPECT_EQ(site.service.runs, before);
  // Another client has its own entries.
  auto other = site.connect(2);
  RawCall call = {.xid = 1, .procedure = kAppend, .arguments = {1}};
  for (; call.xid < 100; ++call.xid)
    site.call(*other, call);
  EXPECT_EQ(run(150, 940), kHeld + 52);
}

// A client that comes back gets its unanswered replies, however busy its other connections were.
TEST(ReplayBounds, ConnectionsDoNotPushOutEachOthers) {
  Site site({.credits = 16, .replay = {.entries = 16}});
  auto broken = site.connect();
  auto busy = site.connect();
  RawCall call = {.xid = 1, .procedure = kAppend, .arguments = {1}};
  for (; call.xid <= 16; ++call.xid)
    EXPECT_EQ(site.call(*broken, call).at(kResults), call.xid);
  site.cut(broken);
  for (; call.xid <= 500; ++call.xid)
    EXPECT_EQ(site.call(*busy, call).at(kResults), call.xid);
  auto again = site.connect();
  for (call.xid = 1; call.xid <= 16; ++call.xid)
    EXPECT_EQ(site.call(*again, call).at(kResults), call.xid);
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 16u);
  for (call.xid = 1000; call.xid != 1040; ++call.xid) {
    site.call(*again, call);
    site.cut(again);
    again = site.connect();
  }
  call.xid = 1039;
  uint32_t kept = site.call(*again, call).at(kResults);
  EXPECT_EQ(kept, 500u + 40);
}

// A call that a client repeats on each new connection stays, however often the connection breaks
// and whatever else the client calls meanwhile.
TEST(ReplayBounds, RepeatedCallsAreNotForgotten) {
  Site site({.credits = 1, .replay = {.entries = 1, .bytes = 4096, .max_reply = 1024}});
  auto client = site.connect();
  RawCall lost = {.xid = 1, .procedure = kAppendData, .arguments = {940}};
  Received first = site.call(*client, lost);
  for (uint32_t xid = 2; xid <= 40; xid += 2) {
    site.cut(client);
    client = site.connect();
    for (uint32_t again : {1u, 2u}) {
      EXPECT_EQ(site.call(*client, lost).words, first.words) << again;
      RawCall other = {.xid = xid + again, .procedure = kAppend, .arguments = {again}};
      EXPECT_EQ(site.call(*client, other).at(kResults), xid + again - 1);
    }
  }
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 40u);
}

// A reply that the client had no time to ask for stays, too.
TEST(ReplayBounds, ConnectionsWithoutCallsCostNothing) {
  Site site;
  auto client = site.connect();
  RawCall lost = {.xid = 1, .procedure = kAppend, .arguments = {1}};
  site.call(*client, lost);
  for (int i = 0; i < 20; ++i) {
    site.cut(client);
    client = site.connect();
  }
  EXPECT_EQ(site.call(*client, lost).at(kResults), 1u);
}

TEST(ReplayBounds, ForgottenCallsAreNotRunAgain) {
  Site site({.credits = 16, .replay = {.entries = 16, .bytes = 4096, .max_reply = 1024}});
  auto client = site.connect();
  RawCall call = {.xid = 1, .procedure = kAppendData, .arguments = {940}};
  for (; call.xid <= 8; ++call.xid)
    EXPECT_EQ(site.call(*client, call).at(kResults), call.xid);
  for (call.xid = 1; call.xid <= 4; ++call.xid)
    EXPECT_EQ(site.call(*client, call).at(kResults - 1),
              static_cast<uint32_t>(AcceptStat::kSystemErr));
  EXPECT_EQ(site.service.runs, 8u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayLost], 4u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayNotKept], 4u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayForgotten], 0u);
}

// However replies of all sizes replace each other: a repeated answer equals the first one.
TEST(ReplayBounds, RepeatedAnswersEqualTheFirst) {
  std::mt19937_64 random(test::run_seed());
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Site site({.credits = 16, .replay = {.entries = 16, .bytes = 5000, .max_reply = 3000}});
  auto client = site.connect();
  std::array<uint32_t, 60> runs{};
  std::array<uint32_t, 60> lengths{};
  for (uint32_t& length : lengths)
    length = below(4) == 0 ? below(2500) : below(60);
  for (int step = 0; step < 3000; ++step) {
    uint32_t xid = below(runs.size());
    uint32_t before = site.service.runs;
    RawCall call = {.xid = xid, .procedure = kAppendData, .arguments = {lengths[xid]}};
    Received reply = site.call(*client, call);
    uint32_t run = reply.at(kResults);
    if (reply.at(kResults - 1) == static_cast<uint32_t>(AcceptStat::kSystemErr)) {
      EXPECT_EQ(site.service.runs, before) << "its reply had no room any more";
      continue;
    }
    if (site.service.runs == before)
      EXPECT_EQ(run, runs[xid]);
    else
      EXPECT_EQ(run, before + 1);
    runs[xid] = run;
    EXPECT_EQ(reply.at(kResults + 1), lengths[xid]);
    EXPECT_EQ(reply.words.size(), kResults + 3 + (lengths[xid] + 3) / 4);
    EXPECT_EQ(reply.words.back(), kWord);
  }
  EXPECT_GT(site.server->stats()[Counter::kReplayAnswered], 0u);
  EXPECT_GT(site.server->stats()[Counter::kReplayForgotten], 0u);
}

// All of a client's connections break at once, as they do when a network fails: each of its calls
// is recognised on whatever connection it comes again.
TEST(ReplayBounds, AllConnectionsOfAClientBrokenAtOnce) {
  constexpr uint32_t kConnections = 24, kCalls = 8;
  Site site({.credits = kCalls});
  std::vector<std::unique_ptr<RawClient>> clients;
  RawCall call = {.xid = 1, .procedure = kAppend, .arguments = {1}};
  for (uint32_t i = 0; i < kConnections; ++i) {
    clients.push_back(site.connect(1, kCalls));
    // More calls than it can have outstanding: the others no longer matter.
    for (uint32_t k = 0; k < 3 * kCalls; ++k, ++call.xid)
      EXPECT_EQ(site.call(*clients[i], call).at(kResults), call.xid);
  }
  for (auto& client : clients)
    site.cut(client);
  const uint32_t runs = site.service.runs;
  for (uint32_t i = 0; i < kConnections; ++i) {
    clients[i] = site.connect(1, kCalls);
    for (uint32_t k = 2 * kCalls; k < 3 * kCalls; ++k) {
      call.xid = 1 + i * 3 * kCalls + k;
      EXPECT_EQ(site.call(*clients[i], call).at(kResults), call.xid);
    }
  }
  EXPECT_EQ(site.service.runs, runs);
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], uint64_t{kConnections} * kCalls);
  EXPECT_EQ(site.server->stats()[Counter::kReplayRefused], 0u);
}

// The same, but the server notices none of the ends before the repetitions come.
TEST(ReplayBounds, ConnectionsThatStillLookAlive) {
  constexpr uint32_t kConnections = 16;
  Site site({.credits = 4});
  std::vector<std::unique_ptr<RawClient>> clients;
  RawCall call = {.xid = 1, .procedure = kAppend, .arguments = {1}};
  for (uint32_t i = 0; i < 2 * kConnections; ++i) {
    clients.push_back(site.connect(1, 4));
    call.xid = i % kConnections;
    EXPECT_EQ(site.call(*clients[i], call).at(kResults), call.xid + 1);
  }
  EXPECT_EQ(site.service.runs, kConnections);
}

// A call that was sent on an old connection, repeated on a new one, and is read from the old one
// last. However much the new one was used meanwhile, it is not run again.
TEST(ReplayBounds, AnOldConnectionMayBeSlow) {
  for (bool ends : {false, true}) {
    Site site({.credits = 16, .replay = {.entries = 32}});
    auto old = site.connect();
    auto fresh = site.connect();
    RawCall late = {.xid = 1, .procedure = kAppend, .arguments = {1}};
    EXPECT_EQ(site.call(*fresh, late).at(kResults), 1u);
    RawCall other = {.xid = 2, .procedure = kAppend, .arguments = {1}};
    for (; other.xid <= 500; ++other.xid)
      EXPECT_EQ(site.call(*fresh, other).at(kResults), other.xid);
    if (ends)
      site.cut(fresh);
    site.call(*old, late);
    EXPECT_EQ(site.service.runs, 500u) << ends;
  }
}

// Clients that come and go replace nothing, however many they are.
TEST(ReplayBounds, OtherClientsThatComeBy) {
  Site site({.credits = 4, .replay = {.entries = 4, .bytes = 1024, .max_reply = 512}});
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {1}};
  auto run = [&](uint64_t name) {
    auto client = site.connect(name, 4);
    uint32_t number = site.call(*client, call).at(kResults);
    site.cut(client);
    return number;
  };
  EXPECT_EQ(run(1), 1u);
  for (uint32_t name = 2; name <= 300; ++name)
    EXPECT_EQ(run(name), name);
  EXPECT_EQ(run(1), 1u);
  EXPECT_EQ(site.service.runs, 300u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayForgotten], 0u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayRefused], 0u);
}

// Beyond the bound a new client's calls are not run, and a log line says why; calls that may run
// twice are run.
TEST(ReplayBounds, CallsOfClientsBeyondTheBoundAreNotRun) {
  LogLines log;
  Site site({.replay = {.clients = 2}});
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {1}};
  auto run = [&](uint64_t name) {
    auto client = site.connect(name);
    uint32_t number = site.call(*client, call).at(kResults);
    site.cut(client);
    return number;
  };
  EXPECT_EQ(run(1), 1u);
  auto two = site.connect(2);
  EXPECT_EQ(site.call(*two, call).at(kResults), 2u);
  auto three = site.connect(3);
  EXPECT_EQ(site.call(*three, call).at(kResults - 1),
            static_cast<uint32_t>(AcceptStat::kSystemErr));
  EXPECT_EQ(site.service.runs, 2u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayRefused], 1u);
  EXPECT_EQ(log.count(LogLevel::kWarning, "was not run", "ReplayOptions::clients"), 1);
  EXPECT_EQ(log.count(LogLevel::kWarning, "was not run", "more since the last"), 0);
  RawCall harmless = {.xid = 8, .procedure = kAgain, .arguments = {1}};
  EXPECT_EQ(site.call(*three, harmless).at(kResults), 3u);
  EXPECT_EQ(run(1), 1u);
  EXPECT_EQ(site.call(*two, call).at(kResults), 2u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayUnprotected], 0u);
}

TEST(ReplayBounds, HostsOfAnIpv6NetworkShareABound) {
  ReplayOptions options = {.clients = 8};
  std::unique_ptr<Memory> memory = make_memory();
  server::ClientTable table(options, {.bytes = 1 << 20}, *memory, 1);
  table.keep_replies(true);
  constexpr fabric::Identity kNetwork = {{10, 1, 0}};
  auto enter = [&](uint64_t host, const fabric::Identity& group) {
    return table.enter({.identity = {{10, 1, host}}, .group = group, .origin = group}, 3, 0);
  };
  // Connections of all its hosts count.
  server::Client* one = enter(1, kNetwork);
  server::Client* two = enter(2, kNetwork);
  server::Client* three = enter(3, kNetwork);
  ASSERT_TRUE(one && two && three);
  EXPECT_NE(one, two) << "a cache of its own for each";
  EXPECT_EQ(enter(4, kNetwork), nullptr);
  for (server::Client* client : {one, two, three})
    table.leave(*client, 0);
}

// Clients of a server by themselves: each makes a call that must not run twice.
struct Clients {
  explicit Clients(const ReplayOptions& options) : table(options, {.bytes = 1 << 20}, *memory, 1) {
    table.keep_replies(true);
  }
  ~Clients() {
    for (server::Client* client : present)
      table.leave(*client, now_ns);
  }

  server::Client& enter(uint64_t name, uint64_t origin, fabric::HasEnded has_ended = nullptr) {
    return *table.enter({.identity = {{name, 0, 0}},
                         .group = {{name, 0, 0}},
                         .origin = {{origin, 0, 0}},
                         .has_ended = has_ended},
                        1, now_ns);
  }
  bool call(server::Client& client) {
    if (table.take_place(client, now_ns).lacks != nullptr)
      return false;
    server::ReplayLane* lane = client.replays.enter(now_ns, true);
    engine::ServedCall context;
    EXPECT_EQ(client.replays.begin(context, lane, {.call = 7}, now_ns),
              server::ReplayCache::Verdict::kRun);
    client.replays.finish(context, false, false, now_ns);
    client.replays.leave(lane, now_ns);
    return true;
  }
  // Comes, calls, and stays or goes.
  bool stay(uint64_t name, uint64_t origin) {
    present.push_back(&enter(name, origin));
    return call(*present.back());
  }
  bool visit(uint64_t name, uint64_t origin, fabric::HasEnded has_ended = nullptr) {
    server::Client& client = enter(name, origin, has_ended);
    const bool is_done = call(client);
    table.leave(client, now_ns);
    return is_done;
  }
  bool is_remembered(uint64_t name, uint64_t origin) {
    server::Client& client = enter(name, origin);
    const bool is_known = !client.replays.empty();
    table.leave(client, now_ns);
    return is_known;
  }
  uint64_t made_way() const { return table.counters().replay_made_way; }

  std::unique_ptr<Memory> memory = make_memory();
  server::ClientTable table;
  std::vector<server::Client*> present;
  uint64_t now_ns = 1'000'000'000;
};

constexpr uint64_t kSecond = 1'000'000'000;

// However many clients one origin sends, there are places for others, whether the clients stay, or
// go and may come back.
TEST(ReplayPlaces, AreLeftForOtherOrigins) {
  for (bool stays : {false, true}) {
    Clients clients({.clients = 64});
    auto come = [&](uint64_t name, uint64_t origin) {
      return stays ? clients.stay(name, origin) : clients.visit(name, origin);
    };
    uint32_t had = 0;
    for (uint64_t name = 1000; name < 1200; ++name)
      had += come(name, 1);
    EXPECT_EQ(had, 32u) << "half";
    had = 0;
    for (uint64_t name = 2000; name < 2200; ++name)
      had += come(name, 2);
    EXPECT_EQ(had, 16u) << "a quarter";
    for (uint64_t name = 1; name <= 16; ++name)
      EXPECT_TRUE(clients.visit(name, 100 + name));
    EXPECT_EQ(clients.made_way(), 0u);
    EXPECT_EQ(clients.table.places_taken(), 64u);
  }
}

// Connections without such calls take no place.
TEST(ReplayPlaces, AreTakenByCalls) {
  Clients clients({.clients = 4});
  for (uint64_t name = 1000; name < 1200; ++name)
    clients.present.push_back(&clients.enter(name, name));
  EXPECT_EQ(clients.table.places_taken(), 0u);
  EXPECT_TRUE(clients.visit(1, 1));
  EXPECT_EQ(clients.table.places_taken(), 1u);
}

// Until the end of the time window, if there are enough places.
TEST(ReplayPlaces, AreKeptForTheTimeWindow) {
  Clients clients({.clients = 4, .window_ms = 60'000});
  EXPECT_TRUE(clients.visit(1, 1));
  for (int i = 0; i < 3; ++i) {
    clients.now_ns += 60 * kSecond;
    clients.table.tidy(clients.now_ns);
    EXPECT_TRUE(clients.is_remembered(1, 1));
  }
  clients.now_ns += 60 * kSecond + 1;
  clients.table.tidy(clients.now_ns);
  EXPECT_EQ(clients.table.places_taken(), 0u);
}

// A process that has exited repeats no calls.
TEST(ReplayPlaces, AreFreedByExitedProcesses) {
  static std::atomic<uint64_t> exited;
  const fabric::HasEnded is_odd = [](const fabric::Identity& who) {
    return who.words[0] % 2 != 0 && who.words[0] < exited;
  };
  exited = 0;
  Clients clients({.clients = 400});
  for (uint64_t name = 1; name <= 200; ++name)
    EXPECT_TRUE(clients.visit(name, 1, is_odd));
  EXPECT_FALSE(clients.visit(1000, 1, is_odd)) << "they all may come back";
  exited = 1000;
  uint32_t had = 0;
  for (uint64_t name = 1000; had < 100 && name < 1'000'000; name += 2)
    had += clients.visit(name, 1, is_odd);
  EXPECT_EQ(had, 100u) << "the odd half";
  for (uint64_t name = 1; name <= 200; ++name)
    EXPECT_EQ(clients.is_remembered(name, 1), name % 2 == 0) << name;
  EXPECT_EQ(clients.made_way(), 0u) << "nothing was lost";
}

// If no place is free otherwise, the client that has been away for longest loses its place: after
// the second bound, not before.
TEST(ReplayPlaces, AreTakenFromTheClientAwayForLongest) {
  Clients clients({.clients = 4, .window_ms = 60'000, .min_window_ms = 10'000});
  for (uint64_t name = 1; name <= 4; ++name) {
    EXPECT_TRUE(clients.visit(name, name));
    clients.now_ns += kSecond;
  }
  EXPECT_FALSE(clients.visit(5, 5));
  clients.now_ns += 6 * kSecond;
  EXPECT_FALSE(clients.visit(5, 5)) << "ten seconds, and no longer";
  clients.now_ns += 1;
  EXPECT_TRUE(clients.visit(5, 5));
  EXPECT_EQ(clients.made_way(), 1u);
  EXPECT_FALSE(clients.visit(6, 6)) << "2 left a second later";
  EXPECT_FALSE(clients.is_remembered(1, 1));
  for (uint64_t name = 2; name <= 4; ++name)
    EXPECT_TRUE(clients.is_remembered(name, name)) << name;
  // Checking them was a visit: 5 is the first now.
  clients.now_ns += 10 * kSecond + 1;
  EXPECT_TRUE(clients.visit(6, 6));
  EXPECT_FALSE(clients.is_remembered(5, 5));
  // As before, if the options say so.
  Clients strict({.clients = 1, .window_ms = 60'000, .min_window_ms = 0});
  EXPECT_TRUE(strict.visit(1, 1));
  strict.now_ns += 60 * kSecond;
  EXPECT_FALSE(strict.visit(2, 2));
  strict.now_ns += 1;
  EXPECT_TRUE(strict.visit(2, 2));
  EXPECT_EQ(strict.made_way(), 0u);
}

// First from an origin that has more than its share, from the client that left first; and no origin
// takes the places of others.
TEST(ReplayPlaces, AreTakenFromTheOriginWithTooMany) {
  Clients clients({.clients = 8, .min_window_ms = 10'000});
  EXPECT_TRUE(clients.visit(1, 1));
  for (uint64_t name = 100; name < 103; ++name)
    EXPECT_TRUE(clients.visit(name, 2));
  for (uint64_t name = 3; name <= 6; ++name)
    EXPECT_TRUE(clients.visit(name, name));
  EXPECT_EQ(clients.table.places_taken(), 8u);
  clients.now_ns += 10 * kSecond + 1;
  EXPECT_TRUE(clients.visit(103, 2));
  EXPECT_FALSE(clients.is_remembered(100, 2)) << "its own";
  EXPECT_TRUE(clients.visit(7, 7));
  EXPECT_FALSE(clients.is_remembered(101, 2));
  EXPECT_TRUE(clients.is_remembered(1, 1));
}

// A client may leave much behind: the memory is freed part by part, and the client's place at once.
TEST(ReplayPlaces, AreFreeAtOnce) {
  constexpr uint32_t kCalls = 1000;
  Clients clients({.clients = 1, .min_window_ms = 1000});
  server::Client& large = clients.enter(1, 1);
  EXPECT_EQ(clients.table.take_place(large, 0).lacks, nullptr);
  server::ReplayLane* lane = large.replays.enter(0);
  lane->raise(kCalls, false);
  for (uint64_t xid = 0; xid < kCalls; ++xid) {
    engine::ServedCall context;
    context.header.xid = static_cast<uint32_t>(xid);
    EXPECT_EQ(large.replays.begin(context, lane, {.call = xid}, 0),
              server::ReplayCache::Verdict::kRun);
    large.replays.finish(context, false, false, 0);
  }
  large.replays.leave(lane, clients.now_ns);
  clients.table.leave(large, clients.now_ns);
  clients.now_ns += 2 * kSecond;
  EXPECT_TRUE(clients.stay(2, 2));
  EXPECT_FALSE(clients.is_remembered(1, 1));
  EXPECT_LT(clients.table.counters().replay_forgotten, kCalls);
  for (int i = 0; i < 10; ++i)
    clients.table.tidy(clients.now_ns);
  EXPECT_EQ(clients.table.counters().replay_forgotten, kCalls);
}

// A program may prefer calls that run twice to calls that do not run.
TEST(ReplayPlaces, CallsWithoutThemMayRunUnprotected) {
  LogLines log;
  Site site({.replay = {.clients = 1, .run_unprotected = true}});
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {1}};
  auto one = site.connect(1);
  EXPECT_EQ(site.call(*one, call).at(kResults), 1u);
  auto two = site.connect(2);
  EXPECT_EQ(site.call(*two, call).at(kResults), 2u);
  EXPECT_EQ(site.call(*two, call).at(kResults), 3u);
  EXPECT_EQ(site.call(*one, call).at(kResults), 1u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayUnprotected], 2u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayRefused], 0u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayClients], 1u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayPlaces], 1u);
  EXPECT_EQ(log.count(LogLevel::kWarning, "would run again", "ReplayOptions::clients"), 1);
  // A client without an identity still has none.
  auto nobody = site.connect(0);
  EXPECT_EQ(site.call(*nobody, call).at(kResults - 1),
            static_cast<uint32_t>(AcceptStat::kSystemErr));
}

// A cache alone, with calls that are never answered: their replies are not kept.
struct Alone {
  explicit Alone(uint32_t outstanding_in, uint64_t room_bytes = 1 << 20,
                 const ReplayOptions& o = {.entries = 1})
      : outstanding(outstanding_in), room(room_bytes, nullptr), cache(o, 0, room, counters) {}

  server::ReplayLane* enter(uint64_t now_ns = 0) {
    server::ReplayLane* lane = cache.enter(now_ns);
    if (lane != nullptr)
      lane->raise(outstanding, false);
    return lane;
  }

  server::ReplayCache::Verdict begin(server::ReplayLane& lane, uint32_t xid, uint64_t now_ns = 0) {
    engine::ServedCall& context = contexts.emplace_back();
    context.header.xid = xid;
    auto verdict = cache.begin(context, &lane, {.call = xid}, now_ns);
    if (verdict == Verdict::kSeen) {
      EXPECT_EQ(cache.take(context, &lane, *memory), server::ReplayCache::Answer::kNotKept);
    }
    return verdict;
  }
  void run(server::ReplayLane& lane, uint32_t xid, uint64_t now_ns = 0) {
    EXPECT_EQ(begin(lane, xid, now_ns), Verdict::kRun);
    EXPECT_EQ(cache.finish(contexts.back(), false, false, now_ns), nullptr);
  }

  using Verdict = server::ReplayCache::Verdict;
  const uint32_t outstanding;
  server::ReplayCounters counters;
  server::ReplayRoom room;
  server::ReplayCache cache;
  std::deque<engine::ServedCall> contexts;
  std::unique_ptr<Memory> memory = make_memory();
};

TEST(ReplayBounds, CallsThatRunAreNotForgotten) {
  Alone alone(4);
  server::ReplayLane& lane = *alone.enter();
  constexpr uint32_t kHeld = 3 * server::ReplayLane::kBlock;  // 20 are too few
  for (uint32_t xid = 1; xid <= kHeld; ++xid)
    EXPECT_EQ(alone.begin(lane, xid), Alone::Verdict::kRun);
  EXPECT_EQ(alone.begin(lane, kHeld + 1), Alone::Verdict::kAllRun);
  alone.cache.finish(alone.contexts.front(), false, false, 0);
  EXPECT_EQ(alone.begin(lane, kHeld + 2), Alone::Verdict::kRun);
  EXPECT_EQ(alone.begin(lane, 2), Alone::Verdict::kWait);
}

// Principals are compared, too: a call that equals another principal's in all else does not get
// that one's reply.
TEST(ReplayBounds, PrincipalsShareNoReply) {
  Alone alone(4);
  server::ReplayLane& lane = *alone.enter();
  alone.run(lane, 7);
  for (const std::array<uint64_t, 2>& principal : {std::array<uint64_t, 2>{1, 0}, {0, 1}}) {
    engine::ServedCall& context = alone.contexts.emplace_back();
    context.header.xid = 7;
    EXPECT_EQ(alone.cache.begin(context, &lane, {.call = 7, .principal = principal}, 0),
              Alone::Verdict::kRun);
    alone.cache.finish(context, false, false, 0);
  }
  EXPECT_EQ(alone.begin(lane, 7), Alone::Verdict::kSeen);
}

// A connection takes the memory that it uses, and no more than its client could have to repeat.
TEST(ReplayBounds, LanesGrowWithCredits) {
  Alone alone(4);
  server::ReplayLane& lane = *alone.enter();
  EXPECT_EQ(alone.room.taken(), server::ReplayCache::kPrepaid);
  for (uint32_t xid = 1; xid <= 1000; ++xid)
    alone.run(lane, xid);
  EXPECT_EQ(alone.room.taken(), server::ReplayCache::kPrepaid);
  lane.raise(24, false);
  for (uint32_t xid = 2000; xid <= 3000; ++xid)
    alone.run(lane, xid);
  EXPECT_EQ(alone.room.taken(), server::ReplayLane::cost_of(40) + server::ReplayLane::kFirstRing);
  for (uint32_t xid = 3000; xid > 3000 - 40; --xid)
    EXPECT_EQ(alone.begin(lane, xid), Alone::Verdict::kSeen) << xid;
}

// In version 2 a call may be sent again after all others that were outstanding with it.
TEST(ReplayBounds, ACallThatIsSentAgainInVersionTwo) {
  constexpr uint32_t kCredits = 64;
  Alone alone(4);
  server::ReplayLane& lane = *alone.enter();
  lane.raise(kCredits, true);
  for (uint32_t xid = 1; xid <= 2 * kCredits - 1; ++xid)
    alone.run(lane, xid);
  EXPECT_EQ(alone.begin(lane, 1), Alone::Verdict::kSeen);
}

// An ended connection keeps its replies in less memory. They expire with time.
TEST(ReplayBounds, EndedConnectionsKeepFewerReplies) {
  constexpr uint32_t kOutstanding = 4;
  constexpr uint64_t kWindow = 2'000'000;
  constexpr uint32_t kRepeated = kOutstanding + server::ReplayLane::kSentAgain;
  constexpr uint64_t kLast = server::ReplayLane::cost_of(kRepeated);
  Alone alone(kOutstanding, 1 << 20, {.entries = 1, .window_ms = 2});
  server::ReplayLane* one = alone.enter();
  server::ReplayLane* two = alone.enter();
  for (uint32_t xid = 1; xid <= 1000; ++xid)
    alone.run(*one, xid);
  alone.cache.leave(one, 0);
  EXPECT_EQ(alone.room.taken(), kLast + server::ReplayCache::kPrepaid);
  alone.run(*two, 1000 - kRepeated);  // which was forgotten
  for (uint32_t xid = 1000; xid > 1000 - kRepeated; --xid)
    EXPECT_EQ(alone.begin(*two, xid), Alone::Verdict::kSeen);
  alone.cache.leave(two, kWindow);
  EXPECT_FALSE(alone.cache.empty());
  uint32_t most = 1000;
  EXPECT_TRUE(alone.cache.tidy(2 * kWindow, most));
  EXPECT_FALSE(alone.cache.empty());
  EXPECT_EQ(most, 1000u) << "none is too old";
  most = 5;
  EXPECT_FALSE(alone.cache.tidy(2 + 2 * kWindow, most)) << "part by part";
  most = 1000;
  EXPECT_TRUE(alone.cache.tidy(2 + 2 * kWindow, most));
  EXPECT_TRUE(alone.cache.empty());
  EXPECT_EQ(alone.room.taken(), 0u);
}

// After the window a call that looks like an old one is new, even if nothing has been tidied up
// yet.
TEST(ReplayBounds, CallsAfterTheWindowAreNew) {
  constexpr uint64_t kWindow = 2'000'000;
  Alone alone(4, 1 << 20, {.entries = 1, .window_ms = 2});
  server::ReplayLane* one = alone.enter();
  for (uint32_t xid = 1; xid <= 20; ++xid)
    alone.run(*one, xid);
  alone.cache.leave(one, 0);
  server::ReplayLane& two = *alone.enter(kWindow);
  EXPECT_EQ(alone.begin(two, 20, kWindow), Alone::Verdict::kSeen);
  EXPECT_EQ(alone.begin(two, 19, kWindow + 1), Alone::Verdict::kRun);
}

// A repeated call may have expired, or its reply be the oldest, while space for it is made.
TEST(ReplayBounds, ARepeatedReplyStaysWhileSpaceIsMade) {
  constexpr uint64_t kWindow = 2'000'000;
  constexpr uint32_t kCalls = 20;
  Alone alone(4, server::ReplayCache::kPrepaid + server::ReplayLane::cost_of(kCalls),
              {.entries = 1, .window_ms = 2});
  server::ReplayLane* one = alone.enter();
  for (uint32_t xid = 1; xid <= kCalls; ++xid)
    alone.run(*one, xid);
  server::ReplayLane& other = *alone.enter();  // has nothing prepaid
  alone.cache.leave(one, 0);
  engine::ServedCall& context = alone.contexts.emplace_back();
  context.header.xid = 12;
  EXPECT_EQ(alone.cache.begin(context, &other, {.call = 12}, kWindow), Alone::Verdict::kSeen);
  // Another connection's call makes it late.
  server::ReplayLane& third = *alone.enter(kWindow);
  alone.begin(third, 999, kWindow + 1);
  EXPECT_EQ(alone.cache.take(context, &other, *alone.memory),
            server::ReplayCache::Answer::kNotKept);
  EXPECT_EQ(alone.begin(other, 12, 2 * kWindow), Alone::Verdict::kSeen);
}

// Without space a call is not run; calls that can be repeated are not forgotten for it.
TEST(ReplayBounds, TheTotalBoundForgetsNoCallThatMayBeRepeated) {
  Alone alone(48, 2 * server::ReplayCache::kPrepaid);
  server::ReplayLane& one = *alone.enter();
  server::ReplayLane& two = *alone.enter();
  const uint32_t held = 3 * server::ReplayLane::kBlock;
  for (uint32_t xid = 1; xid <= held; ++xid)
    alone.run(one, xid);
  EXPECT_EQ(alone.begin(one, held + 1), Alone::Verdict::kNoRoom) << "and 1 may be repeated";
  EXPECT_EQ(alone.begin(one, 1), Alone::Verdict::kSeen);
  alone.run(two, 100);
  server::ReplayLane& three = *alone.enter();
  EXPECT_EQ(alone.begin(three, 200), Alone::Verdict::kNoRoom);
  alone.cache.leave(&two, 0);
  EXPECT_EQ(alone.begin(three, 200), Alone::Verdict::kRun) << "it left less than it had";
}

// Replies of ended connections make way, the oldest first; the cache remembers that their calls
// have run, so that none runs twice.
TEST(ReplayBounds, RepliesOfEndedConnectionsMakeRoom) {
  constexpr uint32_t kLanes = 20;
  Site site({.credits = 4,
             .first_credits = 4,
             .replay = {.entries = 1, .bytes = 8192, .max_reply = 8192, .total_bytes = 40'000}});
  RawCall call = {.xid = 1, .procedure = kAppendData, .arguments = {900}};
  for (; call.xid <= kLanes; ++call.xid) {
    auto client = site.connect();
    EXPECT_EQ(site.call(*client, call).at(kResults), call.xid);
    site.cut(client);
  }
  EXPECT_GT(site.server->stats()[Counter::kReplayNotKept], 0u);
  auto client = site.connect();
  uint32_t kept = 0;
  for (call.xid = kLanes; call.xid != 0; --call.xid) {
    const bool has_reply = site.call(*client, call).at(kResults - 1) == 0;
    EXPECT_TRUE(!has_reply || kept == kLanes - call.xid) << "the oldest go first";
    kept += has_reply;
  }
  EXPECT_GT(kept, 2u);
  EXPECT_LT(kept, kLanes);
  EXPECT_EQ(site.service.runs, kLanes);
  EXPECT_EQ(site.server->stats()[Counter::kReplayRefused], 0u);
}

// The cache is part of the one budget: its memory is not available for buffers, and the other way
// round.
TEST(ReplayBounds, CountAgainstTheMemorysBudget) {
  auto memory = Memory::create({.bytes = 32 << 20, .hugepages = HugepagePolicy::kNever}).value();
  auto most = [&] {
    std::vector<Buffer> all;
    for (Buffer each = memory->get(1 << 20); each; each = memory->get(1 << 20))
      all.push_back(std::move(each));
    return static_cast<uint32_t>(all.size());
  };
  const uint32_t whole = most();
  {
    server::ReplayRoom room(16 << 20, memory.get());
    EXPECT_TRUE(room.take(5 << 20));
    EXPECT_EQ(most(), whole - 6) << "three units of 2 MiB";
    EXPECT_FALSE(room.take(12 << 20)) << "beyond its own bound";
    EXPECT_EQ(most(), whole - 6);
    room.give(5 << 20);
    EXPECT_TRUE(room.take(1000));
    std::vector<Buffer> all;
    while (Buffer each = memory->get(1 << 20))
      all.push_back(std::move(each));
    EXPECT_FALSE(room.take(8 << 20)) << "buffers have it";
    all.clear();
    server::ReplayRoom other(16 << 20, memory.get());
    EXPECT_TRUE(other.take(8 << 20)) << "free buffers are taken back for it";
  }
  EXPECT_EQ(most(), whole);
}

// One client cannot have the memory that others need.
TEST(ReplayBounds, EachClientLeavesAsMuchAsItHas) {
  server::ReplayRoom whole(1'000'000, nullptr);
  server::ReplayRoom one(&whole), two(&whole);
  EXPECT_TRUE(one.take(500'000));
  EXPECT_FALSE(one.take(1));
  EXPECT_TRUE(two.take(250'000));
  EXPECT_FALSE(two.take(1));
  one.give(500'000);
  EXPECT_TRUE(two.take(250'000));
  EXPECT_FALSE(two.take(1));
  EXPECT_EQ(whole.taken(), 500'000u);
}

// However many clients keep all they can, a new client finds some.
TEST(ReplayBounds, ThereIsRoomForANewcomer) {
  constexpr uint64_t kFirst = server::ReplayLane::cost_of(server::ReplayLane::kBlock);
  for (uint32_t others = 1; others <= 100; ++others) {
    server::ReplayRoom whole(16 << 20, nullptr);
    std::deque<server::ReplayRoom> rooms;
    for (uint32_t i = 0; i < others; ++i) {
      server::ReplayRoom& room = rooms.emplace_back(&whole);
      while (room.take(kFirst))
        continue;
    }
    server::ReplayRoom& newcomer = rooms.emplace_back(&whole);
    EXPECT_TRUE(newcomer.take(kFirst)) << others;
    for (server::ReplayRoom& room : rooms)
      room.give(room.taken());
    EXPECT_EQ(whole.taken(), 0u);
    EXPECT_TRUE(newcomer.take(8 << 20)) << "the others have nothing any more";
  }
}

TEST(ReplayBounds, FailuresExpireAfterTheWindow) {
  Alone alone(4, 1 << 20, {.entries = 1, .window_ms = 2});
  server::ReplayCache& cache = alone.cache;
  server::ReplayCounters& counters = alone.counters;
  constexpr uint64_t kWindow = 2'000'000;
  cache.note_failure(7, 1, 1000);
  cache.note_failure(8, 1, 2000);
  EXPECT_TRUE(cache.failed_before(7, 2, 1000 + kWindow));
  EXPECT_FALSE(cache.failed_before(7, 1, 1000 + kWindow)) << "on the same connection";
  EXPECT_FALSE(cache.failed_before(9, 2, 1000 + kWindow));
  EXPECT_FALSE(cache.failed_before(7, 2, 1001 + kWindow));
  EXPECT_TRUE(cache.failed_before(8, 2, 1001 + kWindow));
  cache.note_failure(8, 2, 3000);  // again
  EXPECT_TRUE(cache.failed_before(8, 3, 3000 + kWindow));
  EXPECT_FALSE(cache.failed_before(8, 3, 3001 + kWindow));
  EXPECT_TRUE(cache.empty());
  EXPECT_EQ(counters.replay_forgotten, 2u);
}

TEST(ReplayBounds, OffIsOff) {
  Site site({.replay = {.entries = 0}});
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {5}};
  for (uint32_t i = 1; i <= 2; ++i) {
    auto client = site.connect();
    EXPECT_EQ(site.call(*client, call).at(kResults), i);
  }
}

}  // namespace
}  // namespace rrdk::loopback
