// NUMA nodes, through the kernel's own interface (no libnuma).
#pragma once

#include <cstddef>

namespace rrdk::mem {

// How many nodes the machine has (at least 1).
int node_count();
bool node_exists(int node);
// Of the CPU that the calling thread runs on. No system call (vDSO).
int current_node() noexcept;
// Pages of this range come from `node` while it has some. Preferred, not bound: hugepages are
// reserved for the machine and not by node, so that a bound page fault could end in SIGBUS.
void prefer_node(void* address, size_t length, int node);

}  // namespace rrdk::mem
