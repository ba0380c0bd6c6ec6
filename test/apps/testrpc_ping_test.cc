// The probe of a cache line between two CPUs, when the scheduler stops one side for long.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "machine_limits.h"

namespace rrdk::apps {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1'000'000'000;

std::atomic<bool> held, let_go;

// Holds the thread at whatever instruction it was.
void hold(int) {
  held = true;
  while (!let_go) {
  }
}

TEST(Ping, IsAnsweredUntilTheLast) {
  PingLine line;
  std::thread other([&] { answer(line); });
  EXPECT_GT(ping(line, 10, 60 * kSecond), 0);
  other.join();
  EXPECT_FALSE(line.wanted());
}

TEST(Ping, AnUnansweredOneDoesNotBlockTheNext) {
  PingLine line;
  EXPECT_EQ(ping(line, 10, kMs), 0);
  if (line.wanted())
    answer(line);
  std::thread other([&] { answer(line); });
  EXPECT_GT(ping(line, 10, 60 * kSecond), 0);
  other.join();
}

TEST(Ping, LetsASideGoThatWasStoppedAnywhere) {
  constexpr int kTimes = 50;
  struct sigaction action = {};
  action.sa_handler = hold;
  struct sigaction before;
  ASSERT_EQ(sigaction(SIGUSR2, &action, &before), 0);
  // A busy machine may stop us, too, for longer than our patience, before the other side is held.
  uint64_t patience = kMs;
  for (int times_held = 0; times_held < kTimes;) {
    held = let_go = false;
    PingLine line;
    std::thread other([&] { answer(line); });
    std::thread stopper([&] {
      while (line.answered < 20)
        std::this_thread::yield();
      pthread_kill(other.native_handle(), SIGUSR2);
    });
    EXPECT_EQ(ping(line, 1'000'000, patience), 0);
    if (held)
      ++times_held;
    else
      patience = std::min(2 * patience, kSecond);
    let_go = true;
    stopper.join();
    other.join();
  }
  sigaction(SIGUSR2, &before, nullptr);
}

}  // namespace
}  // namespace rrdk::apps
