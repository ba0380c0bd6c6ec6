// The knee: the rate up to which calls on a schedule are answered about as fast as at a light load.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "client_role.h"

namespace rrdk::testrpc {

struct Knee {
  RunSpec spec;
  double closed_rate = 0;     // calls a second of a closed loop with that window
  double rate = 0;            // the highest that was tried below the knee
  uint64_t p99_ns = 0;        // there
  uint64_t light_p99_ns = 0;  // at a tenth of closed_rate
};

// p99 may be so many times that of the light load.
constexpr uint64_t kKneeFactor = 3;
// Runs for each knee: one in a closed loop, one at the light load, and steps of a bisection between
// that and a tenth more than the closed loop's rate.
constexpr size_t kKneeSteps = 5;
constexpr size_t kKneeRuns = 2 + kKneeSteps;

// Makes these runs; they are among the bench's results. Nothing: they were interrupted, or calls
// went wrong.
std::optional<Knee> find_knee(Bench& bench, const RunSpec& spec, const Options& options,
                              const RunPlace& place, const std::function<bool()>& keep_going);

}  // namespace rrdk::testrpc
