// The addresses of a host, IPv4 and IPv6, and in which order and when they are tried, after RFC
// 8305 ("Happy Eyeballs").
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "rrdk/error.h"

namespace rrdk::base {

// An address and a port, as sockets and connection managers take them.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;  // 0: none

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

void set_port(SocketAddress& address, uint16_t port);

// If an attempt to connect has no answer after this time, an attempt at the next address joins it
// (RFC 8305 section 5). An attempt that fails is followed by the next at once.
constexpr std::chrono::milliseconds kNextAddressAfter{250};

// Puts addresses into the order in which to try them (RFC 8305 section 4): families take turns,
// beginning with the first address's; within a family the order that the system chose stays (RFC
// 6724).
void order_addresses(std::vector<SocketAddress>& addresses);

// Returns the addresses of a host with this port, in the order in which to try them, eight at most.
// A numeric address is returned by itself. Blocks if it is a name and the name servers are slow.
// Only one thread asks for a name at a time, and others take what it finds; the answer is kept for
// three seconds, and a failure for one. Any thread. Errors: kNotFound.
Result<std::vector<SocketAddress>> look_up_addresses(const std::string& host, uint16_t port);

// Drops kept answers, so that the next look-up asks again.
void forget_addresses();

// Whether the answer may have to come from a name server: a name that /etc/hosts does not have.
// (The system gives the answer in any case, and may be configured to ask servers first.)
bool needs_name_server(const std::string& host);

// Does not ask any server: empty if it is a name.
std::vector<SocketAddress> numeric_address(const std::string& host, uint16_t port);

}  // namespace rrdk::base
