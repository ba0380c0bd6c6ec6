#include "failure.h"

#include <cerrno>
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

int errno_of(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
    case Errc::kBadUri:
      return EINVAL;
    case Errc::kAddressInUse:
      return EADDRINUSE;
    case Errc::kNotFound:
      return ENOENT;
    case Errc::kRefused:
      return ECONNREFUSED;
    case Errc::kNotAPeer:
      return EPROTO;
    case Errc::kPermission:
      return EACCES;
    case Errc::kNoMemory:
      return ENOMEM;
    case Errc::kTimeout:
      return ETIMEDOUT;
    case Errc::kConnectionLost:
      return ECONNRESET;
    case Errc::kUnsupported:
      return ENOTSUP;
    case Errc::kLimit:
      return EDQUOT;
    case Errc::kShutdown:
      return ESHUTDOWN;
    case Errc::kSystem:
      return EIO;
  }
  return EIO;
}

}  // namespace rrdk::tirpc

const char* rrdk_tirpc_error(void) {
  return rrdk::tirpc::last_failure();
}
