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
