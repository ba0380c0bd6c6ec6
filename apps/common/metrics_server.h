// Serves metrics by HTTP, for Prometheus and other scrapers.
#pragma once

#include <memory>
#include <string>

#include "rrdk/error.h"
#include "rrdk/telemetry.h"

namespace rrdk::apps {

// One thread with few connections at a time, each for one request and for a short while. A further
// connection replaces the oldest one that waits for its request, so that silent or slow peers,
// however many, do not delay a scrape.
class MetricsServer {
 public:
  // Serves /metrics at `address`: "PORT" on the loopback interface, or "HOST:PORT"; port 0 is any
  // free port. A host name is served at all its addresses. The Telemetry outlives the server.
  // Errors: kBadUri (not an address), kSystem (listening failed).
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      const Telemetry& telemetry);
  // Errors: kBadUri (not an address).
  static Result<void> check(const std::string& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  const std::string& url() const;  // with the port that the system chose

 private:
  class Loop;
  explicit MetricsServer(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace rrdk::apps
