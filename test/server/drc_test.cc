// The duplicate request cache: calls that clients repeat on new connections run once, and no other
// client sees their replies.
#include <array>
#include <optional>

#include "server/replay_cache.h"
#include "site.h"
#include "test/seed.h"

namespace rrdk::loopback {
namespace {

constexpr size_t kResults = 13;             // of a reply without chunks: the first word of results
constexpr size_t kResultsBehindChunk = 19;  // of one that returns a Write chunk of one segment
constexpr size_t kAcceptStat = 12;
constexpr uint32_t kSystemErr = 5;

Words auth_sys(uint32_t uid) {
  return {1, 20, 0, 0, uid, 0, 0};  // flavour, length; stamp, no name, uid, gid, no groups
}

struct RunsOnce : testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, RunsOnce,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(RunsOnce, AcrossConnectionsWithTheSameReply) {
  Site site({}, GetParam());
  for (uint32_t procedure : {kAppend, kAppendWork}) {
    uint32_t before = site.service.runs;
    RawCall call = {.xid = 70 + procedure, .procedure = procedure, .arguments = {5}};
    Received first;
    for (int i = 0; i < 3; ++i) {
      auto client = site.connect();
      Received reply = site.call(*client, call);
      if (i == 0)
        first = reply;
      EXPECT_EQ(reply.xid(), call.xid);
      EXPECT_EQ(reply.at(kResults), before + 1);
      EXPECT_EQ(reply, first);
      site.cut(client);
    }
    EXPECT_EQ(site.service.runs, before + 1);
  }
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 4u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayKept], 2u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayWaits], 0u);
}

TEST_P(RunsOnce, UnlessItMayRunTwice) {
  Site site({}, GetParam());
  RawCall call = {.xid = 7, .procedure = kAgain, .arguments = {5}};
  for (uint32_t i = 1; i <= 2; ++i) {
    auto client = site.connect();
    EXPECT_EQ(site.call(*client, call).at(kResults), i);
    site.cut(client);
  }
  EXPECT_EQ(site.server->stats()[Counter::kReplayKept], 0u);
}

TEST_P(RunsOnce, ForEachClient) {
  Site site({}, GetParam());
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {5}};
  auto one = site.connect(1);
  EXPECT_EQ(site.call(*one, call).at(kResults), 1u);
  auto other = site.connect(2);
  EXPECT_EQ(site.call(*other, call).at(kResults), 2u);
  // Each client gets its own reply again.
  site.cut(one);
  one = site.connect(1);
  EXPECT_EQ(site.call(*one, call).at(kResults), 1u);
  site.cut(other);
  other = site.connect(2);
  EXPECT_EQ(site.call(*other, call).at(kResults), 2u);
  // A client without an identity would not be recognised when it comes again, so its calls are not
  // run.
  for (int i = 0; i < 2; ++i) {
    auto nobody = site.connect(0);
    EXPECT_EQ(site.call(*nobody, call).at(kAcceptStat), kSystemErr);
  }
  EXPECT_EQ(site.service.runs, 2u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayRefused], 2u);
}

TEST_P(RunsOnce, ForEachCredential) {
  Site site({}, GetParam());
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {5}};
  auto client = site.connect();
  EXPECT_EQ(site.call(*client, call).at(kResults), 1u);
  uint32_t run = 1;
  // Another user, another body of the same length, another flavour with the same body.
  Words other_flavour = auth_sys(1);
  other_flavour[0] = 77;
  for (const Words& credential : {auth_sys(1), auth_sys(2), other_flavour}) {
    call.credential = credential;
    EXPECT_EQ(site.call(*client, call).at(kResults), ++run);
  }
  site.cut(client);
  client = site.connect();
  call.credential = auth_sys(2);
  EXPECT_EQ(site.call(*client, call).at(kResults), 3u);
  call.credential = {0, 0};
  EXPECT_EQ(site.call(*client, call).at(kResults), 1u);
  EXPECT_EQ(site.service.runs, 4u);
}

