// What the duplicate request cache forgets, and what it must not.
#include <array>

#include "server/replay_cache.h"
#include "site.h"
#include "test/seed.h"

namespace rrdk::loopback {
namespace {

constexpr size_t kResults = 13;  // of a reply without chunks: the first word of results

TEST(ReplayBounds, TheOldestAreForgotten) {
  Site site({.replay = {.entries = 16, .bytes = 4096, .max_reply = 1024}});
  auto client = site.connect();
  auto run = [&](uint32_t xid, uint32_t length) {
    RawCall call = {.xid = xid, .procedure = kAppendData, .arguments = {length}};
    return site.call(*client, call).at(kResults);
  };
  for (uint32_t i = 1; i <= 16; ++i)
    EXPECT_EQ(run(i, 4), i);
  EXPECT_EQ(site.replay().evicted, 0u);
  EXPECT_EQ(run(1, 4), 1u);
  EXPECT_EQ(run(17, 4), 17u);  // instead of 1
  EXPECT_EQ(run(2, 4), 2u);
  EXPECT_EQ(run(1, 4), 18u);  // which then runs again
  EXPECT_EQ(site.replay().evicted, 2u);
  // Fewer, when they are large: with what is around its bytes three of these fit.
  for (uint32_t i = 1; i <= 50; ++i) {
    EXPECT_EQ(run(100 + i, 940), 18 + i);
    for (uint32_t back = 0; back < 3 && back < i; ++back)
      EXPECT_EQ(run(100 + i - back, 940), 18 + i - back);
  }
  EXPECT_EQ(run(101, 940), 69u);
  // Another client has its own.
  auto other = site.connect(2);
  RawCall call = {.xid = 1, .procedure = kAppend, .arguments = {1}};
  for (; call.xid < 100; ++call.xid)
    site.call(*other, call);
  EXPECT_EQ(run(150, 940), 68u);
}

// A client that comes back gets what was unanswered, however busy its other connections were.
TEST(ReplayBounds, ConnectionsDoNotPushOutEachOthers) {
  Site site({.replay = {.entries = 16}});
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
  EXPECT_EQ(site.replay().hits, 16u);
  // Lanes of connections that have ended are used again, the oldest first.
  for (call.xid = 1000; call.xid != 1040; ++call.xid) {
    site.call(*again, call);
    site.cut(again);
    again = site.connect();
  }
  call.xid = 1039;
  uint32_t kept = site.call(*again, call).at(kResults);
  EXPECT_EQ(kept, 500u + 40);
}

// What a client asks for on each new connection stays, however often the connection breaks and
// whatever else it calls meanwhile.
TEST(ReplayBounds, WhatIsRepeatedIsNotForgotten) {
  Site site({.replay = {.entries = 16, .bytes = 4096, .max_reply = 1024}});
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
  EXPECT_EQ(site.replay().hits, 40u);
  EXPECT_GT(site.replay().evicted, 0u) << "the others are";
}

// Nor does one go that nobody had the time to ask for.
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

TEST(ReplayBounds, WhatHasNoRoomAnyMoreIsNotRunAgain) {
  Site site({.replay = {.entries = 16, .bytes = 4096, .max_reply = 1024}});
  auto client = site.connect();
  RawCall call = {.xid = 1, .procedure = kAppendData, .arguments = {940}};
  for (; call.xid <= 8; ++call.xid)
    EXPECT_EQ(site.call(*client, call).at(kResults), call.xid);
  for (call.xid = 1; call.xid <= 4; ++call.xid)
    EXPECT_EQ(site.call(*client, call).at(kResults - 1),
              static_cast<uint32_t>(AcceptStat::kSystemErr));
  EXPECT_EQ(site.service.runs, 8u);
  EXPECT_EQ(site.replay().lost, 4u);
  EXPECT_EQ(site.replay().not_kept, 4u);
  EXPECT_EQ(site.replay().evicted, 0u);
}

// However replies of all sizes push each other out: what is answered again is what was answered.
TEST(ReplayBounds, WhatIsNotForgottenIsRight) {
  std::mt19937_64 random(test::run_seed());
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Site site({.replay = {.entries = 32, .bytes = 5000, .max_reply = 3000}});
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
  EXPECT_GT(site.replay().hits, 0u);
  EXPECT_GT(site.replay().evicted, 0u);
}

TEST(ReplayBounds, CallsThatRunAreNotForgotten) {
  Site site({.replay = {.entries = 16}});
  auto client = site.connect();
  RawCall call = {.xid = 1, .procedure = kAppendKept};
  for (; call.xid <= 20; ++call.xid) {
    Site::send(*client, call);
    site.until([&] { return site.service.keeper.kept() == call.xid; });
  }
  EXPECT_EQ(site.replay().unprotected, 4u);
  EXPECT_EQ(site.replay().evicted, 0u);
  site.service.keeper.release();
  for (uint32_t i = 1; i <= 20; ++i)
    EXPECT_EQ(site.answer(*client).at(kResults), i);
}

// Clients that went away make room for those that come.
TEST(ReplayBounds, OfClients) {
  Site site({.replay = {.clients = 2}});
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {1}};
  auto run = [&](uint64_t name) {
    auto client = site.connect(name);
    uint32_t number = site.call(*client, call).at(kResults);
    site.cut(client);
    return number;
  };
  EXPECT_EQ(run(1), 1u);
  EXPECT_EQ(run(2), 2u);
  EXPECT_EQ(run(1), 1u);
  EXPECT_EQ(run(3), 3u);  // instead of 2, which was away longest
  EXPECT_EQ(run(1), 1u);
  EXPECT_EQ(run(2), 4u);
  // Those that are here stay, and who comes then goes without.
  auto one = site.connect(1);
  auto two = site.connect(2);
  EXPECT_EQ(run(4), 5u);
  EXPECT_EQ(run(4), 6u);
  EXPECT_EQ(site.replay().unprotected, 2u);
  EXPECT_EQ(site.call(*two, call).at(kResults), 4u);
}

TEST(ReplayBounds, OfTime) {
  server::ReplayCounters counters;
  server::ReplayCache cache({.window_ms = 2}, counters);
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
  EXPECT_EQ(counters.evicted, 2u);
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
