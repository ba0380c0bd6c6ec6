// One connection on its poll core: the engine, the queue pair under it, and hooks for the layer
// above. Its end is a state machine; nothing is freed while the fabric or a call still refers to
// it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/assert.h"
#include "base/log.h"
#include "base/prefetch_datapath.h"
#include "engine/connection.h"
#include "fabric/device.h"
#include "fabric/lane.h"
#include "fabric/tap.h"
#include "observe/capture.h"
#include "rrdk/connection.h"
#include "rrdk/counters.h"
#include "rrdk/version2.h"
#include "runtime/open_device.h"
#include "runtime/work.h"

namespace rrdk::runtime {

class PollCore;
struct CoreClient;  // fair_share.h
struct SharedReceives;

// The state of a link, and what it waits for.
enum class LinkState : uint8_t {
  kNew,         // waits for connect() or accept()
  kConnecting,  // waits for the fabric's kEstablished, kRejected or kConnectFailed
  kUp,          // calls run
  kClosing,     // waits for the fabric's last event
  kFlushing,    // waits for every posted request; some may still be replies
  kLeaving,     // waits for the calls above
  kDead,        // engine and queue pair are gone
};

// Logs a connection's end, in the same form at both ends. `whose` is "of" or "to", and the
// connection's name. There is no limit if `limit` is null.
void log_ending(LogLevel level, base::LogLimit* limit, const std::string& whose,
                const Ending& ending, const char* more = "");

// Which of the two has the core to itself, as shown by completions of others in between.
enum class Exclusive : uint8_t { kNone, kClient, kConnection };

// Returns `options` limited to what the device can do.
engine::ConnectionOptions fitted_to(const fabric::Capabilities& can,
                                    const engine::ConnectionOptions& options);

// The options of the engines of one server, or of one client, over each device. They are made when
// a device has its first connection. They must outlive all connections that were made with them,
// including closing ones, so their owner waits for these.
//
// Any thread.
class EngineOptions {
 public:
  // `wanted` returns the options that do not depend on the device. They must be the same each time,
  // except for the version that a requester speaks.
  template <typename Wanted>
  const engine::SharedOptions& over(const OpenDevice& device, engine::Speaks speaks,
                                    Wanted&& wanted) {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : entries_) {
      if (entry.device == &device && entry.options->speaks == speaks)
        return entry.options;
    }
    return entries_.emplace_back(&device, fitted_to(device.capabilities(), wanted())).options;
  }

 private:
  struct Entry {
    Entry(const OpenDevice* of, const engine::ConnectionOptions& fitted)
        : device(of), options(fitted) {}
    const OpenDevice* device;
    engine::SharedOptions options;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

// Returns whether connections with that many initial credits share their core's Receives.
bool shares_receives(const fabric::Capabilities& can, uint32_t first_credits) noexcept;

// All functions run on the core's thread, except core().
class Link {
 public:
  // A link that will connect.
  Link(PollCore& core, OpenDevice& device);
  // A link that will accept `peer`, a connection of `client`, which must outlive it.
  Link(PollCore& core, OpenDevice& device, Peer peer, CoreClient& client);
  virtual ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  PollCore& core() const noexcept { return core_; }
  OpenDevice& device() const noexcept { return device_; }
  CoreClient& core_client() const noexcept { return client_; }
  uint64_t id() const noexcept { return id_; }  // unique in this process, never reused
  observe::CapturedConnection captured() const noexcept { return {id_, peer_, !accepting_}; }
  LinkState state() const noexcept { return state_; }
  // Whether nothing that is sent will reach the peer any more. Any thread.
  bool is_over() const noexcept { return is_over_.load(std::memory_order_relaxed); }
  // From connect() or accept() until on_dead().
  engine::Connection& engine() noexcept {
    RRDK_ASSERT(engine_.has_value(), state_);
    return *engine_;
  }
  // Any thread: the engine's counters, also after it is gone.
  engine::Counters counters() const;
  uint32_t window() const;  // a requester's
  // Its transport properties; zeros when the engine is gone.
  struct ReceiveSizes {
    uint32_t own = 0, peer = 0;
  };
  ReceiveSizes receive_sizes() const;
  // The other end; for a link that connects, from on_up() on. The name is for messages: for a link
  // that connects, it is the address that was given.
  const Peer& peer() const noexcept { return peer_; }
  const std::string& peer_name() const noexcept { return peer_name_; }
  // Any thread.
  ConnectionInfo info() const;

