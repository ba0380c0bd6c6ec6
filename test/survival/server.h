#pragma once

#include "options.h"

namespace rrdk::survival {

// Until SIGTERM, or SIGKILL. The exit status: 0 if every buffer came back.
int run_server(const Options& options);

}  // namespace rrdk::survival
