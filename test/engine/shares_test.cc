// How the pools' buffers are shared between peers (mem/loans.h): no peer takes all, and a peer that
// holds buffers without progress loses its connection when others need them.
#include "base/internals.h"
#include "mem/memory_impl.h"
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kData = 60000;  // bytes of a call: one of the large buffers
constexpr uint32_t kLarge = 65536;

// A server's end, or that of a client that serves calls from its server, with chunks (draft-04).
ConnectionOptions options_of(Role role, uint32_t max_read_bytes) {
  if (role == Role::kResponder)
    return {.role = role, .credits = 16, .receive_size = 1024, .max_read_bytes = max_read_bytes};
  return {.role = role,
          .speaks = Speaks::kTwo,
          .credits = 4,
          .backward_credits = 16,
          .backward_chunks = true,
          .properties = false};
}

// The peer of a connection, which answers RDMA Reads when it is told to.
struct Peer {
  Peer(Memory& memory, CallPool& pool, mem::Borrower& borrower, Role role, uint32_t max_read_bytes)
      : version(role == Role::kResponder ? 1 : 2),
        end(options_of(role, max_read_bytes), memory, pool, {.borrower = &borrower}),
        script(end),
        key(script.expose(pattern(kData, 1), Rights::kRemoteRead)) {
    end.engine->on_established({true, 4096, 4096}, 16);
  }
  ~Peer() { leave(); }

  void leave() {
    if (left)
      return;
    left = true;
    end.disconnect();
    for (ServedCall* call : std::exchange(end.held, {}))
      end.engine->reply(*call);
  }
  // A call with `bytes` at Position 8, behind `tiny` segments of four.
  void call(uint32_t xid, uint32_t tiny = 0) {
    Wire wire{xid, version, 16, kMsg};
    if (version == 2)
      wire.add({0, 0});  // CALL, no handle to invalidate
    for (uint32_t i = 0; i < tiny; ++i)
      script.segment(wire.add({1, 8}), key, 4, 4 * i);
    script.segment(wire.add({1, 8}), key, kData - 4 * tiny, 4 * tiny).add({0, 0, 0, xid, 0});
    hear(wire);
  }
  void hear(const Bytes& message) {
    ASSERT_TRUE(end.qp.receive(message, {}));
    end.qp.post(*end.engine);
    end.qp.deliver(*end.engine, end.qp.receive_completions, 1);
    end.qp.post(*end.engine);
  }
  // Answers one RDMA Read, the oldest.
  void answer_read() {
    ASSERT_TRUE(end.qp.execute_one());
    end.qp.deliver(*end.engine, end.qp.send_completions, 1);
    end.qp.post(*end.engine);
  }
  // Ticks every ten milliseconds, until then.
  void tick_until(uint64_t ns) {
    for (; now < ns; now += 10 * kMs)
      end.engine->on_tick(now);
    end.engine->on_tick(now);
    end.qp.post(*end.engine);
  }
  bool ended() const { return end.engine->wants_disconnect(); }
  const Counters& counters() const { return end.engine->counters(); }

  uint32_t version;
  End end;
  Script script;
  uint32_t key;
  uint64_t now = kMs;
  bool left = false;
};

class Shares : public EngineTest {
 protected:
  Shares() : EngineTest({{4096, 256}, {kLarge, 12}}) {}
  void TearDown() override {
    peers.clear();
    EngineTest::TearDown();
  }
  Peer& peer(mem::Borrower& borrower, Role role = Role::kResponder,
             uint32_t max_read_bytes = UINT32_MAX) {
    return *peers.emplace_back(
        std::make_unique<Peer>(*memory, *pool, borrower, role, max_read_bytes));
  }
  uint32_t left() const { return memory->audit_fitting(kLarge).available; }

  mem::BorrowerRef alice = mem::Borrower::create(*memory);
  mem::BorrowerRef bob = mem::Borrower::create(*memory);
  mem::BorrowerRef carol = mem::Borrower::create(*memory);
  std::vector<std::unique_ptr<Peer>> peers;
};

