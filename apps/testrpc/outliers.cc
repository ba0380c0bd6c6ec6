#include "outliers.h"

#include <algorithm>
#include <span>

#include "machine_limits.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kJustNowNs = 10'000'000;
constexpr uint64_t kLongAgoNs = 1'000'000'000;

bool slower(const Outlier& a, const Outlier& b) {
  return a.total_ns > b.total_ns;
}

// The gaps of one call, added up by kind, end and CPU. What finds no room is left out.
class Sum {
 public:
  void add(const Gap& gap, bool at_server, uint64_t start, uint64_t end) noexcept {
    const uint64_t overlap = std::min(gap.end_ns, end) - std::max(gap.start_ns, start);
    Cause* cause = find(gap, at_server);
    if (cause == nullptr)
      return;
    cause->took_ns += std::min(overlap, gap.took_ns);
    ++cause->times;
  }
  // What took a good part of the call, and whatever happened in it.
  void give(Outlier& call) noexcept {
    auto all = std::span(causes_).first(count_);
    std::ranges::sort(all, [](const Cause& a, const Cause& b) { return a.took_ns > b.took_ns; });
    for (const Cause& cause : all) {
      if ((is_event(cause.kind) || cause.took_ns >= call.total_ns / kGoodPart) &&
          call.num_causes < Outlier::kMostCauses)
        call.causes[call.num_causes++] = cause;
    }
  }

 private:
  static constexpr uint64_t kGoodPart = 10;

  Cause* find(const Gap& gap, bool at_server) noexcept {
    for (Cause& cause : std::span(causes_).first(count_)) {
      if (cause.kind == gap.kind && cause.at_server == at_server && cause.cpu == gap.cpu)
        return &cause;
    }
    if (count_ == causes_.size())
      return nullptr;
    causes_[count_] = {gap.kind, at_server, gap.cpu, 0, 0};
    return &causes_[count_++];
  }

  std::array<Cause, 16> causes_;
  size_t count_ = 0;
};

}  // namespace

std::optional<StampedCall> stamps_of(const Call& call) noexcept {
  const std::optional<StampedCall> stamps = call.stamps();
  for (Stage stage : {Stage::kSubmitted, Stage::kStarted, Stage::kPosted, Stage::kSeen}) {
    if (!stamps || stamps->at(stage) == 0)
      return std::nullopt;
  }
  return stamps;
}

void explain(Outlier& call, const GapLogs& logs, uint64_t to_monotonic) noexcept {
  const uint64_t start = call.behind_since_ns + to_monotonic;
  const uint64_t end = call.end_ns() + to_monotonic;
  Sum sum;
  for (const GapLog* log : {logs.client, logs.server}) {
    if (log == nullptr)
      continue;
    log->for_each_since(start, [&](const Gap& gap) {
      if (gap.start_ns < end)
        sum.add(gap, log == logs.server, start, end);
    });
  }
  call.num_causes = 0;
  sum.give(call);
}

bool Outlier::has_causes() const {
  uint64_t took = 0;
  for (const Cause& cause : std::span(causes).first(num_causes))
    took += cause.took_ns;
  return took > total_ns / 2;
}

void Outliers::begin(uint32_t keep) {
  keep_ = keep;
  bar_ns_ = keep == 0 ? UINT64_MAX : 0;
  calls_.clear();
  calls_.reserve(keep);
}

void Outliers::offer(const Outlier& call) noexcept {
  if (calls_.size() == keep_) {
    std::ranges::pop_heap(calls_, slower);
    calls_.pop_back();
  }
  calls_.push_back(call);
  std::ranges::push_heap(calls_, slower);
  bar_ns_ = calls_.size() == keep_ ? calls_.front().total_ns : 0;
}

void Outliers::explain(const GapLogs& logs, uint64_t now) noexcept {
  const uint64_t to_monotonic = apps::clock_ns() - Runtime::now_ns();
  for (Outlier& call : calls_) {
    const uint64_t age = now - std::min(now, call.end_ns());
    if (call.explained || age < kJustNowNs)
      continue;
    testrpc::explain(call, logs, to_monotonic);
    call.explained = call.has_causes() || age > kLongAgoNs;
  }
}

std::vector<Outlier> Outliers::sorted() const {
  std::vector<Outlier> calls = calls_;
  std::ranges::sort(calls, slower);
  return calls;
}

}  // namespace rrdk::testrpc
