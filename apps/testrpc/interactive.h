// Interactive mode: a prompt (DPDK's cmdline) from which runs are started, watched and stopped.
#pragma once

#include "options.h"

namespace rrdk::testrpc {

class Bench;

// The largest size that `set` accepts, unless the command line has a larger one: memory is
// allocated at the start.
constexpr uint32_t kInteractiveMaxSize = kDefaultMaxSize;
constexpr uint32_t kInteractiveMaxWindow = 64;

// Runs until the user quits, or until the end of the input.
void run_interactive(Bench& bench, const Options& options);

}  // namespace rrdk::testrpc
