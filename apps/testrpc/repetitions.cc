#include "repetitions.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

namespace rrdk::testrpc {
namespace {

// Returns the median of figure(repetition).
template <typename Figure>
double median_of(const std::vector<Figures>& repetitions, Figure&& figure) {
  std::vector<double> values;
  values.reserve(repetitions.size());
  for (const Figures& one : repetitions)
    values.push_back(static_cast<double>(figure(one)));
  return median(std::move(values));
}

uint64_t median_ns(const std::vector<Figures>& repetitions, uint64_t Latencies::* figure) {
  return static_cast<uint64_t>(
      std::llround(median_of(repetitions, [&](const Figures& f) { return f.latency.*figure; })));
}

// Returns nothing if a repetition had too few calls for the figure.
std::optional<uint64_t> median_ns(const std::vector<Figures>& repetitions,
                                  std::optional<uint64_t> Latencies::* figure) {
  std::vector<double> values;
  for (const Figures& one : repetitions) {
    if (!(one.latency.*figure))
      return std::nullopt;
    values.push_back(static_cast<double>(*(one.latency.*figure)));
  }
  if (values.empty())
    return std::nullopt;
  return static_cast<uint64_t>(std::llround(median(std::move(values))));
}

void add(Survival& to, const Survival& more) {
  to.reconnects += more.reconnects;
  to.retransmissions += more.retransmissions;
  to.keepalives += more.keepalives;
  to.fallbacks = more.fallbacks;
  to.version = more.version;
  to.rfc5666 = more.rfc5666;
}

void keep_slowest(std::vector<Outlier>& calls, const std::vector<Outlier>& more) {
  const size_t most = std::max(calls.size(), more.size());
  calls.insert(calls.end(), more.begin(), more.end());
  std::ranges::sort(calls, std::ranges::greater(), &Outlier::total_ns);
  calls.resize(most);
}

// Stages add up only within one run, so takes those of the repetition with the rate nearest to the
// median.
void take_stages(RunResult& row, Results results) {
  const double middle = row.calls_per_s();
  double nearest = std::numeric_limits<double>::infinity();
  for (const std::unique_ptr<RunResult>& one : results) {
    const double distance = std::abs(one->calls_per_s() - middle);
    if (one->row == row.row && distance < nearest) {
      nearest = distance;
      row.stages = one->stages;
    }
  }
}

void take_medians(RunResult& run) {
  const std::vector<Figures>& all = run.repetitions;
  run.line_ns = median_of(all, [](const Figures& f) { return f.line_ns; });
  run.p50_per_line = median_of(all, [](const Figures& f) { return f.p50_per_line; });
  run.memcpy_bytes_per_s = median_of(all, [](const Figures& f) { return f.memcpy_bytes_per_s; });
}

}  // namespace

void add(RunResult& to, const RunResult& more) {
  for (TimeSlice slice : more.series) {  // the slices of `more` follow
    slice.start_s += to.seconds;
    to.series.push_back(std::move(slice));
  }
  to.warmup_seconds += more.warmup_seconds;
  to.warmup_calls += more.warmup_calls;
  to.seconds += more.seconds;
  to.calls += more.calls;
  to.right += more.right;
  to.due += more.due;
  to.not_made += more.not_made;
  to.bytes += more.bytes;
  to.wrong_bytes += more.wrong_bytes;
  to.tried_later += more.tried_later;
  to.allocations += more.allocations;
  to.registrations += more.registrations;
  if (more.preemptions)
    to.preemptions = to.preemptions.value_or(0) + *more.preemptions;
  to.connection_lost |= more.connection_lost;
  to.stopped |= more.stopped;
  add(to.survival, more.survival);
  to.size_changes.peer += more.size_changes.peer;
  to.size_changes.own += more.size_changes.own;
  to.size_changes.refused += more.size_changes.refused;
  to.failures.add(more.failures);
  to.latency.add(more.latency);
  to.slowest_connection = std::min(to.slowest_connection, more.slowest_connection);
  to.fastest_connection = std::max(to.fastest_connection, more.fastest_connection);
  for (size_t i = 0; i < to.by_target.size(); ++i)
    to.by_target[i].add(more.by_target[i]);
  for (size_t i = 0; i < to.by_size.size(); ++i)
    to.by_size[i].add(more.by_size[i]);
  for (size_t i = 0; i < to.nfs3_calls.size(); ++i)
    to.nfs3_calls[i] += more.nfs3_calls[i];
  keep_slowest(to.outliers, more.outliers);
  if (more.noise.remarks().size() > to.noise.remarks().size())
    to.noise = more.noise;
}

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  std::ranges::sort(values);
  size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double spread(const RunResult& run) {
  const double middle = run.calls_per_s();
  if (run.repetitions.empty() || middle == 0)
    return 0;
  auto [lowest, highest] = std::ranges::minmax(run.repetitions, {}, &Figures::calls_per_s);
  return (highest.calls_per_s - lowest.calls_per_s) / middle;
}

Figures RunResult::figures() const {
  return {.seconds = seconds,
          .calls = calls,
          .right = right,
          .errors = failures.total(),
          .calls_per_s = calls_per_s(),
          .bytes_per_s = bytes_per_s(),
          .latency = latencies(),
          .line_ns = line_ns,
          .p50_per_line = p50_per_line,
          .memcpy_bytes_per_s = memcpy_bytes_per_s};
}

double RunResult::calls_per_s() const {
  if (!repetitions.empty())
    return median_of(repetitions, [](const Figures& f) { return f.calls_per_s; });
  return seconds > 0 ? static_cast<double>(right) / seconds : 0;
}

double RunResult::bytes_per_s() const {
  if (!repetitions.empty())
    return median_of(repetitions, [](const Figures& f) { return f.bytes_per_s; });
  return seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
}

Latencies RunResult::latencies() const {
  if (repetitions.empty())
    return Latencies::of(latency);
  std::vector<Figures> told;  // a repetition without a successful call has no latency
  std::ranges::copy_if(repetitions, std::back_inserter(told),
                       [](const Figures& f) { return f.right != 0; });
  return {.min = median_ns(told, &Latencies::min),
          .mean = median_of(told, [](const Figures& f) { return f.latency.mean; }),
          .p50 = median_ns(told, &Latencies::p50),
          .p90 = median_ns(told, &Latencies::p90),
          .p99 = median_ns(told, &Latencies::p99),
          .p999 = median_ns(told, &Latencies::p999),
          .max = median_ns(told, &Latencies::max)};
}

double RunResult::mean_connection() const {
  const size_t times = std::max<size_t>(repetitions.size(), 1);
  return static_cast<double>(right) / spec.active / static_cast<double>(times);
}

std::vector<std::unique_ptr<RunResult>> by_row(Results results) {
  std::vector<std::unique_ptr<RunResult>> rows;
  for (const std::unique_ptr<RunResult>& result : results) {
    auto row = std::ranges::find_if(rows, [&](const auto& r) { return r->row == result->row; });
    if (row == rows.end())
      row = rows.insert(rows.end(), std::make_unique<RunResult>(*result));
    else
      add(**row, *result);
    if (result->repeated)
      (*row)->repetitions.push_back(result->figures());
  }
  for (const std::unique_ptr<RunResult>& row : rows) {
    if (!row->repeated)
      continue;
    take_medians(*row);
    take_stages(*row, results);
  }
  return rows;
}

}  // namespace rrdk::testrpc
