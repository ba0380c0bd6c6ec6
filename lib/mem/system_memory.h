// What the system has of memory, and what it leaves to this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

// What the system says about its memory: hugepages, and NUMA nodes, through the kernel's own
// interface (no libnuma).

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

// How much memory this process can still have, so that a request for more is an error, and not the
// end of whatever process the kernel then chooses to kill.
struct Headroom {
  uint64_t bytes = UINT64_MAX;
  std::string source;  // who says so, for messages
};

// Ordinary pages that may still be touched: the least of what the system has available and of what
// the limits of this process's memory cgroup (version 1 or 2), and of those above it, leave. Page
// cache that the kernel would drop counts as available. What cannot be read limits nothing. `root`
// is where /proc and /sys are.
Headroom memory_headroom(const std::string& root = "");

// Whether so many bytes of ordinary pages may be touched now; some are left to others. Errors:
// kNoMemory, with the numbers.
Result<void> check_headroom(uint64_t bytes, const Headroom& headroom);
// Whether the limits of this process, RLIMIT_FSIZE and RLIMIT_AS, allow a memfd of so many bytes:
// the kernel answers a breach of the former with SIGXFSZ. Errors: kNoMemory.
Result<void> check_process_limits(uint64_t bytes);

// A budget that nobody stated.
struct Share {
  uint64_t bytes = 0;
  std::string source;  // of what it is which part
};
// Half of the free hugepages, or a quarter of all that this process may still have, hugepages
// included, whichever is more; no more than a quarter of its limits. With kRequire the former.
Share share_of_free(HugepagePolicy policy);
Share share_of(uint64_t free_hugepage_bytes, const Headroom& headroom);

// Whether buffers may come to have so many bytes, of which none are taken yet. Errors: kNoMemory,
// with the numbers.
Result<void> check_budget(uint64_t bytes, HugepagePolicy policy);

}  // namespace rrdk::mem
