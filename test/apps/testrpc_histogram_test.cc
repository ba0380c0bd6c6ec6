#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "apps/testrpc/histogram.h"
#include "test/seed.h"

namespace rrdk::testrpc {
namespace {

TEST(Histogram, EmptyIsAllZero) {
  Histogram h;
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.min(), 0u);
  EXPECT_EQ(h.max(), 0u);
  EXPECT_EQ(h.percentile(50), 0u);
}

TEST(Histogram, SmallValuesAreExact) {
  Histogram h;
  for (uint64_t v = 1; v <= 100; ++v)
    h.record(v);
  EXPECT_EQ(h.percentile(50), 50u);
  EXPECT_EQ(h.percentile(90), 90u);
  EXPECT_EQ(h.percentile(99), 99u);
  EXPECT_EQ(h.percentile(100), 100u);
  EXPECT_DOUBLE_EQ(h.mean(), 50.5);
}

TEST(Histogram, PercentilesAreWithinOnePercentUpToAHundredSeconds) {
  std::mt19937_64 random(test::run_seed());
  std::uniform_real_distribution<double> exponent(1, 11);  // 10 ns to 100 s
  Histogram h;
  std::vector<uint64_t> all;
  for (int i = 0; i < 100000; ++i) {
    all.push_back(static_cast<uint64_t>(std::pow(10, exponent(random))));
    h.record(all.back());
  }
  std::ranges::sort(all);
  EXPECT_EQ(h.min(), all.front());
  EXPECT_EQ(h.max(), all.back());
  for (double p : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 99.99}) {
    auto right = static_cast<double>(all[static_cast<size_t>(p / 100 * 100000 + 0.5) - 1]);
    EXPECT_NEAR(static_cast<double>(h.percentile(p)), right, right * 0.01) << "p" << p;
  }
}

TEST(Histogram, AddingIsAsIfAllHadBeenRecordedInOne) {
  Histogram all, odd, even;
  even.add(odd);  // nothing added to nothing
  EXPECT_EQ(even.min(), 0u);
  for (uint64_t v = 1; v < 100000; v += 7) {
    all.record(v);
    (v % 2 == 0 ? even : odd).record(v);
  }
  even.add(odd);
  EXPECT_EQ(even.count(), all.count());
  EXPECT_EQ(even.min(), all.min());
  EXPECT_EQ(even.max(), all.max());
  EXPECT_EQ(even.mean(), all.mean());
  for (double p : {1.0, 50.0, 99.0, 99.9})
    EXPECT_EQ(even.percentile(p), all.percentile(p));
}

TEST(Histogram, APercentileNeedsAValueBeyondIt) {
  Histogram h;
  EXPECT_FALSE(h.told(50));
  h.record(7);
  EXPECT_EQ(h.told(50), 7u);
  for (auto [percent, needed] : {std::pair{90.0, 10u}, {99.0, 100u}, {99.9, 1000u}}) {
    while (h.count() < needed) {
      EXPECT_FALSE(h.told(percent)) << percent << " of " << h.count();
      h.record(h.count());
    }
    EXPECT_EQ(h.told(percent), h.percentile(percent));
  }
}

TEST(Histogram, ValuesBeyondTheRangeStillCount) {
  Histogram h;
  h.record(UINT64_MAX / 2);
  EXPECT_EQ(h.count(), 1u);
  EXPECT_EQ(h.max(), UINT64_MAX / 2);
}

TEST(Histogram, BucketsHoldEveryValueOnce) {
  Histogram h;
  for (uint64_t v = 0; v < 100000; v += 7)
    h.record(v);
  uint64_t sum = 0, last = 0;
  h.for_each_bucket([&](uint64_t upper, uint64_t count) {
    EXPECT_GE(upper, last);
    last = upper;
    sum += count;
  });
  EXPECT_EQ(sum, h.count());
  EXPECT_EQ(last, h.max());
}

}  // namespace
}  // namespace rrdk::testrpc
