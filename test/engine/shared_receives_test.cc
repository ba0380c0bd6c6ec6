// Receives that connections share, and grants that adapt to a peer's load.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/credits.h"
#include "engine/receive_queue.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "test/seed.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kPlenty = 10'000;

// As many calls come and are answered, with `others` answers to other peers for each. Returns the
// last grant.
uint32_t serve(Grant& grant, uint32_t calls, uint64_t& answers, uint32_t others = 0,
               uint32_t most = kPlenty) {
  for (uint32_t i = 0; i < calls; ++i) {
    EXPECT_FALSE(grant.on_call(64)) << "within its grant";
    if (grant.count_answer())
      grant.adapt(answers, most);
    ++answers;
    grant.on_answer(kPlenty);
    answers += others;
  }
  return grant.last();
}

TEST(ElasticGrant, AloneAPeerHasAllWithinFourRoundTrips) {
  Grant grant(64, 4);
  uint64_t answers = 0;
  EXPECT_EQ(serve(grant, 1, answers), 4u);
  for (int trip = 2; trip <= 4; ++trip)
    serve(grant, grant.last(), answers);
  EXPECT_EQ(grant.last(), 64u);
}

// A peer that had many and asks for few is promised few, however recently it had many.
TEST(ElasticGrant, CallsBeyondThePromiseAreRecognized) {
  Grant grant(64, 4);
  uint64_t answers = 0;
  for (int trip = 1; trip <= 5; ++trip)
    serve(grant, grant.last(), answers);
  ASSERT_EQ(grant.last(), 64u);
  while (grant.due() > 1) {
    EXPECT_FALSE(grant.on_call(1));
    EXPECT_EQ(grant.on_answer(kPlenty), 1u);
  }
  EXPECT_FALSE(grant.on_call(1)) << "the one that the last answer granted";
  for (int beyond = 1; beyond <= 60; ++beyond)
    EXPECT_TRUE(grant.on_call(1)) << beyond;
}

