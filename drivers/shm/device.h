// The shm device: listeners, connections and their events, and the regions of its Memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/common/device.h"
#include "drivers/shm/counters.h"
#include "drivers/shm/handshake.h"
#include "drivers/shm/mapping.h"
#include "fabric/device.h"
#include "mem/regions.h"

namespace rrdk::shm {

using drivers::Clock;
using drivers::Endpoint;

// A peer that has not shown within this time that it speaks our protocol is none.
constexpr std::chrono::seconds kHelloTimeout{3};
// A server that does speak it may take this long to accept.
constexpr std::chrono::seconds kAcceptTimeout{30};
// An access by an honest peer is a copy of at most a message; it can be preempted in the middle.
constexpr std::chrono::seconds kAccessTimeout{2};
// What a socket may have us do before others have their turn; epoll reports the rest again.
constexpr uint32_t kPacketsAtOnce = 8;

class Visitor;

// A region of the device's memory. Ids of regions are used again, wire ids are not: a peer that has
// not yet read of the end of one can not take another for it.
struct OwnRegion {
  mem::Region region;
  WireId wire_id;
};

class Device final : public drivers::SoftwareDevice, private mem::RegionListener {
 public:
  static Result<std::unique_ptr<fabric::Device>> open(Memory& memory, std::string_view uri);
  ~Device() override;

  Result<std::unique_ptr<fabric::CompletionQueue>> create_completion_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<std::unique_ptr<fabric::Listener>> listen(const std::string& uri) override;
  Result<void> connect(fabric::QueuePair& qp, const std::string& uri,
                       std::span<const std::byte> private_data) override;
  std::vector<fabric::Counter> counters() const override;

  // --- for queue pairs, any thread ---
  uint64_t region_generation() const noexcept {
    return region_generation_.load(std::memory_order_acquire);
  }
  std::vector<OwnRegion> regions() const;
  MappingCache& mappings() { return mappings_; }
  Counters& counts() { return counts_; }

  // --- for listeners, under the control loop's lock ---
  std::list<Visitor*>& visitors() { return visitors_; }  // oldest first

 private:
  explicit Device(Memory& memory);
  void region_added(const mem::Region& region) override;
  void region_removed(const mem::Region& region) override;

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
