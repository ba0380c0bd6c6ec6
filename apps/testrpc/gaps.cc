#include "gaps.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <utility>

#include "machine_limits.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kManyExamined = 10;  // in a tick
constexpr uint32_t kFewExamined = 3;
constexpr uint32_t kQuietTicks = 100;
// Reading the clock takes as long as an idle pass: one reading per microsecond is enough, but few
// enough passes must lie in between that their sum is not taken for a gap.
constexpr uint32_t kMostPasses = 16;
constexpr uint64_t kShortPassesNs = 1000;
constexpr uint64_t kLongPassesNs = 4000;
constexpr int kLastDescriptor = 255;  // of those searched for TcpSockets

// Returns the retransmissions of a TCP connection, or nothing for another descriptor.
std::optional<uint64_t> tcp_retransmissions(int descriptor) noexcept {
  tcp_info info = {};
  socklen_t length = sizeof info;
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      info.tcpi_state != TCP_ESTABLISHED)
    return std::nullopt;
  return info.tcpi_total_retrans;
}

}  // namespace

const char* to_string(GapKind kind) {
  switch (kind) {
    case GapKind::kSwitchedOut:
      return "switched out";
    case GapKind::kMajorFault:
      return "major page fault";
    case GapKind::kPageFault:
      return "page fault";
    case GapKind::kInterrupt:
      return "interrupt or steal";
    case GapKind::kUnaccounted:
      return "unaccounted";
    case GapKind::kOwnWork:
      return "own work";
    case GapKind::kCreditWait:
      return "waited for a credit";
    case GapKind::kSentAgain:
      return "call sent again";
    case GapKind::kTcpRetransmission:
      return "TCP retransmission";
  }
  return "?";
}

GapTotals GapTotals::since(const GapTotals& earlier) const noexcept {
  GapTotals grown;
  for (size_t i = 0; i < kGapKinds; ++i) {
    grown.counts[i] = counts[i] - earlier.counts[i];
    grown.took_ns[i] = took_ns[i] - earlier.took_ns[i];
  }
  return grown;
}

void TcpSockets::find() noexcept {
  count_ = 0;
  for (int descriptor = 0; descriptor <= kLastDescriptor && count_ < sockets_.size();
       ++descriptor) {
    if (tcp_retransmissions(descriptor))
      sockets_[count_++] = descriptor;
  }
}

std::optional<uint64_t> TcpSockets::retransmissions() const noexcept {
  if (count_ == 0)
    return std::nullopt;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count_; ++i)
    sum += tcp_retransmissions(sockets_[i]).value_or(0);
  return sum;
}

uint64_t judge_gap(uint64_t length, uint64_t wall, const ThreadUsage& used,
                   GapKind& kind) noexcept {
  const bool slept = used.voluntary != 0;
  const uint64_t half = length / 2;
  const uint64_t without_cpu = wall - std::min(wall, used.cpu_ns);
  const uint64_t waited = used.waited_ns.value_or(0);
  if (waited >= (slept ? GapWatch::kShortestNs : half)) {
    kind = GapKind::kSwitchedOut;
    return std::min(length, waited);
  }
  if (slept)
    return 0;
  if (used.involuntary != 0 && without_cpu >= half) {
    kind = GapKind::kSwitchedOut;
    return std::min(length, without_cpu);
  }
  if (used.major_faults != 0)
    kind = GapKind::kMajorFault;
  else if (used.minor_faults != 0)
    kind = GapKind::kPageFault;
  else if (without_cpu >= half)
    kind = GapKind::kInterrupt;
  return length;
}

GapWatch::GapWatch(GapLog& log, std::function<WaitCounters()> waits)
    : log_(log), wait_counters_(std::move(waits)) {
  remember();
  last_ns_ = known_ns_;
}

// Reads everything at one moment; otherwise the values would not be consistent.
void GapWatch::remember() noexcept {
  constexpr int kTries = 4;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t began_ns = Runtime::now_ns();
    known_ = meter_.read();
    known_ns_ = Runtime::now_ns();
    if (known_ns_ - began_ns < kShortestNs)
      return;
  }
}

void GapWatch::add(uint64_t start, uint64_t end, uint64_t took, GapKind kind) noexcept {
  // Runtime's clock and the kernel's drift apart, and each process has its own Runtime's clock.
  const uint64_t to_monotonic = apps::clock_ns() - Runtime::now_ns();
  log_.add({start + to_monotonic, end + to_monotonic, took, kind, sched_getcpu()});
  ++totals_.counts[static_cast<size_t>(kind)];
  totals_.took_ns[static_cast<size_t>(kind)] += took;
}

void GapWatch::examine(GapKind otherwise) noexcept {
  ++examined_;
  const ThreadUsage before = known_;
  const uint64_t wall_start = known_ns_;
  remember();
  GapKind kind = otherwise;
  const uint64_t took =
      judge_gap(known_ns_ - last_ns_, known_ns_ - wall_start, known_.since(before), kind);
  if (took != 0)
    add(last_ns_, known_ns_, took, kind);
  last_ns_ = known_ns_;
}

void GapWatch::tick(uint64_t now) noexcept {
  adapt();
  look_for_events(now);
  tick_ns_ = now;
  const ThreadUsage usage = meter_.read();
  const uint64_t read_ns = Runtime::now_ns();
  if (read_ns > last_ns_ + threshold_ns_)
    return;  // a gap begins here; the next look() will see it
  known_ = usage;
  known_ns_ = read_ns;
}

void GapWatch::end_passes() noexcept {
  const uint64_t now = Runtime::now_ns();
  const uint64_t took = now - last_ns_;
  if (took < kShortPassesNs)
    passes_between_looks_ = std::min(2 * passes_between_looks_, kMostPasses);
  else if (took > kLongPassesNs)
    passes_between_looks_ = std::max(passes_between_looks_ / 2, 1u);
  passes_ = 0;
  look(now);
  if (now - tick_ns_ >= kTickNs)
    tick(now);
}

// Passes that always take long are no gaps, and examining them costs time.
void GapWatch::adapt() noexcept {
  quiet_ticks_ = examined_ <= kFewExamined ? quiet_ticks_ + 1 : 0;
  if (examined_ >= kManyExamined) {
    threshold_ns_ = std::min(2 * threshold_ns_, kLongestShortestNs);
  } else if (quiet_ticks_ >= kQuietTicks) {
    threshold_ns_ = std::max(threshold_ns_ / 2, kShortestNs);
    quiet_ticks_ = 0;
  }
  examined_ = 0;
}

void GapWatch::look_for_events(uint64_t now) noexcept {
  const WaitCounters waits = wait_counters_ ? wait_counters_() : WaitCounters();
  const uint64_t retransmissions = sockets_.retransmissions().value_or(0);
  if (tick_ns_ != 0) {
    if (waits.credit_waits > waits_.credit_waits)
      add(tick_ns_, now, 0, GapKind::kCreditWait);
    if (waits.sent_again > waits_.sent_again)
      add(tick_ns_, now, 0, GapKind::kSentAgain);
    if (retransmissions > tcp_retransmissions_)
      add(tick_ns_, now, 0, GapKind::kTcpRetransmission);
  }
  waits_ = waits;
  tcp_retransmissions_ = retransmissions;
}

}  // namespace rrdk::testrpc
