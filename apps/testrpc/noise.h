// What disturbed a run: what its threads did not get of their CPUs, and what else these CPUs did.
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

// Of a thread that measures, until now.
struct ThreadState {
  int cpu = -1;  // that it runs on
  ThreadUsage usage;
  GapTotals gaps;
  std::optional<uint64_t> tcp_retransmissions;  // empty: it has no TCP connections
};

// Of the calling thread, which `watch` watches.
ThreadState thread_state(const GapWatch& watch);

using NamedCounts = std::vector<std::pair<std::string, uint64_t>>;

// The column of a CPU in /proc/interrupts or /proc/softirqs: "LOC" or "eth0-rx" and how many.
// Empty: there is none.
NamedCounts counts_of_cpu(std::istream& file, int cpu);
// Nanoseconds that the hypervisor kept from the CPU, in /proc/stat.
std::optional<uint64_t> steal_ns_of_cpu(std::istream& file, int cpu);

// Of a CPU, until now. Empty: not known, as in a container that does not show it.
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

    // Of the time in which it was running or ready to, the part that it got; empty: not known.
    std::optional<double> obtained() const;
  };
  struct Cpu {
    int cpu = -1;
    std::optional<uint64_t> interrupts, softirqs;
    uint64_t wake_ups = 0;  // of `interrupts`, IPIs by which other CPUs wake this one
    NamedCounts most;       // interrupts, the most frequent kinds
    std::optional<uint64_t> steal_ns;
    std::optional<uint64_t> khz_before, khz_after;
  };

  double seconds = 0;
  bool sized = false;  // calls had data, with which a pass may take long
  bool busy = false;   // threads never gave their CPUs away
  std::vector<Thread> threads;
  std::vector<Cpu> cpus;
  WaitCounters waits;
  double line_before_ns = 0, line_after_ns = 0;  // a cache line's round trip; 0: not measured

  // What a reader of the figures must know, the worst first, as doc/testrpc.md defines it: "server
  // had 93% of CPU 1".
  std::vector<std::string> remarks() const;
};

// Before and after a run. A server that cannot be seen from here is null.
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
