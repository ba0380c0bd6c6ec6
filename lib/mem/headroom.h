// How much memory this process can still have, so that a request for more is an error, and not the
// end of whatever process the kernel then chooses to kill.
#pragma once

#include <cstdint>
#include <string>

#include "rrdk/error.h"

namespace rrdk::mem {

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

}  // namespace rrdk::mem
