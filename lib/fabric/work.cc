#include "fabric/work.h"

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
