// The search for the knee, with simulated runs.
#include <gtest/gtest.h>

#include <vector>

#include "apps/testrpc/knee.h"

namespace rrdk::testrpc {
namespace {

constexpr double kCapacity = 1000;  // calls a second, in a closed loop

// A server that answers in 100 us up to `knee` calls a second, and in a second above that.
class Made {
 public:
  explicit Made(double knee) : knee_(knee) {}
  KneeRun operator()(double rate) {
    rates.push_back(rate);
    if (rate == 0)
      return {.calls_per_s = kCapacity, .p99_ns = 1000};
    return {.calls_per_s = rate, .p99_ns = rate <= knee_ ? 100'000 : 1'000'000'000};
  }
  std::vector<double> rates;

 private:
  double knee_;
};

TEST(Knee, IsBetweenTheLastRateThatPassesAndTheFirstThatDoesNot) {
  Made made(640);
  const std::optional<Knee> knee =
      find_knee([&](double rate) { return std::optional(made(rate)); });
  ASSERT_TRUE(knee && knee->rate && knee->above);
  EXPECT_EQ(made.rates.size(), kKneeRuns);
  EXPECT_EQ(knee->closed_rate, kCapacity);
  EXPECT_LE(*knee->rate, 640);
  EXPECT_GT(*knee->above, 640);
  EXPECT_NEAR(*knee->above - *knee->rate, kCapacity / 32, 0.1);
  EXPECT_EQ(knee->p99_ns, 100'000u);
  EXPECT_TRUE(knee->settled());
  EXPECT_TRUE(knee->doubts().empty());
}

TEST(Knee, IsNotTheLightLoadIfNoRatePasses) {
  Made made(100);
  const std::optional<Knee> knee =
      find_knee([&](double rate) { return std::optional(made(rate)); });
  ASSERT_TRUE(knee);
  EXPECT_FALSE(knee->rate);
  EXPECT_FALSE(knee->p99_ns);
  EXPECT_FALSE(knee->settled());
  ASSERT_EQ(knee->doubts().size(), 1u);
  testing::internal::CaptureStdout();
  Knee named = *knee;
  named.spec.engine = find_engine("null");
  print_knee(named);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("none found, down to "), std::string::npos) << said;
}

TEST(Knee, MayBeHigherIfEachRatePasses) {
  Made made(5000);
  const std::optional<Knee> knee =
      find_knee([&](double rate) { return std::optional(made(rate)); });
  ASSERT_TRUE(knee && knee->rate);
  EXPECT_FALSE(knee->above);
  EXPECT_FALSE(knee->settled());
  EXPECT_EQ(knee->doubts()[0], "each rate passed: it may be higher");
}

// A disturbed run is repeated twice, and the one in the middle counts.
TEST(Knee, OneDisturbanceChangesNothing) {
  Made made(640);
  size_t calls = 0;
  auto run = [&](double rate) {
    KneeRun result = made(rate);
    if (calls++ == 1)  // the light load
      result = {.calls_per_s = rate, .p99_ns = 50'000'000, .disturbed = true};
    return std::optional(result);
  };
  const std::optional<Knee> knee = find_knee(run);
  ASSERT_TRUE(knee && knee->rate);
  EXPECT_EQ(made.rates.size(), kKneeRuns + 2);
  EXPECT_EQ(knee->light_p99_ns, 100'000u);
  EXPECT_LE(*knee->rate, 640);
  EXPECT_TRUE(knee->settled());
}

TEST(Knee, RepeatedDisturbancesSettleNothing) {
  Made made(640);
  auto run = [&](double rate) {
    KneeRun result = made(rate);
    result.disturbed = true;
    return std::optional(result);
  };
  const std::optional<Knee> knee = find_knee(run);
  ASSERT_TRUE(knee && knee->rate);
  EXPECT_EQ(made.rates.size(), kKneeRuns * kTimesOfDisturbed);
  EXPECT_FALSE(knee->settled());
  EXPECT_EQ(knee->doubts()[0], "not settled: 7 of 7 steps were disturbed");
}

TEST(Knee, TooFewCallsForAPercentileAreNoKnee) {
  size_t calls = 0;
  auto run = [&](double rate) {
    ++calls;
    return std::optional(KneeRun{.calls_per_s = rate == 0 ? kCapacity : rate});
  };
  const std::optional<Knee> knee = find_knee(run);
  ASSERT_TRUE(knee);
  EXPECT_EQ(calls, 2u);
  EXPECT_FALSE(knee->rate);
  EXPECT_NE(knee->doubts()[0].find("too few calls"), std::string::npos);
}

TEST(Knee, IsNotToldIfRunsAreInterrupted) {
  size_t calls = 0;
  auto run = [&](double) -> std::optional<KneeRun> {
    if (++calls == 3)
      return std::nullopt;
    return KneeRun{.calls_per_s = kCapacity, .p99_ns = 1};
  };
  EXPECT_FALSE(find_knee(run));
  EXPECT_EQ(calls, 3u);
}

}  // namespace
}  // namespace rrdk::testrpc
