#include "drivers/verbs/address.h"

#include "base/uri.h"

namespace rrdk::verbs {

Result<Address> parse_address(const std::string& text) {
  Result<base::Uri> uri = base::parse_uri(text);
  if (!uri)
    return tl::unexpected(uri.error());
  const auto bad = [](const std::string& fault) { return fail(Errc::kBadUri, fault); };
  if (uri->host.empty())
    return bad("a host is missing, as in verbs://10.0.0.1:20049");
  if (!uri->path.empty() && uri->path != "/")
    return bad("it has a path, which means nothing here");
  Address address;
  for (const auto& [name, value] : uri->query) {
    if (name == "device" && !value.empty())
      address.device = value;
    else if (name == "windows" && value == "no")
      address.without_windows = true;
    else
      return bad(std::string("\"").append(name).append("=").append(value).append(
          "\" is no option; there are device=NAME and windows=no"));
  }
  Result<drivers::Endpoint4Or6> endpoint =
      drivers::look_up(uri->host, uri->port.value_or(kDefaultPort));
  if (!endpoint)
    return tl::unexpected(endpoint.error());
  address.endpoint = *endpoint;
  address.by_name = drivers::host_of(*endpoint) != uri->host;
  return address;
}

}  // namespace rrdk::verbs
