#include "service_manager.h"

#ifdef RRDK_HAS_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kAgainNs = 100'000'000;  // if a core has made no pass

void tell([[maybe_unused]] const std::string& state) {
#ifdef RRDK_HAS_SYSTEMD
  sd_notify(0, state.c_str());
#endif
}

// Returns the watchdog's interval, or 0 without a watchdog.
uint64_t watchdog_us() {
  uint64_t time_us = 0;
#ifdef RRDK_HAS_SYSTEMD
  if (sd_watchdog_enabled(0, &time_us) <= 0)
    return 0;
#endif
  return time_us;
}

}  // namespace

ServiceManager::ServiceManager(const Runtime& runtime)
    : runtime_(runtime), every_ns_(watchdog_us() * 1000 / 2), passes_(runtime.num_cores()) {}

void ServiceManager::ready(const std::string& uri) {
  tell("READY=1\nSTATUS=listening on " + uri);
}

void ServiceManager::stopping() {
  tell("STOPPING=1\nSTATUS=draining");
}

void ServiceManager::tell_if_alive() {
  bool all_alive = true;
  std::vector<uint64_t> now(passes_.size());
  for (uint32_t core = 0; core < now.size(); ++core) {
    now[core] = runtime_.stats(core)[Counter::kPasses];
    all_alive = all_alive && now[core] != passes_[core];
  }
  next_ns_ = Runtime::now_ns() + (all_alive ? every_ns_ : kAgainNs);
  if (!all_alive)
    return;
  passes_ = now;
  tell("WATCHDOG=1");
}

}  // namespace rrdk::testrpc
