// The knee: the rate up to which scheduled calls are answered about as fast as at a light load.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "client_role.h"

namespace rrdk::testrpc {

// p99 may be at most this multiple of the light load's p99.
constexpr uint64_t kKneeFactor = 3;
// Steps for each knee: one in a closed loop, one at the light load, and a bisection between that
// and a tenth more than the closed loop's rate. A step whose run was disturbed is made three times,
// and the median counts.
constexpr size_t kKneeSteps = 5;
constexpr size_t kKneeRuns = 2 + kKneeSteps;
constexpr size_t kTimesOfDisturbed = 3;

// The result of a run at some rate.
struct KneeRun {
  double calls_per_s = 0;
  bool saturated = false;
  std::optional<uint64_t> p99_ns = {};  // empty: too few calls, or a closed loop
  bool disturbed = false;
};

struct Knee {
  RunSpec spec = {};
  ArrivalPattern arrivals = {};
  double closed_rate = 0;            // calls a second of a closed loop with that window
  double light_rate = 0;             // a tenth of closed_rate
  std::optional<double> rate = {};   // the highest above light_rate that passed; empty: none passed
  std::optional<double> above = {};  // the lowest that did not pass; empty: all passed
  std::optional<uint64_t> p99_ns = {};  // at `rate`
  std::optional<uint64_t> light_p99_ns = {};
  size_t steps = 0;
  size_t disturbed = 0;  // steps whose runs were disturbed, at least two of three times

  bool settled() const { return rate && above && disturbed == 0; }
  // Returns the reasons why the knee is doubtful, as text.
  std::vector<std::string> doubts() const;
};

// Finds the knee with `run`, which makes a run at a rate; rate 0 is a closed loop. Returns nothing
// if `run` does, because runs were interrupted or calls failed.
std::optional<Knee> find_knee(const std::function<std::optional<KneeRun>(double rate)>& run);

// The same with runs of a bench, which are among its results.
std::optional<Knee> find_knee(Bench& bench, const RunSpec& spec, const Options& options,
                              const RunPlace& place, const std::function<bool()>& keep_going);

void print_knee(const Knee& knee);

}  // namespace rrdk::testrpc
