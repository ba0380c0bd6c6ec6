// The iwarp device, and its counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "drivers/common/device.h"
#include "drivers/iwarp/silence.h"
#include "fabric/device.h"

namespace rrdk::iwarp {

// What failed or was slow, by reason. Shared by a device's threads; touched only when it happens.
struct Counters {
  using Count = std::atomic<uint64_t>;
  Count rnr_waits{0};           // messages that found no Receive posted
  Count tcp_waits{0};           // sends that found TCP's buffer full
  Count read_waits{0};          // Reads beyond the negotiated depth
  Count handshakes_refused{0};  // requests that are not MPA's, or malformed
  Count handshakes_cut{0};      // peers that closed before their request was complete
  Count handshakes_late{0};     // requests that were not complete in time
  Count markers_refused{0};     // peers that want MPA markers, which we do not support
  Count visitors_dropped{0};    // before their requests, for newer peers
  Count partings_cut{0};        // closed without waiting for the peer: too many at once
  Count accept_failures{0};     // connections that had to wait for file descriptors or memory
  Count pokes{0};               // empty messages to a peer that may not have looked at its socket
  Count peers_lost{0};          // connections that ended without being closed
  Count terminates_sent{0};
  Count terminates_received{0};
  Count messages_too_long{0};  // did not fit the Receive
  Count bad_lengths{0};        // of a segment shorter than its header, or not matching its message
  Count bad_versions{0};       // of DDP or RDMAP
  Count bad_opcodes{0};
  Count bad_queues{0};
  Count bad_numbers{0};  // of messages
  Count bad_offsets{0};  // of segments in their message
  Count bad_crcs{0};
  Count bad_invalidations{0};  // Send with Invalidate of an invalid key
  Count read_overruns{0};      // more RDMA Reads than we agreed to serve
  Count bad_responses{0};      // Read Responses that answer no Read of ours
  Count refused_keys{0};       // Reads and Writes with an invalid or unknown key
  Count refused_rights{0};     // against the key's rights
  Count refused_bounds{0};     // outside the key's bytes
  Count reads_denied{0};       // Reads of ours at a peer that allows none
  Count local_protection{0};   // requests of ours outside our regions

  static void count(Count& c) noexcept { c.fetch_add(1, std::memory_order_relaxed); }
};

// The iwarp device: its memory, its listeners and its connections' control path.
class Device final : public drivers::SoftwareDevice {
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

  // --- for objects that it makes ---
  const Memory& memory() const { return memory_; }
  Counters& counts() { return counts_; }
  // Peers that have connected and not yet sent their whole request, and sockets that wait for their
  // peer's close; the first to come is in front. Under the control loop's lock.
  std::list<drivers::Endpoint*>& visitors() { return visitors_; }
  std::list<drivers::Endpoint*>& partings() { return partings_; }
  SilenceWatch& silence_watch() { return silence_watch_; }

 private:
  explicit Device(Memory& memory);

  Memory& memory_;
  Counters counts_;
  std::list<drivers::Endpoint*> visitors_;
  std::list<drivers::Endpoint*> partings_;
  SilenceWatch silence_watch_;
};

}  // namespace rrdk::iwarp
