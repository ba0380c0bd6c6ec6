// The plan: which runs to make.
#pragma once

#include <vector>

#include "load.h"
#include "options.h"

namespace rrdk::testrpc {

// Returns a run for each engine, size, window and number of connections that call; without --engine
// and --size the standard benchmark. Stores defaults of options that were not given (a run's
// length) in `options`.
std::vector<RunSpec> make_plan(Options& options);

// Returns whether any run calls an NFS server.
bool has_nfs3(const std::vector<RunSpec>& plan);

// Return the largest size and window of the plan, for which memory is reserved; with nfs3 the size
// is at least what listings and paths need.
uint32_t largest_size(const std::vector<RunSpec>& plan);
uint32_t largest_window(const std::vector<RunSpec>& plan);
// Return the bytes of memory that one call of a run sends, and receives at most; and the bytes of
// all calls in flight at once in one direction, in the run that needs most.
uint32_t bytes_of_call(const RunSpec& run);
uint64_t most_in_flight(const std::vector<RunSpec>& plan);

}  // namespace rrdk::testrpc
