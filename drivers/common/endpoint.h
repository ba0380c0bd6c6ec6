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

// Where a host is; a name can have several endpoints.
struct Host {
  std::vector<Endpoint4Or6> endpoints;  // in the order in which to try them; empty: it is a name,
                                        // and names are refused
  bool by_name = false;                 // so that `endpoints` are news to whoever knows the name
};
// Errors: kNotFound.
Result<Host> look_up(const std::string& host, uint16_t port, fabric::Names names);

// The turns of a host's addresses in one attempt to connect, after RFC 8305.
class Turns {
 public:
  using Clock = std::chrono::steady_clock;

  void begin(std::vector<Endpoint4Or6> addresses, Clock::time_point deadline);
  bool left() const { return !waiting_.empty(); }  // addresses that have not had their turn
  // Whether the next one is to be tried, although those before it may still answer.
  bool due(Clock::time_point now) const { return left() && now >= due_; }
  Endpoint4Or6 take(Clock::time_point now);
  void put_back(const Endpoint4Or6& address);
  // The address whose turn it is has begun to answer, or there can be one attempt at a time: the
  // next waits until this one has had its share of the time.
  void share(Clock::time_point now);
  bool over(Clock::time_point now) const { return now > deadline_; }

 private:
  std::deque<Endpoint4Or6> waiting_;
  Clock::time_point due_;
  Clock::time_point deadline_;
};

// Moves `served` to the front.
void begin_with(std::vector<Endpoint4Or6>& addresses, const NetworkAddress& served);

// "no answer within 30000 ms".
std::string no_answer_within(std::chrono::milliseconds timeout);

// A copy of what another library holds; empty for other families.
Endpoint4Or6 endpoint_of(const sockaddr* address);

// In numbers; empty when there is no address.
NetworkAddress address_of(const Endpoint4Or6& endpoint);
Peer peer_between(std::string_view driver, const Endpoint4Or6& near, const Endpoint4Or6& far);
// As in "10.0.0.1:20049", "[::1]:20049".
std::string to_text(const Endpoint4Or6& endpoint);
// Without the port: the same whenever this host connects.
std::string host_of(const Endpoint4Or6& endpoint);

// The same in numbers; not known when there is no address.
fabric::Identity identity_of(const Endpoint4Or6& endpoint);
// As identity_of(), but an IPv6 address counts as its /64, in which a host can take any address.
// Link-local and loopback addresses stand for themselves.
fabric::Identity group_of(const Endpoint4Or6& endpoint);
// Whether what connects them stays on this host.
bool on_one_host(const Endpoint4Or6& near, const Endpoint4Or6& far);
// As identity_of(), but addresses of one IPv6 /64 are one, those of a link among them, and so are
// IPv4 addresses that share the first `ipv4_prefix` bits, 1 to 32, and all addresses of this host:
// who is on it can come from each of 127.0.0.0/8.
fabric::Identity origin_of(const Endpoint4Or6& near, const Endpoint4Or6& far, uint32_t ipv4_prefix);

// Whether the peer has closed its end of a connected socket.
bool has_hung_up(int socket) noexcept;

// Why an attempt to connect failed: an errno, of either sign, as sockets and connection managers
// give it.
Errc code_of(int error) noexcept;

}  // namespace rrdk::drivers
