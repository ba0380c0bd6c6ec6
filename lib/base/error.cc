#include "rrdk/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace rrdk {

const char* to_string(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return "invalid argument";
    case Errc::kBadUri:
      return "bad address";
    case Errc::kAddressInUse:
      return "address in use";
    case Errc::kNotFound:
      return "not found";
    case Errc::kRefused:
      return "refused";
    case Errc::kNotAPeer:
      return "not a peer";
    case Errc::kPermission:
      return "permission denied";
    case Errc::kNoMemory:
      return "out of memory";
    case Errc::kTimeout:
      return "timeout";
    case Errc::kConnectionLost:
      return "connection lost";
    case Errc::kUnsupported:
      return "unsupported";
    case Errc::kLimit:
      return "limit reached";
    case Errc::kShutdown:
      return "shutting down";
    case Errc::kSystem:
      return "system error";
  }
  return "unknown error";
}

void exit_with(const Error& error) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.message.c_str());
  std::exit(EXIT_FAILURE);
}

}  // namespace rrdk
