// Runs that are made several times (--repeat): they are one row of the table and one run of the
// JSON.
#pragma once

#include <memory>
#include <vector>

#include "load.h"

namespace rrdk::testrpc {

// The one in the middle, or the mean of the two there; of nothing 0.
double median(std::vector<double> values);

// How far the rates of a run's repetitions lie apart: the lowest to the highest, as a share of
// their median.
double spread(const RunResult& run);

// Adds up what both counted, and their histograms.
void add(RunResult& to, const RunResult& more);

// The results of each row as one, in the order of their first ones: counts and histograms are added
// up, and of those that were made with --repeat the repetitions say what each came to.
std::vector<std::unique_ptr<RunResult>> by_row(Results results);

}  // namespace rrdk::testrpc
