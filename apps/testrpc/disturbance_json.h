// Writes what disturbed a run, and its slowest calls, as JSON values.
#pragma once

#include <span>
#include <string>

#include "noise.h"
#include "outliers.h"

namespace rrdk::testrpc {

std::string outliers_json(std::span<const Outlier> calls);
std::string noise_json(const Noise& noise);

}  // namespace rrdk::testrpc
