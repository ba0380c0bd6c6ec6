// Names of procedures, as in log lines and metrics.
#pragma once

#include <string>

#include "rrdk/binding.h"

namespace rrdk::rpc {

// For example "READ of blk".
std::string name_of(const Binding& binding, uint32_t procedure);

}  // namespace rrdk::rpc