// A client may write its credential anew when it repeats a call: the stamp, which says nothing of
// the caller, may differ.
TEST_P(RunsOnce, WithAnotherStamp) {
  Site site({}, GetParam());
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {5}};
  for (uint32_t stamp : {0u, 1u, 0x12345678u}) {
    auto client = site.connect();
    call.credential = auth_sys(1000);
    call.credential[2] = stamp;
    EXPECT_EQ(site.call(*client, call).at(kResults), 1u) << stamp;
    call.credential = auth_sys(1001);
    call.credential[2] = stamp;
    EXPECT_EQ(site.call(*client, call).at(kResults), 2u) << stamp;
    site.cut(client);
  }
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 4u);
}

// An XID that is used again by chance.
TEST_P(RunsOnce, ForEachProcedureAndItsArguments) {
  Site site({}, GetParam());
  auto client = site.connect();
  RawCall call = {.xid = 7, .procedure = kAppend, .arguments = {5}};
  EXPECT_EQ(site.call(*client, call).at(kResults), 1u);
  call.arguments = {6};
  EXPECT_EQ(site.call(*client, call).at(kResults), 2u);
  call.arguments = {6, 0};  // longer
  EXPECT_EQ(site.call(*client, call).at(kResults), 3u);
  call.procedure = kAppendWork;
  EXPECT_EQ(site.call(*client, call).at(kResults), 4u);
  call.xid = 8;
  EXPECT_EQ(site.call(*client, call).at(kResults), 5u);
}

// By one entry for all procedures that have no entry.
TEST_P(RunsOnce, ForEachProcedureWithoutAnEntryOfItsOwn) {
  Site site({}, GetParam());
  for (uint32_t number : {1000u, 1001u, UINT32_MAX}) {
    const uint32_t before = site.service.runs;
    RawCall call = {.xid = 7, .procedure = number, .arguments = {5}};
    for (int i = 0; i < 2; ++i) {
      auto client = site.connect();
      EXPECT_EQ(site.call(*client, call).at(kResults), before + 1) << number;
      site.cut(client);
    }
  }
  EXPECT_EQ(site.service.runs, 3u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 3u);
}

// The repeated call may offer other chunks than the first call.
TEST_P(RunsOnce, ResultsAreMovedAsTheRepeatedCallAsks) {
  Site site({}, GetParam());
  for (uint32_t procedure : {kAppendData, kAppendOwn}) {
    for (uint32_t length : {0u, 1u, 999u, 1000u}) {
      SCOPED_TRACE(length);
      uint32_t run = site.service.runs + 1;
      RawCall call = {
          .xid = 100 * procedure + length, .procedure = procedure, .arguments = {length}};
      auto client = site.connect();
      Received reply = site.call(*client, call);  // all inline
      uint32_t words = (length + 3) / 4;
      EXPECT_EQ(reply.at(kResults), run);
      EXPECT_EQ(reply.at(kResults + 1), length);
      EXPECT_EQ(reply.at(kResults + 2 + words), kWord);
      site.cut(client);

      client = site.connect();
      Buffer room = site.memory->get(4096);
      std::memset(room.data(), 0, 4096);
      uint32_t key = client->expose(room.first(4096));
      call.lists = Words{0, 1, 1} + segment(key, 4096, room.data()) + Words{0, 0};
      Received placed = site.call(*client, call);
      EXPECT_EQ(placed.at(kResultsBehindChunk), run);
      EXPECT_EQ(placed.at(kResultsBehindChunk + 1), length);
      EXPECT_EQ(placed.at(kResultsBehindChunk + 2), kWord);
      uint32_t wrong = 0;
      for (uint32_t i = 0; i < length; ++i)
        wrong += room.data()[i] != pattern(i);
      EXPECT_EQ(wrong, 0u);
      site.cut(client);

      client = site.connect();  // and inline again
      call.lists = {0, 0, 0};
      Received again = site.call(*client, call);
      again.words[2] = reply.words[2];  // credits
      EXPECT_EQ(again, reply);
      site.cut(client);
    }
  }
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 16u);
}

