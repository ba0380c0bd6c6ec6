// What the system says about its memory: hugepages, and NUMA nodes, through the kernel's own
// interface (no libnuma).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rrdk::mem {

// Of the default hugepage size, the one that vm.nr_hugepages counts. All zero: no hugepage support.
struct Hugepages {
  size_t page_size = 0;
  uint64_t total = 0;      // what vm.nr_hugepages is now
  uint64_t available = 0;  // free and not promised to anybody
};

// Parses the text of /proc/meminfo.
Hugepages parse_hugepages(const std::string& meminfo);
Hugepages system_hugepages();

// In words: how many pages are missing for `bytes`, and the command that makes them.
std::string hugepage_shortfall(const Hugepages& hugepages, size_t bytes);

// How many nodes the machine has (at least 1).
int node_count();
bool node_exists(int node);
// Of the CPU that the calling thread runs on. No system call (vDSO).
int current_node() noexcept;
// Pages of this range come from `node` while it has some. Preferred, not bound: hugepages are
// reserved for the machine and not by node, so that a bound page fault could end in SIGBUS.
void prefer_node(void* address, size_t length, int node);

}  // namespace rrdk::mem
