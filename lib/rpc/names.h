// Names of procedures, as log lines and metrics have them.
#pragma once

#include <string>

#include "rrdk/binding.h"

namespace rrdk::rpc {

// "READ of blk"
std::string name_of(const Binding& binding, uint32_t procedure);

}  // namespace rrdk::rpc
