// The results for programs: one JSON object.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "knee.h"
#include "load.h"
#include "options.h"
#include "report.h"

namespace rrdk::testrpc {

struct JsonInput {
  const Options& options;
  std::vector<std::string> targets;
  Results results;
  Audit audit;
  IdlePolicy idle;
  std::vector<int> cpus;  // the client's and, with --self, the server's; empty: not pinned
  std::string began;      // in UTC, as ISO 8601 writes it
  double connect_seconds;
  ConnectionInfo negotiated;            // the first connection, when the runs began
  std::vector<Knee> knees;              // with --find-knee
  std::vector<std::string> rank_hosts;  // under mpirun; else empty
};

std::string to_json(const JsonInput& input);

// Returns the text as a JSON string.
std::string quoted(const std::string& text);

// Returns "testrpc 0.1.0 (revision)".
std::string version_text();

// Returns the current time in UTC: "2024-05-01T12:34:56Z".
std::string utc_now();

}  // namespace rrdk::testrpc