// Shows: SEC-09
TEST_F(Shares, AreAsLargeAsTheFreePartOfTheClass) {
  for (int connection = 0; connection < 3; ++connection) {
    Peer& greedy = peer(*alice);
    for (uint32_t xid = 1; xid <= 8; ++xid)
      greedy.call(xid);
  }
  EXPECT_EQ(left(), 6u) << "one peer has half, on however many connections";
  Peer& another = peer(*bob);
  for (uint32_t xid = 1; xid <= 8; ++xid)
    another.call(xid);
  EXPECT_EQ(left(), 3u) << "the next has half of the rest";
  EXPECT_GE(another.counters().waits_share, 1u);
  Peer& modest = peer(*carol);
  modest.call(1);
  modest.answer_read();
  EXPECT_EQ(modest.end.calls, 1u) << "there is one for a peer that has none";
  // Buffers that the first peer gets back are for itself.
  Peer& first = *peers[0];
  uint64_t before = first.end.calls;
  for (int i = 0; i < 4; ++i) {
    first.answer_read();
    ASSERT_EQ(first.end.held.size(), 1u);
    first.end.engine->reply(*std::exchange(first.end.held, {})[0]);
    while (!first.end.qp.posted.empty() && first.end.qp.posted.front().op != Op::kRead)
      first.answer_read();  // Sends
    first.tick_until(first.now + 10 * kMs);
  }
  EXPECT_EQ(first.end.calls, before + 4);
}

TEST_F(Shares, APeerThatHoldsNothingMayHaveWhatACallNeeds) {
  std::vector<Buffer> hoard;
  while (left() > 1)
    hoard.push_back(memory->get(kLarge));
  Peer& only = peer(*alice);
  only.call(1);
  only.call(2);
  only.answer_read();
  EXPECT_EQ(only.end.calls, 1u);
}

class Pressure : public Shares {
 protected:
  // All large buffers except those of `peer` are taken, and a call of another peer waits for one.
  Peer& press() {
    while (Buffer buffer = memory->get(kLarge))
      hoard.push_back(std::move(buffer));
    Peer& waiter = peer(*bob);
    waiter.call(1);
    EXPECT_EQ(waiter.end.calls, 0u);
    return waiter;
  }
  void TearDown() override {
    hoard.clear();
    Shares::TearDown();
  }
  std::vector<Buffer> hoard;
};

// Shows: SEC-09
TEST_F(Pressure, SilentSenderLosesItsConnectionAndTheWaiterKeepsItsCall) {
  Peer& silent = peer(*alice);
  silent.call(1);
  Peer& waiter = press();
  silent.tick_until(990 * kMs);
  EXPECT_FALSE(silent.ended());
  silent.tick_until(1020 * kMs);
  EXPECT_TRUE(silent.ended());
  EXPECT_EQ(silent.counters().refusals[Refusal::kHeldBuffers], 1u);
  EXPECT_EQ(silent.end.engine->ending().refusal, Refusal::kHeldBuffers);
  waiter.tick_until(1020 * kMs);
  silent.leave();
  waiter.tick_until(1040 * kMs);
  waiter.answer_read();
  EXPECT_EQ(waiter.end.calls, 1u);
  EXPECT_EQ(waiter.counters().refusals[Refusal::kNoBuffers], 0u);
}

