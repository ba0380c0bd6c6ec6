#pragma once

#include "options.h"

namespace rrdk::survival {

// Makes calls for as long as the options say, then ends, and tells Options::report_fd in lines of
// JSON how it goes ("progress") and went ("result"). The exit status: 0 if it came to a result.
int run_client(const Options& options);

}  // namespace rrdk::survival
