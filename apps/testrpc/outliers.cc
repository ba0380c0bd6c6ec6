#include "outliers.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>

#include "machine_limits.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kJustNowNs = 10'000'000;
constexpr uint64_t kLongAgoNs = 1'000'000'000;
constexpr uint64_t kGoodPart = 10;

bool slower(const Outlier& a, const Outlier& b) {
  return a.total_ns > b.total_ns;
}

// The gaps of one call, added up by kind, end and CPU. Gaps that do not fit are left out.
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
  // Keeps causes that took a considerable part of the call, and all events.
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

namespace {

// The stages of a call, minus the time of each cause. The last two entries are no stages.
class Unexplained {
 public:
  explicit Unexplained(const Outlier& call) {
    uint64_t known = 0;
    for (size_t i = 0; i < call.steps.size(); ++i) {
      const auto step = static_cast<Step>(i);
      parts_[i] = {to_string(step), side_of(step), call.steps[i].value_or(0)};
      known += *parts_[i].took_ns;
    }
    // A call that is due while others are late is itself made late.
    const uint64_t rest = call.total_ns - std::min(call.total_ns, known);
    parts_[kLate] = {"made late", "client", call.stamps ? rest : 0};
    parts_[kUnknown] = {"cause not known", nullptr, call.stamps ? 0 : rest};
  }
  void take_off(const Cause& cause) {
    uint64_t left = cause.took_ns;
    while (left != 0) {
      OutlierPart* longest = nullptr;
      for (OutlierPart& part : parts_) {
        if (may_delay(cause, part) && *part.took_ns != 0 &&
            (longest == nullptr || *part.took_ns > *longest->took_ns))
          longest = &part;
      }
      if (longest == nullptr)
        return;
      const uint64_t taken = std::min(left, *longest->took_ns);
      *longest->took_ns -= taken;
      left -= taken;
    }
  }
  const auto& parts() const { return parts_; }

 private:
  static constexpr auto kLate = static_cast<size_t>(Step::kSteps), kUnknown = kLate + 1;

  // The network and the schedule wait for both ends.
  bool may_delay(const Cause& cause, const OutlierPart& part) const {
    const bool both = &part >= &parts_[kLate] || part.side == std::string_view("network");
    return both || part.side == std::string_view(cause.at_server ? "server" : "client");
  }

  std::array<OutlierPart, kUnknown + 1> parts_;
};

}  // namespace

std::vector<OutlierPart> parts_of(const Outlier& call) {
  Unexplained unexplained(call);
  std::vector<OutlierPart> parts;  // the largest first; those of the same size as they come
  const auto size_of = [](const OutlierPart& part) { return part.took_ns.value_or(0); };
  const auto add = [&](const OutlierPart& part) {
    parts.insert(std::ranges::upper_bound(parts, size_of(part), std::ranges::greater(), size_of),
                 part);
  };
  for (const Cause& cause : std::span(call.causes).first(call.num_causes)) {
    const auto took = is_event(cause.kind) ? std::nullopt : std::optional(cause.took_ns);
    add({to_string(cause.kind), cause.at_server ? "server" : "client", took});
    if (took)
      unexplained.take_off(cause);
  }
  for (const OutlierPart& part : unexplained.parts()) {
    if (*part.took_ns > 0 && *part.took_ns >= call.total_ns / kGoodPart)
      add(part);
  }
  return parts;
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
