// A peer that goes from polling to its doorbell while a message is on its way.
#include <emmintrin.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/clock.h"
#include "test/drivers/shm/hostile_test.h"
#include "test/seed.h"

namespace rrdk::shm::test {
namespace {

using Doorbells = Hostile;

// The sender writes a message and looks whether the peer wants a doorbell; the peer says that it
// wants one and looks for a message. Whatever the order of these four, one of them sees the other:
// a store must be there before the load behind it, at both ends. Nothing polls here but the peer,
// and by itself, so that no sweep finds what was missed.
TEST_F(Doorbells, AreRungForWhoeverHasNotSeenTheMessage) {
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
    // In no cache: the message is long on its way, and a load may well overtake it.
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

}  // namespace
}  // namespace rrdk::shm::test
