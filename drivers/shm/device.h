// The shm device, and its counters.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/common/device.h"
#include "drivers/shm/handshake.h"
#include "drivers/shm/mapping.h"
#include "fabric/device.h"
#include "mem/regions.h"

namespace rrdk::shm {

// What failed or was slow, by reason. Shared by a device's threads; touched only when it happens.
struct Counters {
  using Count = std::atomic<uint64_t>;
  Count rnr_waits{0};           // messages that found no Receive posted
  Count doorbells{0};           // rung for peers that were not polling
  Count handshakes_refused{0};  // processes that are not peers, or whose memory was refused
  Count other_versions{0};      // peers with another version of the protocol
  Count visitors_dropped{0};    // closed for others before they had sent their request
  Count visitors_refused{0};    // of a user whose descriptors take too long to close
  Count accept_failures{0};     // the system had no resources for another connection
  Count broken_sockets{0};      // sent what no honest peer sends, once connected
  Count no_descriptors{0};      // regions of peers for which this process had no descriptor left
  Count too_much_memory{0};     // more of a peer's memory than may be mapped (?peer_memory=)
  Count not_mapped{0};          // regions of peers that the system did not map for us
  Count stuck_readers{0};       // peers that kept using a key that was taken from them
  Count bad_wake_ups{0};        // wake-up sockets with contents that no honest peer sends
  Count peers_lost{0};          // sockets that ended without a close
  Count messages_too_long{0};   // did not fit the Receive
  Count bad_slots{0};           // ring slots that no honest peer writes
  Count bad_regions{0};         // pieces of messages outside the peer's regions
  Count bad_consumed{0};        // consumed counts that no honest peer writes
  Count bad_invalidations{0};   // Send-with-Invalidate of an invalid key
  Count refused_keys{0};        // Reads and Writes with an invalid or unknown key
  Count refused_rights{0};      // against the key's rights
  Count refused_bounds{0};      // outside the key's bytes
  Count bad_keys{0};            // keys whose memory the peer does not have
  Count local_protection{0};    // requests of ours outside our regions

  static void count(Count& c) noexcept { c.fetch_add(1, std::memory_order_relaxed); }
};

using drivers::Clock;
using drivers::Endpoint;

// A process that does not show within this time that it speaks our protocol is not a peer.
constexpr std::chrono::seconds kHelloTimeout{3};
// An access by an honest peer is a copy of at most one message; it can be preempted in the middle.
constexpr std::chrono::seconds kAccessTimeout{2};
// Packets that one socket may have handled before others have their turn; epoll reports the rest
// again.
constexpr uint32_t kPacketsAtOnce = 8;

class Visitor;

// A region of the device's memory. Ids of regions are reused; wire ids are not, so a peer that has
// not yet read about the end of one cannot take another for it.
struct OwnRegion {
  mem::Region region;
  WireId wire_id;
  // Bytes that peers are shown: those that have their pages.
  uint64_t shown() const noexcept { return std::min<uint64_t>(region.filled, region.length); }
};

class Device final : public drivers::SoftwareDevice, private mem::RegionListener {
 public:
  static Result<std::unique_ptr<fabric::Device>> open(Memory& memory, std::string_view uri,
                                                      fabric::Purpose purpose);
  ~Device() override;

  Result<std::unique_ptr<fabric::CompletionQueue>> create_completion_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<std::unique_ptr<fabric::Listener>> listen(const fabric::Place& place) override;
  Result<void> connect(fabric::QueuePair& qp, const fabric::Place& place,
                       std::span<const std::byte> private_data) override;
  std::vector<fabric::Counter> counters() const override;

  // --- for queue pairs, any thread ---
  uint64_t region_generation() const noexcept {
    return region_generation_.load(std::memory_order_acquire);
  }
  std::vector<OwnRegion> regions() const;
  bool holds(const MemorySpan& span) const noexcept;  // in a region of ours
  MappingCache& mappings() { return mappings_; }
  Counters& counts() { return counts_; }

  // --- for listeners, under the control loop's lock ---
  std::list<Visitor*>& visitors() { return visitors_; }  // oldest first

 private:
  explicit Device(Memory& memory);
  void region_added(const mem::Region& region) override;
  void region_removed(const mem::Region& region) override;
  void region_filled(const mem::Region& region) override;

  Memory& memory_;
  Counters counts_;
  MappingCache mappings_;
  std::list<Visitor*> visitors_;

  mutable std::mutex regions_mutex_;
  std::vector<OwnRegion> regions_;
  WireId next_wire_id_ = 0;
  std::atomic<uint64_t> region_generation_{1};
};

}  // namespace rrdk::shm