// On the connection on which the call was answered with the space that it lacks (draft-04 section
// 6.2.4).
// Shows: V2D4-ERR-17
TEST_P(RunsOnce, WhenItComesAgainWithTheRoomThatWasMissing) {
  constexpr uint32_t kError = 4, kWriteResource = 7, kLength = 1000;
  Site site({}, GetParam());
  auto client = site.connect();
  Buffer room = site.memory->get(4096);
  uint32_t key = client->expose(room.first(4096));
  RawCall call = {.xid = 7, .procedure = kAppendData, .arguments = {kLength}, .rdma_version = 2};
  call.lists = Words{0, 1, 1} + segment(key, 8, room.data()) + Words{0, 0};
  Received refused = site.call(*client, call);
  EXPECT_EQ(refused.at(3), kError);
  EXPECT_EQ(refused.at(4), kWriteResource);
  EXPECT_EQ(refused.at(6), kLength);
  call.lists = Words{0, 1, 1} + segment(key, 4096, room.data()) + Words{0, 0};
  Received reply = site.call(*client, call);
  EXPECT_EQ(reply.at(kResultsBehindChunk + 2), 1u);
  EXPECT_EQ(reply.at(kResultsBehindChunk + 3), kLength);
  EXPECT_EQ(room.data()[kLength - 1], pattern(kLength - 1));
  EXPECT_EQ(site.service.runs, 1u);
}

TEST_P(RunsOnce, AlsoWhenItsReplyIsTooLargeToKeep) {
  Site site({.replay = {.bytes = 512, .max_reply = 256}}, GetParam());
  RawCall call = {.xid = 7, .procedure = kAppendData, .arguments = {300}};
  auto client = site.connect();
  EXPECT_EQ(site.call(*client, call).at(kResults), 1u);
  site.cut(client);
  client = site.connect();
  EXPECT_EQ(site.call(*client, call).at(kAcceptStat), kSystemErr);
  EXPECT_EQ(site.service.runs, 1u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayNotKept], 1u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayLost], 1u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 0u);
}

// How a handler that has kept its call answers it.
enum class From { kHere, kAnotherThread };

struct Waiting : testing::TestWithParam<std::tuple<Cores, From>> {
  Waiting() : site({}, std::get<0>(GetParam())) {}

  void release() {
    if (std::get<1>(GetParam()) == From::kHere)
      return site.service.keeper.release();
    std::lock_guard lock(site.service.keeper.mutex);
    site.service.keeper.threads.emplace_back([this] { site.service.keeper.release(); });
  }
  void drop_kept() {
    std::vector<ServerCall> calls;
    {
      std::lock_guard lock(site.service.keeper.mutex);
      calls.swap(site.service.keeper.calls);
    }
    for (ServerCall& kept : calls)
      std::move(kept).drop();
  }
  std::unique_ptr<RawClient> start() {
    auto client = site.connect();
    Site::send(*client, call);
    return client;
  }
  // A first call that a handler has kept, and whose connection the client has cut.
  void start_first() {
    auto first = start();
    site.until([&] { return site.service.keeper.kept() == 1; });
    first->disconnect();
    site.until([&] { return first->down(); }, {first.get()});
  }
  std::unique_ptr<RawClient> start_waiter(uint64_t nth) {
    auto waiter = start();
    site.until([&] { return site.server->stats()[Counter::kReplayWaits] == nth; }, {waiter.get()});
    return waiter;
  }

  Site site;
  const RawCall call = {.xid = 7, .procedure = kAppendKept};
};
INSTANTIATE_TEST_SUITE_P(Cores, Waiting,
                         testing::Combine(testing::Values(Cores::kEmbedded, Cores::kDedicated,
                                                          Cores::kWorkers),
                                          testing::Values(From::kHere, From::kAnotherThread)));

