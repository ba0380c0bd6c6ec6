#include "rpc/names.h"

#include "rpc/headers_datapath.h"
#include "rrdk/call_status.h"
#include "rrdk/rpc.h"

namespace rrdk {

const char* to_string(AcceptStat status) noexcept {
  switch (status) {
    case AcceptStat::kSuccess:
      return "success";
    case AcceptStat::kProgUnavail:
      return "program unavailable";
    case AcceptStat::kProgMismatch:
      return "program version mismatch";
    case AcceptStat::kProcUnavail:
      return "procedure unavailable";
    case AcceptStat::kGarbageArgs:
      return "garbage arguments";
    case AcceptStat::kSystemErr:
      return "system error";
  }
  return "unknown accept status";
}

const char* to_string(RejectStat status) noexcept {
  switch (status) {
    case RejectStat::kRpcMismatch:
      return "RPC version mismatch";
    case RejectStat::kAuthError:
      return "authentication error";
  }
  return "unknown reject status";
}

const char* to_string(AuthStat status) noexcept {
  switch (status) {
    case AuthStat::kOk:
      return "ok";
    case AuthStat::kBadCred:
      return "bad credential";
    case AuthStat::kRejectedCred:
      return "rejected credential";
    case AuthStat::kBadVerf:
      return "bad verifier";
    case AuthStat::kRejectedVerf:
      return "rejected verifier";
    case AuthStat::kTooWeak:
      return "credential too weak";
    case AuthStat::kInvalidResp:
      return "invalid response verifier";
    case AuthStat::kFailed:
      return "failed";
    case AuthStat::kGssCredProblem:
      return "GSS credential problem";
    case AuthStat::kGssCtxProblem:
      return "GSS context problem";
  }
  return "unknown authentication status";
}

const char* to_string(AuthFlavor flavor) noexcept {
  switch (flavor) {
    case AuthFlavor::kNone:
      return "AUTH_NONE";
    case AuthFlavor::kSys:
      return "AUTH_SYS";
    case AuthFlavor::kShort:
      return "AUTH_SHORT";
    case AuthFlavor::kDh:
      return "AUTH_DH";
    case AuthFlavor::kRpcsecGss:
      return "RPCSEC_GSS";
  }
  return "unknown flavour";
}

const char* to_string(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::kOk:
      return "ok";
    case CallStatus::kTimeout:
      return "timeout";
    case CallStatus::kConnectionLost:
      return "connection lost";
    case CallStatus::kCancelled:
      return "cancelled";
    case CallStatus::kShutdown:
      return "shut down";
    case CallStatus::kProgUnavail:
      return "program unavailable";
    case CallStatus::kProgMismatch:
      return "program version mismatch";
    case CallStatus::kProcUnavail:
      return "procedure unavailable";
    case CallStatus::kGarbageArgs:
      return "garbage arguments";
    case CallStatus::kSystemErr:
      return "system error";
    case CallStatus::kRpcMismatch:
      return "RPC version mismatch";
    case CallStatus::kAuthError:
      return "authentication error";
    case CallStatus::kChunkError:
      return "chunk error";
    case CallStatus::kVersionError:
      return "transport version error";
    case CallStatus::kRemoteError:
      return "transport error";
    case CallStatus::kMalformedReply:
      return "malformed reply";
    case CallStatus::kTooLarge:
      return "too large";
    case CallStatus::kNoMemory:
      return "no memory";
    case CallStatus::kInvalidMemory:
      return "memory that is not registered";
    case CallStatus::kInvalidCall:
      return "invalid call";
    case CallStatus::kFull:
      return "full";
  }
  return "unknown call status";
}

std::optional<Errc> errc_of(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::kOk:
      return std::nullopt;
    case CallStatus::kTimeout:
      return Errc::kTimeout;
    case CallStatus::kConnectionLost:
    case CallStatus::kMalformedReply:
      return Errc::kConnectionLost;
    case CallStatus::kCancelled:
    case CallStatus::kShutdown:
      return Errc::kShutdown;
    case CallStatus::kProgUnavail:
    case CallStatus::kProcUnavail:
      return Errc::kNotFound;
    case CallStatus::kProgMismatch:
    case CallStatus::kRpcMismatch:
    case CallStatus::kVersionError:
      return Errc::kUnsupported;
    case CallStatus::kGarbageArgs:
    case CallStatus::kInvalidMemory:
    case CallStatus::kInvalidCall:
      return Errc::kInvalidArgument;
    case CallStatus::kAuthError:
      return Errc::kPermission;
    case CallStatus::kChunkError:
    case CallStatus::kTooLarge:
    case CallStatus::kFull:
      return Errc::kLimit;
    case CallStatus::kNoMemory:
      return Errc::kNoMemory;
    case CallStatus::kSystemErr:
    case CallStatus::kRemoteError:
      return Errc::kRefused;
  }
  return Errc::kSystem;
}

namespace {

class CallStatusCategory final : public std::error_category {
 public:
  const char* name() const noexcept override { return "rrdk call"; }
  std::string message(int value) const override { return to_string(status(value)); }
  std::error_condition default_error_condition(int value) const noexcept override {
    const std::optional<Errc> kind = errc_of(status(value));
    return {kind ? errno_of(*kind) : 0, std::generic_category()};
  }

 private:
  static CallStatus status(int value) noexcept { return static_cast<CallStatus>(value); }
};

}  // namespace

std::error_code make_error_code(CallStatus status) noexcept {
  static const CallStatusCategory category;
  return {static_cast<int>(status), category};
}

}  // namespace rrdk

namespace rrdk::rpc {

std::string name_of(const Binding& binding, uint32_t procedure) {
  const ProcedureBinding* bound = binding.find(procedure);
  const bool has_name = bound != nullptr && bound->procedure == procedure && bound->name != nullptr;
  std::string name = has_name                        ? bound->name
                     : procedure == kOtherProcedures ? "other procedures"
                                                     : "procedure " + std::to_string(procedure);
  return name + " of " +
         (binding.name != nullptr ? binding.name : "program " + std::to_string(binding.program));
}

const char* to_string(CallVerdict verdict) noexcept {
  switch (verdict) {
    case CallVerdict::kOk:
      return "ok";
    case CallVerdict::kNotACall:
      return "not a call";
    case CallVerdict::kRpcMismatch:
      return "other RPC version";
    case CallVerdict::kGarbage:
      return "truncated header";
    case CallVerdict::kBadCredential:
      return "credential too long";
    case CallVerdict::kBadVerifier:
      return "verifier too long";
  }
  return "unknown verdict";
}

}  // namespace rrdk::rpc
