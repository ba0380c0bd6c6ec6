// Simulations from a random seed on: RRDK_SEED gives the first seed, RRDK_SIM_SEEDS the number. For
// faults that the simulation has found see doc/simulation.md.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "runner.h"
#include "test/seed.h"

namespace rrdk::sim {
namespace {

uint64_t seeds() {
  const char* given = std::getenv("RRDK_SIM_SEEDS");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : RRDK_SIM_DEFAULT_SEEDS;
}

// Shows: V1-CHUNK-01, V1-CHUNK-04, V1-CHUNK-07, V1-CHUNK-11, V1-CHUNK-17, V1-CHUNK-18, V1-RL-01,
// V1-RL-05, V1-WL-03, V1-WL-16, V1-RC-01, V1-RC-18, V1-PAD-01, V1-PAD-15, V1-LONG-03, V1-CREDIT-09,
// V1-CREDIT-14, V1-CREDIT-24, V1-MEM-05, V1-MEM-12, V1-MEM-13, EXP-01, EXP-05, EXP-09, EXP-17
TEST(Simulation, InvariantsHold) {
  RunOptions options;
  options.first = rrdk::test::run_seed();
  options.count = seeds();
  if (options.count == 0)
    GTEST_SKIP() << "RRDK_SIM_SEEDS=0: nothing was simulated";
  Summary summary = run_many(options);
  for (const Failure& failure : summary.failures)
    ADD_FAILURE() << "seed " << failure.seed << ": " << failure.text << "\n  replay with "
                  << replay_command(failure.seed);
  EXPECT_TRUE(!summary.failures.empty() || summary.count == options.count) << summary.count;
  std::cout << summary.count << " seeds, " << summary.calls << " calls, "
            << static_cast<double>(summary.count) / summary.seconds << " seeds/s" << std::endl;
}

// What the process simulated before makes no difference.
TEST(Simulation, ASeedIsAFunctionOfItsNumber) {
  RunOptions options;
  options.first = rrdk::test::run_seed();
  options.count = 100;
  options.processes = 1;
  Summary alone = run_many(options);
  options.processes = 3;
  Summary shared = run_many(options);
  EXPECT_EQ(alone.steps, shared.steps);
  EXPECT_EQ(alone.calls, shared.calls);
}

}  // namespace
}  // namespace rrdk::sim
