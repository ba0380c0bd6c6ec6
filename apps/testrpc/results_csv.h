// The results for spreadsheets: a line for each run.
#pragma once

#include <string>

namespace rrdk::testrpc {

// Turns the output of to_json() into CSV (RFC 4180), so that the two never differ. Each scalar that
// some run has is a column with its name in the JSON, with dots where objects are nested:
// latency_ns.p50. Lists are left out, and so are tallies such as errors_by_reason. Null, and what a
// run does not have, is an empty cell.
std::string to_csv(const std::string& json);

}  // namespace rrdk::testrpc
