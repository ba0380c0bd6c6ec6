// Lanes over shared memory: numbers that wrap, peers that write slots while they are read, and
// receivers that are about to sleep.
#include "fabric/lane.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizer.h"
#include "drivers/shm/queue_pair.h"
#include "test/drivers/shm/hostile_test.h"
#include "test/seed.h"
#include "test/single_step.h"

namespace rrdk::shm::test {
namespace {

using fabric::LaneMessage;
using fabric::LaneUser;

struct Collector final : LaneUser {
  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override {
    for (; most != 0; --most) {
      const LaneMessage message = lane.peek();
      if (!message)
        return;
      std::string text(message.length(), '\0');
      message.copy(reinterpret_cast<std::byte*>(text.data()), 0, message.length());
      lane.take(message);
      got.push_back(text);
    }
  }
  std::vector<std::string> got;
};

// The counters in a lane, which its users cannot see.
struct Numbers : fabric::Lane {
  // Makes it look as if this many messages had gone from `out` to `in`.
  static void set(fabric::Lane& out, fabric::Lane& in, uint64_t count) {
    out.*(&Numbers::sent_) = count;
    in.*(&Numbers::taken_) = count;
    const uint64_t mask = out.*(&Numbers::out_mask_);
    for (uint64_t number = count - mask - 1; number != count; ++number) {
      std::byte* const slot = out.*(&Numbers::out_) + (number & mask) * kSlot;
      reinterpret_cast<std::atomic<uint64_t>*>(slot)->store(static_cast<uint32_t>(number + 1));
    }
    in.flush();
  }

