// The CPUs of both ends of a measurement, and whether the ends share them.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace rrdk::testrpc {

// The CPUs of the two processes of --self, and how they idle.
struct Placement {
  int client = -1;  // -1: not pinned
  int server = -1;
  std::vector<int> workers;
  IdlePolicy idle = IdlePolicy::kYield;
};

// Called once EAL runs. Chooses the cores that EAL's arguments name, else CPUs of `allowed`. The
// processes poll busily only if neither has to share a CPU.
Placement place_both(const Options& options, const std::vector<int>& allowed);

// Called once EAL runs. Returns the CPU to pin --client to, or -1: the CPU of --cpu, else the first
// core that EAL's arguments name, else the current CPU, unless another testrpc is pinned to it.
int client_cpu(const Options& options, const std::vector<int>& allowed);

// Returns the visible processes of other testrpcs on this host that are pinned to `cpu`.
std::vector<int> neighbours_on(int cpu);
// Prints a line for each such process that this one would disturb, or be disturbed by.
void warn_of_neighbours(int cpu, IdlePolicy idle);
// Prints a line if the threads that poll are more than the CPUs.
void warn_of_crowd(size_t threads, size_t cpus, IdlePolicy idle);

}  // namespace rrdk::testrpc
