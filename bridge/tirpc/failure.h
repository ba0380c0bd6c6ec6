// What failed last in a thread: rrdk_tirpc_error().
#pragma once

#include <string>

#include "rrdk/error.h"

namespace rrdk::tirpc {

void note_failure(std::string message);
const char* last_failure();
// The errno that comes closest.
int errno_of(Errc code);

}  // namespace rrdk::tirpc
