// Descriptions of peers, endings and the results of work requests.
#include "fabric/device.h"
#include "fabric/work.h"
#include "rrdk/connection.h"

namespace rrdk {

std::string NetworkAddress::to_string() const {
  if (host.empty())
    return {};
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string Peer::to_string() const {
  if (process)
    return "pid " + std::to_string(process->pid) + " (uid " + std::to_string(process->uid) + ")";
  return remote.host.empty() ? "not connected" : remote.to_string();
}

const char* to_string(EndedBy by) noexcept {
  switch (by) {
    case EndedBy::kNobody:
      return "nobody";
    case EndedBy::kPeer:
      return "peer";
    case EndedBy::kProgram:
      return "program";
    case EndedBy::kLimit:
      return "limit";
    case EndedBy::kNetwork:
      return "network";
  }
  return "unknown";
}

std::string Ending::to_string() const {
  if (!ended())
    return "not ended";
  const std::string what = refusal ? std::string(": ") + rrdk::to_string(*refusal) : "";
  return text + " [" + rrdk::to_string(by) + what + "]";
}

}  // namespace rrdk

namespace rrdk::fabric {

namespace {

EndedBy ended_by(Errc code) noexcept {
  switch (code) {
    case Errc::kRefused:
    case Errc::kNotAPeer:
    case Errc::kConnectionLost:
      return EndedBy::kPeer;
    case Errc::kInvalidArgument:
    case Errc::kBadUri:
    case Errc::kShutdown:
      return EndedBy::kProgram;
    case Errc::kNoMemory:
    case Errc::kTimeout:
    case Errc::kLimit:
    case Errc::kPermission:
      return EndedBy::kLimit;
    case Errc::kAddressInUse:
    case Errc::kNotFound:
    case Errc::kUnsupported:
    case Errc::kSystem:
      break;
  }
  return EndedBy::kNetwork;
}

}  // namespace

Ending ending_of(const Error& error) {
  return {.by = ended_by(error.code), .code = error.code, .refusal = {}, .text = error.message};
}

const char* to_string(WcStatus status) {
  switch (status) {
    case WcStatus::kSuccess:
      return "success";
    case WcStatus::kFlushed:
      return "flushed";
    case WcStatus::kLocalLength:
      return "message longer than the Receive";
    case WcStatus::kLocalProtection:
      return "local protection error";
    case WcStatus::kRemoteInvalid:
      return "refused by the peer as invalid";
    case WcStatus::kRemoteAccess:
      return "remote access refused";
    case WcStatus::kRemoteOperation:
      return "remote operation error";
    case WcStatus::kRnrExceeded:
      return "no Receive posted for too long";
    case WcStatus::kPeerLost:
      return "peer lost";
  }
  return "unknown status";
}

}  // namespace rrdk::fabric
