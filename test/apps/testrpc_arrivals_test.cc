#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "apps/testrpc/arrivals.h"
#include "test/seed.h"

namespace rrdk::testrpc {
namespace {

using Kind = ArrivalPattern::Kind;

std::vector<double> schedule(Arrivals arrivals, size_t count) {
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) {
    times.push_back(arrivals.next_ns());
    arrivals.take();
  }
  return times;
}

TEST(Arrivals, EvenOnesKeepTheirDistance) {
  std::vector<double> times = schedule(Arrivals({}, 3e6, 1), 3'000'001);
  for (size_t i : {size_t{0}, size_t{1}, size_t{12345}, size_t{3'000'000}})
    EXPECT_DOUBLE_EQ(times[i], static_cast<double>(i) * 1e9 / 3e6) << i;
}

TEST(Arrivals, BurstsComeAtOnce) {
  std::vector<double> times = schedule(Arrivals({Kind::kBurst, 4}, 1000, 1), 12);
  for (size_t i = 0; i < times.size(); ++i)
    EXPECT_DOUBLE_EQ(times[i], static_cast<double>(i / 4) * 4e6) << i;
}

// An exponential distribution: its standard deviation is its mean, and 1/e of all gaps are above
// the mean.
TEST(Arrivals, PoissonGapsHaveTheRightMeanAndVariance) {
  constexpr size_t kCount = 1'000'000;
  constexpr double kMean = 20'000;  // nanoseconds, at 50000 a second
  for (uint64_t seed : {uint64_t{0}, uint64_t{1}, test::run_seed()}) {
    std::vector<double> times = schedule(Arrivals({Kind::kPoisson}, 50'000, seed), kCount);
    double last = 0, sum = 0, squares = 0;
    size_t above = 0;
    for (double time : times) {
      const double gap = time - last;
      ASSERT_GE(gap, 0);
      last = time;
      sum += gap;
      squares += gap * gap;
      above += gap > kMean ? 1 : 0;
    }
    const double mean = sum / kCount;
    const double variance = squares / kCount - mean * mean;
    // Five standard errors.
    EXPECT_NEAR(mean / kMean, 1, 5 / std::sqrt(kCount)) << seed;
    EXPECT_NEAR(variance / (kMean * kMean), 1, 5 * std::sqrt(8.0 / kCount)) << seed;
    EXPECT_NEAR(static_cast<double>(above) / kCount, std::exp(-1), 5 * 0.5 / std::sqrt(kCount));
  }
}

// Neighbours must not depend on each other: the numbers of calls within equal intervals vary as
// much as their mean.
TEST(Arrivals, PoissonCountsVaryAsMuchAsTheirMean) {
  constexpr size_t kIntervals = 20'000;
  constexpr double kIntervalNs = 1e6, kMean = 50;
  Arrivals arrivals({Kind::kPoisson}, 50'000, test::run_seed());
  double squares = 0;
  for (size_t i = 1; i <= kIntervals; ++i) {
    double count = 0;
    for (; arrivals.next_ns() < static_cast<double>(i) * kIntervalNs; arrivals.take())
      ++count;
    squares += (count - kMean) * (count - kMean);
  }
  EXPECT_NEAR(squares / kIntervals / kMean, 1, 5 * std::sqrt(2.0 / kIntervals));
}

TEST(Arrivals, TheSeedDecides) {
  auto times = [](uint64_t seed) { return schedule(Arrivals({Kind::kPoisson}, 1000, seed), 100); };
  EXPECT_EQ(times(5), times(5));
  std::set<double> firsts;
  for (uint64_t seed = 0; seed < 100; ++seed)
    firsts.insert(times(seed)[0]);
  EXPECT_EQ(firsts.size(), 100u);
}

TEST(Arrivals, DueCallsAreCountedWithoutTakingThem) {
  for (ArrivalPattern pattern : {ArrivalPattern{}, ArrivalPattern{Kind::kBurst, 7}}) {
    for (double rate : {3.0, 300.0, 1e6 / 3}) {
      Arrivals arrivals(pattern, rate, 1);
      const double end = 0.5e9;
      const uint64_t due = arrivals.due_before(end);
      uint64_t taken = 0;
      for (; arrivals.next_ns() < end; arrivals.take())
        ++taken;
      EXPECT_EQ(due, taken) << to_string(pattern) << " " << rate;
      EXPECT_EQ(arrivals.due_before(end), taken);
    }
  }
  EXPECT_EQ(Arrivals({}, 300, 1).due_before(0.5e9), 150u);
  EXPECT_EQ(Arrivals({Kind::kBurst, 100}, 300, 1).due_before(0.5e9), 200u);
}

TEST(Arrivals, FutureCallsOfAPoissonProcessCountByTheirMean) {
  Arrivals arrivals({Kind::kPoisson}, 1000, test::run_seed());
  EXPECT_EQ(arrivals.due_before(arrivals.next_ns()), 0u);
  for (int i = 0; i < 10; ++i)
    arrivals.take();
  EXPECT_EQ(arrivals.due_before(arrivals.next_ns()), 10u);
  EXPECT_EQ(arrivals.due_before(arrivals.next_ns() + 5e9), 10u + 1 + 5000);
}

TEST(Arrivals, HaveNames) {
  for (const char* name : {"even", "poisson", "burst:1", "burst:1000000"})
    EXPECT_EQ(to_string(parse_arrivals(name).value()), name);
  for (const char* bad : {"", "burst", "burst:", "burst:0", "burst:1000001", "Poisson", "even:2"})
    EXPECT_FALSE(parse_arrivals(bad)) << bad;
}

}  // namespace
}  // namespace rrdk::testrpc
