// The results for programs: one JSON object.
#pragma once

#include <string>
#include <vector>

#include "load.h"
#include "options.h"
#include "report.h"

namespace rrdk::testrpc {

struct JsonInput {
  const Options& options;
  std::string uri;
  Results results;
  Audit audit;
  std::vector<int> cpus;  // that the cache line went between; empty when it was not measured
};

// Whether a file can be written there, asked before a run that would be in vain.
Result<void> check_writable(const std::string& path);

// Writes options.json whole or not at all: to a file beside it, which then takes its name.
Result<void> write_json(const JsonInput& input);

}  // namespace rrdk::testrpc
