// Which runs to make.
#pragma once

#include <vector>

#include "load.h"
#include "options.h"

namespace rrdk::testrpc {

// Engine by engine, size by size, window by window, and for each number of connections that call;
// without --engine and --size the standard benchmark. What it fills in for options that were not
// given (a run's length) goes to `options`.
std::vector<RunSpec> make_plan(Options& options);

// Whether a run calls an NFS server.
bool has_nfs3(const std::vector<RunSpec>& plan);

// The largest size and window of the plan, for which memory is set aside; with nfs3 the size is at
// least what listings and paths need.
uint32_t largest_size(const std::vector<RunSpec>& plan);
uint32_t largest_window(const std::vector<RunSpec>& plan);
// Bytes of memory for what one call of a run sends, and as many for what it receives; and what all
// calls that are in flight at once take of either, in the run that takes most.
uint32_t bytes_of_call(const RunSpec& run);
uint64_t most_in_flight(const std::vector<RunSpec>& plan);

}  // namespace rrdk::testrpc
