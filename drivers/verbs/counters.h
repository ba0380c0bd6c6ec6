// What failed or was slow, by reason. Shared by a device's threads; touched only when it happens.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::verbs {

struct Counters {
  using Count = std::atomic<uint64_t>;
  Count connects_failed{0};
  Count connects_rejected{0};
  Count requests_refused{0};    // peers that asked through another device, or too late
  Count local_protection{0};    // requests of ours outside our regions
  Count request_errors{0};      // completions with an error that no flush explains
  Count access_errors{0};       // asynchronous events: the device refused a peer's access
  Count queue_pair_errors{0};   // its other errors with queue pairs
  Count immediates_refused{0};  // Writes with immediate data, which no peer of ours sends
  Count reads_denied{0};        // Reads of ours, at a peer that serves none
  Count port_changes{0};
  Count devices_lost{0};          // removals and fatal errors
  Count addresses_changed{0};     // connections that ended for that reason
  Count keys_by_registration{0};  // the fallback of devices without memory windows
  Count sinks_registered{0};      // for Reads, one each, over iWARP
  Count registrations_failed{0};
  Count windows_refused{0};  // memory windows that the device did not have
  Count pokes{0};            // empty Writes to a peer that may not have looked
  Count forced_flushes{0};   // queue pairs that did not report all their requests by themselves

  static void count(Count& c) noexcept { c.fetch_add(1, std::memory_order_relaxed); }
};

}  // namespace rrdk::verbs
