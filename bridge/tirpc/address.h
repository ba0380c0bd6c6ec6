// What RRDK knows of a peer, as the socket addresses that libtirpc's programs expect.
#pragma once

#include <rpc/rpc.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "rrdk/connection.h"

namespace rrdk::tirpc {

// AF_INET or AF_INET6; AF_UNIX without a path for what has no network address. The length.
socklen_t to_socket_address(const NetworkAddress& address, sockaddr_storage& to);

// Of a URI "iwarp://HOST:PORT" or "iwarp://[HOST]:PORT?..."; none if it is no such one.
struct HostPort {
  std::string host;
  uint16_t port;
  size_t at;  // where in the URI HOST:PORT begins, and how long it is
  size_t length;
};
std::optional<HostPort> host_and_port(const std::string& uri);

// Whether the system's resolver has an address for it. Waits for name servers.
bool is_known(const std::string& host);

}  // namespace rrdk::tirpc