 protected:
  ~Numbers() = default;
};

TEST(ShmLanes, CountBeyondWhatASlotCanSay) {
  fabric::test::Pair pair(new_uri());
  Collector client, server;
  pair.client_qp->set_lane_user(&client);
  pair.server_qp->set_lane_user(&server);
  pair.post_receives(*pair.server_qp, 16);
  pair.post_receives(*pair.client_qp, 16);
  constexpr uint64_t kStart = (uint64_t{1} << 32) - 5;
  Numbers::set(*pair.client_qp->lane(), *pair.server_qp->lane(), kStart);
  Numbers::set(*pair.server_qp->lane(), *pair.client_qp->lane(), kStart);
  Buffer buffer = fabric::test::test_memory().get(4096);
  for (uint32_t i = 0; i != 12; ++i) {
    const std::string text(i % 4 == 3 ? 1000 : 40, static_cast<char>('a' + i));
    const fabric::SendWr wr = fabric::test::send_wr(i, {buffer.first(7)});
    for (fabric::QueuePair* qp : {pair.client_qp.get(), pair.server_qp.get()}) {
      std::byte* const place = qp->lane()->begin(static_cast<uint32_t>(text.size()));
      ASSERT_NE(place, nullptr) << i;
      std::memcpy(place, text.data(), text.size());
      qp->lane()->send(static_cast<uint32_t>(text.size()));
      qp->lane()->flush();
      ASSERT_EQ(qp->post_send({&wr, 1}), 1u);
    }
    ASSERT_TRUE(pair.pump_until([&] {
      return !client.got.empty() && !server.got.empty() && pair.client.completions.size() == 2 &&
             pair.server.completions.size() == 2;
    })) << i;
    EXPECT_EQ(client.got, std::vector{text});
    EXPECT_EQ(server.got, std::vector{text});
    for (auto* const list : {&client.got, &server.got})
      list->clear();
    for (fabric::test::End* const end : {&pair.client, &pair.server})
      end->completions.clear();
  }
}

class HostileLane : public Hostile {};

// Slots that a lane does not take are refused as usual.
TEST_F(HostileLane, SlotsAreRefused) {
  const std::vector<Forged> slots = {
      {.length = Slot::kMaxInline + 1, .flags = kInline},
      {.length = Slot::kMaxInline + 4, .flags = kInline},
      {.length = 8, .flags = kInline | kInvalidate, .key = 77},
      {.length = Slot::kMaxInline, .flags = kInline | kInvalidate},
      {.length = 65532, .flags = kInline | kInvalidate},
      {.length = 1000, .flags = kCopied, .address = 4096},
      {.length = 1000, .flags = kCopied, .address = 3136},
      {.length = 1000, .flags = kCopied, .address = uint64_t{0} - 64},
      {.length = 8192, .flags = kCopied},
      {.length = 0xffff'fffc, .flags = kCopied, .address = 64},
      {.length = 1000, .flags = kCopied | kInvalidate, .key = 77},
      {.length = 8, .num_sges = 1, .sges = {RemoteSge{0, 99, 8}}},
  };
  for (const Forged& slot : slots) {
    SCOPED_TRACE(testing::Message() << "length " << slot.length << ", flags " << int{slot.flags});
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    Collector user;
    peer.victim->set_lane_user(&user);
    Buffer inbox = fabric::test::test_memory().get(4096);
    const fabric::ReceiveWr receive{1, inbox.span()};
    ASSERT_EQ(peer.victim->post_receive({&receive, 1}), 1u);
    peer.publish(slot);
    ASSERT_TRUE(fabric::test::pump_until({&honest_.server}, [&] {
      return honest_.server.has_event(fabric::EventType::kDisconnected);
    }));
    EXPECT_TRUE(user.got.empty());
    peer.victim.reset();
    honest_.server.events.clear();
    honest_.server.completions.clear();
  }
  expect_bystanders_unharmed();
}

// However many peers have filled their rings, one poll takes a part, and the next ones continue
// where it ended.
TEST_F(HostileLane, APollIsBounded) {
  constexpr uint32_t kMost = 128;
  constexpr size_t kPeers = 3 * kMost / RawEnd::kGeometry.slots;
  std::vector<std::unique_ptr<RawPeer>> peers;
  std::vector<Collector> users(kPeers);
  for (Collector& user : users) {
    RawPeer& peer = *peers.emplace_back(std::make_unique<RawPeer>(honest_.server, honest_.uri));
    peer.establish();
    peer.victim->set_lane_user(&user);
  }
  honest_.server.pump();
  for (const auto& peer : peers) {
    for (uint32_t slot = 0; slot != RawEnd::kGeometry.slots; ++slot)
      peer->publish({.length = 8, .flags = kInline});
  }
  std::array<fabric::Completion, 16> none;
  for (size_t polls = 1; polls != 4; ++polls) {
    EXPECT_EQ(honest_.server.cq->poll(none), 0u);
    EXPECT_EQ(honest_.server.cq->lane_messages(), polls * kMost);
  }
  for (const Collector& user : users)
    EXPECT_EQ(user.got.size(), RawEnd::kGeometry.slots);
}

// A word of 8 bytes is good if its halves agree. The peer writes good ones and bad ones.
uint64_t good_word(uint32_t half) {
  return uint64_t{~half} << 32 | half;
}
bool is_good(uint64_t word) {
  return static_cast<uint32_t>(word >> 32) == ~static_cast<uint32_t>(word);
}

// Checks the words that it loads, and keeps the good ones.
struct Checker final : LaneUser {
  using Words = std::array<uint64_t, 4>;
  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override {
    for (; most != 0; --most) {
      const LaneMessage message = lane.peek();
      if (!message)
        return;
      const uint32_t length = message.length();
      bad_lengths += length > Slot::kMaxInline || length % 4 != 0 ? 1 : 0;
      std::array<Words, 3> kept{};
      size_t count = 0;
      for (uint32_t at = 0; at != LaneMessage::kAlwaysReadable; at += sizeof(Words)) {
        const auto words = message.load<Words>(at);
        if (std::ranges::all_of(words, is_good))
          kept[count++] = words;
        else
          ++refused;
      }
      lane.take(message);
      for (const Words& words : std::span(kept).first(count))
        bad += std::ranges::all_of(words, is_good) ? 0 : 1;
      good += count;
      ++messages;
    }
  }
  uint64_t messages = 0;
  uint64_t good = 0;
  uint64_t refused = 0;
  uint64_t bad = 0;
  uint64_t bad_lengths = 0;
};

TEST_F(HostileLane, ValuesAreUsedAsTheyWereChecked) {
  const char* factor = std::getenv("RRDK_LANE_FACTOR");  // as in test/fabric/lane_test.cc
  const uint64_t messages = 20'000 * (factor != nullptr ? std::strtoull(factor, nullptr, 0) : 1);
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Checker checker;
  peer.victim->set_lane_user(&checker);
  Buffer inbox = fabric::test::test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  while (peer.victim->post_receive({&receive, 1}) == 1) {
  }
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    std::mt19937_64 random(rrdk::test::run_seed());
    const auto word_of = [&](uint32_t sequence, uint64_t dice) {
      const uint8_t flags = dice % 16 == 0 ? kInline | kAckWanted : kInline;
      const uint64_t length = dice / 16 % (Slot::kMaxInline + 1);
      return SlotWord{sequence, static_cast<uint16_t>(dice % 64 == 1 ? length : length & ~3u),
                      flags, 0};
    };
    for (uint64_t sent = 0; !stop;) {
      const uint64_t consumed = peer.theirs.state->consumed.load(std::memory_order_acquire);
      if (sent - consumed < RawEnd::kGeometry.slots) {
        const SlotWord word = word_of(static_cast<uint32_t>(sent + 1), random());
        peer.mine.slot(sent++).word.store(word, std::memory_order_release);
      } else {
        std::this_thread::yield();
      }
      for (int i = 0; i != 4; ++i) {
        const uint64_t dice = random();
        Slot& slot = peer.mine.slot(dice);
        const uint64_t value = dice % 256 == 0 ? dice : good_word(static_cast<uint32_t>(dice));
        auto* const words = reinterpret_cast<Shared64*>(slot.room);
        words[dice / 16 % (LaneMessage::kAlwaysReadable / 8)].store(value,
                                                                    std::memory_order_relaxed);
        SlotWord now = slot.word.load(std::memory_order_relaxed);
        slot.word.compare_exchange_strong(now, word_of(now.sequence, dice >> 20));
      }
    }
  });
  std::array<fabric::Completion, 16> out;
  bool ended = false;
  while (checker.messages < messages && !ended) {
    const uint64_t before = checker.messages;
    const uint32_t count = honest_.server.cq->poll(out);
    if (count == 0 && checker.messages == before)
      std::this_thread::yield();
    for (const fabric::Completion& completion : std::span(out).first(count)) {
      ended = ended || completion.status != fabric::WcStatus::kSuccess;
      peer.victim->post_receive({&receive, 1});
    }
  }
  stop = true;
  writer.join();
  EXPECT_FALSE(ended);
  EXPECT_EQ(checker.bad, 0u);
  EXPECT_EQ(checker.bad_lengths, 0u);
  EXPECT_GT(checker.good, 0u);
  EXPECT_GT(checker.refused, 0u);
}

// A message for the lane comes at any moment while its receiver goes to sleep, and there is no
// Receive for it: the receiver finds it, or its sender sees that it must wake the receiver.
TEST_F(HostileLane, WakesAReceiverThatIsAboutToSleep) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer's runtime cannot be run one instruction at a time";
  constexpr uint64_t kMoments = 150;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Collector user;
  peer.victim->set_lane_user(&user);
  auto* const page = reinterpret_cast<DoorbellPage*>(peer.peer.doorbell_page.base());
  uint64_t steps = 1;
  uint32_t slept_through = 0;
  for (uint64_t at = 0; at < steps; at += std::max<uint64_t>(steps / kMoments, 1)) {
    bool came = false;
    bool woken = false;
    bool sleeps = false;
    steps = rrdk::test::SingleStep::through(
        [&] { sleeps = honest_.server.cq->arm(); },
        [&](uint64_t step) {
          if (step != at)
            return;
          peer.publish({.length = 8, .flags = kInline});
          came = true;
          std::atomic_thread_fence(std::memory_order_seq_cst);
          if ((peer.theirs.state->wants.load() & kWantsMessages) != 0)
            woken = set_bit(*page, peer.peer.doorbell_bit);
        });
    EXPECT_TRUE(!came || !sleeps || woken) << "before instruction " << at << " of " << steps;
    slept_through += sleeps ? 1 : 0;
    honest_.server.cq->disarm();
    if (!came)
      continue;  // not all ways to sleep have as many instructions
    ASSERT_TRUE(fabric::test::pump_until({&honest_.server}, [&] { return !user.got.empty(); }));
    user.got.clear();
  }
  EXPECT_GT(slept_through, 0u);
}

