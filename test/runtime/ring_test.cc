// The ring between cores, and the inbox that never refuses an item.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "rrdk/eal.h"
#include "runtime/inbox.h"
#include "runtime_env.h"

namespace rrdk::runtime {
namespace {

struct Numbered : WorkItem {
  int number = 0;
  int producer = 0;
};

TEST(Ring, TakesOneLessThanItsSizeAndKeepsOrder) {
  ASSERT_TRUE(ensure_eal());
  auto ring = Ring::create(8, Consumers::kOne).value();
  Numbered items[8];
  for (int i = 0; i < 7; ++i)
    EXPECT_TRUE(ring->push(items[i]));
  EXPECT_FALSE(ring->push(items[7]));
  EXPECT_EQ(ring->count(), 7u);
  WorkItem* out[8];
  ASSERT_EQ(ring->pop_burst(out), 7u);
  for (int i = 0; i < 7; ++i)
    EXPECT_EQ(out[i], &items[i]);
  EXPECT_TRUE(ring->empty());
}

TEST(Ring, BurstTakesWhatFits) {
  auto ring = Ring::create(4, Consumers::kMany).value();
  Numbered items[5];
  WorkItem* in[5];
  for (int i = 0; i < 5; ++i)
    in[i] = &items[i];
  EXPECT_EQ(ring->push_burst(in), 3u);
}

TEST(Ring, RefusesASizeThatIsNoPowerOfTwo) {
  auto ring = Ring::create(100, Consumers::kOne);
  ASSERT_FALSE(ring);
  EXPECT_EQ(ring.error().code, Errc::kInvalidArgument);
  EXPECT_NE(ring.error().message.find("100"), std::string::npos);
}

// More items than the ring holds, from one thread, with no poll meanwhile.
TEST(Inbox, TakesMoreThanItsRingHolds) {
  Alarm alarm(false);
  Inbox inbox(Ring::create(4, Consumers::kOne).value(), alarm);
  static std::vector<int> seen;
  seen.clear();
  std::vector<Numbered> items(100);
  for (int i = 0; i < 100; ++i) {
    items[i].number = i;
    items[i].run = [](WorkItem& item) { seen.push_back(static_cast<Numbered&>(item).number); };
    inbox.push(items[i]);
  }
  EXPECT_TRUE(inbox.peek(0));
  uint32_t ran = 0;
  while (uint32_t n = inbox.poll(0))
    ran += n;
  EXPECT_EQ(ran, 100u);
  EXPECT_FALSE(inbox.peek(0));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

// An item may be queued again by its own run(): the item behind it in the overflow is then already
// known. A producer that found the ring full may add its item after the core has looked at the
// overflow.
TEST(Inbox, DoesNotSleepWhileAnItemIsInItsOverflow) {
  Alarm alarm(false);
  auto owned = Ring::create(4, Consumers::kOne).value();
  Ring& ring = *owned;
  Inbox inbox(std::move(owned), alarm);
  std::atomic<int> count = 0;
  std::array<Counted, 4> items;  // one more than the ring holds
  for (Counted& item : items) {
    item.run = count_it;
    item.count = &count;
  }
  for (Counted& item : std::span(items).first(3))
    inbox.push(item);
  std::thread([&] { inbox.push(items[3]); }).join();
  std::array<WorkItem*, 4> taken = {};
  ASSERT_EQ(ring.pop_burst(taken), 3u);
  EXPECT_FALSE(inbox.try_sleep(0));
  EXPECT_EQ(inbox.poll(0), 1u);
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(inbox.try_sleep(0));
}

TEST(Inbox, AnItemMayQueueItselfAgain) {
  struct Again : Numbered {
    Inbox* inbox = nullptr;
    int runs = 0;
  };
  Alarm alarm(false);
  Inbox inbox(Ring::create(4, Consumers::kOne).value(), alarm);
  std::vector<Again> items(20);
  for (Again& item : items) {
    item.inbox = &inbox;
    item.run = [](WorkItem& i) {
      auto& again = static_cast<Again&>(i);
      if (++again.runs < 3)
        again.inbox->push(again);
    };
    inbox.push(item);
  }
  uint32_t ran = 0;
  while (uint32_t n = inbox.poll(0)) {
    ran += n;
    ASSERT_LE(ran, 60u);
  }
  EXPECT_EQ(ran, 60u);
  for (const Again& item : items)
    EXPECT_EQ(item.runs, 3);
}

// Each item from each of several threads runs once; a full ring loses none.
TEST(Inbox, ManyProducersLoseNothing) {
  constexpr int kProducers = 3;
  constexpr int kItems = 1000;  // more threads than CPUs wait for each other in the ring
  Alarm alarm(false);
  Inbox inbox(Ring::create(64, Consumers::kOne).value(), alarm);
  std::vector<std::vector<Numbered>> items(kProducers);
  std::vector<std::thread> threads;
  static std::atomic<int> ran;
  ran = 0;
  for (int p = 0; p < kProducers; ++p) {
    items[p] = std::vector<Numbered>(kItems);
    threads.emplace_back([&, p] {
      for (Numbered& item : items[p]) {
        item.run = [](WorkItem& i) {
          ++static_cast<Numbered&>(i).number;
          ran.fetch_add(1, std::memory_order_relaxed);
        };
        inbox.push(item);
      }
    });
  }
  while (ran.load(std::memory_order_relaxed) < kProducers * kItems)
    inbox.poll(0);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(inbox.poll(0), 0u);
  for (const auto& of_one : items) {
    for (const Numbered& item : of_one)
      ASSERT_EQ(item.number, 1);
  }
}

}  // namespace
}  // namespace rrdk::runtime
