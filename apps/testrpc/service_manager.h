// Notifies systemd, if it runs the server (Type=notify), that the server is ready, alive, or
// stopping. Does nothing without systemd, or in a build without libsystemd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rrdk/runtime.h"

namespace rrdk::testrpc {

class ServiceManager {
 public:
  // `runtime` outlives it.
  explicit ServiceManager(const Runtime& runtime);

  void ready(const std::string& uri);
  void stopping();
  // Must be called continually. With a watchdog (WatchdogSec=), notifies systemd twice per interval
  // that the server is alive, if each poll core has made a pass since the last notification.
  void beat() {
    if (every_ns_ != 0 && Runtime::now_ns() >= next_ns_)
      tell_if_alive();
  }

 private:
  void tell_if_alive();

  const Runtime& runtime_;
  uint64_t every_ns_ = 0;  // 0: there is no watchdog
  uint64_t next_ns_ = 0;
  std::vector<uint64_t> passes_;  // of each core, at the last notification
};

}  // namespace rrdk::testrpc
