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

// The processes of other testrpcs on this host that are pinned to `cpu`, as far as they can be
// seen.
std::vector<int> neighbours_on(int cpu);
// Prints a line for each, if they and we are in each other's way.
void warn_of_neighbours(int cpu, IdlePolicy idle);
// Prints a line if so many threads poll on fewer CPUs.
void warn_of_crowd(size_t threads, size_t cpus, IdlePolicy idle);

}  // namespace rrdk::testrpc
