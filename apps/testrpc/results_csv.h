// The results for spreadsheets: a line for each run.
#pragma once

#include <string>

namespace rrdk::testrpc {

// Turns the output of to_json() into CSV (RFC 4180), so that the two never differ. The columns are
// always the same, named as in the JSON, with dots where objects are nested: latency_ns.p50. Lists
// of numbers are one cell with blanks between them; those of objects, and tallies such as
// errors_by_reason, are left out. Null, and what a run does not have, is an empty cell.
std::string to_csv(const std::string& json);

}  // namespace rrdk::testrpc
