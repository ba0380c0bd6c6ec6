// Addresses of the driver: verbs://10.0.0.1:20049, verbs://[fe80::1%eth0],
// verbs://host?device=rxe0, verbs://host?windows=no, verbs://host?timeout=60 (seconds). Also which
// of the host's RDMA devices an address leads to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/common/endpoint.h"
#include "rrdk/error.h"

namespace rrdk::verbs {

// NFS over RDMA's (RFC 8267 section 7).
constexpr uint16_t kDefaultPort = 20049;
constexpr std::string_view kScheme = "verbs";

struct Address final : fabric::Place {
  void begin_with(const NetworkAddress& served) override { drivers::begin_with(endpoints, served); }

  // In the order in which to try them; empty: it has a name that was not resolved.
  std::vector<drivers::Endpoint4Or6> endpoints;
  bool by_name = false;  // the address does not show the endpoint
  std::string host;
  std::string device;  // as named by `rdma link`; empty: the one to which the address leads
  // Does not use the device's memory windows, as if it had none: for a device whose windows do not
  // work.
  bool without_windows = false;
};

// Errors: kBadUri, kNotFound.
Result<Address> parse_address(const std::string& uri,
                              fabric::Names names = fabric::Names::kLookedUp);

// fabric::Driver::find.
Result<std::unique_ptr<fabric::Place>> find(const std::string& uri, fabric::Names names);

// Returns the name of the device to listen at, which has the address, or through which to connect,
// which has the route. On a host with several devices these differ for an address of the host's
// own. Can take some seconds. Errors: kUnsupported (there are no devices), kNotFound.
Result<std::string> choose_device(const Address& address, fabric::Purpose purpose);

}  // namespace rrdk::verbs
