// A text by HTTP, for Prometheus and whoever else scrapes metrics.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rrdk/error.h"

struct mg_context;  // civetweb's

namespace rrdk::apps {

class MetricsServer {
 public:
  // Serves /metrics at `address`: "PORT", of the loopback interface, or "HOST:PORT"; port 0: any
  // that is free. `text` runs on threads of the server's. Errors: kBadUri (an address that
  // is none), kSystem (it can not be listened at), kUnsupported (built without civetweb).
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      std::function<std::string()> text);
  ~MetricsServer();  // waits for answers that are being made
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  const std::string& url() const { return url_; }  // with the port that the system chose

 private:
  explicit MetricsServer(std::function<std::string()> text) : text_(std::move(text)) {}
  bool listen(const std::string& host, const std::string& port);

  const std::function<std::string()> text_;
  std::string url_;
  mg_context* context_ = nullptr;
};

}  // namespace rrdk::apps
