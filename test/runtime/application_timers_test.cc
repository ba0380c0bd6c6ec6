// rrdk::Timer: an application sets when it next wants to run.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>

#include "rrdk/timer.h"
#include "runtime_env.h"

namespace rrdk {
namespace {

bool readable(Runtime& runtime, int timeout_ms) {
  pollfd fd = {runtime.wake_fd(), POLLIN, 0};
  return poll(&fd, 1, timeout_ms) == 1;
}

std::unique_ptr<Timer> counting_timer(Runtime& runtime, int& count, uint32_t core = 0) {
  auto timer =
      Timer::create(runtime, core, [](Timer&, void* n) { ++*static_cast<int*>(n); }, &count);
  if (!timer)
    ADD_FAILURE() << timer.error().message;
  return std::move(*timer);
}

constexpr uint64_t kSoon = 1'000'000;
constexpr uint64_t kLongAway = 3600'000'000'000;
constexpr int kPatienceMs = 20'000;

// A core without a connection and without work for an hour: only the timer wakes it.
TEST(ApplicationTimers, WakeAReactor) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  int fired = 0;
  auto timer = counting_timer(*runtime, fired);
  while (runtime->poll() != 0) {
  }
  for (bool armed_first : {false, true}) {
    const int before = fired;
    if (armed_first) {
      ASSERT_TRUE(runtime->arm_wake());
    }
    const uint64_t due = Runtime::now_ns() + kSoon;
    timer->start(due);
    if (!armed_first && !runtime->arm_wake()) {
      EXPECT_GE(Runtime::now_ns(), due) << "it may not sleep, but nothing is due";
    } else {
      ASSERT_TRUE(readable(*runtime, kPatienceMs)) << (armed_first ? "after" : "before");
      // A core sleeps for a second at most: this was no such wake-up, since that would come much
      // later.
      EXPECT_GE(Runtime::now_ns(), due);
    }
    while (fired == before)
      runtime->poll();
    EXPECT_GE(Runtime::now_ns(), due);
    EXPECT_EQ(fired, before + 1);
  }
}

TEST(ApplicationTimers, AreMovedAndStopped) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  int fired = 0;
  auto timer = counting_timer(*runtime, fired);
  auto witness = counting_timer(*runtime, fired);
  runtime->poll();
  timer->start(Runtime::now_ns());
  timer->start(Runtime::now_ns() + kLongAway);  // moved
  witness->start(Runtime::now_ns());
  witness->stop();
  for (int pass = 0; pass < 1000; ++pass)
    runtime->poll();
  EXPECT_EQ(fired, 0);
  timer->start(0);  // long past: due at once
  for (int pass = 0; pass < 1000; ++pass)
    runtime->poll();
  EXPECT_EQ(fired, 1);
}

TEST(ApplicationTimers, FireAgainWhenTheyStartThemselves) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  int fired = 0;
  auto timer = Timer::create(
                   *runtime, 0,
                   [](Timer& self, void* n) {
                     if (++*static_cast<int*>(n) < 5)
                       self.start(Runtime::now_ns());
                   },
                   &fired)
                   .value();
  timer->start(0);
  for (int pass = 0; pass < 10000 && fired < 5; ++pass)
    runtime->poll();
  EXPECT_EQ(fired, 5);
}

// Started and stopped by threads other than the core's, which by itself sleeps for up to a second.
TEST(ApplicationTimers, WakeADedicatedCoreThatSleeps) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}, .idle = IdlePolicy::kAdaptive});
  std::atomic<int> fired = 0;
  auto timer = Timer::create(
                   *runtime, 0,
                   [](Timer&, void* n) {
                     auto& count = *static_cast<std::atomic<int>*>(n);
                     ++count;
                     count.notify_all();
                   },
                   &fired)
                   .value();
  for (int round = 0; round < 20; ++round) {
    timer->start(Runtime::now_ns() + kSoon);
    fired.wait(round);
  }
  EXPECT_EQ(fired, 20);
  timer->start(Runtime::now_ns() + kLongAway);
  timer->stop();
  timer->start(Runtime::now_ns() + kLongAway);
  timer.reset();  // while it runs
  EXPECT_EQ(fired, 20);
}

TEST(ApplicationTimers, RefuseInvalidArguments) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  auto nothing = [](Timer&, void*) {};
  EXPECT_FALSE(Timer::create(*runtime, 1, nothing, nullptr));
  EXPECT_FALSE(Timer::create(*runtime, 0, nullptr, nullptr));
  EXPECT_TRUE(Timer::create(*runtime, 0, nothing, nullptr));  // and destroyed, unused and unpolled
}

}  // namespace
}  // namespace rrdk
