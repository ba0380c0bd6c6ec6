#include "knee.h"

namespace rrdk::testrpc {
namespace {

constexpr double kLight = 0.1, kBeyond = 1.1;  // of the closed loop's rate

class Search {
 public:
  Search(Bench& bench, const RunSpec& spec, const Options& options, const RunPlace& place,
         const std::function<bool()>& keep_going)
      : bench_(bench), spec_(spec), options_(options), place_(place), keep_going_(keep_going) {}

  // One run; rate 0: a closed loop. Null: it says nothing.
  const RunResult* run(double rate) {
    options_.rate = rate;
    place_.row = place_.before;
    const bool go_on = bench_.run(spec_, options_, place_, keep_going_);
    ++place_.before;
    const RunResult& result = *bench_.results().back();
    return go_on && result.right != 0 && result.failures.total() == 0 ? &result : nullptr;
  }

 private:
  Bench& bench_;
  const RunSpec& spec_;
  Options options_;
  RunPlace place_;
  const std::function<bool()>& keep_going_;
};

}  // namespace

std::optional<Knee> find_knee(Bench& bench, const RunSpec& spec, const Options& options,
                              const RunPlace& place, const std::function<bool()>& keep_going) {
  Search search(bench, spec, options, place, keep_going);
  Knee knee = {.spec = spec};
  const RunResult* closed = search.run(0);
  if (closed == nullptr)
    return std::nullopt;
  knee.closed_rate = closed->calls_per_s();
  knee.rate = kLight * knee.closed_rate;
  const RunResult* light = search.run(knee.rate);
  if (light == nullptr)
    return std::nullopt;
  knee.p99_ns = knee.light_p99_ns = light->latency.percentile(99);
  double beyond = kBeyond * knee.closed_rate;
  for (size_t step = 0; step < kKneeSteps; ++step) {
    const double rate = (knee.rate + beyond) / 2;
    const RunResult* result = search.run(rate);
    if (result == nullptr)
      return std::nullopt;
    const uint64_t p99 = result->latency.percentile(99);
    if (result->saturated() || p99 > kKneeFactor * knee.light_p99_ns) {
      beyond = rate;
    } else {
      knee.rate = rate;
      knee.p99_ns = p99;
    }
  }
  return knee;
}

}  // namespace rrdk::testrpc