TEST_P(Waiting, IsAnsweredOnTheNewConnectionWhenTheFirstCallHasFinished) {
  start_first();
  auto second = start_waiter(1);
  EXPECT_TRUE(second->received.empty());
  release();
  EXPECT_EQ(site.answer(*second).at(kResults), 1u);
  site.until([&] { return site.server->stats()[Counter::kConnections] == 1; });
  auto third = site.connect();
  EXPECT_EQ(site.call(*third, call).at(kResults), 1u);
  EXPECT_EQ(site.service.runs, 1u);
  EXPECT_EQ(site.server->stats()[Counter::kReplayAnswered], 2u);
}

// The client considered the connection dead, but the server has not noticed.
TEST_P(Waiting, TheFirstCallIsAnsweredTooIfItsConnectionLives) {
  auto first = start();
  site.until([&] { return site.service.keeper.kept() == 1; });
  auto second = start_waiter(1);
  Site::send(*second, call);  // on one and the same connection, which is against the rules
  site.until([&] { return site.server->stats()[Counter::kReplayWaits] == 2; });
  release();
  EXPECT_EQ(site.answer(*first).at(kResults), 1u);
  EXPECT_EQ(site.answer(*second).at(kResults), 1u);
  EXPECT_EQ(site.answer(*second).at(kResults), 1u);
  EXPECT_EQ(site.service.runs, 1u);
}

// A client that comes again and again while a handler takes its time holds no connection except the
// last one.
TEST_P(Waiting, EndsWithItsConnection) {
  start_first();
  for (uint64_t i = 1; i <= 5; ++i) {
    auto waiter = start_waiter(i);
    waiter->disconnect();
    site.until([&] { return site.server->stats()[Counter::kConnections] == 1; }, {waiter.get()});
  }
  auto last = start_waiter(6);
  release();
  EXPECT_EQ(site.answer(*last).at(kResults), 1u);
  EXPECT_EQ(site.service.runs, 1u);
}

TEST_P(Waiting, IsDroppedWithTheFirstCallAndRunsWhenItComesAgain) {
  start_first();
  auto second = start_waiter(1);
  drop_kept();
  site.until([&] { return second->down(); }, {second.get()});
  EXPECT_TRUE(second->received.empty());
  auto third = start();
  site.until([&] { return site.service.keeper.kept() == 1; });
  release();
  EXPECT_EQ(site.answer(*third).at(kResults), 2u);
}

TEST_P(Waiting, EndsWithTheServer) {
  start_first();
  auto second = start_waiter(1);
  std::thread releaser([this] { site.service.keeper.release(); });
  site.end_server();
  releaser.join();
}

// An invalid key in each kind of chunk.
struct Failed : testing::TestWithParam<Words> {};
constexpr uint32_t kNoKey = 0x77777777;
INSTANTIATE_TEST_SUITE_P(Chunks, Failed,
                         testing::Values(Words{1, 44, kNoKey, 100, 0, 0x1000, 0, 0, 0},
                                         Words{0, 1, 1, kNoKey, 4096, 0, 0x1000, 0, 0},
                                         Words{0, 0, 1, 1, kNoKey, 8192, 0, 0x1000}));

// Shows: V1-ERR-19
TEST_P(Failed, TheSameCallOnANewConnectionIsAnsweredErrChunk) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    Site site({.inline_size = 1024}, cores);
    bool read = GetParam()[0] != 0;
    // Its reply is too long to go inline.
    RawCall bad = {.xid = 7,
                   .procedure = read ? kAgain : kAppendData,
                   .arguments = {read ? 5u : 2000u},
                   .lists = GetParam()};
    RawCall good = {.xid = 8, .procedure = kAgain, .arguments = {5}};
    for (int i = 0; i < 3; ++i) {
      auto client = site.connect();
      if (i == 0) {
        EXPECT_TRUE(site.call(*client, bad).words.empty()) << "the connection is lost";
        site.until([&] { return site.server->stats()[Counter::kConnections] == 0; });
        continue;
      }
      EXPECT_TRUE(site.call(*client, bad).chunk_error());
      EXPECT_EQ(site.call(*client, good).at(kAcceptStat), 0u);
      site.cut(client);
    }
    EXPECT_LE(site.service.runs, 3u);
    EXPECT_EQ(site.server->stats()[Counter::kCallsFailedAgain], 2u);
    // Another client's call may have the same XID.
    auto other = site.connect(2);
    EXPECT_TRUE(site.call(*other, bad).words.empty());
  }
}

