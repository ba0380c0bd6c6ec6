// The results for spreadsheets: a line per run.
#pragma once

#include <string>

namespace rrdk::testrpc {

// Converts the output of to_json() into CSV (RFC 4180), so that the two never differ. The columns
// are always the same, named as in the JSON, with dots for nested objects: latency_ns.p50. A list
// of numbers is one cell with blanks between them; lists of objects, and tallies such as
// errors_by_reason, are left out. Null and missing members are empty cells.
std::string to_csv(const std::string& json);

}  // namespace rrdk::testrpc
