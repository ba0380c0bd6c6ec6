#include "drivers/iwarp/address.h"

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/uri.h"
#include "drivers/iwarp/congestion.h"

namespace rrdk::iwarp {

namespace {

// Returns false if there is no such option, or if the value is invalid.
bool take_option(const std::string& name, const std::string& value, Address& address) {
  if (name == base::kTimeoutOption) {
    address.timeout = base::parse_timeout(value);
    return address.timeout.has_value();
  }
  if (name == "silence") {
    address.silence = base::parse_timeout(value).value_or(std::chrono::seconds(0));
    return address.silence >= kLeastSilence;
  }
  if (name == "congestion") {
    address.congestion = value;
    return !value.empty() && value.size() <= kLongestCongestion;
  }
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size())
    return false;
  if (name == "crc" && number <= 1)
    address.crc = number == 1;
  else if (name == "mpa" && (number == 1 || number == 2))
    address.mpa_revision = static_cast<uint8_t>(number);
  else
    return false;
  return true;
}

}  // namespace

Result<Address> parse_address(const std::string& text) {
  Result<base::Uri> uri = base::parse_uri(text);
  if (!uri)
    return tl::unexpected(uri.error());
  const auto bad = [](std::string fault) { return fail(Errc::kBadUri, std::move(fault)); };
  if (uri->host.empty())
    return bad("a host is missing, as in iwarp://127.0.0.1:20049");
  if (!uri->path.empty() && uri->path != "/")
    return bad("it has a path, which has no meaning here");
  Address address;
  address.host = uri->host;
  address.port = uri->port.value_or(kDefaultPort);
  for (const auto& [name, value] : uri->query) {
    if (!take_option(name, value, address))
      return bad(std::string("\"").append(name).append("=").append(value).append(
          "\" is not an option; there are crc=0 and 1, mpa=1 and 2, timeout=1 to 3600 and "
          "silence=3 to "
          "3600 (seconds), and congestion=NAME"));
  }
  return address;
}

Result<std::unique_ptr<fabric::Place>> find(const std::string& uri, fabric::Names names) {
  Result<Address> address = parse_address(uri);
  if (!address)
    return tl::unexpected(address.error());
  Result<drivers::Host> host = drivers::look_up(address->host, address->port, names);
  if (!host)
    return tl::unexpected(host.error());
  if (host->endpoints.empty())
    return nullptr;
  auto place = std::make_unique<Place>();
  place->timeout = address->timeout;
  place->address = std::move(*address);
  place->host = std::move(*host);
  return place;
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
