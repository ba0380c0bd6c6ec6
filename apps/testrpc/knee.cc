#include "knee.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "report.h"

namespace rrdk::testrpc {
namespace {

constexpr double kLight = 0.1, kBeyond = 1.1;  // of the closed loop's rate

// The order of runs, the best first.
bool better(const KneeRun& one, const KneeRun& other) {
  auto key = [](const KneeRun& r) {
    return std::tuple(r.saturated, r.p99_ns.value_or(UINT64_MAX), -r.calls_per_s);
  };
  return key(one) < key(other);
}

class Search {
 public:
  explicit Search(const std::function<std::optional<KneeRun>(double)>& run) : run_(run) {}

  std::optional<KneeRun> step(double rate, Knee& knee) const {
    std::vector<KneeRun> runs;
    size_t times = 1, disturbed = 0;
    while (runs.size() < times) {
      const std::optional<KneeRun> made = run_(rate);
      if (!made)
        return std::nullopt;
      if (runs.empty() && made->disturbed)
        times = kTimesOfDisturbed;
      disturbed += made->disturbed ? 1 : 0;
      runs.push_back(*made);
    }
    ++knee.steps;
    knee.disturbed += disturbed > times / 2 ? 1 : 0;
    std::ranges::sort(runs, better);
    return runs[runs.size() / 2];
  }

 private:
  const std::function<std::optional<KneeRun>(double)>& run_;
};

}  // namespace

std::optional<Knee> find_knee(const std::function<std::optional<KneeRun>(double)>& run) {
  const Search search(run);
  Knee knee;
  const std::optional<KneeRun> closed = search.step(0, knee);
  if (!closed)
    return std::nullopt;
  knee.closed_rate = closed->calls_per_s;
  knee.light_rate = kLight * knee.closed_rate;
  const std::optional<KneeRun> light = search.step(knee.light_rate, knee);
  if (!light)
    return std::nullopt;
  knee.light_p99_ns = light->p99_ns;
  if (!light->p99_ns)
    return knee;  // nothing to compare with
  double low = knee.light_rate, high = kBeyond * knee.closed_rate;
  for (size_t i = 0; i < kKneeSteps; ++i) {
    const double rate = (low + high) / 2;
    const std::optional<KneeRun> made = search.step(rate, knee);
    if (!made)
      return std::nullopt;
    if (made->saturated || !made->p99_ns || *made->p99_ns > kKneeFactor * *knee.light_p99_ns) {
      knee.above = high = rate;
    } else {
      knee.rate = low = rate;
      knee.p99_ns = made->p99_ns;
    }
  }
  return knee;
}

std::optional<Knee> find_knee(Bench& bench, const RunSpec& spec, const Options& options,
                              const RunPlace& place, const std::function<bool()>& keep_going) {
  Options at_rate = options;
  RunPlace at = place;
  double last = -1;
  auto run = [&](double rate) -> std::optional<KneeRun> {
    if (last >= 0 && rate != last)
      ++at.before;
    at_rate.rate = last = rate;
    at.row = bench.results().size();
    const bool go_on = bench.run(spec, at_rate, at, keep_going);
    const RunResult& made = *bench.results().back();
    if (!go_on || made.right == 0 || made.failures.total() != 0)
      return std::nullopt;
    // All ranks take the same decision, whichever rank was disturbed.
    return KneeRun{.calls_per_s = made.calls_per_s(),
                   .saturated = made.saturated(),
                   .p99_ns = rate == 0 ? std::nullopt : made.latency.told(99),
                   .disturbed = !bench.all_ranks(made.noise.remarks().empty())};
  };
  std::optional<Knee> knee = find_knee(run);
  if (knee) {
    knee->spec = spec;
    knee->arrivals = options.arrivals;
  }
  return knee;
}

std::vector<std::string> Knee::doubts() const {
  std::vector<std::string> all;
  if (!light_p99_ns)
    all.emplace_back("too few calls at the light load for a p99: --duration makes more");
  else if (!rate)
    all.emplace_back("p99 at each rate was too high, or the rate not kept");
  else if (!above)
    all.emplace_back("each rate passed: it may be higher");
  if (disturbed != 0)
    all.push_back("not settled: " + std::to_string(disturbed) + " of " + std::to_string(steps) +
                  " steps were disturbed");
  return all;
}

void print_knee(const Knee& knee) {
  auto p99 = [](const std::optional<uint64_t>& ns) { return ns ? time_text(*ns) : "not known"; };
  auto rate = [](double per_s) { return rate_text(per_s); };
  std::printf("KNEE of %s, %s arrivals: ", run_name(knee.spec).c_str(),
              to_string(knee.arrivals).c_str());
  if (knee.rate && knee.above)
    std::printf("%s to %s calls/s\n", rate(*knee.rate).c_str(), rate(*knee.above).c_str());
  else if (knee.rate)
    std::printf("above %s calls/s\n", rate(*knee.rate).c_str());
  else if (knee.above)
    std::printf("none found, down to %s calls/s\n", rate(*knee.above).c_str());
  else
    std::printf("none found\n");
  if (knee.rate)
    std::printf("  %.0f%% of a closed loop's %s; p99 there %s, at %s calls/s %s\n",
                100 * *knee.rate / knee.closed_rate, rate(knee.closed_rate).c_str(),
                p99(knee.p99_ns).c_str(), rate(knee.light_rate).c_str(),
                p99(knee.light_p99_ns).c_str());
  else
    std::printf("  a closed loop's rate %s; p99 at %s calls/s %s\n", rate(knee.closed_rate).c_str(),
                rate(knee.light_rate).c_str(), p99(knee.light_p99_ns).c_str());
  for (const std::string& doubt : knee.doubts())
    std::printf("  %s\n", doubt.c_str());
}

}  // namespace rrdk::testrpc
