#include <arpa/inet.h>

#include <charconv>
#include <optional>

#include "rrdk/rpcbind.h"

namespace rrdk {

namespace {

bool is_address(int family, const std::string& host) {
  in6_addr unused;
  return ::inet_pton(family, host.c_str(), &unused) == 1;
}

// Without a scope, which means nothing on another host.
std::string bare(const std::string& host) {
  return host.substr(0, host.find('%'));
}

// Takes ".123" off the end.
std::optional<uint32_t> take_octet(std::string& text) {
  size_t dot = text.rfind('.');
  if (dot == std::string::npos)
    return std::nullopt;
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  auto [stopped, error] = std::from_chars(text.data() + dot + 1, end, value);
  if (error != std::errc() || stopped != end || value > 255)
    return std::nullopt;
  text.resize(dot);
  return value;
}

}  // namespace

const char* rpcbind_netid(const std::string& host) {
  return is_address(AF_INET6, bare(host)) ? "rdma6" : "rdma";
}

Result<std::string> to_universal_address(const std::string& host, uint16_t port) {
  std::string address = bare(host);
  if (!is_address(AF_INET, address) && !is_address(AF_INET6, address))
    return fail(Errc::kInvalidArgument, "\"" + host + "\" is no numeric IPv4 or IPv6 address");
  return address + "." + std::to_string(port >> 8) + "." + std::to_string(port & 0xff);
}

Result<HostAndPort> parse_universal_address(const std::string& address) {
  std::string host = address;
  std::optional<uint32_t> low = take_octet(host);
  std::optional<uint32_t> high = take_octet(host);
  if (!low || !high || (!is_address(AF_INET, host) && !is_address(AF_INET6, host)))
    return fail(Errc::kInvalidArgument, "\"" + address + "\" is no universal address");
  return HostAndPort{host, static_cast<uint16_t>(*high << 8 | *low)};
}

}  // namespace rrdk
