// Interactive mode: a prompt (DPDK's cmdline) from which runs are started, watched and stopped.
#pragma once

#include "options.h"

namespace rrdk::testrpc {

class Bench;

// `set` can go up to here, unless the command line went further: memory is made at the start.
constexpr uint32_t kInteractiveMaxSize = kDefaultMaxSize;
constexpr uint32_t kInteractiveMaxWindow = 64;

// Returns when the user quits, or at the end of the input.
void run_interactive(Bench& bench, const Options& options);

}  // namespace rrdk::testrpc
