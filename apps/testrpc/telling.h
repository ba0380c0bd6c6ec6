// Makes a running testrpc observable: by DPDK's telemetry, and by HTTP with --metrics.
#pragma once

#include <memory>
#include <string>

#include "metrics_server.h"
#include "rrdk/telemetry.h"

namespace rrdk::testrpc {

struct Telling {
  std::unique_ptr<Telemetry> telemetry;
  std::unique_ptr<apps::MetricsServer> metrics;  // uses the telemetry

  // `address` is that of --metrics; empty: no HTTP.
  static Result<Telling> start(const TelemetrySources& sources, const std::string& address);
};

}  // namespace rrdk::testrpc
