// What went wrong or slow, by reason. Shared by a device's threads; touched only when it happens.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::shm {

struct Counters {
  using Count = std::atomic<uint64_t>;
  Count rnr_waits{0};           // messages that found no Receive posted
  Count doorbells{0};           // rung for peers that were not polling
  Count handshakes_refused{0};  // peers that are none, or whose memory was refused
  Count other_versions{0};      // peers of another version of the protocol
  Count visitors_dropped{0};    // made room for others, while they had not sent their request
  Count visitors_refused{0};    // of a user whose descriptors take too long to close
  Count accept_failures{0};     // the system had nothing left for another connection
  Count broken_sockets{0};      // told us what no honest peer tells, once connected
  Count too_much_memory{0};     // more of a peer's memory than may be mapped (?peer_memory=)
  Count stuck_readers{0};       // did not let go of a key that was taken from them
  Count bad_wake_ups{0};        // wake-up sockets with what no honest peer sends
  Count peers_lost{0};          // sockets that ended without a close
  Count messages_too_long{0};   // did not fit the Receive
  Count bad_slots{0};           // ring slots that no honest peer writes
  Count bad_regions{0};         // pieces of messages outside the peer's regions
  Count bad_consumed{0};        // consumed counts that no honest peer writes
  Count bad_invalidations{0};   // Send-with-Invalidate of a key that is not alive
  Count refused_keys{0};        // Reads and Writes with a dead or unknown key
  Count refused_rights{0};      // against the key's rights
  Count refused_bounds{0};      // outside the key's bytes
  Count bad_keys{0};            // keys whose memory the peer does not have
  Count local_protection{0};    // our requests outside our regions

  static void count(Count& c) noexcept { c.fetch_add(1, std::memory_order_relaxed); }
};

}  // namespace rrdk::shm
