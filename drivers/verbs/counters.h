// What went wrong or slow, by reason. Shared by a device's threads; touched only when it happens.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::verbs {

struct Counters {
  using Count = std::atomic<uint64_t>;
  Count connects_failed{0};
  Count connects_rejected{0};
  Count requests_refused{0};    // peers that asked through another device, or too late
  Count local_protection{0};    // our requests outside our regions
  Count request_errors{0};      // completions with an error that no flush explains
  Count access_errors{0};       // asynchronous events: the device refused a peer's access
  Count queue_pair_errors{0};   // and its other troubles with queue pairs
  Count immediates_refused{0};  // Writes with immediate data, which no peer of ours sends
  Count reads_denied{0};        // Reads of ours, of a peer that serves none
  Count port_changes{0};
  Count devices_lost{0};          // removals and fatal errors
  Count addresses_changed{0};     // connections that ended for that
  Count keys_by_registration{0};  // the fallback of devices without memory windows
  Count sinks_registered{0};      // of Reads, one each, over iWARP
  Count registrations_failed{0};
  Count windows_refused{0};  // memory windows that the device did not have
  Count pokes{0};            // Writes of nothing, to a peer that may not have looked
  Count forced_flushes{0};   // queue pairs that did not report all their requests by themselves

  static void count(Count& c) noexcept { c.fetch_add(1, std::memory_order_relaxed); }
};

}  // namespace rrdk::verbs
