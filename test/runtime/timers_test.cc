#include "runtime/timers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "test/seed.h"

namespace rrdk::runtime {
namespace {

std::vector<Timer*> fired;

Timer make_timer() {
  Timer timer;
  timer.fire = [](Timer& t) { fired.push_back(&t); };
  return timer;
}

TEST(Timers, FireInOrderOfTheirTimesAndNotBefore) {
  fired.clear();
  Timers timers;
  Timer a = make_timer(), b = make_timer(), c = make_timer();
  timers.start(a, 300);
  timers.start(b, 100);
  timers.start(c, 200);
  EXPECT_EQ(timers.next_due(), 100u);
  EXPECT_EQ(timers.poll(99), 0u);
  EXPECT_EQ(timers.poll(200), 2u);
  EXPECT_EQ(fired, (std::vector<Timer*>{&b, &c}));
  EXPECT_TRUE(a.running());
  EXPECT_FALSE(b.running());
  EXPECT_EQ(timers.poll(1000), 1u);
  EXPECT_EQ(timers.next_due(), UINT64_MAX);
}

TEST(Timers, CancelledTimersDoNotFire) {
  fired.clear();
  Timers timers;
  Timer a = make_timer(), b = make_timer();
  timers.start(a, 1);
  timers.start(b, 2);
  timers.cancel(a);
  timers.cancel(a);  // nothing to do
  EXPECT_EQ(timers.poll(10), 1u);
  EXPECT_EQ(fired, std::vector<Timer*>{&b});
}

TEST(Timers, ATimerThatStartsItselfAgainDoesNotHoldUpThePass) {
  static Timers timers;
  static int count;
  count = 0;
  Timer t;
  t.fire = [](Timer& timer) {
    ++count;
    timers.start(timer, 0);
  };
  timers.start(t, 0);
  timers.poll(5);
  EXPECT_GE(count, 1);
  EXPECT_LE(count, 32);
  timers.cancel(t);
}

// Compared with a sorted list, with random starts, cancels and times.
TEST(Timers, BehaveAsASortedListDoes) {
  std::mt19937_64 random(test::run_seed());
  Timers timers;
  std::vector<Timer> all(500, make_timer());
  std::vector<Timer*> running;
  uint64_t now = 0;
  for (int step = 0; step < 20000; ++step) {
    Timer& timer = all[random() % all.size()];
    if (random() % 4 == 0) {
      now += random() % 50;
      fired.clear();
      while (timers.poll(now) != 0) {
      }
      ASSERT_TRUE(std::ranges::is_sorted(fired, {}, &Timer::due_ns));
      for (Timer* f : fired)
        ASSERT_LE(f->due_ns, now);
      std::erase_if(running, [&](Timer* t) { return !t->running(); });
      for (Timer* t : running)
        ASSERT_GT(t->due_ns, now);
    } else if (timer.running()) {
      timers.cancel(timer);
      std::erase(running, &timer);
    } else {
      timers.start(timer, now + random() % 1000);
      running.push_back(&timer);
    }
    auto next = std::ranges::min_element(running, {}, &Timer::due_ns);
    ASSERT_EQ(timers.next_due(), next == running.end() ? UINT64_MAX : (*next)->due_ns);
  }
}

}  // namespace
}  // namespace rrdk::runtime
