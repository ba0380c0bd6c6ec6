#include <array>
#include <string>

#include "drivers/iwarp/iwarp.h"
#include "drivers/shm/shm.h"
#include "fabric/driver.h"

namespace rrdk::fabric {

std::span<const Driver* const> drivers() {
  static constexpr std::array<const Driver*, 2> kDrivers = {&shm::kDriver, &iwarp::kDriver};
  return kDrivers;
}

Result<const Driver*> find_driver(std::string_view uri) {
  const std::string_view scheme = uri.substr(0, uri.find(':'));
  std::string known;
  for (const Driver* driver : drivers()) {
    if (scheme.size() < uri.size() && driver->scheme == scheme)
      return driver;
    known += (known.empty() ? "" : ", ") + std::string(driver->scheme) + ":";
  }
  return fail(Errc::kBadUri,
              std::string(uri) + ": no driver for such an address; there are " + known);
}

}  // namespace rrdk::fabric
