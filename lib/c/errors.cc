// Errors and call statuses of the C API: names and conversions.
#include "c/handles.h"

namespace rrdk::c {
namespace {

static_assert(static_cast<int>(CallStatus::kOk) == RRDK_CALL_OK &&
              static_cast<int>(CallStatus::kSystemErr) == RRDK_CALL_SYSTEM_ERR &&
              static_cast<int>(CallStatus::kMalformedReply) == RRDK_CALL_MALFORMED_REPLY &&
              static_cast<int>(CallStatus::kInvalidCall) == RRDK_CALL_INVALID_CALL);

}  // namespace
}  // namespace rrdk::c

using namespace rrdk;

const char* rrdk_errc_name(rrdk_errc code) {
  return code == RRDK_OK ? "ok" : to_string(c::code_of(code));
}

int rrdk_errc_errno(rrdk_errc code) {
  return code == RRDK_OK ? 0 : errno_of(c::code_of(code));
}

const char* rrdk_call_status_name(rrdk_call_status status) {
  return to_string(static_cast<CallStatus>(status));
}

rrdk_errc rrdk_errc_of(rrdk_call_status status) {
  const std::optional<Errc> kind = errc_of(static_cast<CallStatus>(status));
  return kind ? c::code_of(*kind) : RRDK_OK;
}
