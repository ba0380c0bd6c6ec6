#pragma once

#include "options.h"

namespace rrdk::survival {

// Starts server and client, makes connections break, and judges. 0: everything held.
int run_supervisor(const Options& options);

}  // namespace rrdk::survival
