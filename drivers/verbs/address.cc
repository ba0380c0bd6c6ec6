#include "drivers/verbs/address.h"

#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/uri.h"
#include "drivers/verbs/cm.h"

namespace rrdk::verbs {

namespace {

constexpr int kResolveTimeoutMs = 5000;

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  names.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    names.emplace_back(ibv_get_device_name(list[i]));
  if (list != nullptr)
    ibv_free_device_list(list);
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

bool is_wildcard(const drivers::Endpoint4Or6& at) {
  if (at.storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(at.storage);
    return IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in&>(at.storage).sin_addr.s_addr == htonl(INADDR_ANY);
}

// Without its port, which may be in use.
drivers::Endpoint4Or6 host_alone(drivers::Endpoint4Or6 at) {
  if (at.storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(at.storage).sin6_port = 0;
  else
    reinterpret_cast<sockaddr_in&>(at.storage).sin_port = 0;
  return at;
}

// Returns the device that has one of the addresses, or the route to it, or an empty name.
std::string device_of(const std::vector<drivers::Endpoint4Or6>& addresses, bool is_local) {
  const int timeout_ms = kResolveTimeoutMs / static_cast<int>(addresses.size());
  for (const drivers::Endpoint4Or6& at : addresses) {
    rdma_cm_id* made = nullptr;
    if (is_wildcard(at) || rdma_create_id(nullptr, &made, nullptr, RDMA_PS_TCP) != 0)
      continue;
    const Id id(made);
    drivers::Endpoint4Or6 host = host_alone(at);
    const int failed = is_local ? rdma_bind_addr(id.get(), host.get())
                                : rdma_resolve_addr(id.get(), nullptr, host.get(), timeout_ms);
    if (failed == 0 && id->verbs != nullptr)
      return ibv_get_device_name(id->verbs->device);
  }
  return {};
}

}  // namespace

Result<Address> parse_address(const std::string& text, fabric::Names names) {
  Result<base::Uri> uri = base::parse_uri(text);
  if (!uri)
    return tl::unexpected(uri.error());
  const auto bad = [](const std::string& fault) { return fail(Errc::kBadUri, fault); };
  if (uri->host.empty())
    return bad("a host is missing, as in verbs://10.0.0.1:20049");
  if (!uri->path.empty() && uri->path != "/")
    return bad("it has a path, which has no meaning here");
  Address address;
  for (const auto& [name, value] : uri->query) {
    if (name == "device" && !value.empty())
      address.device = value;
    else if (name == "windows" && value == "no")
      address.without_windows = true;
    else if (const auto timeout = base::parse_timeout(value);
             name == base::kTimeoutOption && timeout)
      address.timeout = *timeout;
    else
      return bad(std::string("\"").append(name).append("=").append(value).append(
          "\" is not an option; there are device=NAME, windows=no, timeout=1 to 3600 (seconds)"));
  }
  Result<drivers::Host> host = drivers::look_up(uri->host, uri->port.value_or(kDefaultPort), names);
  if (!host)
    return tl::unexpected(host.error());
  address.endpoints = std::move(host->endpoints);
  address.by_name = host->by_name;
  address.host = uri->host;
  return address;
}

Result<std::unique_ptr<fabric::Place>> find(const std::string& uri, fabric::Names names) {
  Result<Address> address = parse_address(uri, names);
  if (!address)
    return tl::unexpected(address.error());
  if (address->endpoints.empty())
    return nullptr;
  return std::make_unique<Address>(std::move(*address));
}

Result<std::string> choose_device(const Address& address, fabric::Purpose purpose) {
  const std::vector<std::string> names = device_names();
  if (names.empty())
    return fail(Errc::kUnsupported,
                "this host has no RDMA device (`rdma link` shows them): load its driver, "
                "make a software one (rdma link add NAME type rxe netdev IF), or use an "
                "address of shm: or iwarp:");
  if (!address.device.empty()) {
    if (std::ranges::find(names, address.device) == names.end())
      return fail(Errc::kNotFound,
                  "there is no device " + address.device + "; there are " + joined(names));
    return address.device;
  }
  // A client reaches an address of this host through the device with the route to it.
  const bool listens = purpose == fabric::Purpose::kListening;
  for (const bool is_local : {listens, !listens}) {
    if (std::string found = device_of(address.endpoints, is_local); !found.empty())
      return found;
  }
  if (names.size() == 1)
    return names.front();
  return fail(Errc::kNotFound, "it leads to no RDMA device in particular: give one of " +
                                   joined(names) + " as ?device=NAME");
}

}  // namespace rrdk::verbs
