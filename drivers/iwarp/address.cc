#include "drivers/iwarp/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
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

// Of one name that are tried.
constexpr size_t kMostPlaces = 8;
constexpr uint32_t kLongestTimeout = 3600;

// False: there is no such option, or it has no such value.
bool take_option(const std::string& name, const std::string& value, Address& address) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size())
    return false;
  if (name == "crc" && number <= 1)
    address.crc = number == 1;
  else if (name == "mpa" && (number == 1 || number == 2))
    address.mpa_revision = static_cast<uint8_t>(number);
  else if (name == "timeout" && number >= 1 && number <= kLongestTimeout)
    address.timeout = std::chrono::seconds(number);
  else
    return false;
  return true;
}

}  // namespace

Result<Address> parse_address(const std::string& text) {
  Result<base::Uri> uri = base::parse_uri(text);
  if (!uri)
    return tl::unexpected(uri.error());
  auto bad = [&](std::string_view fault) {
    std::string message = "address \"";
    return fail(Errc::kBadUri, message.append(text).append("\": ").append(fault));
  };
  if (uri->host.empty())
    return bad("a host is missing, as in iwarp://127.0.0.1:20049");
  if (!uri->path.empty() && uri->path != "/")
    return bad("it has a path, which means nothing here");
  Address address;
  address.host = uri->host;
  address.port = uri->port.value_or(kDefaultPort);
  for (const auto& [name, value] : uri->query) {
    if (!take_option(name, value, address))
      return bad(std::string("\"").append(name).append("=").append(value).append(
          "\" is no option; there are crc=0 and 1, mpa=1 and 2, timeout=1 to 3600 (seconds)"));
  }
  return address;
}

Result<std::vector<Endpoint4Or6>> look_up(const Address& address, Lookup how) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (how == Lookup::kNumeric ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0)
    return fail(Errc::kNotFound, address.host + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::vector<Endpoint4Or6> places;
  for (const addrinfo* at = found; at != nullptr && places.size() != kMostPlaces;
       at = at->ai_next) {
    Endpoint4Or6& place = places.emplace_back();
    std::memcpy(&place.storage, at->ai_addr, at->ai_addrlen);
    place.length = at->ai_addrlen;
  }
  return places;
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
