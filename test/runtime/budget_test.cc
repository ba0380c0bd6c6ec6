// The budget of a pass: what may take long stops when it is spent and goes on in the next pass, in
// order, and each kind has its turn; and a core does not sleep meanwhile. Steps that take longer
// than the budget make that certain.
#include "base/budget.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/count.h"
#include "base/internals.h"
#include "runtime/inbox.h"
#include "runtime/poll_core.h"
#include "runtime/timers.h"
#include "runtime_env.h"

namespace rrdk::runtime {
namespace {

using base::Budget;
using base::SlowWork;
using base::Tsc;

constexpr uint32_t kSmallestUs = 1;

// A step that takes longer than the smallest budget.
void slow_step() {
  const uint64_t end = Tsc::now_ns() + 2 * kSmallestUs * 1000;
  while (Tsc::now_ns() < end) {
  }
}

struct Passes {
  base::Count number;
  Budget budget{kSmallestUs, number};
};

TEST(PassBudget, IsSpentUntilTheNextPass) {
  Passes pass;
  pass.budget.begin();
  slow_step();
  EXPECT_FALSE(pass.budget.known_spent());
  pass.budget.begin();  // of the same pass
  EXPECT_TRUE(pass.budget.spent());
  EXPECT_TRUE(pass.budget.known_spent());
  ++pass.number;
  EXPECT_FALSE(pass.budget.known_spent());
  slow_step();  // before there is slow work
  const Passes hour;
  Budget long_one{3'600'000'000, hour.number};
  long_one.begin();
  slow_step();
  EXPECT_FALSE(long_one.spent());
}

TEST(PassBudget, OfZeroIsNone) {
  const base::Count passes;
  Budget zero(0, passes);
  for (Budget* budget : {&zero, &Budget::none()}) {
    EXPECT_TRUE(budget->may_begin(SlowWork::kTasks));
    slow_step();
    EXPECT_FALSE(budget->spent());
    EXPECT_FALSE(budget->known_spent());
    EXPECT_TRUE(budget->may_go_on());
    EXPECT_TRUE(budget->may_begin(SlowWork::kTimers));
  }
}

// Each step takes longer than the budget, so a pass has only one.
TEST(PassBudget, KindsTakeTurns) {
  Passes pass;
  std::vector<SlowWork> done;
  for (int passes = 1; passes <= 6; ++passes, ++pass.number) {
    for (SlowWork kind : {SlowWork::kTasks, SlowWork::kTimers, SlowWork::kEvents}) {
      if (pass.budget.may_begin(kind)) {
        done.push_back(kind);
        slow_step();
        EXPECT_FALSE(pass.budget.may_go_on());
      }
    }
    EXPECT_EQ(done.size(), static_cast<size_t>(passes));
  }
  EXPECT_EQ(done, (std::vector{SlowWork::kTasks, SlowWork::kTimers, SlowWork::kEvents,
                               SlowWork::kTasks, SlowWork::kTimers, SlowWork::kEvents}));
}

// The copies use up each pass that they may.
TEST(PassBudget, WhatComesWithMessagesLeavesEverySecondPassToAKind) {
  Passes pass;
  const auto copy = [&] {
    pass.budget.begin();
    slow_step();
    EXPECT_TRUE(pass.budget.spent());
  };
  copy();
  EXPECT_FALSE(pass.budget.may_begin(SlowWork::kTimers));
  ++pass.number;
  pass.budget.begin();
  EXPECT_TRUE(pass.budget.spent()) << "after one step, however short";
  EXPECT_FALSE(pass.budget.may_begin(SlowWork::kTasks));
  EXPECT_TRUE(pass.budget.may_begin(SlowWork::kTimers));
  slow_step();
  EXPECT_FALSE(pass.budget.may_go_on());
  ++pass.number;
  EXPECT_FALSE(pass.budget.known_spent());
  EXPECT_TRUE(pass.budget.may_begin(SlowWork::kTasks));
  ++pass.number;
  copy();
}

TEST(PassBudget, ATurnThatIsNotTakenIsGone) {
  Passes pass;
  EXPECT_TRUE(pass.budget.may_begin(SlowWork::kTasks));
  slow_step();
  EXPECT_FALSE(pass.budget.may_begin(SlowWork::kTimers));
  ++pass.number;
  EXPECT_FALSE(pass.budget.may_begin(SlowWork::kTasks));
  ++pass.number;
  EXPECT_TRUE(pass.budget.may_begin(SlowWork::kTasks));
}

TEST(PassBudget, ControlTasksAreRunInOrderOverPasses) {
  Passes pass;
  Alarm alarm(false);
  ControlQueue queue(alarm, pass.budget);
  std::vector<int> ran;
  const auto note = [&ran](int number) {
    return [&ran, number] {
      ran.push_back(number);
      slow_step();
    };
  };
  for (int i = 1; i <= 5; ++i)
    queue.post(note(i));
  EXPECT_EQ(queue.poll(0), 1u);
  queue.post(note(6));
  queue.post_first(note(0));
  for (size_t passes = 2; passes <= 7; ++passes) {
    EXPECT_TRUE(queue.peek(0));
    EXPECT_FALSE(queue.try_sleep(0));
    ++pass.number;
    EXPECT_EQ(queue.poll(0), 1u);
    EXPECT_EQ(ran.size(), passes);
  }
  EXPECT_EQ(ran, (std::vector{1, 0, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(queue.try_sleep(0));
  EXPECT_EQ(queue.poll(0), 0u);
}

// What must precede other work does so also where the tasks must wait.
TEST(PassBudget, AFirstTaskDoesNotWait) {
  Passes pass;
  Alarm alarm(false);
  ControlQueue queue(alarm, pass.budget);
  int ran = 0, first = 0;
  EXPECT_TRUE(pass.budget.may_begin(SlowWork::kTimers));
  slow_step();
  queue.post([&] { ++ran; });
  queue.post_first([&] { ++first; });
  EXPECT_EQ(queue.poll(0), 1u);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(ran, 0);
  EXPECT_FALSE(queue.try_sleep(0));
  ++pass.number;
  EXPECT_EQ(queue.poll(0), 1u);
  EXPECT_EQ(ran, 1);
  ++pass.number;
  EXPECT_TRUE(pass.budget.may_begin(SlowWork::kTimers));
  slow_step();
  queue.post_first([&] { ++first; });
  EXPECT_EQ(queue.poll(0), 1u);
  ++pass.number;
  EXPECT_EQ(queue.poll(0), 0u) << "it was the only one";
  EXPECT_TRUE(queue.try_sleep(0));
}

// Without a limit, too: a task that posts itself again would keep the pass for ever.
TEST(PassBudget, WhatTasksPostWaitsForTheNextPass) {
  Alarm alarm(false);
  ControlQueue queue(alarm);
  int runs = 0;
  std::function<void()> again = [&] {
    ++runs;
    queue.post_here([&] { again(); });
  };
  queue.post([&] { again(); });
  queue.post([&] { ++runs; });
  EXPECT_EQ(queue.poll(0), 2u);
  EXPECT_EQ(runs, 2);
  EXPECT_FALSE(queue.try_sleep(0));
  EXPECT_EQ(queue.poll(0), 1u);
  EXPECT_EQ(runs, 3);
}

TEST(PassBudget, TimersThatAreDueAtOnceFireOverPasses) {
  Passes pass;
  Timers timers(pass.budget);
  static int fired;
  fired = 0;
  std::array<Timer, 3> all;
  for (Timer& timer : all) {
    timer.fire = [](Timer&) {
      ++fired;
      slow_step();
    };
    timers.start(timer, 10);
  }
  for (int passes = 1; passes <= 3; ++passes, ++pass.number) {
    EXPECT_FALSE(timers.try_sleep(10));
    EXPECT_EQ(timers.poll(10), 1u);
    EXPECT_EQ(fired, passes);
  }
  EXPECT_TRUE(timers.try_sleep(10));
}

TEST(PassBudget, AnOverflowIsEmptiedOverPasses) {
  Alarm alarm(false);
  Inbox inbox(Ring::create(4, Consumers::kOne).value(), alarm);
  std::atomic<int> count = 0;
  std::vector<Counted> items(200);
  for (Counted& item : items) {
    item.run = count_it;
    item.count = &count;
    inbox.push(item);
  }
  int polls = 0;
  for (; inbox.peek(0); ++polls) {
    EXPECT_FALSE(inbox.try_sleep(0));
    EXPECT_LE(inbox.poll(0), 64u);
  }
  EXPECT_EQ(count, 200);
  EXPECT_GE(polls, 4);
}

class PassOfACore : public testing::Test {
 protected:
  std::unique_ptr<Memory> memory_ = small_memory();
  std::unique_ptr<Runtime> runtime_ = runtime_of(*memory_, {.pass_budget_us = kSmallestUs});
  PollCore& core_ = *Internals::of(*runtime_).cores[0];
};

// Each pass runs one of the tasks, and all else that there is.
TEST_F(PassOfACore, DoesOtherWorkBetweenSlowTasks) {
  constexpr int kTasks = 20;
  int ran = 0;
  for (int i = 0; i < kTasks; ++i)
    core_.post([&] {
      ++ran;
      slow_step();
    });
  std::atomic<int> count = 0;
  Counted item;
  item.run = count_it;
  item.count = &count;
  Counted deferred;
  deferred.run = count_it;
  std::atomic<int> later = 0;
  deferred.count = &later;
  for (int passes = 1; ran != kTasks; ++passes) {
    EXPECT_FALSE(runtime_->arm_wake());
    const int before = ran;
    core_.submit(item);
    EXPECT_NE(runtime_->poll(), 0u);
    ASSERT_LE(ran, before + 1) << "each uses up the budget";
    ASSERT_LE(passes, 2 * ran + 1) << "every second pass may belong to control events";
    EXPECT_EQ(count, passes);
    core_.defer(deferred);
    EXPECT_EQ(later, passes - 1);
  }
  runtime_->poll();
  EXPECT_TRUE(runtime_->arm_wake());
}

// Each task uses up the budget of its pass. The next one belongs to the timers, or before them to
// control events that are due.
TEST_F(PassOfACore, GivesTimersTheirTurn) {
  constexpr int kTimers = 24;
  static int fired;
  fired = 0;
  int ran = 0;
  runtime_->poll();
  std::array<Timer, kTimers> timers;
  for (Timer& timer : timers) {
    timer.fire = [](Timer&) { ++fired; };
    core_.start_timer(timer, 1);
  }
  for (int i = 0; i < 10; ++i)
    core_.post([&] {
      ++ran;
      slow_step();
    });
  runtime_->poll();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(fired, 0);
  EXPECT_FALSE(runtime_->arm_wake());
  int passes = 1;
  for (int without = 0; fired != kTimers; ++passes) {
    const int before = fired;
    runtime_->poll();
    without = fired > before ? 0 : without + 1;
    ASSERT_LE(without, 2) << "one pass of tasks, and one of events";
    ASSERT_TRUE(ran == 10 || 3 * ran >= passes) << "the tasks have their turn, too";
  }
  while (ran != 10)
    runtime_->poll();
}

TEST_F(PassOfACore, RunsABurstOfWhatWasDeferred) {
  runtime_->poll();
  std::atomic<int> count = 0;
  std::vector<Counted> items(100);
  for (Counted& item : items) {
    item.run = count_it;
    item.count = &count;
    core_.defer(item);
  }
  EXPECT_EQ(runtime_->poll(), 32u);
  EXPECT_FALSE(runtime_->arm_wake());
  while (runtime_->poll() != 0) {
  }
  EXPECT_EQ(count, 100);
}

// A core with a thread of its own that may sleep at once.
TEST(PassBudget, ACoreDoesNotSleepWhileTasksAreLeft) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1},
                                      .idle = IdlePolicy::kAdaptive,
                                      .adaptive_us = 0,
                                      .pass_budget_us = kSmallestUs});
  PollCore& core = *Internals::of(*runtime).cores[0];
  std::atomic<int> left = 100;
  uint64_t first_sleeps = 0;
  uint64_t last_sleeps = 0;
  core.post([&] {
    first_sleeps = core.stats()[Counter::kSleeps];
    for (int i = 0; i < 100; ++i)
      core.post_here([&] {
        slow_step();
        last_sleeps = core.stats()[Counter::kSleeps];
        left.fetch_sub(1, std::memory_order_release);
        left.notify_all();
      });
  });
  for (int now = left.load(std::memory_order_acquire); now != 0;
       now = left.load(std::memory_order_acquire))
    left.wait(now, std::memory_order_acquire);
  EXPECT_EQ(last_sleeps, first_sleeps);
}

}  // namespace
}  // namespace rrdk::runtime
