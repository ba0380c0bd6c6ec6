// The drivers of this build, by the scheme of the addresses that they serve.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "fabric/device.h"

namespace rrdk::fabric {

struct Driver {
  std::string_view scheme;  // "shm"
  // Opens the device for addresses of this scheme. Registers the memory's regions, now and as they
  // come and go. `memory` outlives the device.
  Result<std::unique_ptr<Device>> (*open)(Memory& memory, std::string_view uri);
};

// In drivers/registry.cc: the one list of what was built.
std::span<const Driver* const> drivers();

// Errors: kBadUri, naming the schemes there are; kUnsupported. Neither here nor in fabric::Device
// do messages repeat the address: who asked names it (base::about()). Where a name has several
// addresses, they say which of these.
Result<const Driver*> find_driver(std::string_view uri);

}  // namespace rrdk::fabric
