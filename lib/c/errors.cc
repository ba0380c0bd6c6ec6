// Errors and call statuses of the C API: names and conversions.
#include <cerrno>

#include "c/handles.h"

namespace rrdk::c {
namespace {

static_assert(static_cast<int>(CallStatus::kOk) == RRDK_CALL_OK &&
              static_cast<int>(CallStatus::kSystemErr) == RRDK_CALL_SYSTEM_ERR &&
              static_cast<int>(CallStatus::kMalformedReply) == RRDK_CALL_MALFORMED_REPLY &&
              static_cast<int>(CallStatus::kInvalidCall) == RRDK_CALL_INVALID_CALL);

int errno_of(rrdk_errc code) noexcept {
  switch (code) {
    case RRDK_OK:
      return 0;
    case RRDK_E_INVALID_ARGUMENT:
    case RRDK_E_BAD_URI:
      return EINVAL;
    case RRDK_E_ADDRESS_IN_USE:
      return EADDRINUSE;
    case RRDK_E_NOT_FOUND:
      return ENOENT;
    case RRDK_E_REFUSED:
      return ECONNREFUSED;
    case RRDK_E_NOT_A_PEER:
      return EPROTO;
    case RRDK_E_PERMISSION:
      return EACCES;
    case RRDK_E_NO_MEMORY:
      return ENOMEM;
    case RRDK_E_TIMEOUT:
      return ETIMEDOUT;
    case RRDK_E_CONNECTION_LOST:
      return ECONNRESET;
    case RRDK_E_UNSUPPORTED:
      return EOPNOTSUPP;
    case RRDK_E_LIMIT:
      return ENOBUFS;
    case RRDK_E_SHUTDOWN:
      return ESHUTDOWN;
    case RRDK_E_SYSTEM:
      return EIO;
  }
  return EIO;
}

rrdk_errc kind_of(rrdk_call_status status) noexcept {
  switch (status) {
    case RRDK_CALL_OK:
      return RRDK_OK;
    case RRDK_CALL_TIMEOUT:
      return RRDK_E_TIMEOUT;
    case RRDK_CALL_CONNECTION_LOST:
    case RRDK_CALL_MALFORMED_REPLY:
      return RRDK_E_CONNECTION_LOST;
    case RRDK_CALL_CANCELLED:
    case RRDK_CALL_SHUTDOWN:
      return RRDK_E_SHUTDOWN;
    case RRDK_CALL_PROG_UNAVAIL:
    case RRDK_CALL_PROC_UNAVAIL:
      return RRDK_E_NOT_FOUND;
    case RRDK_CALL_PROG_MISMATCH:
    case RRDK_CALL_RPC_MISMATCH:
    case RRDK_CALL_VERSION_ERROR:
      return RRDK_E_UNSUPPORTED;
    case RRDK_CALL_GARBAGE_ARGS:
    case RRDK_CALL_INVALID_MEMORY:
    case RRDK_CALL_INVALID_CALL:
      return RRDK_E_INVALID_ARGUMENT;
    case RRDK_CALL_AUTH_ERROR:
      return RRDK_E_PERMISSION;
    case RRDK_CALL_CHUNK_ERROR:
    case RRDK_CALL_TOO_LARGE:
      return RRDK_E_LIMIT;
    case RRDK_CALL_NO_MEMORY:
      return RRDK_E_NO_MEMORY;
    case RRDK_CALL_SYSTEM_ERR:
    case RRDK_CALL_REMOTE_ERROR:
      return RRDK_E_REFUSED;
  }
  return RRDK_E_SYSTEM;
}

}  // namespace
}  // namespace rrdk::c

using namespace rrdk;

const char* rrdk_errc_name(rrdk_errc code) {
  return code == RRDK_OK ? "ok" : to_string(static_cast<Errc>(code - 1));
}

int rrdk_errc_errno(rrdk_errc code) {
  return c::errno_of(code);
}

const char* rrdk_call_status_name(rrdk_call_status status) {
  return to_string(static_cast<CallStatus>(status));
}

rrdk_errc rrdk_errc_of(rrdk_call_status status) {
  return c::kind_of(status);
}
