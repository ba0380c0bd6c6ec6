#include "telling.h"

#include <cstdio>

#include "stop.h"

namespace rrdk::testrpc {

Result<Telling> Telling::start(const TelemetrySources& sources, const std::string& address) {
  Telling telling;
  Result<std::unique_ptr<Telemetry>> telemetry = Telemetry::create("testrpc", sources);
  if (!telemetry)
    return tl::unexpected(telemetry.error());
  telling.telemetry = std::move(*telemetry);
  if (address.empty())
    return telling;
  const EndsAtOnce starting("metrics start");  // may look up a name
  Result<std::unique_ptr<apps::MetricsServer>> metrics =
      apps::MetricsServer::start(address, *telling.telemetry);
  if (!metrics)
    return tl::unexpected(metrics.error());
  telling.metrics = std::move(*metrics);
  std::printf("metrics at %s\n", telling.metrics->url().c_str());
  std::fflush(stdout);
  return telling;
}

}  // namespace rrdk::testrpc
