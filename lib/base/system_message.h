// The system's words for an errno value, thread-safe.
#pragma once

#include <string>
#include <system_error>

namespace rrdk::base {

inline std::string system_message(int error) {
  return std::generic_category().message(error);
}

}  // namespace rrdk::base
