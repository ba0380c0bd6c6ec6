#include "drivers/iwarp/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/uri.h"

namespace rrdk::iwarp {

namespace {

// An IPv4 address that came in through an IPv6 socket is shown as what it is.
std::string_view without_mapping(std::string_view host) {
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string_view::npos)
    host.remove_prefix(kMapped.size());
  return host;
}

}  // namespace

Result<Address> parse_address(const std::string& text) {
  Result<base::Uri> uri = base::parse_uri(text);
  if (!uri)
    return tl::unexpected(uri.error());
  auto bad = [&](const std::string& fault) {
    std::string message = "address \"";
    message += text;
    message += "\": ";
    message += fault;
    return fail(Errc::kBadUri, std::move(message));
  };
  if (uri->host.empty())
    return bad("a host is missing, as in iwarp://127.0.0.1:20049");
  if (!uri->path.empty() && uri->path != "/")
    return bad("it has a path, which means nothing here");
  Address address;
  for (const auto& [name, value] : uri->query) {
    if (name != "crc" || (value != "0" && value != "1"))
      return bad(std::string("\"").append(name).append("=").append(value).append(
          "\" is no option; there is crc=0 and crc=1"));
    address.crc = value == "1";
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(uri->port.value_or(kDefaultPort));
  const int error = ::getaddrinfo(uri->host.c_str(), port.c_str(), &hints, &found);
  if (error != 0)
    return fail(Errc::kNotFound, text + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::memcpy(&address.endpoint.storage, found->ai_addr, found->ai_addrlen);
  address.endpoint.length = found->ai_addrlen;
  return address;
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
    std::memcpy(&identity.words[1], &v6.sin6_addr, sizeof(v6.sin6_addr));
    identity.words[0] = uint64_t{v6.sin6_scope_id} << 8 | AF_INET6;
  } else if (endpoint.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(endpoint.storage);
    identity.words[1] = v4.sin_addr.s_addr;
    identity.words[0] = AF_INET;
  }
  return identity;
}

std::string to_text(const Endpoint4Or6& endpoint) {
  std::string host = host_of(endpoint);
  uint16_t port = 0;
  if (endpoint.storage.ss_family == AF_INET6)
    port = reinterpret_cast<const sockaddr_in6&>(endpoint.storage).sin6_port;
  else if (endpoint.storage.ss_family == AF_INET)
    port = reinterpret_cast<const sockaddr_in&>(endpoint.storage).sin_port;
  else
    return host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(ntohs(port));
}

Endpoint4Or6 local_end(int socket) {
  Endpoint4Or6 end;
  end.length = sizeof(end.storage);
  if (::getsockname(socket, end.get(), &end.length) != 0)
    end.length = 0;
  return end;
}

Endpoint4Or6 far_end(int socket) {
  Endpoint4Or6 end;
  end.length = sizeof(end.storage);
  if (::getpeername(socket, end.get(), &end.length) != 0)
    end.length = 0;
  return end;
}

}  // namespace rrdk::iwarp
