// Where a host is: its addresses of IPv4 and IPv6, and in which order and when they are tried,
// after RFC 8305 ("Happy Eyeballs").
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

// While an attempt to connect has no answer, one at the next address joins it after so long
// (RFC 8305 section 5). One that fails is followed by the next at once.
constexpr std::chrono::milliseconds kNextAddressAfter{250};

// The order in which to try addresses (RFC 8305 section 4): families take turns, beginning with the
// first address's; within a family the order stays, which the system chose (RFC 6724).
void order_addresses(std::vector<SocketAddress>& addresses);

// The addresses of a host with this port, in the order in which to try them, eight at most. A
// numeric address is one by itself. Blocks if it is a name and the name servers are slow. Only one
// thread asks for a name at a time, and others take what it finds; the answer is kept for three
// seconds, and that there is none for one. Any thread. Errors: kNotFound.
Result<std::vector<SocketAddress>> look_up_addresses(const std::string& host, uint16_t port);

// What was found before is asked for anew.
void forget_addresses();

// Whether the answer may have to come from a name server: a name that /etc/hosts does not have.
// (The answer is the system's in any case, which may be told to ask servers first.)
bool needs_name_server(const std::string& host);

// Without asking anybody: empty if it is a name.
std::vector<SocketAddress> numeric_address(const std::string& host, uint16_t port);

}  // namespace rrdk::base
