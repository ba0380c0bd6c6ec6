// A peer that changes from polling to its doorbell, or from that to sleeping, while a message is on
// its way; and what a peer sees of an end that closes.
#include <emmintrin.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/sanitizer.h"
#include "drivers/shm/completion_queue.h"
#include "drivers/shm/queue_pair.h"
#include "test/drivers/shm/hostile_test.h"
#include "test/seed.h"
#include "test/single_step.h"

namespace rrdk::shm::test {
namespace {

using Doorbells = Hostile;

// The sender writes a message and looks whether the peer wants a doorbell; the peer says that it
// wants one and looks for a message. Whatever the order of these four, one of them sees the other:
// a store must be there before the load behind it, at both ends. Nothing polls here but the peer,
// and by itself, so that no sweep finds what was missed.
TEST_F(Doorbells, AreRungForAReceiverThatHasNotSeenTheMessage) {
  constexpr uint32_t kRounds = 20'000;
  constexpr uint64_t kLongestPauseNs = 800;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  auto* const page = reinterpret_cast<DoorbellPage*>(peer.doorbells.mapping.base());
  std::atomic<uint32_t> awaited = 0;
  std::atomic<uint32_t> sent = 0;
  uint32_t looked_first = 0;
  uint32_t lost = 0;
  std::thread polling([&] {
    std::mt19937_64 random(rrdk::test::run_seed());
    for (uint32_t round = 1; round <= kRounds; ++round) {
      peer.mine.state->wants.store(0);
      page->summary.store(0);
      awaited.store(round, std::memory_order_release);
      const uint64_t until = base::Tsc::now_ns() + random() % kLongestPauseNs;
      while (base::Tsc::now_ns() < until) {
      }
      peer.mine.state->wants.store(kWantsMessages, std::memory_order_seq_cst);
      const SlotWord word = peer.theirs.slot(round - 1).word.load(std::memory_order_acquire);
      while (sent.load(std::memory_order_acquire) != round)
        _mm_pause();
      const bool seen = word.sequence == round;
      looked_first += seen ? 0 : 1;
      lost += !seen && page->summary.load() == 0 ? 1 : 0;
      peer.mine.state->consumed.store(round, std::memory_order_release);
    }
  });
  Buffer message = fabric::test::test_memory().get(4096);
  fabric::SendWr wr = fabric::test::send_wr(1, {message.first(8)});
  wr.signaled = false;
  wr.quiet = wr.copied = true;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    while (awaited.load(std::memory_order_acquire) != round)
      _mm_pause();
    // In no cache: the message is still on its way, and a load may well overtake it.
    _mm_clflush(message.data());
    _mm_mfence();
    while (peer.victim->post_send(std::span(&wr, 1)) != 1)
      honest_.server.pump();
    honest_.server.pump();
    honest_.server.completions.clear();
    sent.store(round, std::memory_order_release);
  }
  polling.join();
  EXPECT_EQ(lost, 0u) << "of " << looked_first << " that looked before the message was there";
}

// The same for a sender that waits until its message is taken: the receiver says that it has taken
// it and looks whether the sender wants a doorbell; the sender says that and looks what was taken.
TEST_F(Doorbells, AreRungForASenderThatHasNotSeenItsMessageTaken) {
  constexpr uint32_t kRounds = 20'000;
  constexpr uint64_t kLongestPauseNs = 800;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  auto* const page = reinterpret_cast<DoorbellPage*>(peer.doorbells.mapping.base());
  const Shared64& consumed = peer.theirs.state->consumed;
  std::atomic<uint32_t> ready = 0;
  std::atomic<uint32_t> awaited = 0;
  std::atomic<uint32_t> polled = 0;
  uint32_t looked_first = 0;
  uint32_t lost = 0;
  std::thread sending([&] {
    std::mt19937_64 random(rrdk::test::run_seed());
    for (uint32_t round = 1; round <= kRounds; ++round) {
      peer.mine.state->wants.store(0);
      page->summary.store(0);
      ready.store(round, std::memory_order_release);
      while (awaited.load(std::memory_order_acquire) != round)
        _mm_pause();
      peer.publish({.length = 8,
                    .flags = kAckWanted,
                    .num_sges = 1,
                    .sges = {RemoteSge{0, RawEnd::kRegion, 8}}});
      const uint64_t until = base::Tsc::now_ns() + random() % kLongestPauseNs;
      while (base::Tsc::now_ns() < until) {
      }
      peer.mine.state->wants.store(kWantsConsumed, std::memory_order_seq_cst);
      const bool seen = consumed.load(std::memory_order_acquire) == round;
      while (polled.load(std::memory_order_acquire) != round)
        _mm_pause();
      looked_first += seen ? 0 : 1;
      lost += !seen && page->summary.load() == 0 ? 1 : 0;
    }
  });
  Buffer inbox = fabric::test::test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  std::array<fabric::Completion, 4> completions;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    while (ready.load(std::memory_order_acquire) != round)
      _mm_pause();
    EXPECT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
    // The peer's flag is in our cache, and our count of messages taken is in none.
    EXPECT_EQ(peer.mine.state->wants.load(), 0u);
    _mm_clflush(&consumed);
    _mm_mfence();
    awaited.store(round, std::memory_order_release);
    while (honest_.server.cq->poll(completions) == 0)
      _mm_pause();
    polled.store(round, std::memory_order_release);
  }
  sending.join();
  EXPECT_EQ(lost, 0u) << "of " << looked_first << " that looked before the message was taken";
}

