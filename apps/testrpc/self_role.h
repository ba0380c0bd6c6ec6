// --self: server and client as two processes, started by one command.
#pragma once

#include "options.h"
#include "ranks.h"
#include "result_file.h"

namespace rrdk::testrpc {

// Forks before anything else exists in this process; returns the exit status.
int run_self(const Options& options, ResultFiles& files, const Ranks& ranks);

}  // namespace rrdk::testrpc
