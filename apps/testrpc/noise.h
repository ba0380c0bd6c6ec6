// What disturbed a run: the CPU time that its threads did not get, and what else these CPUs did.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gaps.h"
#include "thread_usage.h"

namespace rrdk::testrpc {

// The usage of a measuring thread so far.
struct ThreadState {
  int cpu = -1;  // that it runs on
  ThreadUsage usage;
  GapTotals gaps;
  std::optional<uint64_t> tcp_retransmissions;  // empty: no TCP connections
};

// Returns the state of the calling thread, which `watch` watches.
ThreadState thread_state(const GapWatch& watch);

using NamedCounts = std::vector<std::pair<std::string, uint64_t>>;

// Returns a CPU's column of /proc/interrupts or /proc/softirqs: names such as "LOC" or "eth0-rx",
// and counts. Empty if there is no such column.
NamedCounts counts_of_cpu(std::istream& file, int cpu);
// Returns the nanoseconds that the hypervisor stole from the CPU, from /proc/stat.
std::optional<uint64_t> steal_ns_of_cpu(std::istream& file, int cpu);

// The counters of a CPU so far. Empty members are unknown, as in a container that does not show
// them.
struct CpuState {
  int cpu = -1;
  std::optional<NamedCounts> interrupts, softirqs;
  std::optional<uint64_t> steal_ns;
  std::optional<uint64_t> khz;

  static CpuState read(int cpu);
};

struct Noise {
  struct Thread {
    const char* side = "";  // "client" or "server"
    int cpu = -1;
    ThreadUsage used;
    GapTotals gaps;
    std::optional<uint64_t> tcp_retransmissions;  // by its process

    // Returns the time that it ran as a fraction of the time in which it was runnable; empty:
    // unknown.
    std::optional<double> obtained() const;
  };
  struct Cpu {
    int cpu = -1;
    std::optional<uint64_t> interrupts, softirqs;
    uint64_t wake_ups =
        0;             // the part of `interrupts` that are IPIs by which other CPUs wake this one
    NamedCounts most;  // interrupts, the most frequent kinds
    std::optional<uint64_t> steal_ns;
    std::optional<uint64_t> khz_before, khz_after;
  };

  double seconds = 0;
  bool sized = false;  // calls carried data, so a pass may take long
  bool busy = false;   // threads never yielded their CPUs
  std::vector<Thread> threads;
  std::vector<Cpu> cpus;
  WaitCounters waits;
  double line_before_ns = 0, line_after_ns = 0;  // a cache line's round trip; 0: not measured

  // Returns what a reader of the figures must know, the worst first, as defined in doc/testrpc.md,
  // for example "server had 93% of CPU 1".
  std::vector<std::string> remarks() const;
};

// Measures before and after a run. A server that is not visible from here is null.
class NoiseMeter {
 public:
  void begin(const GapWatch& client, const ThreadState* server, const WaitCounters& waits);
  Noise end(const GapWatch& client, const ThreadState* server, const WaitCounters& waits) const;

 private:
  uint64_t began_ns_ = 0;
  ThreadState client_;
  std::optional<ThreadState> server_;
  std::vector<CpuState> cpus_;
  WaitCounters waits_;
};

}  // namespace rrdk::testrpc
