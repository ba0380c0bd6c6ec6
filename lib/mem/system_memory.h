// The system's memory, and how much this process can use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

// What the system reports about its memory: hugepages, and NUMA nodes, through the kernel's own
// interface (no libnuma).

// For the default hugepage size, the one that vm.nr_hugepages counts. All zero: no hugepage
// support.
struct Hugepages {
  size_t page_size = 0;
  uint64_t total = 0;      // the present value of vm.nr_hugepages
  uint64_t available = 0;  // free and not reserved
};

// Parses the text of /proc/meminfo.
Hugepages parse_hugepages(const std::string& meminfo);
Hugepages system_hugepages();

// Returns a text: how many pages are missing for `bytes`, and the command that makes them.
std::string hugepage_shortfall(const Hugepages& hugepages, size_t bytes);

// The number of nodes of the machine (at least 1).
int node_count();
bool node_exists(int node);
// The node of the CPU on which the calling thread runs. No system call (vDSO).
int current_node() noexcept;
// Takes the pages of this range from `node` as long as it has some. Preferred, not bound: hugepages
// are reserved for the machine and not by node, so a page fault on a bound range could end in
// SIGBUS.
void prefer_node(void* address, size_t length, int node);

// How much memory this process can still get, so that a request for more is an error, rather than
// the end of some process that the kernel chooses to kill.
struct Headroom {
  uint64_t bytes = UINT64_MAX;
  std::string source;  // which limit it is, for messages
};

// Ordinary pages that may still be touched: the least of what the system has available and of what
// the limits of this process's memory cgroup (version 1 or 2), and of those above it, leave. Page
// cache that the kernel would drop counts as available. A value that cannot be read limits nothing.
// `root` is the directory with /proc and /sys.
Headroom memory_headroom(const std::string& root = "");

// Checks whether `bytes` of ordinary pages may be touched now; some are left to others. Errors:
// kNoMemory, with the numbers.
Result<void> check_headroom(uint64_t bytes, const Headroom& headroom);
// Checks whether the limits of this process, RLIMIT_FSIZE and RLIMIT_AS, allow a memfd of `bytes`:
// the kernel answers a breach of the former with SIGXFSZ. Errors: kNoMemory.
Result<void> check_process_limits(uint64_t bytes);

// A default budget.
struct Share {
  uint64_t bytes = 0;
  std::string source;  // what it is a part of
};
// The larger of half of the free hugepages, and a quarter of all memory that this process may still
// get, including hugepages; but at most a quarter of its limits. With kRequire the former.
Share share_of_free(HugepagePolicy policy);
Share share_of(uint64_t free_hugepage_bytes, const Headroom& headroom);

// Checks whether buffers may come to have `bytes`, none of which have been taken yet. Errors:
// kNoMemory, with the numbers.
Result<void> check_budget(uint64_t bytes, HugepagePolicy policy);

}  // namespace rrdk::mem