TEST(ElasticGrant, FewCallsAmongManyGetFew) {
  Grant grant(64, 4);
  uint64_t answers = 0;
  while (grant.last() != 64)
    serve(grant, 1, answers);
  EXPECT_EQ(serve(grant, 40, answers, 9'999), 4u);
  EXPECT_EQ(serve(grant, 1, answers, 9'999), 4u);
  // It makes the most calls again.
  while (grant.last() != 64)
    serve(grant, 1, answers);
}

// Calls that were granted may still come.
TEST(ElasticGrant, ALowerOneIsDueWhenAsManyCallsHaveCome) {
  Grant grant(64, 4);
  uint64_t answers = 0;
  while (grant.last() != 64)
    serve(grant, 1, answers);
  serve(grant, 1, answers, 100'000);
  serve(grant, 20, answers, 100'000);
  ASSERT_EQ(grant.last(), 4u);
  EXPECT_GT(grant.due(), 4u);
  serve(grant, 64, answers, 100'000);
  EXPECT_EQ(grant.due(), 4u);
}

class SharedReceives : public testing::Test {
 protected:
  void TearDown() override { queue.reset(); }
  std::unique_ptr<ReceiveShare> open(uint32_t calls, uint32_t replies = 0) {
    auto share = std::make_unique<ReceiveShare>(
        *queue, 64, 3, ReceiveShare::Least{.calls = calls, .replies = replies});
    return share->open(false) ? std::move(share) : nullptr;
  }
  // A message arrives in the oldest Receive.
  ReceiveSlot& take() {
    auto* slot = static_cast<ReceiveSlot*>(WorkTag::of((*queue->list().begin()).wr_id).owner);
    queue->list().pop_front(1);
    queue->on_completion(*slot);
    return *slot;
  }

  std::unique_ptr<Memory> memory = [] {
    EXPECT_TRUE(ensure_eal());
    return std::move(
        Memory::create({.classes = {{4096, 256}}, .hugepages = HugepagePolicy::kNever}).value());
  }();
  std::unique_ptr<ReceiveQueue> queue =
      std::make_unique<ReceiveQueue>(*memory, 4096, 4096, ReceiveQueue::Users::kMany);
};

TEST_F(SharedReceives, ConnectionsGetWhatTheyNeedUntilAQuarterIsLeft) {
  std::vector<std::unique_ptr<ReceiveShare>> shares;
  while (auto share = open(4)) {
    shares.push_back(std::move(share));
    ASSERT_TRUE(queue->keeps_promises());
    ASSERT_LT(shares.size(), 100u);
  }
  EXPECT_GE(shares.size(), 40u) << "4 each of 192";
  EXPECT_GE(memory->audit_fitting(4096).available, 64u);
  EXPECT_FALSE(queue->could_promise(4));
  shares.pop_back();
  EXPECT_TRUE(open(4)) << "another one's place";
}

// Receives of waiting messages back promises only as far as other Receives could replace them.
TEST_F(SharedReceives, NoMoreArePromisedThanCanBePosted) {
  constexpr uint32_t kMost = 70;  // slots come in steps, so that some are bare
  queue = std::make_unique<ReceiveQueue>(*memory, kMost, 4096, ReceiveQueue::Users::kMany);
  std::vector<std::unique_ptr<ReceiveShare>> shares;
  auto open_all = [&] {
    while (auto share = open(4))
      shares.push_back(std::move(share));
  };
  open_all();
  const size_t most = shares.size();
  ASSERT_GE(most, 4u);
  for (size_t i = 0; i < most; ++i) {
    ASSERT_TRUE(shares[i]->park(take(), 100));
    queue->refill_bare();
  }
  open_all();
  EXPECT_LE(queue->promised(), kMost);
  for (size_t i = 0; i < most; ++i) {
    queue->repost(shares[i]->unpark());
    EXPECT_TRUE(queue->keeps_promises()) << i;
  }
}

TEST_F(SharedReceives, BurstsLeaveHalfForConnectionsThatCome) {
  auto share = open(4);
  ASSERT_TRUE(share);
  queue->make_more_unpromised(1000);
  share->promise_calls(4 + queue->unpromised());
  EXPECT_TRUE(queue->keeps_promises());
  EXPECT_EQ(queue->unpromised(), 0u);
  EXPECT_GE(memory->audit_fitting(4096).available, 128u);
  EXPECT_TRUE(open(4));
}

// Shows: V1-CREDIT-24
// Messages beyond what their connection was promised must not take what others were.
TEST_F(SharedReceives, NoConnectionTakesThosePromisedToAnother) {
  auto greedy = open(4);
  auto modest = open(4);
  uint32_t waiting = 0;
  for (; waiting < 200; ++waiting) {
    ReceiveSlot& slot = take();
    if (!greedy->park(slot, 40)) {
      queue->drop(slot);
      break;
    }
    EXPECT_EQ(greedy->full(), waiting >= 3) << waiting;
    ASSERT_TRUE(queue->keeps_promises()) << waiting;
  }
  EXPECT_LT(waiting, 200u);
  EXPECT_GE(queue->posted(), 4u) << "those of the other one";
  while (greedy->parked() != nullptr)
    queue->drop(greedy->unpark());
  EXPECT_FALSE(greedy->full());
}

// A message has a Receive before it can be held back, and its sender may never finish it.
TEST_F(SharedReceives, AMessageThatHasBegunCountsAsOneThatIsTaken) {
  std::vector<std::unique_ptr<ReceiveShare>> shares;
  while (auto share = open(4))
    shares.push_back(std::move(share));
  const uint32_t spare = queue->posted() - queue->promised();
  uint32_t begun = 0;
  for (; begun < shares.size() && shares[begun]->count_begun(true); ++begun)
    EXPECT_TRUE(queue->keeps_promises());
  EXPECT_EQ(begun, spare) << "the next one would have another connection's";
  const uint32_t promised = queue->promised();
  shares[0]->count_begun(false);
  EXPECT_EQ(queue->promised(), promised - 1);
  shares.clear();
  EXPECT_EQ(queue->promised(), 0u);
}

// Messages arrive, wait and are taken, promises rise and fall, and connections end at any moment.
// The sum of promises is what the existing connections were promised, and the count of waiting
// messages is what they have.
TEST_F(SharedReceives, EachPromiseAndEachWaitingMessageIsCountedOnce) {
  struct Connection {
    std::unique_ptr<ReceiveShare> share;
    uint32_t calls = 0;
    uint32_t replies = 1;
    ReceiveSlot* begun = nullptr;
    uint32_t waiting = 0;
  };
  std::vector<Connection> all(6);
  std::mt19937_64 random(rrdk::test::run_seed());
  const auto below = [&](uint64_t most) { return static_cast<uint32_t>(random() % most); };
  const auto end = [&](Connection& c) {
    c.share.reset();
    if (c.begun != nullptr)  // whose message is never whole
      queue->drop(*c.begun);
    c = {};
  };
  const auto act = [&](Connection& c) {
    const bool some = !queue->list().empty();
    switch (below(9)) {
      case 0:
        return end(c);
      case 1:
        c.calls = std::max(4u, 4 + below(queue->unpromised() + 1));
        return c.share->promise_calls(c.calls);
      case 2:
        c.replies = 1 + below(2) * below(queue->unpromised() + 1);
        return c.share->promise_replies(c.replies);
      case 3:
        if (c.begun == nullptr && some) {
          c.begun = &take();
          if (!c.share->count_begun(true))
            end(c);
        } else if (c.begun != nullptr) {
          c.share->count_begun(false);
          queue->repost(*std::exchange(c.begun, nullptr));
        }
        return;
      case 4:
        if (c.waiting != 0) {  // it is looked at, and has to wait on
          const uint32_t waiting = queue->parked();
          ReceiveSlot& slot = c.share->unpark();
          c.share->park_first(slot);
          if (c.waiting <= c.calls) {
            EXPECT_GE(queue->parked(), waiting) << "one that was not promised may count now";
          }
        }
        return;
      case 5:
      case 6:
        if (c.waiting != 0) {
          --c.waiting;
          queue->repost(c.share->unpark());
        }
        return;
      default:
        if (!some)
          return;
        ReceiveSlot& slot = take();
        if (c.share->park(slot, 40))
          ++c.waiting;
        else
          queue->drop(slot);
    }
  };
  for (int step = 0; step < 20'000; ++step) {
    Connection& c = all[below(all.size())];
    if (c.share != nullptr)
      act(c);
    else if (auto share = open(4, 1))
      c = {.share = std::move(share), .calls = 4};
    queue->refill_bare();
    uint32_t promised = 0;
    uint32_t waiting = 0;
    for (const Connection& each : all) {
      promised += each.share == nullptr ? 0 : each.calls + each.replies + (each.begun != nullptr);
      waiting += each.waiting;
    }
    ASSERT_EQ(queue->promised(), promised) << step;
    ASSERT_LE(queue->parked(), waiting) << step;
    if (step % 100 == 99) {
      for (Connection& each : all) {
        for (; each.waiting != 0; --each.waiting)
          queue->repost(each.share->unpark());
      }
      ASSERT_EQ(queue->parked(), 0u) << step;
      ASSERT_TRUE(queue->keeps_promises()) << step;
    }
  }
  for (Connection& each : all)
    end(each);
  EXPECT_EQ(queue->promised(), 0u);
  EXPECT_EQ(queue->parked(), 0u);
}

TEST_F(SharedReceives, AreGivenBackWhenUnused) {
  auto share = open(4);
  queue->make_more_unpromised(100);
  share->promise_calls(100);
  uint32_t most = queue->posted();
  share->promise_calls(4);
  for (uint32_t i = 0; i < 200; ++i)
    queue->repost(take());
  EXPECT_LT(queue->posted(), most);
  share.reset();
  queue.reset();
  EXPECT_TRUE(memory->whole());
}

}  // namespace
}  // namespace rrdk::engine::test
