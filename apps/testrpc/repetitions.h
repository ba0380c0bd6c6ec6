// Runs that are made several times (--repeat): one row of the table and one run of the JSON.
#pragma once

#include <memory>
#include <vector>

#include "load.h"

namespace rrdk::testrpc {

// Returns the median; 0 if there are no values.
double median(std::vector<double> values);

// Returns the difference between the highest and the lowest rate of a run's repetitions, as a
// fraction of their median.
double spread(const RunResult& run);

// Adds the counts and histograms of `more`.
void add(RunResult& to, const RunResult& more);

// Combines the results of each row, in the order of the first ones: counts and histograms are sums,
// and for runs made with --repeat the repetitions have the figures of each.
std::vector<std::unique_ptr<RunResult>> by_row(Results results);

}  // namespace rrdk::testrpc
