#include "drivers/common/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/assert.h"

namespace rrdk::drivers {

namespace {

// An IPv4 address of a connection through an IPv6 socket is shown as an IPv4 address.
std::string_view without_mapping(std::string_view host) {
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string_view::npos)
    host.remove_prefix(kMapped.size());
  return host;
}

}  // namespace

Result<Host> look_up(const std::string& host, uint16_t port, fabric::Names names) {
  Host places{.endpoints = base::numeric_address(host, port)};
  if (!places.endpoints.empty() || names == fabric::Names::kRefused)
    return places;
  Result<std::vector<Endpoint4Or6>> found = base::look_up_addresses(host, port);
  if (!found)
    return tl::unexpected(found.error());
  places.endpoints = std::move(*found);
  places.by_name = true;
  return places;
}

void Turns::begin(std::vector<Endpoint4Or6> addresses, Clock::time_point deadline) {
  waiting_.assign(addresses.begin(), addresses.end());
  deadline_ = deadline;
}

Endpoint4Or6 Turns::take(Clock::time_point now) {
  RRDK_ASSERT(left());
  const Endpoint4Or6 address = waiting_.front();
  waiting_.pop_front();
  due_ = now + base::kNextAddressAfter;
  return address;
}

void Turns::put_back(const Endpoint4Or6& address) {
  waiting_.push_front(address);
}

void Turns::share(Clock::time_point now) {
  due_ = now + (deadline_ - now) / (waiting_.size() + 1);
}

void begin_with(std::vector<Endpoint4Or6>& addresses, const NetworkAddress& served) {
  const auto at = std::ranges::find(addresses, served, address_of);
  if (at != addresses.end())
    std::rotate(addresses.begin(), at, at + 1);
}

std::string no_answer_within(std::chrono::milliseconds timeout) {
  return "no answer within " + std::to_string(timeout.count()) + " ms";
}

Endpoint4Or6 endpoint_of(const sockaddr* address) {
  Endpoint4Or6 endpoint;
  if (address == nullptr)
    return endpoint;
  if (address->sa_family == AF_INET)
    endpoint.length = sizeof(sockaddr_in);
  else if (address->sa_family == AF_INET6)
    endpoint.length = sizeof(sockaddr_in6);
  std::memcpy(&endpoint.storage, address, endpoint.length);
  return endpoint;
}

std::string host_of(const Endpoint4Or6& endpoint) {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(endpoint.get(), endpoint.length, host.data(), host.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return "not connected";
  return std::string(without_mapping(host.data()));
}

fabric::Identity identity_of(const Endpoint4Or6& endpoint) {
  fabric::Identity identity;
  if (endpoint.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(endpoint.storage);
    // A host that connects to [::] and to 0.0.0.0 is one peer.
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      in_addr_t v4 = 0;
      std::memcpy(&v4, &v6.sin6_addr.s6_addr[12], sizeof(v4));
      return {{AF_INET, v4, 0}};
    }
    std::memcpy(&identity.words[1], &v6.sin6_addr, sizeof(v6.sin6_addr));
    identity.words[0] = uint64_t{v6.sin6_scope_id} << 8 | AF_INET6;
  } else if (endpoint.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(endpoint.storage);
    identity.words[1] = v4.sin_addr.s_addr;
    identity.words[0] = AF_INET;
  }
  return identity;
}

// The loopback address, and those of one link, share a /64 with unrelated hosts.
fabric::Identity group_of(const Endpoint4Or6& endpoint) {
  fabric::Identity group = identity_of(endpoint);
  if ((group.words[0] & 0xff) != AF_INET6)
    return group;
  const auto& address = reinterpret_cast<const sockaddr_in6&>(endpoint.storage).sin6_addr;
  if (!IN6_IS_ADDR_LINKLOCAL(&address) && !IN6_IS_ADDR_LOOPBACK(&address))
    group.words[2] = 0;
  return group;
}

bool on_one_host(const Endpoint4Or6& near, const Endpoint4Or6& far) {
  const fabric::Identity who = identity_of(far);
  const bool loopback =
      who.words[0] == AF_INET
          ? ntohl(static_cast<in_addr_t>(who.words[1])) >> 24 == IN_LOOPBACKNET
          : far.storage.ss_family == AF_INET6 &&
                IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(far.storage).sin6_addr);
  return loopback || (who.known() && identity_of(near) == who);
}

fabric::Identity origin_of(const Endpoint4Or6& near, const Endpoint4Or6& far,
                           uint32_t ipv4_prefix) {
  if (on_one_host(near, far))
    return {{AF_INET, htonl(INADDR_LOOPBACK), 0}};
  fabric::Identity origin = identity_of(far);
  if (origin.words[0] == AF_INET)
    origin.words[1] &= htonl(~uint32_t{0} << (32 - ipv4_prefix));
  else
    origin.words[2] = 0;
  return origin;
}

NetworkAddress address_of(const Endpoint4Or6& endpoint) {
  uint16_t port = 0;
  if (endpoint.storage.ss_family == AF_INET6)
    port = reinterpret_cast<const sockaddr_in6&>(endpoint.storage).sin6_port;
  else if (endpoint.storage.ss_family == AF_INET)
    port = reinterpret_cast<const sockaddr_in&>(endpoint.storage).sin_port;
  else
    return {};
  return {.host = host_of(endpoint), .port = ntohs(port)};
}

Peer peer_between(std::string_view driver, const Endpoint4Or6& near, const Endpoint4Or6& far) {
  return {.driver = driver, .local = address_of(near), .remote = address_of(far), .process = {}};
}

std::string to_text(const Endpoint4Or6& endpoint) {
  return peer_between({}, {}, endpoint).to_string();
}

bool has_hung_up(int socket) noexcept {
  pollfd its = {.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&its, 1, 0) == 1;
}

Errc code_of(int error) noexcept {
  switch (std::abs(error)) {
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case ENODEV:
    case ENOENT:
      return Errc::kNotFound;
    case ETIMEDOUT:
      return Errc::kTimeout;
    case EACCES:
    case EPERM:
      return Errc::kPermission;
    case ENOMEM:
      return Errc::kNoMemory;
    case EADDRINUSE:
      return Errc::kAddressInUse;
    case ECONNRESET:
    case EPIPE:
      return Errc::kConnectionLost;
    default:
      return Errc::kSystem;
  }
}

}  // namespace rrdk::drivers
