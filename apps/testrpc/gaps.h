// Gaps: times when a polling thread did not poll, and what the kernel did to it meanwhile.
//
// A polling thread reads the clock every few passes anyway. If more time has passed than a few
// passes can take, the thread asks the kernel what happened to it. So the expensive part runs only
// when time is lost already.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "thread_usage.h"

namespace rrdk::testrpc {

enum class GapKind : uint8_t {
  kSwitchedOut,  // other threads had the CPU
  kMajorFault,   // a page was read from a disk
  kPageFault,    // a page was mapped
  kInterrupt,    // no thread had the CPU: an interrupt, or the hypervisor
  kUnaccounted,  // according to the kernel this thread had the CPU
  kOwnWork,      // work outside the transport: testrpc printed
  kCreditWait,   // this and the following are events within that time
  kSentAgain,    // this process sent a call again
  kTcpRetransmission,
};
constexpr size_t kGapKinds = 9;
const char* to_string(GapKind kind);
// Events, for which it is not known how much of the time they took.
constexpr bool is_event(GapKind kind) {
  return kind >= GapKind::kCreditWait;
}

struct Gap {
  uint64_t start_ns;  // on CLOCK_MONOTONIC, which is the same in all processes
  uint64_t end_ns;
  uint64_t took_ns;  // the part that the cause took; 0 for an event
  GapKind kind;
  int cpu;  // -1: not known
};

// The latest gaps of a thread. The thread writes, and another thread, or a process that shares the
// memory, may read at the same time.
class GapLog {
 public:
  void add(const Gap& gap) noexcept {
    const uint64_t count = count_.load(std::memory_order_relaxed);
    gaps_[count % kRoom] = gap;
    count_.store(count + 1, std::memory_order_release);
  }
  // Calls fn(gap) for the gaps that ended after `since_ns`, the latest first. Leaves out the older
  // half of the buffer, which may be overwritten meanwhile.
  template <typename Fn>
  void for_each_since(uint64_t since_ns, Fn&& fn) const {
    const uint64_t count = count_.load(std::memory_order_acquire);
    const uint64_t most = std::min<uint64_t>(count, kRoom / 2);
    for (uint64_t i = 1; i <= most; ++i) {
      const Gap& gap = gaps_[(count - i) % kRoom];
      if (gap.end_ns <= since_ns)
        return;
      fn(gap);
    }
  }

 private:
  static constexpr size_t kRoom = 2048;

  std::array<Gap, kRoom> gaps_ = {};
  std::atomic<uint64_t> count_{0};
};

// All gaps of a thread, by kind.
struct GapTotals {
  std::array<uint64_t, kGapKinds> counts = {};
  std::array<uint64_t, kGapKinds> took_ns = {};

  GapTotals since(const GapTotals& earlier) const noexcept;
  uint64_t count(GapKind kind) const noexcept { return counts[static_cast<size_t>(kind)]; }
  uint64_t took(GapKind kind) const noexcept { return took_ns[static_cast<size_t>(kind)]; }
};

// Counters, which only grow, of what a process' connections wait for.
struct WaitCounters {
  uint64_t credit_waits = 0;
  uint64_t sent_again = 0;
};

// Counts retransmissions of this process' first few TCP connections, which are iwarp's.
class TcpSockets {
 public:
  // Finds the connections again, without allocating.
  void find() noexcept;
  // Returns nothing if there are no connections.
  std::optional<uint64_t> retransmissions() const noexcept;

 private:
  std::array<int, 8> sockets_ = {};
  uint32_t count_ = 0;
};

// Watches the thread that constructs it.
class GapWatch {
 public:
  // Gaps are longer than this, which is what an interrupt takes on an otherwise idle machine.
  static constexpr uint64_t kShortestNs = 20'000;
  // If many passes take longer, the threshold rises, but not above this. Asking the kernel then
  // takes 1 % of the time.
  static constexpr uint64_t kLongestShortestNs = 200'000;
  static constexpr uint64_t kTickNs = 10'000'000;

  // `waits` is called every 10 ms, and must not allocate; if null, only TCP's events are counted.
  explicit GapWatch(GapLog& log, std::function<WaitCounters()> waits = {});

  // Called when polling begins, and after every intended pause.
  void start(uint64_t now) noexcept { last_ns_ = now; }
  // Called every few passes, with the current Runtime::now_ns(). Calls tick() about every 10 ms.
  void look(uint64_t now) noexcept {
    if (now > last_ns_ + threshold_ns_) [[unlikely]]
      examine(GapKind::kUnaccounted);
    else
      last_ns_ = now;
  }
  void tick(uint64_t now) noexcept;
  // Called once per pass by threads that do not read the clock otherwise; does everything needed.
  void pass() noexcept {
    if (++passes_ >= passes_between_looks_) [[unlikely]]
      end_passes();
  }
  // Called after work other than polling, which may have taken long.
  void after_own_work(uint64_t now) noexcept {
    if (now > last_ns_ + threshold_ns_) [[unlikely]]
      examine(GapKind::kOwnWork);
    else
      last_ns_ = now;
  }
  // Called when the process' connections have changed.
  void connections_changed() noexcept { sockets_.find(); }

  const GapLog& log() const noexcept { return log_; }
  const GapTotals& totals() const noexcept { return totals_; }
  std::optional<uint64_t> tcp_retransmissions() const noexcept {
    return sockets_.retransmissions();
  }
  ThreadUsage usage() const noexcept { return meter_.read(); }

 private:
  void examine(GapKind otherwise) noexcept;
  void end_passes() noexcept;
  void look_for_events(uint64_t now) noexcept;
  void adapt() noexcept;
  void add(uint64_t start, uint64_t end, uint64_t took, GapKind kind) noexcept;
  void remember() noexcept;

  GapLog& log_;
  const std::function<WaitCounters()> wait_counters_;
  TcpSockets sockets_;
  UsageMeter meter_;
  GapTotals totals_;

  uint64_t last_ns_ = 0;
  uint64_t threshold_ns_ = kShortestNs;
  uint64_t tick_ns_ = 0;  // the time of the last tick
  uint32_t passes_ = 0;   // since the clock was read
  uint32_t passes_between_looks_ = 1;
  // The values at known_ns_, not long ago.
  ThreadUsage known_;
  uint64_t known_ns_ = 0;
  WaitCounters waits_;
  uint64_t tcp_retransmissions_ = 0;
  uint32_t examined_ = 0;     // since the last tick
  uint32_t quiet_ticks_ = 0;  // in a row, with little to examine
};

// Finds the cause of a gap of `length` ns. `used` is what the thread used in the last `wall` ns:
// the gap and some 10 ms before it. Sets `kind` if the kernel's figures explain the gap. Returns
// how much of the gap the cause took, or 0 if the thread slept, which is no gap.
uint64_t judge_gap(uint64_t length, uint64_t wall, const ThreadUsage& used, GapKind& kind) noexcept;

}  // namespace rrdk::testrpc
