#pragma once

#include "options.h"

namespace rrdk::survival {

// Runs until SIGTERM or SIGKILL. The exit status is 0 if every buffer came back.
int run_server(const Options& options);

}  // namespace rrdk::survival
