// The last error in a thread: rrdk_tirpc_error().
#pragma once

#include <string>

namespace rrdk::tirpc {

void note_failure(std::string message);
const char* last_failure();

}  // namespace rrdk::tirpc
