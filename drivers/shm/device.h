// The shm device: listeners, connections and their events, and the regions of its Memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "drivers/shm/counters.h"
#include "drivers/shm/handshake.h"
#include "drivers/shm/mapping.h"
#include "fabric/device.h"
#include "mem/region.h"

namespace rrdk::shm {

using Clock = std::chrono::steady_clock;

// A peer that has not shown within this time that it speaks our protocol is none.
constexpr std::chrono::seconds kHelloTimeout{3};
// A server that does speak it may take this long to accept.
constexpr std::chrono::seconds kAcceptTimeout{30};
// An access by an honest peer is a copy of at most a message; it can be preempted in the middle.
constexpr std::chrono::seconds kAccessTimeout{2};
constexpr std::chrono::milliseconds kTick{20};
// What a socket may have us do before others have their turn; epoll reports the rest again.
constexpr uint32_t kPacketsAtOnce = 8;

// Something with a socket in the device's epoll set. Called with the device's lock held.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void on_ready() = 0;
  virtual void on_tick(Clock::time_point now) = 0;
};

// A region of the device's memory. Ids of regions are used again, wire ids are not: a peer that has
// not yet read of the end of one can not take another for it.
struct OwnRegion {
  mem::Region region;
  WireId wire_id;
};

class Device final : public fabric::Device, private mem::RegionListener {
 public:
  static Result<std::unique_ptr<fabric::Device>> open(Memory& memory, std::string_view uri);
  ~Device() override;

  const fabric::Capabilities& capabilities() const override;
  Result<std::unique_ptr<fabric::CompletionQueue>> create_completion_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::SharedReceiveQueue>> create_shared_receive_queue(
      uint32_t entries) override;
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override;
  Result<std::unique_ptr<fabric::Listener>> listen(const std::string& uri) override;
  Result<void> connect(fabric::QueuePair& qp, const std::string& uri,
                       std::span<const std::byte> private_data) override;
  std::vector<fabric::Event> poll_events(uint32_t most) override;
  int event_fd() const override { return epoll_.get(); }
  std::vector<fabric::Counter> counters() const override;

  // --- for endpoints. The lock is recursive, since the end of one endpoint can come of another's
  // call. ---
  std::recursive_mutex& mutex() { return mutex_; }
  Result<void> watch(Endpoint& endpoint, int socket);
  // From now on only the end of the socket is reported.
  void watch_end(Endpoint& endpoint, int socket);
  void unwatch(int socket);
  // Whether on_tick() is called every kTick.
  void set_ticking(Endpoint& endpoint, bool on);
  // The endpoint is going away: its undelivered events go with it.
  void forget(Endpoint& endpoint);
  void emit(Endpoint& source, fabric::Event event);
  // Any thread: makes poll_events() tick `endpoint` soon.
  void nudge(Endpoint& endpoint) noexcept;

  // A peer that has connected and not yet said what it wants; the device's until it has.
  void adopt(std::unique_ptr<Endpoint> endpoint);
  std::unique_ptr<Endpoint> release(Endpoint& endpoint);
  size_t num_adopted() const { return adopted_.size(); }
  template <typename Which>
  void release_if(Which which) {
    std::erase_if(adopted_, [&](const auto& endpoint) { return which(*endpoint); });
  }

  // --- for queue pairs, any thread ---
  uint64_t region_generation() const noexcept {
    return region_generation_.load(std::memory_order_acquire);
  }
  std::vector<OwnRegion> regions() const;
  MappingCache& mappings() { return mappings_; }
  Counters& counts() { return counts_; }

 private:
  explicit Device(Memory& memory) : memory_(memory) {}
  Result<void> start();
  void region_added(const mem::Region& region) override;
  void region_removed(const mem::Region& region) override;
  void dispatch();
  void tick();
  void update_readiness();

  Memory& memory_;
  Fd epoll_;
  Fd timer_;   // runs while an endpoint ticks
  Fd nudges_;  // eventfd: readable while events wait, or after a nudge
  Counters counts_;
  MappingCache mappings_;

  mutable std::mutex regions_mutex_;
  std::vector<OwnRegion> regions_;
  WireId next_wire_id_ = 0;
  std::atomic<uint64_t> region_generation_{1};

  std::recursive_mutex mutex_;
  // By an id that is never reused: epoll may still report an endpoint that has just gone.
  std::unordered_map<uint64_t, Endpoint*> endpoints_;
  uint64_t next_id_ = kFirstId;
  std::set<Endpoint*> ticking_;
  std::mutex nudged_mutex_;
  std::vector<Endpoint*> nudged_;  // to tick, as other threads asked
  std::vector<std::unique_ptr<Endpoint>> adopted_;
  struct PendingEvent {
    Endpoint* source;
    fabric::Event event;
  };
  std::deque<PendingEvent> events_;

  // Ids in the epoll set that are no endpoints'.
  static constexpr uint64_t kTimerId = 0;
  static constexpr uint64_t kNudgeId = 1;
  static constexpr uint64_t kFirstId = 2;
};

}  // namespace rrdk::shm
