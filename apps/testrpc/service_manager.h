// What systemd hears of a server that it runs (Type=notify): that it is ready, that it is alive,
// that it stops. Without systemd, or in a build without libsystemd, nothing is said.
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
  // To be called all the time. With a watchdog (WatchdogSec=), tells systemd twice per interval
  // that we are alive, provided that each poll core has made a pass since the last time.
  void beat() {
    if (every_ns_ != 0 && Runtime::now_ns() >= next_ns_)
      tell_if_alive();
  }

 private:
  void tell_if_alive();

  const Runtime& runtime_;
  uint64_t every_ns_ = 0;  // 0: there is no watchdog
  uint64_t next_ns_ = 0;
  std::vector<uint64_t> passes_;  // of each core, when it was told last
};

}  // namespace rrdk::testrpc