// A completion queue has many queue pairs: the last one that there can be is woken and found by its
// doorbell, and the error of one more names how many there are.
TEST_F(Doorbells, ReachTheLastQueuePairThatThereCanBe) {
  fabric::test::End& server = honest_.server;
  auto& cq = static_cast<CompletionQueue&>(*server.cq);
  auto holder = server.queue_pair();
  auto& holds = static_cast<QueuePair&>(*holder);
  std::vector<uint32_t> held;
  while (held.empty() || held.back() != kMaxQueuePairs - 2)
    held.push_back(cq.add(holds).value());
  auto [client, last] = honest_.connect();
  auto beyond = server.device->create_queue_pair({.cq = &cq});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Errc::kLimit);
  EXPECT_NE(beyond.error().message.find(std::to_string(kMaxQueuePairs)), std::string::npos);

  Buffer buffer = fabric::test::test_memory().get(4096);
  honest_.post_receives(*last, 1);
  ASSERT_TRUE(fabric::test::pump_until({&server}, [&] { return cq.arm(); }));
  const fabric::SendWr wr = fabric::test::send_wr(1, {buffer.first(8)});
  ASSERT_EQ(client->post_send(std::span(&wr, 1)), 1u);
  pollfd wake{cq.wake_fd(), POLLIN, 0};
  EXPECT_TRUE(
      fabric::test::pump_until({&honest_.client}, [&] { return ::poll(&wake, 1, 0) == 1; }));
  cq.disarm();
  std::array<fabric::Completion, 4> completions;
  EXPECT_EQ(cq.poll(completions), 1u);
  for (const uint32_t bit : held)
    cq.remove(holds, bit, nullptr);
}

// For functions of many instructions this many moments are tried.
constexpr uint64_t kMoments = 400;

// A message comes at any moment while its receiver goes to sleep: the receiver finds it, or its
// sender sees that it must wake the receiver.
TEST_F(Doorbells, WakeAReceiverThatIsAboutToSleep) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer's runtime cannot be run one instruction at a time";
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  auto* const page = reinterpret_cast<DoorbellPage*>(peer.peer.doorbell_page.base());
  Buffer inbox = fabric::test::test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  const Forged message{.length = 8, .num_sges = 1, .sges = {RemoteSge{0, RawEnd::kRegion, 8}}};
  uint64_t steps = 1;
  uint32_t slept_through = 0;
  for (uint64_t at = 0; at < steps; at += std::max<uint64_t>(steps / kMoments, 1)) {
    ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
    bool woken = false;
    bool sleeps = false;
    steps = rrdk::test::SingleStep::through(
        [&] { sleeps = honest_.server.cq->arm(); },
        [&](uint64_t step) {
          if (step != at)
            return;
          peer.publish(message);
          std::atomic_thread_fence(std::memory_order_seq_cst);
          if ((peer.theirs.state->wants.load() & kWantsMessages) != 0)
            woken = set_bit(*page, peer.peer.doorbell_bit);
        });
    EXPECT_TRUE(!sleeps || woken) << "before instruction " << at << " of " << steps;
    slept_through += sleeps ? 1 : 0;
    honest_.server.cq->disarm();
    ASSERT_TRUE(fabric::test::pump_until({&honest_.server},
                                         [&] { return !honest_.server.completions.empty(); }));
    honest_.server.completions.clear();
  }
  EXPECT_GT(slept_through, 0u);
}

// The keys of an end that closes become invalid one after the other: a peer that finds an invalid
// key also finds the reason.
TEST_F(Doorbells, AnInvalidKeyShowsThatItsOwnerHasClosed) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer's runtime cannot be run one instruction at a time";
  constexpr size_t kKeys = 4;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish({.keys = 2 * kKeys});
  Buffer buffer = fabric::test::test_memory().get(4096);
  std::array<uint32_t, kKeys> keys{};
  ASSERT_TRUE(peer.victim->reserve_keys(keys));
  for (const uint32_t key : keys) {
    const fabric::SendWr bind =
        fabric::test::bind_wr(1, key, buffer.first(64), fabric::Rights::kRemoteRead);
    ASSERT_EQ(peer.victim->post_send(std::span(&bind, 1)), 1u);
  }
  const auto shown = [&] {
    size_t count = 0;
    for (uint32_t i = 0; i <= peer.theirs.key_mask; ++i)
      count += peer.theirs.keys[i].key.load() != 0;
    return count;
  };
  ASSERT_EQ(shown(), kKeys);
  uint64_t unexplained = 0;
  size_t fewest = kKeys;
  rrdk::test::SingleStep::through([&] { peer.victim->disconnect(); },
                                  [&](uint64_t) {
                                    fewest = shown();
                                    const bool closed = peer.theirs.state->closed.load() != 0;
                                    unexplained += fewest < kKeys && !closed ? 1 : 0;
                                  });
  EXPECT_EQ(fewest, 0u);
  EXPECT_EQ(unexplained, 0u) << "instructions";
  EXPECT_EQ(peer.theirs.state->closed.load(), static_cast<uint32_t>(CloseReason::kDisconnected));
}

}  // namespace
}  // namespace rrdk::shm::test
