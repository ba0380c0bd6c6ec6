#include "rpc/call_datapath.h"
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
  }
  return "unknown call status";
}

}  // namespace rrdk

namespace rrdk::rpc {

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
