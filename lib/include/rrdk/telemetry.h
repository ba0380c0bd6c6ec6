/**
 * Metrics of a running process (counters, connections, procedures and buffers), by DPDK's telemetry
 * socket and in the text format of OpenMetrics. Both read the same counters; doc/telemetry.md lists
 * all metrics, and says how to read them.
 *
 *   auto telemetry = rrdk::must(rrdk::Telemetry::create("blk", {.runtime = runtime.get(),
 *                                                               .servers = {server.get()}}));
 *   rrdk::MetricsAnswer answer = telemetry->answer(accept);  // for your HTTP server
 *
 * Reading stops no poll core; a core that opens or closes a connection at that moment may wait
 * briefly.
 *
 * Commands: dpdk-telemetry.py, which comes with DPDK, then has these commands, where NAME is "blk"
 * here:
 *
 *   /rrdk/list                      the names
 *   /rrdk/metrics,NAME[,PREFIX]     counters and gauges that are not zero, 256 at most; those
 *                                   whose names begin with "server", "core", "pool"...
 *   /rrdk/procedures,NAME           names of procedures
 *   /rrdk/procedure,NAME,PLACE      one procedure, by its place in that list: calls, errors,
 *                                   bytes, percentiles
 *   /rrdk/called,NAME               names of procedures that were called at servers, and timed
 *   /rrdk/called_procedure,NAME,PLACE  one procedure: its server, percentiles
 *   /rrdk/connections,NAME[,ID]     ids of up to 256 connections from ID on, of servers and
 *                                   clients, and the next ID if there are more
 *   /rrdk/connection,NAME,ID        one connection
 *
 * The socket exists if EAL was started with telemetry. rte_eal_init() does that by default;
 * ensure_eal() only with {"--telemetry"} and EalArguments::kOverDefaults (rrdk/eal.h).
 */
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {

class Runtime;
class Server;
class ClientConnection;

/**
 * The objects that a Telemetry reports on. The times of calls that were made are those of all
 * connections of `runtime`. Each must outlive the Telemetry, which is not checked; the lists must
 * not contain null pointers. They are fixed: a program whose connections come and go makes another
 * Telemetry, and the client_... counters then begin again with the connections in it.
 */
struct TelemetrySources {
  Runtime* runtime = nullptr;  ///< its cores and its Memory; null omits these
  std::vector<Server*> servers = {};
  std::vector<ClientConnection*> clients = {};
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** All metrics, for an HTTP reader. */
struct MetricsAnswer {
  std::string text;
  const char* content_type;   ///< the header's value; a constant
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

class Telemetry {
 public:
  /**
   * `name` distinguishes it from others in the process: letters, digits, '-' and '_'. Any thread.
   * Errors: kInvalidArgument (an invalid name, or one in use; a null Server or ClientConnection).
   */
  [[nodiscard]] static Result<std::unique_ptr<Telemetry>> create(const std::string& name,
                                                                 const TelemetrySources& sources);
  /**
   * Waits for a command that is being answered. No thread may be in openmetrics() or
   * answer() any more: stop your HTTP server first. Any thread, but not in a handler or a callback.
   */
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /**
   * All metrics now, in OpenMetrics 1.0 ("application/openmetrics-text; version=1.0.0;
   * charset=utf-8"). Any thread, but not in a handler or a callback, which it would delay; best a
   * thread that does not poll.
   */
  std::string openmetrics() const;
  /**
   * As above, in the format that the reader asks for: OpenMetrics 1.0 if `accept`, the value of the
   * request's Accept header, names it, otherwise Prometheus' text format 0.0.4, which all readers
   * know.
   */
  MetricsAnswer answer(std::string_view accept) const;
  /**
   * The content type that answer() has for `accept`, a constant: one of a few. An HTTP server that
   * has several readers at once makes one answer for each. Any thread; cheap.
   */
  static const char* content_type(std::string_view accept);

  struct Impl;

 private:
  explicit Telemetry(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk
