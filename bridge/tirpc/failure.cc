#include "failure.h"

#include <utility>

#include "rrdk/tirpc.h"

namespace rrdk::tirpc {

namespace {

thread_local std::string last = "nothing has failed";

}  // namespace

void note_failure(std::string message) {
  last = std::move(message);
}

const char* last_failure() {
  return last.c_str();
}

}  // namespace rrdk::tirpc

const char* rrdk_tirpc_error(void) {
  return rrdk::tirpc::last_failure();
}
