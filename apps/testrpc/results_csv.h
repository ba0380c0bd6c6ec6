// The results for spreadsheets: a line for each run.
#pragma once

#include <string>

#include "rrdk/error.h"

namespace rrdk::testrpc {

// Of what to_json() has written, as RFC 4180 says, so that the two never differ. A column for each
// scalar that some run has, named as there, with dots where objects are nested: latency_ns.p50.
// Lists are left out, and what only counts by name. Null, and what a run does not have, is an empty
// cell. Errors: kInvalidArgument (not JSON, in UTF-8).
Result<std::string> to_csv(const std::string& json);

}  // namespace rrdk::testrpc