// The time counts from the last data, not from the arrival of others.
TEST_F(Pressure, EarlierSilenceCountsAtOnce) {
  Peer& silent = peer(*alice);
  silent.call(1);
  silent.tick_until(30'000 * kMs);
  EXPECT_FALSE(silent.ended()) << "its buffers are not needed";
  press();
  silent.tick_until(30'010 * kMs);
  EXPECT_TRUE(silent.ended());
}

// Shows: SEC-09
TEST_F(Pressure, ATinyReadNowAndThenIsNoProgress) {
  Peer& dripping = peer(*alice);
  dripping.call(1, 40);
  press();
  for (uint64_t ms = 600; ms <= 1200 && !dripping.ended(); ms += 300) {
    dripping.answer_read();
    dripping.tick_until(ms * kMs);
  }
  EXPECT_TRUE(dripping.ended());
}

TEST_F(Pressure, SlowSenderKeepsItsConnection) {
  Peer& slow = peer(*alice);
  for (uint32_t xid = 1; xid <= 4; ++xid)
    slow.call(xid);
  press();
  for (uint64_t ms = 900; slow.end.calls < 4; ms += 900) {
    slow.tick_until(ms * kMs);
    ASSERT_FALSE(slow.ended());
    slow.answer_read();
  }
}

// One Read for all the data, which takes half a minute.
TEST_F(Pressure, SlowSenderOfOneReadKeepsItsConnectionUntilItStops) {
  Peer& slow = peer(*alice);
  slow.call(1);
  press();
  uint64_t ms = 0;
  for (; slow.end.qp.read_so_far < kData / 2; slow.end.qp.read_so_far += 2000) {
    slow.tick_until((ms += 900) * kMs);
    ASSERT_FALSE(slow.ended()) << ms;
  }
  slow.tick_until((ms + 2100) * kMs);
  EXPECT_TRUE(slow.ended());
}

// On a device that reports only whole Reads, each Read is a part of the awaited data.
TEST_F(Pressure, SlowSenderKeepsItsConnectionOnAWholeReadDevice) {
  Peer& slow = peer(*alice, Role::kResponder, kData / 16);
  slow.call(1);
  press();
  uint64_t ms = 0;
  for (uint32_t reads = 1; slow.end.calls == 0; ++reads) {
    ASSERT_LE(reads, 16u);
    slow.tick_until((ms += 900) * kMs);
    ASSERT_FALSE(slow.ended()) << ms;
    slow.answer_read();
  }
  EXPECT_EQ(ms, 16 * 900u) << "number of Reads";
}

// The last byte of a Read counts as one byte, however much data came before it.
TEST_F(Pressure, DataThatCountedAsItCameDoesNotCountAgainWithItsRead) {
  Peer& slow = peer(*alice);
  slow.call(1);
  slow.call(2);
  press();
  slow.tick_until(500 * kMs);
  slow.end.qp.read_so_far = kData - 1;
  slow.tick_until(1400 * kMs);
  slow.end.qp.read_so_far = kData;
  slow.answer_read();
  slow.tick_until(1490 * kMs);
  EXPECT_FALSE(slow.ended());
  slow.tick_until(1520 * kMs);
  EXPECT_TRUE(slow.ended());
}

// A handler that found no buffer for its result does not wait, but the buffers are still short.
TEST_F(Pressure, ResultsThatLackBuffersPressToo) {
  Peer& silent = peer(*alice);
  silent.call(1);
  silent.tick_until(2000 * kMs);
  EXPECT_FALSE(silent.ended()) << "its buffers are not needed";
  bob->note_missing();
  silent.tick_until(2020 * kMs);
  EXPECT_TRUE(silent.ended());
  EXPECT_EQ(silent.counters().refusals[Refusal::kHeldBuffers], 1u);
}

// A peer's own waiting calls are no reason to end its connection.
TEST_F(Pressure, OwnWaitingCallsDoNotCount) {
  Peer& alone = peer(*alice);
  for (uint32_t xid = 1; xid <= 12; ++xid)
    alone.call(xid);
  alone.tick_until(5'000 * kMs);
  EXPECT_FALSE(alone.ended());
  EXPECT_EQ(alone.counters().refusals[Refusal::kNoBuffers], 0u) << "for its share a call waits";
  // Those of another connection of the same peer are.
  Peer& sister = peer(*alice);
  sister.call(1);
  alone.tick_until(5'020 * kMs);
  EXPECT_TRUE(alone.ended());
}

// A core that does not run cannot blame its peers.
TEST_F(Pressure, TimeWithoutPollingDoesNotCount) {
  Peer& silent = peer(*alice);
  silent.call(1);
  press();
  silent.tick_until(100 * kMs);
  silent.now = 5'000 * kMs;
  silent.tick_until(5'500 * kMs);
  EXPECT_FALSE(silent.ended());
  silent.tick_until(6'100 * kMs);
  EXPECT_TRUE(silent.ended());
}

// A client that serves calls is as exposed to its server as a server is to its clients.
// Shows: SEC-09
TEST_F(Pressure, AClientsBuffersAreNotAllOfOneServerEither) {
  Peer& hostile = peer(*alice, Role::kRequester);
  for (uint32_t xid = 1; xid <= 12; ++xid)
    hostile.call(xid);
  EXPECT_EQ(left(), 6u);
  hostile.tick_until(5'000 * kMs);
  EXPECT_FALSE(hostile.ended()) << "its buffers are not needed";
  press();
  hostile.tick_until(5'020 * kMs);
  EXPECT_TRUE(hostile.ended());
  EXPECT_EQ(hostile.counters().refusals[Refusal::kHeldBuffers], 1u);
}

// Buffers of results count for their client: with too many, its next call waits, whatever its kind.
TEST_F(Shares, ResultsInBuffersCount) {
  Peer& reader = peer(*alice);
  std::vector<Buffer> results;
  reader.hear(Wire{1, 1, 16, kMsg, 0, 0, 0, 1, 0});
  ASSERT_EQ(reader.end.held.size(), 1u);
  for (int i = 0; i < 7; ++i) {
    results.push_back(memory->get(kLarge));
    reader.end.held[0]->borrower().lend(results.back());
  }
  EXPECT_TRUE(alice->exceeded());
  reader.hear(Wire{2, 1, 16, kMsg, 0, 0, 0, 2, 0});
  EXPECT_EQ(reader.end.held.size(), 1u);
  EXPECT_EQ(reader.counters().waits_share, 1u);
  Peer& other = peer(*bob);
  other.hear(Wire{1, 1, 16, kMsg, 0, 0, 0, 1, 0});
  EXPECT_EQ(other.end.held.size(), 1u);
  results.clear();
  reader.tick_until(20 * kMs);
  EXPECT_EQ(reader.end.held.size(), 2u);
}

// If call objects are scarce, a client has a share, however many calls it has made.
TEST_F(Shares, CallObjectsComeBackWithEachCall) {
  CallPool few(*memory, 32);
  std::vector<ServedCall*> others;
  while (!few.scarce())
    others.push_back(few.get());
  {
    Peer client(*memory, few, *alice, Role::kResponder, UINT32_MAX);
    uint32_t xid = 0;
    auto call = [&] {
      ++xid;
      client.hear(Wire{xid, 1, 16, kMsg, 0, 0, 0, xid, 0});
    };
    while (xid < 1000) {
      call();
      ASSERT_EQ(client.end.held.size(), 1u) << xid;
      client.end.engine->reply(*std::exchange(client.end.held, {})[0]);
      client.end.qp.post(*client.end.engine);
      while (!client.end.qp.posted.empty())
        client.answer_read();  // a Send
    }
    for (size_t held = 1; held <= 8; ++held) {
      call();
      EXPECT_EQ(client.end.held.size(), held);
    }
  }
  for (ServedCall* each : others)
    few.put(*each);
}

// Later bursts of a full window of calls allocate nothing.
TEST(CallObjects, ComeForAWholeWindowWhereThereIsMemory) {
  const auto capacity_for_one = [](uint32_t buffers) {
    auto memory = std::move(
        *Memory::create({.classes = {{4096, buffers}}, .hugepages = HugepagePolicy::kNever}));
    CallPool pool(*memory, 1024);
    ServedCall* call = pool.get();
    EXPECT_NE(call, nullptr);
    pool.put(*call);
    return pool.capacity();
  };
  EXPECT_EQ(capacity_for_one(256), 64u);
  EXPECT_EQ(capacity_for_one(64), 16u);
}

TEST(CallObjects, ComeAsFarAsThereIsMemory) {
  auto memory =
      std::move(*Memory::create({.classes = {{4096, 256}}, .hugepages = HugepagePolicy::kNever}));
  std::vector<Buffer> taken;
  for (uint32_t i = 0; i < 255; ++i)
    taken.push_back(memory->get(4096));
  CallPool pool(*memory, 1024);
  std::vector<ServedCall*> calls;
  for (uint32_t i = 0; i < 16; ++i) {
    calls.push_back(pool.get());
    ASSERT_NE(calls.back(), nullptr);
  }
  EXPECT_EQ(pool.get(), nullptr);
  taken.clear();
  calls.push_back(pool.get());
  EXPECT_NE(calls.back(), nullptr);
  for (ServedCall* call : calls)
    pool.put(*call);
}

TEST(CallObjects, GoBackAfterABurstWhenFewAreUsed) {
  auto memory =
      std::move(*Memory::create({.classes = {{4096, 512}}, .hugepages = HugepagePolicy::kNever}));
  CallPool pool(*memory, 1024);
  const auto use = [&pool](uint32_t count) {
    std::vector<ServedCall*> calls;
    for (uint32_t i = 0; i < count; ++i)
      calls.push_back(pool.get());
    for (ServedCall* call : calls) {
      ASSERT_NE(call, nullptr);
      pool.put(*call);
    }
  };
  use(1000);
  uint64_t now = kMs;
  for (int second = 0; second < 10; ++second, now += 1000 * kMs) {
    use(500);
    pool.look(now);
  }
  EXPECT_GE(pool.capacity(), 1000u) << "many are still used";
  ServedCall* held = pool.get();
  for (int second = 0; second < 5; ++second, now += 1000 * kMs) {
    use(100);
    pool.look(now);
  }
  EXPECT_EQ(pool.capacity(), 256u) << "a peer that is always being served does not keep them";
  EXPECT_EQ(pool.available(), 255u);
  use(1000);
  pool.put(*held);
}

// The peer is forgotten while a buffer that was lent to it is still in use.
TEST_F(Shares, ABufferOutlivesItsPeer) {
  Buffer kept = memory->get(kLarge);
  carol->lend(kept);
  carol.reset();
  EXPECT_EQ(Internals::of(*memory).loans.lent(kLarge), 1u);
  kept.reset();
  EXPECT_EQ(Internals::of(*memory).loans.lent(kLarge), 0u);
}

}  // namespace
}  // namespace rrdk::engine::test
