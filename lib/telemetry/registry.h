// Who tells of what in this process, and the commands of DPDK's telemetry by which they are asked.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rrdk/telemetry.h"

namespace rrdk {

struct Telemetry::Impl {
  std::string name;
  TelemetrySources sources;
};

}  // namespace rrdk

namespace rrdk::telemetry {

// False: the name is taken.
bool enter(Telemetry::Impl& telemetry);
// Waits while somebody uses it.
void leave(Telemetry::Impl& telemetry);

std::vector<std::string> names();
// False: there is none of that name. It does not leave meanwhile.
bool use(std::string_view name, const std::function<void(const TelemetrySources&)>& user);

// Makes the commands known to DPDK, once in a process.
void register_commands();

}  // namespace rrdk::telemetry
