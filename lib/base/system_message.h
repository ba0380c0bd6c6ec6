// The system's words for an errno value, thread-safe.
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "rrdk/error.h"

namespace rrdk::base {

inline std::string system_message(int error) {
  return std::generic_category().message(error);
}

// What a call has just failed with, by errno: "eventfd: Too many open files".
inline tl::unexpected<Error> system_failure(const char* call) {
  const int error = errno;
  return fail(error == ENOMEM ? Errc::kNoMemory : Errc::kSystem,
              std::string(call) + ": " + system_message(error));
}

}  // namespace rrdk::base
