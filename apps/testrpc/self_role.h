// --self: server and client as two processes, started by one command.
#pragma once

#include "options.h"
#include "ranks.h"
#include "result_file.h"

namespace rrdk::testrpc {

// Runs --self; returns the exit status. Must be called before anything else is set up, since it
// forks.
int run_self(const Options& options, ResultFiles& files, const Ranks& ranks);

}  // namespace rrdk::testrpc
