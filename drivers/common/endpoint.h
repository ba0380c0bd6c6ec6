// Addresses of IPv4 and IPv6, as sockets and connection managers take them.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/addresses.h"
#include "fabric/device.h"
#include "rrdk/connection.h"
#include "rrdk/error.h"

namespace rrdk::drivers {

using Endpoint4Or6 = base::SocketAddress;

// The addresses of a host; a name can have several.
struct Host {
  // In the order in which to try them; empty: it is a name, and names are refused.
  std::vector<Endpoint4Or6> endpoints;
  bool by_name = false;  // the name was resolved, so `endpoints` may be unknown to the user
};
// Errors: kNotFound.
Result<Host> look_up(const std::string& host, uint16_t port, fabric::Names names);

// The order and timing of a host's addresses in one attempt to connect, after RFC 8305.
class Turns {
 public:
  using Clock = std::chrono::steady_clock;

  void begin(std::vector<Endpoint4Or6> addresses, Clock::time_point deadline);
  bool left() const { return !waiting_.empty(); }  // addresses that have not been tried
  // Whether the next one must be tried, although earlier ones may still answer.
  bool due(Clock::time_point now) const { return left() && now >= due_; }
  Endpoint4Or6 take(Clock::time_point now);
  void put_back(const Endpoint4Or6& address);
  // Called when the current address has begun to answer, or if only one attempt at a time is
  // possible: the next one waits until this one has used its share of the time.
  void share(Clock::time_point now);
  bool over(Clock::time_point now) const { return now > deadline_; }

 private:
  std::deque<Endpoint4Or6> waiting_;
  Clock::time_point due_;
  Clock::time_point deadline_;
};

// Moves `served` to the front.
void begin_with(std::vector<Endpoint4Or6>& addresses, const NetworkAddress& served);

// For example "no answer within 30000 ms".
std::string no_answer_within(std::chrono::milliseconds timeout);

// A copy of an address that another library holds; empty for other families.
Endpoint4Or6 endpoint_of(const sockaddr* address);

// In numbers; empty if there is no address.
NetworkAddress address_of(const Endpoint4Or6& endpoint);
Peer peer_between(std::string_view driver, const Endpoint4Or6& near, const Endpoint4Or6& far);
// For example "10.0.0.1:20049", "[::1]:20049".
std::string to_text(const Endpoint4Or6& endpoint);
// Without the port: the same each time that this host connects.
std::string host_of(const Endpoint4Or6& endpoint);

// The same in numbers; unknown if there is no address.
fabric::Identity identity_of(const Endpoint4Or6& endpoint);
// As identity_of(), but an IPv6 address is represented by its /64, in which a host can take any
// address. Link-local and loopback addresses stand for themselves.
fabric::Identity group_of(const Endpoint4Or6& endpoint);
// Whether the connection between them stays on this host.
bool on_one_host(const Endpoint4Or6& near, const Endpoint4Or6& far);
// As identity_of(), but the addresses of one IPv6 /64 are one, including link-local ones; so are
// IPv4 addresses that share the first `ipv4_prefix` bits, 1 to 32, and all addresses of this host,
// since a local process can come from any address of 127.0.0.0/8.
fabric::Identity origin_of(const Endpoint4Or6& near, const Endpoint4Or6& far, uint32_t ipv4_prefix);

// Whether the peer has closed its end of a connected socket.
bool has_hung_up(int socket) noexcept;

// Why an attempt to connect failed: an errno, of either sign, as reported by sockets and connection
// managers.
Errc code_of(int error) noexcept;

}  // namespace rrdk::drivers
