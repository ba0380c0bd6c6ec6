#include "address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <charconv>
#include <cstddef>
#include <cstring>

namespace rrdk::tirpc {

socklen_t to_socket_address(const NetworkAddress& address, sockaddr_storage& to) {
  to = {};
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  const size_t percent = address.host.find('%');
  if (::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&to, &v4, sizeof v4);
    return sizeof v4;
  }
  if (::inet_pton(AF_INET6, address.host.substr(0, percent).c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    if (percent != std::string::npos)
      v6.sin6_scope_id = ::if_nametoindex(address.host.c_str() + percent + 1);
    std::memcpy(&to, &v6, sizeof v6);
    return sizeof v6;
  }
  to.ss_family = AF_UNIX;
  return offsetof(sockaddr_un, sun_path);
}

std::optional<HostPort> host_and_port(const std::string& uri) {
  const size_t scheme = uri.find("://");
  if (scheme == std::string::npos)
    return std::nullopt;
  const size_t host = scheme + 3;
  const size_t end = std::min(uri.find('?', host), uri.size());
  const size_t colon = uri.rfind(':', end - 1);
  // A colon within brackets is one of an IPv6 address.
  if (colon == std::string::npos || colon <= host || uri.find(']', colon) < end)
    return std::nullopt;
  HostPort found = {uri.substr(host, colon - host), 0, host, end - host};
  const char* last = uri.data() + end;
  auto [stopped, error] = std::from_chars(uri.data() + colon + 1, last, found.port);
  if (error != std::errc() || stopped != last)
    return std::nullopt;
  if (found.host.starts_with('[') && found.host.ends_with(']'))
    found.host = found.host.substr(1, found.host.size() - 2);
  return found;
}

bool is_known(const std::string& host) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0)
    return false;
  ::freeaddrinfo(found);
  return true;
}

}  // namespace rrdk::tirpc