TEST(LostConnections, NotEveryLostConnectionIsAFailedCall) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    Site site({}, cores);
    Buffer room = site.memory->get(4096);
    // The client leaves while the handler has its call: the reply's Writes find no valid key.
    RawCall call = {.xid = 7, .procedure = kAppendKept};
    auto with_chunk = [&](RawClient& client) {
      uint32_t key = client.expose(room.first(4096));
      call.lists = Words{0, 0, 1, 1} + segment(key, 4096, room.data());
    };
    auto client = site.connect();
    with_chunk(*client);
    Site::send(*client, call);
    site.until([&] { return site.service.keeper.kept() == 1; });
    client->disconnect();
    site.service.keeper.release();
    site.until([&] { return site.server->stats()[Counter::kConnections] == 0; }, {client.get()});
    client = site.connect();
    with_chunk(*client);
    EXPECT_EQ(site.call(*client, call).type(), 0u);
    EXPECT_EQ(site.server->stats()[Counter::kCallsFailedAgain], 0u);
  }
}

// Many clients lose their connections at any time and repeat their unanswered calls: each call runs
// once, and its client sees the result of that run.
TEST_P(RunsOnce, UnderRandomLossAndRepetition) {
  struct Pending {
    RawCall call;
    std::optional<uint32_t> run;
  };
  struct Peer {
    std::unique_ptr<RawClient> client;
    std::vector<Pending> calls;
  };
  std::mt19937_64 random(test::run_seed());
  auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  Site site({.replay = {.entries = 2048}}, GetParam());
  std::array<Peer, 3> peers;
  uint32_t calls = 0;
  auto take = [&](Peer& peer) {
    for (const Received& reply : std::exchange(peer.client->received, {})) {
      for (Pending& pending : peer.calls) {
        if (pending.call.xid != reply.xid())
          continue;
        uint32_t run = reply.at(kResults);
        EXPECT_EQ(pending.run.value_or(run), run);
        pending.run = run;
      }
    }
  };
  for (int step = 0; step < 1500; ++step) {
    uint32_t who = below(3);
    Peer& peer = peers[who];
    if (!peer.client || below(20) == 0) {
      if (peer.client) {
        take(peer);
        peer.client->disconnect();
        site.until([&] { return peer.client->down(); }, {peer.client.get()});
        take(peer);
      }
      peer.client = site.connect(1 + who);
      // Not all at once: the client has no more Receives than that.
      for (Pending& pending : peer.calls)
        if (!pending.run || below(4) == 0)
          Site::send(*peer.client, pending.call);
    }
    std::erase_if(peer.calls, [](const Pending& pending) { return pending.run.has_value(); });
    if (peer.calls.size() < 12) {
      constexpr uint32_t kProcedures[] = {kAppend, kAppendWork, kAppendKept};
      RawCall call = {.xid = ++calls, .procedure = kProcedures[below(3)]};
      if (call.procedure != kAppendKept)
        call.arguments = {below(10)};
      peer.calls.push_back({call, {}});
      Site::send(*peer.client, call);
    }
    if (below(5) == 0)
      site.service.keeper.release();
    for (uint32_t i = below(4); i != 0; --i)
      site.poll();
    peer.client->pump();
    take(peer);
  }
  for (Peer& peer : peers) {
    if (!peer.client)
      continue;
    // Calls that were not answered where they were sent last are on their way.
    site.until(
        [&] {
          site.service.keeper.release();
          take(peer);
          return std::ranges::all_of(peer.calls,
                                     [](const Pending& p) { return p.run.has_value(); });
        },
        {peer.client.get()});
  }
  EXPECT_EQ(site.service.runs, calls);
  EXPECT_EQ(site.server->stats()[Counter::kReplayUnprotected], 0u);
}

}  // namespace
}  // namespace rrdk::loopback
