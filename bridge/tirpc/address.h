// RRDK's peer addresses as the socket addresses that libtirpc's programs expect.
#pragma once

#include <rpc/rpc.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

#include "rrdk/connection.h"

namespace rrdk::tirpc {

// AF_INET or AF_INET6; AF_UNIX without a path for peers without a network address. Returns the
// length.
socklen_t to_socket_address(const NetworkAddress& address, sockaddr_storage& to);

// The address in a URI "iwarp://HOST:PORT" or "iwarp://[HOST]:PORT?..."; nothing if the URI has
// another form.
struct HostPort {
  std::string host;
  uint16_t port;
  size_t at;  // where in the URI HOST:PORT begins, and how long it is
  size_t length;
};
std::optional<HostPort> host_and_port(const std::string& uri);

// Whether the system's resolver has an address for the host. Waits for name servers.
bool is_known(const std::string& host);

}  // namespace rrdk::tirpc
