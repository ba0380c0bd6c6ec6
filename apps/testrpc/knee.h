// The knee: the rate up to which calls on a schedule are answered about as fast as at a light load.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client_role.h"

namespace rrdk::testrpc {

// p99 may be so many times that of the light load.
constexpr uint64_t kKneeFactor = 3;
// Steps for each knee: one in a closed loop, one at the light load, and a bisection between that
// and a tenth more than the closed loop's rate. A step whose run was disturbed is made three times,
// and the one in the middle counts.
constexpr size_t kKneeSteps = 5;
constexpr size_t kKneeRuns = 2 + kKneeSteps;
constexpr size_t kTimesOfDisturbed = 3;

// What a run at some rate came to.
struct KneeRun {
  double calls_per_s = 0;
  bool saturated = false;
  std::optional<uint64_t> p99_ns = {};  // none: too few calls, or in a closed loop
  bool disturbed = false;
};

struct Knee {
  RunSpec spec = {};
  ArrivalPattern arrivals = {};
  double closed_rate = 0;               // calls a second of a closed loop with that window
  double light_rate = 0;                // a tenth of it
  std::optional<double> rate = {};      // the highest above it that passed; none: none was found
  std::optional<double> above = {};     // the lowest that did not pass; none: each did
  std::optional<uint64_t> p99_ns = {};  // at `rate`
  std::optional<uint64_t> light_p99_ns = {};
  size_t steps = 0;
  size_t disturbed = 0;  // of the steps, each time or twice of three times

  bool settled() const { return rate && above && disturbed == 0; }
  // What makes it doubtful, in words.
  std::vector<std::string> doubts() const;
};

// By `run`, which makes a run at that rate, 0: in a closed loop. If it has nothing to tell, since
// runs were interrupted or calls went wrong, neither has this.
std::optional<Knee> find_knee(const std::function<std::optional<KneeRun>(double rate)>& run);

// The same by runs of a bench, which are among its results.
std::optional<Knee> find_knee(Bench& bench, const RunSpec& spec, const Options& options,
                              const RunPlace& place, const std::function<bool()>& keep_going);

void print_knee(const Knee& knee);

}  // namespace rrdk::testrpc
