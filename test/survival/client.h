#pragma once

#include "options.h"

namespace rrdk::survival {

// Makes calls for as long as the options say, then ends. Reports to Options::report_fd in lines of
// JSON how it is going ("progress") and how it went ("result"). The exit status is 0 if it came to
// a result.
int run_client(const Options& options);

}  // namespace rrdk::survival
