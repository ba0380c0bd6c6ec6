// Which CPUs the ends of a measurement have, and whether they have them for themselves.
#pragma once

#include <string>
#include <vector>

#include "options.h"

namespace rrdk::testrpc {

// Where --self puts its two processes, and how they idle.
struct Placement {
  int client = -1;  // -1: not pinned
  int server = -1;
  std::vector<int> workers;
  IdlePolicy idle = IdlePolicy::kYield;
};

// Once EAL runs: on the cores that its arguments name; else on those of `allowed`. Busy only when
// nobody has to share a CPU.
Placement place_both(const Options& options, const std::vector<int>& allowed);

// Of --client, once EAL runs: the CPU to pin it to, or -1. That of --cpu; else the first core that
// EAL's arguments name; else where it runs now, unless another testrpc is pinned to that.
int client_cpu(const Options& options, const std::vector<int>& allowed);

// The process of another testrpc on this host that is pinned to `cpu`; 0: none that can be seen.
int neighbour_on(int cpu);
// Prints a line if there is one, and the two are in each other's way.
void warn_of_neighbour(int cpu, IdlePolicy idle);

}  // namespace rrdk::testrpc
