// What a running testrpc tells of itself: by DPDK's telemetry, and by HTTP with --metrics.
#pragma once

#include <memory>
#include <string>

#include "metrics_server.h"
#include "rrdk/telemetry.h"

namespace rrdk::testrpc {

struct Telling {
  std::unique_ptr<Telemetry> telemetry;
  std::unique_ptr<apps::MetricsServer> metrics;  // asks the former

  // `address`: of --metrics; empty: not by HTTP.
  static Result<Telling> start(const TelemetrySources& sources, const std::string& address);
};

}  // namespace rrdk::testrpc
