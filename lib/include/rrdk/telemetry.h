/**
 * What a running process tells of itself: counters, connections, procedures and memory, by DPDK's
 * telemetry socket and in the text format of OpenMetrics. Both read the same snapshot, which takes
 * no lock of a poll core and stops none.
 *
 *   auto telemetry = rrdk::must(rrdk::Telemetry::create("blk", {.runtime = runtime.get(),
 *                                                               .servers = {server.get()}}));
 *   std::string text = telemetry->openmetrics();        // for whoever asks by HTTP
 *
 * dpdk-telemetry.py, which comes with DPDK, then has these commands, where NAME is "blk" here:
 *
 *   /rrdk/list                      the names
 *   /rrdk/metrics,NAME[,PREFIX]     counters and gauges that are not zero, 256 at most; those
 *                                   whose names begin with "server", "core", "pool"...
 *   /rrdk/procedures,NAME           names of procedures
 *   /rrdk/procedure,NAME,PLACE      one of them, by its place in that list: calls, errors, bytes,
 *                                   percentiles
 *   /rrdk/connections,NAME[,ID]     the ids of up to 256 connections from ID on, and the next ID
 *   /rrdk/connection,NAME,ID        one of them
 *
 * The socket is there if EAL was started with telemetry (ensure_eal() starts it without; give it
 * "--telemetry" or arguments of your own, see rrdk/eal.h).
 *
 * Names of metrics and labels are listed in doc/telemetry.md. They begin with rrdk_; counters end
 * in _total, durations are in seconds, sizes in bytes.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {

class Runtime;
class Server;
class ClientConnection;

/** What is told of. Each outlives the Telemetry. */
struct TelemetrySources {
  Runtime* runtime = nullptr;  ///< its cores and its Memory; null: nothing of these
  std::vector<Server*> servers = {};
  std::vector<ClientConnection*> clients = {};
};

class Telemetry {
 public:
  /**
   * `name` tells it from others of the process: letters, digits, '-' and '_'. Any thread. Errors:
   * kInvalidArgument (a name that is none, or is taken).
   */
  [[nodiscard]] static Result<std::unique_ptr<Telemetry>> create(const std::string& name,
                                                                 const TelemetrySources& sources);
  /** Waits for an answer that is being made. Any thread but a poll core's. */
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /**
   * All metrics now, as OpenMetrics 1.0 has them ("application/openmetrics-text; version=1.0.0;
   * charset=utf-8"). Any thread but a poll core's.
   */
  std::string openmetrics() const;

  struct Impl;

 private:
  explicit Telemetry(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk
