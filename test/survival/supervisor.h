#pragma once

#include "options.h"

namespace rrdk::survival {

// Starts server and client, makes connections break, and judges the result. Returns 0 if everything
// held.
int run_supervisor(const Options& options);

}  // namespace rrdk::survival