  // Either begins to establish the connection. After an error the link still proceeds to on_dead()
  // (posted Receives come back through the completion queue first), unless state() is kNew. `name`
  // is what messages call the peer. `options` must be those over the link's device; the link
  // completes `own` with what belongs to its core.
  Result<void> connect(const std::string& name, const fabric::Place& place,
                       const engine::SharedOptions& options, const engine::PerConnection& own,
                       Memory& memory, engine::Upcalls& upcalls);
  Result<void> accept(fabric::ConnectRequest& request, const engine::SharedOptions& options,
                      const engine::PerConnection& own, Memory& memory, engine::Upcalls& upcalls);
  // Begins to close the connection, from any state but kNew: nothing more is sent. The first ending
  // that says which end closed it becomes that of the connection; without one, the link waits for
  // completions and the fabric's last event.
  void close(const Ending& ending);

  // Called by the poll core.
  void on_event(const fabric::Event& event);
  void on_completions(std::span<const fabric::Completion> completions, Exclusive exclusive);
  // With thousands of connections, none is in the caches when its completions are handled. So what
  // the handling will touch is fetched while others are served: first this object, then what it
  // refers to.
  void prefetch() const noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
    static_assert(offsetof(Link, engine_) <= 128);
#pragma GCC diagnostic pop
    base::prefetch_lines(this, &engine_);
  }
  void prefetch_engine() const noexcept { engine_->prefetch(); }
  // Posts what the engine made, as far as it fits. Returns false if something is left.
  bool post();
  void tick(uint64_t now_ns) {
    on_tick(now_ns);
    engine_->on_tick(now_ns);
  }
  bool needs_tick() const { return engine_->busy() || always_ticks_ || wants_close(); }
  // No tick is needed before this time unless something else happens first; 0: the next tick is
  // needed. O(credits): for a core that goes to sleep.
  uint64_t quiet_until() const {
    return wants_close() ? 0 : std::min(quiet_above(), engine_->quiet_until());
  }
  bool wants_close() const { return state_ == LinkState::kUp && engine_->wants_disconnect(); }
  // If wants_close(): false while it drains and the peer has still to take what was written to it
  // in the lane, since the memory of results is in use until then. Bounded, as for replies.
  bool may_close() noexcept;
  // What the peer has not taken of what was sent in the lane, whether a tap is in place now or not.
  fabric::Lane::Untaken untaken() noexcept;
  void give_up() {  // wants_close()
    RRDK_ASSERT(wants_close(), state_);
    close(engine_->ending());
  }
  // Sets the user that takes short messages from the driver's lane (fabric/lane.h) while no tap is
  // in place. Null removes it.
  void set_lane_user(fabric::LaneUser* user) {
    lane_user_ = user;
    if (port_ == queue_pair_.get())
      queue_pair_->set_lane_user(user);
  }
  // Whether the lane may be used: the link is up, and no tap is in place.
  bool lane_open() const noexcept { return state_ == LinkState::kUp && port_ == queue_pair_.get(); }
  // Null if the driver has no lane, or if it may not be used now.
  fabric::Lane* lane() const noexcept { return lane_open() ? queue_pair_->lane() : nullptr; }
  // Called when its user has sent something outside a call by the driver.
  void on_sent_in_lane() noexcept;
  // Notes a burst of replies in the lane; nothing is served for them.
  void note_replies() noexcept;
  // Whether something is in flight without ticks coming.
  bool lacks_ticks() const noexcept { return !ticking_; }
  // Called when a burst of messages in the lane begins.
  void begin_turn() noexcept;
  // From now on posting goes through the tap, until untap().
  void tap(fabric::Tap& tap);
  void untap() noexcept;
  void break_queue_pair() { queue_pair_->disconnect(); }  // as a failed request does
  // Starts calls that wait, as far as the allowances permit.
  void start_waiting_calls();
  bool backlogged() const { return engine_->responder().backlogged(); }
  bool fabric_is_down() const { return state_ >= LinkState::kFlushing; }
  // If fabric_is_down(): ends the engine when everything that it posted has come back, and destroys
  // the link's parts when nothing is left to do.
  void finish_close();

 protected:
  // Called when calls can be made.
  virtual void on_up() = 0;
  // Called once when the link begins to close, from any state, and the reason is known.
  virtual void on_down(const Ending& ending) = 0;
  // Called about every millisecond while calls are in flight, or if always_ticks_, before the
  // engine's on_tick().
  virtual void on_tick(uint64_t) {}
  // Like quiet_until(), for what the engine does not know.
  virtual uint64_t quiet_above() const { return UINT64_MAX; }
  // Called when a closing link delivers no further call: those that are above are the last. May be
  // called again.
  virtual void on_last_call() {}
  // Called when the engine has finished; the engine is still there for the last time.
  virtual void on_finished() {}
  // Called when nothing refers to the link any more; may delete it.
  virtual void on_dead() = 0;

  // Requests ticks also without calls in flight, from on_up() to on_down().
  void set_always_ticks(bool on) noexcept { always_ticks_ = on; }

  // Why the link has ended, or cannot come up.
  const Ending& ending() const noexcept;
  // The first one counts.
  void note_ending(const Ending& ending);
  bool was_up() const noexcept { return was_up_; }

