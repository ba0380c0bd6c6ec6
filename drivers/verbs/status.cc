#include "drivers/verbs/status.h"

#include <cerrno>
#include <cstdlib>

namespace rrdk::verbs {

Errc code_of(int error) noexcept {
  switch (std::abs(error)) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENOENT:
      return Errc::kNotFound;
    case ETIMEDOUT:
      return Errc::kTimeout;
    case EACCES:
    case EPERM:
      return Errc::kPermission;
    case ENOMEM:
      return Errc::kNoMemory;
    case EADDRINUSE:
      return Errc::kAddressInUse;
    case ECONNRESET:
    case EPIPE:
      return Errc::kConnectionLost;
    default:
      return Errc::kSystem;
  }
}

}  // namespace rrdk::verbs
