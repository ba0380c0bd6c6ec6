// --self: server and client as two processes, started by one command.
#pragma once

#include "json_file.h"
#include "options.h"

namespace rrdk::testrpc {

// Forks before anything else exists in this process; returns the exit status.
int run_self(const Options& options, JsonFile& json);

}  // namespace rrdk::testrpc