 private:
  // A completion that takes longer than kLongNs takes long; then the doorbell rings every kPostNs.
  static constexpr size_t kCompletionsAtOnce = 8;
  static constexpr uint64_t kLongNs = 1'000;
  static constexpr uint64_t kPostNs = 60'000;
  void on_many_completions(std::span<const fabric::Completion> completions);
  friend class PollCore;
  friend class Turns;
  friend struct CoreClient;

  // Also decides which Receives the link uses.
  Result<fabric::QueuePairOptions> queue_pair_options(const engine::ConnectionOptions& options,
                                                      Memory& memory);
  Result<void> prepare(std::unique_ptr<fabric::QueuePair> queue_pair,
                       const engine::SharedOptions& options, const engine::PerConnection& own,
                       Memory& memory, engine::Upcalls& upcalls);
  void hold_back() {
    if (engine_->holds_back() != held_back_) [[unlikely]]
      hold_back(!held_back_);
  }
  void hold_back(bool hold);
  void establish(const proto::PrivateData& peer);
  void on_established();
  void on_fabric_down(const Ending& ending);
  void settle_ending(const Ending& ending);
  void catch_up();  // takes the turns that it was owed
  void destroy();   // frees engine and queue pair; calls on_dead() last

  static uint64_t new_id() noexcept;

  // What every pass with a message touches comes first.
  PollCore& core_;
  CoreClient& client_;
  fabric::QueuePair* port_ = nullptr;  // where sends are posted: the queue pair, or its tap
  std::unique_ptr<fabric::QueuePair> queue_pair_;  // outlives the engine, which uses its keys
  // When something was last sent or received, by the core's clock. Any thread reads it.
  std::atomic<uint64_t> active_ns_ = 0;
  std::atomic<bool> is_over_ = false;  // it was up, or about to be; any thread reads it, too
  Link* next_dirty_ = nullptr;
  LinkState state_ = LinkState::kNew;
  bool dirty_ = false;          // in the core's list of links to post for
  bool ticking_ = false;        // in the core's list of links that need ticks
  bool waits_turn_ = false;     // in CoreClient::links
  bool held_back_ = false;      // what the queue pair was told
  bool works_long_ = false;     // its last completions took long
  bool ending_posted_ = false;  // the core has a task for the next step of its end
  bool always_ticks_ = false;
  bool was_up_ = false;
  const bool accepting_ = false;
  uint64_t round_ = 0;         // its client's round in which it last had its turn
  Link* next_turn_ = nullptr;  // the next one in CoreClient::links
  fabric::LaneUser* lane_user_ = nullptr;
  SharedReceives* shared_receives_ = nullptr;  // null: Receives of its own
  OpenDevice& device_;
  const uint64_t id_ = new_id();
  std::optional<engine::Connection> engine_;  // created and destroyed under engine_mutex_

  proto::PrivateData accepted_;  // accepting side: what the peer said about itself
  std::string peer_name_;
  std::unique_ptr<fabric::TappedQueuePair> tapped_;  // null until it is needed
  // protects, for other threads, what is created or destroyed: the engine and
  mutable std::mutex engine_mutex_;
  std::unique_ptr<const engine::Counters> last_counters_;  // when engine_ is gone
  std::unique_ptr<const Ending> ending_;  // null: it has not ended, or the reason is not known
  // The fabric's, used if no completion says more; kFlushing.
  std::unique_ptr<const Ending> last_word_;
  Peer peer_;
  uint64_t drained_ns_ = 0;  // when it was first seen to have drained; 0: not yet
  uint64_t since_ns_ = 0;    // when it was accepted or established; 0: not yet

 protected:
  WorkerQueue for_workers;  // calls that wait for a worker
};

static_assert(sizeof(Link) - sizeof(engine::Connection) <= 520);

// Requests for another Receive Buffer Size at the peer, as a program makes them on a connection of
// either role, and their outcomes (rrdk/version2.h).
class SizeRequests {
 public:
  // Any thread: counts a request.
  void ask() noexcept { asked_.fetch_add(1, std::memory_order_relaxed); }
  // The core: counts a request that ended without a message to the peer.
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  // Any thread. `counted` is the connection's, for all its links.
  rrdk::ReceiveSizes report(const Link::ReceiveSizes& now, const Stats& counted) const {
    const uint64_t refused = refused_.load(std::memory_order_relaxed);
    return {.own = now.own,
            .peer = now.peer,
            .asked = asked_.load(std::memory_order_relaxed),
            .ended = counted[Counter::kSizeRequestsEnded] + refused,
            .refused = counted[Counter::kSizeRequestsRefused] + refused,
            .own_changes = counted[Counter::kReceiveSizeChanges],
            .peer_changes = counted[Counter::kPeerReceiveSizeChanges]};
  }

 private:
  std::atomic<uint64_t> asked_ = 0;
  std::atomic<uint64_t> refused_ = 0;
};

}  // namespace rrdk::runtime
