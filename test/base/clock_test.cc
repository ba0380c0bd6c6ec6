#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>
#include <vector>

namespace rrdk::base {
namespace {

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

TEST(Tsc, NeverGoesBackOnOneThread) {
  uint64_t last = Tsc::now_ns();
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t now = Tsc::now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

// The system's clock is read in between: a delay of the test widens the interval on both sides. A
// calibration error of more than one part in a thousand is found.
TEST(Tsc, CountsTheNanosecondsOfTheSystemsClock) {
  Tsc::calibrate();
  const uint64_t system_outer = monotonic_ns();
  const uint64_t start = Tsc::now_ns();
  const uint64_t system_inner = monotonic_ns();
  while (monotonic_ns() - system_inner < 50'000'000) {
  }
  const uint64_t inner = monotonic_ns() - system_inner;
  const uint64_t measured = Tsc::now_ns() - start;
  const uint64_t outer = monotonic_ns() - system_outer;
  EXPECT_GE(measured, inner - inner / 1000);
  EXPECT_LE(measured, outer + outer / 1000);
}

TEST(Tsc, ConvertsBothWays) {
  for (uint64_t ns : {uint64_t{0}, uint64_t{1000}, uint64_t{1'000'000'000},
                      uint64_t{86'400} * 1'000'000'000, uint64_t{1} << 60}) {
    const uint64_t back = Tsc::to_ns(Tsc::from_ns(ns));
    EXPECT_LE(back, ns);
    EXPECT_GE(back + ns / 1'000'000 + 2, ns);
  }
}

TEST(Tsc, FirstUseMayHappenOnManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] { EXPECT_GT(Tsc::now_ns(), 0u); });
  for (std::thread& thread : threads)
    thread.join();
}

}  // namespace
}  // namespace rrdk::base
