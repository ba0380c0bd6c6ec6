// The list of drivers. Each is described at the end of its device.cc.
#include <array>
#include <string>

#include "fabric/device.h"

namespace rrdk {

namespace shm {
extern const fabric::Driver kDriver;
}
namespace iwarp {
extern const fabric::Driver kDriver;
}
#ifdef RRDK_WITH_VERBS
namespace verbs {
extern const fabric::Driver kDriver;
}
#endif

}  // namespace rrdk

namespace rrdk::fabric {

std::span<const Driver* const> drivers() {
  static constexpr auto kDrivers = std::to_array<const Driver*>({
      &shm::kDriver,
      &iwarp::kDriver,
#ifdef RRDK_WITH_VERBS
      &verbs::kDriver,
#endif
  });
  return kDrivers;
}

Result<std::unique_ptr<Place>> look_up(const std::string& uri) {
  return find_driver(uri).and_then(
      [&](const Driver* driver) { return driver->find(uri, Names::kLookedUp); });
}

Result<std::unique_ptr<Listener>> Device::listen(const std::string& uri) {
  return look_up(uri).and_then([&](const std::unique_ptr<Place>& place) { return listen(*place); });
}

Result<void> Device::connect(QueuePair& qp, const std::string& uri,
                             std::span<const std::byte> private_data) {
  return look_up(uri).and_then(
      [&](const std::unique_ptr<Place>& place) { return connect(qp, *place, private_data); });
}

Result<const Driver*> find_driver(std::string_view uri) {
  const std::string_view scheme = uri.substr(0, uri.find(':'));
  std::string known;
  for (const Driver* driver : drivers()) {
    if (scheme.size() < uri.size() && driver->scheme == scheme)
      return driver;
    known += (known.empty() ? "" : ", ") + std::string(driver->scheme) + ":";
  }
#ifndef RRDK_WITH_VERBS
  if (scheme == "verbs")
    return fail(Errc::kUnsupported,
                "this build has no driver for RDMA devices: install libibverbs-dev and "
                "librdmacm-dev, then configure and build it again");
#endif
  return fail(Errc::kBadUri, "addresses begin with the name of a driver: " + known);
}

}  // namespace rrdk::fabric