// The last message comes, and its sender goes, between any two instructions of the receiver's poll,
// and there is no Receive.
TEST_F(HostileLane, DeliversWhatCameBeforeTheEndAtAnyMoment) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer's runtime cannot be run one instruction at a time";
  constexpr uint64_t kMoments = 300;
  std::array<fabric::Completion, 4> none;
  uint64_t steps = 1;
  for (uint64_t at = 0; at < steps; at += std::max<uint64_t>(steps / kMoments, 1)) {
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    Collector user;
    peer.victim->set_lane_user(&user);
    for (int i = 0; i != 3; ++i)  // not the first poll, which does more
      honest_.server.cq->poll(none);
    bool came = false;
    steps = rrdk::test::SingleStep::through(
        [&] { honest_.server.cq->poll(none); },
        [&](uint64_t step) {
          if (step != at)
            return;
          peer.publish({.length = 8, .flags = kInline});
          peer.mine.state->closed.store(static_cast<uint32_t>(CloseReason::kDisconnected));
          came = true;
        });
    if (!came)
      continue;  // not all polls have as many instructions
    ASSERT_TRUE(fabric::test::pump_until({&honest_.server}, [&] {
      return honest_.server.has_event(fabric::EventType::kDisconnected);
    }));
    ASSERT_EQ(user.got.size(), 1u) << "before instruction " << at << " of " << steps;
    peer.victim.reset();
    honest_.server.events.clear();
  }
}

}  // namespace
}  // namespace rrdk::shm::test
