// Peers and the results of work requests, in words.
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

}  // namespace rrdk

namespace rrdk::fabric {

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
