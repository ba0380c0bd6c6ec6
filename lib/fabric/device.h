// The provider interface: what all drivers have in common, and nothing else. A Device is opened
// once per Memory and scheme; it makes completion queues, queue pairs and listeners.
//
// Threads: Device and Listener functions are the control path; the caller must serialise them. A
// CompletionQueue and all queue pairs on it belong to one thread, that of the poll core. Exceptions
// are noted at the functions.
//
// Lifetime: Memory > Device > {CompletionQueue, SharedReceiveQueue} > QueuePair. Destroying a queue
// pair drops its completions that were not polled. The owner of buffers that are named in wr_ids
// takes them back first: it calls disconnect() and polls until every posted request has been
// reported, and with a shared receive queue until holds_receive() is false.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/budget.h"
#include "fabric/work.h"
#include "rrdk/connection.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::fabric {

// Private data that a driver must carry at connection set-up, in each direction.
constexpr uint32_t kMaxPrivateData = 56;

struct Capabilities {
  uint32_t max_sges;             // per Send or Write
  uint32_t max_inline;           // Sends up to this size may complete before the peer has them
  uint32_t max_copied;           // Sends up to this size can be posted as SendWr::copied; 0: none
  bool reads_at_once;            // QueuePair::read_now() can succeed
  uint32_t max_send_wrs;         // per queue pair
  uint32_t max_receive_wrs;      // per queue pair
  uint32_t max_shared_receives;  // per shared receive queue; 0: none
  uint32_t max_reads;            // RDMA Reads in flight per queue pair (ORD and IRD)
  uint32_t max_keys;             // remote keys of one queue pair
  uint64_t max_message;          // bytes of one Read or Write
  bool sends_invalidations;      // kSendInvalidate can be posted
  bool takes_invalidations;      // the peer may invalidate our keys so; completions report it
  // A Send or Write that the peer refuses fails with its own completion. Otherwise (iWARP) it
  // completes when its memory may be used again, and the peer's refusal ends the connection.
  bool acknowledges;
  // The peer's processor reads in place what is named to the peer, by keys or in Writes.
  bool read_by_peer = false;
  uint32_t max_read_sges = kMaxSges;  // per Read
  // The largest Read with which a slow peer's progress is still visible. If read_bytes() does not
  // count bytes as they arrive, Reads must be short, and each complete Read shows its own bytes.
  uint32_t max_read_bytes = UINT32_MAX;
  // The values below are those of drivers in software. Devices differ.
  //
  // A message that finds no Receive waits for one; otherwise it ends the connection.
  bool waits_for_receives = true;
  bool holds_receives = true;       // QueuePair::hold_receives() is supported
  bool private_keys = true;         // only the connection's peer can use a key, not every peer
  bool guards_invalidation = true;  // only that peer can invalidate the key
  bool exact_bounds = true;         // a key is valid only for the bytes to which it was bound
  bool exact_rights = true;         // a key that was bound for writing does not permit reading
  bool exact_private_data = true;   // otherwise zeros may follow what the peer sent
  bool binds_lists = false;         // SendWr::runs: a key can stand for several runs of memory
  bool needs_descriptors = false;   // memory can be used only if its region has one (mem::Region)
  bool counts_causes = true;  // counters() has why a peer was refused, and if it died or closed
};

class Lane;
class LaneUser;
class QueuePair;

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Takes up to out.size() completions. The cost must not grow with the number of idle queue pairs.
  virtual uint32_t poll(std::span<Completion> out) = 0;
  // Readable when there is something to poll after arm(). Drivers without one return -1.
  virtual int wake_fd() const = 0;
  // Asks for the descriptor to become readable at the next completion, or when a queue pair that
  // refused a request will take it. Returns false if there may be something already: poll instead
  // of sleeping.
  virtual bool arm() = 0;
  // After waking: makes the descriptor unreadable again.
  virtual void disarm() = 0;

  // How many messages, and Writes before them, all calls of poll() have taken in lanes so far
  // (fabric/lane.h). A core compares it before and after a poll without completions to see whether
  // the poll did work.
  uint64_t lane_messages() const noexcept { return lane_messages_; }

  // For what takes long in a poll, or when requests are posted: large copies, and the ends of queue
  // pairs. Without it there is no limit. Its owner is the thread of the queue pairs.
  void set_budget(base::Budget& budget) noexcept { budget_ = &budget; }
  // Before such work.
  void begin_slow_work() noexcept { budget_->begin(); }
  // After it: whether the rest must wait for the next pass. A poll then serves no further queue
  // pair.
  bool over_budget() noexcept {
    if (!budget_->spent())
      return false;
    poll_end_ = 0;
    return true;
  }
  // After a large copy: the same.
  bool copied(uint64_t bytes) noexcept {
    copied_ += bytes;
    if (copied_ < kCopiedAtOnce)
      return false;
    copied_ = 0;
    return over_budget();
  }
  bool known_over_budget() const noexcept { return budget_->known_spent(); }

 protected:
  // Copies of fewer bytes are not worth a look at the clock.
  static constexpr uint64_t kCopiedAtOnce = 64 << 10;

  uint64_t lane_messages_ = 0;
  uint64_t poll_end_ = 0;  // the value of lane_messages_ at which a poll ends

 private:
  base::Budget* budget_ = &base::Budget::none();
  uint64_t copied_ = 0;  // since the last look
};

// Belongs to the thread of the queue pairs that share it. Messages may take Receives in any order.
class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  // Returns how many of `wrs` were taken, from the front.
  virtual uint32_t post(std::span<const ReceiveWr> wrs) = 0;
};

struct QueuePairOptions {
  CompletionQueue* cq = nullptr;      // for sends and receives
  SharedReceiveQueue* srq = nullptr;  // null: a receive queue of its own
  uint32_t send_wrs = 128;            // depth of the send queue
  uint32_t receive_wrs = 64;          // depth of its own receive queue
  uint32_t keys = 256;                // remote keys that can be valid at once
  uint32_t reads = 16;                // RDMA Reads that it may have in flight (ORD)
  void* owner = nullptr;              // returned in completions and events
};

// The remote keys of one connection, and the progress of its Reads. A class of its own because the
// engine needs nothing else.
class RemoteKeys {
 public:
  // Takes unused keys for kBindKey, all of keys.size() or none. Keys are unpredictable, and never a
  // value that this connection used recently. Data path.
  virtual bool reserve_keys(std::span<uint32_t> keys) = 0;
  // Returns the name of a reserved key once it is bound to `span` with `rights`. It is the same,
  // except on devices whose keys are made by registering; there the new name replaces the old one
  // everywhere. Must be called before the peer is told the key and kBindKey is posted. Data path.
  virtual uint32_t name_key(uint32_t key, const MemorySpan& /*span*/, Rights /*rights*/) {
    return key;
  }
  // Gives a key back. Its invalidation must have completed, or the queue pair must be in error with
  // no access by the peer in progress (its kDisconnected event was delivered).
  virtual void release_key(uint32_t key) = 0;
  // A Read by this key of the peer's will probably come soon: prefetches for it. Data path.
  virtual void expect_read(uint32_t /*key*/) {}
  // Returns how many bytes of data RDMA Reads have brought so far, including those still in flight.
  // It is always 0 if the device reports only complete Reads.
  virtual uint64_t read_bytes() const { return 0; }
  // Whether a Read waits to be posted because a pass of our core had no time for it.
  virtual bool puts_reads_off() const { return false; }

 protected:
  ~RemoteKeys() = default;
};

// One end of a reliable connection. It is created unconnected. Receives may be posted at once, so
// that they are there before the first message; sends only after establishment.
class QueuePair : public RemoteKeys {
 public:
  virtual ~QueuePair() = default;

  // Posts requests. Returns how many were taken, from the front: fewer if the queue is full.
  // Requests and their span arrays are copied; the memory that they name must remain until they
  // complete. On a queue pair in error, requests are taken as before, and flushed. Before
  // establishment no send is taken (the peer's first message can be received before the event that
  // reports the establishment). The accepting end must have received something before it sends,
  // since some iWARP devices end the connection otherwise (RFC 5044 section 7.1). With a shared
  // receive queue, post_receive() takes none. post_send() wakes a sleeping peer; a peer that falls
  // asleep during the call is woken by our next poll that finds nothing, or by arm().
  virtual uint32_t post_send(std::span<const SendWr> wrs) = 0;
  virtual uint32_t post_receive(std::span<const ReceiveWr> wrs) = 0;
  // Sends at once, without a request: the spans, of at most Capabilities::max_copied bytes, are
  // copied, and nothing is reported. `invalidate_key` is as for kSendInvalidate; 0: none. A
  // sleeping peer is woken only by the next post_send(), which may be empty. Returns false if the
  // Send must be posted instead.
  virtual bool send_now(std::span<const MemorySpan> /*spans*/, uint32_t /*invalidate_key*/) {
    return false;
  }
  // Performs kBindKey at once, for a Send after it.
  virtual bool bind_now(uint32_t /*key*/, const MemorySpan& /*span*/, Rights /*rights*/) {
    return false;
  }
  // Performs kRead at once, before anything that is still to be posted: all data is there when it
  // returns. If it returns false, nothing was counted, and the Read must be posted; its completion
  // then reports the error, if there is one. It is also false if a long copy would exceed the
  // budget of the pass.
  virtual bool read_now(const MemorySpan& /*to*/, uint32_t /*key*/, uint64_t /*remote_address*/) {
    return false;
  }

  // The connection's lane; null if it has none, or is not established. The object stays valid, and
  // may be used outside LaneUser::on_burst() as well.
  virtual Lane* lane() { return nullptr; }
  // Sets the user that takes messages from the lane, from the next poll() on. Null, the initial
  // value: no user.
  virtual void set_lane_user(LaneUser* /*user*/) {}
  // If the connection has ended because the peer refused a Write that was given to Lane::write():
  // returns the bytes of the message that was sent after that Write. Otherwise null.
  virtual const std::byte* behind_refused_write() const noexcept { return nullptr; }

  // Moves to error: everything posted is flushed to the completion queue, and the peer sees the
  // connection end. Idempotent. Each connect() and accept() that succeeded is eventually answered
  // by one kRejected, kConnectFailed or kDisconnected, whichever side ended it.
  virtual void disconnect() = 0;
  virtual uint32_t reads_allowed() const = 0;  // after negotiation with the peer (ORD)
  // With a shared receive queue: whether the queue pair has taken a Receive that it has not yet
  // reported. False after kDisconnected: none will come any more.
  virtual bool holds_receive() const { return false; }
  // With a shared receive queue on which messages wait for Receives: while held, messages of this
  // queue pair wait as if there were no Receives.
  virtual void hold_receives(bool /*hold*/) {}
  // The other end, and our own address. From kEstablished on; any thread.
  virtual Peer peer() const = 0;
};

// Identifies a peer beyond one connection: it is the same when the peer connects again, and
// different for every peer that can be told apart. Only the driver interprets its words; others
// compare them.
struct Identity {
  std::array<uint64_t, 3> words = {};  // all zero: not known

  bool known() const noexcept { return words != std::array<uint64_t, 3>{}; }
  bool operator==(const Identity&) const = default;
};

// Returns whether the peer with that identity is gone for good and will not be seen again. Returns
// false if that is unknown. Not on the data path: it may ask the kernel.
using HasEnded = bool (*)(const Identity& identity);

// A connection that a peer asks for.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;
  virtual std::span<const std::byte> private_data() const = 0;
  virtual Peer peer() const = 0;  // any thread, until the request has been answered
  // Never chosen by the peer: it comes from the kernel (a process) or the network (an address
  // without its port). Valid until the request has been answered.
  virtual Identity identity() const { return {}; }
  // For limits: one identity for all identities that this peer could use. A host can use any number
  // of addresses of its IPv6 network.
  virtual Identity group() const { return identity(); }
  // For data about peers that have left: one identity for all peers from one origin, from which
  // many different peers could easily come one after another: the processes of one user; the IPv4
  // addresses that share the first `ipv4_prefix` bits, 1 to 32; all addresses of this host.
  virtual Identity origin(uint32_t /*ipv4_prefix*/) const { return group(); }
  // Null if it cannot be known for any peer.
  virtual HasEnded has_ended() const { return nullptr; }
  // Whether the peer is known to have given up waiting for the answer.
  virtual bool has_hung_up() const { return false; }
  // Makes our end, on which Receives can be posted before accept() connects it. Dropping a request
  // without an answer closes it.
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options) = 0;
  // `qp` must be one made by create_queue_pair. An event reports the establishment.
  virtual Result<void> accept(QueuePair& qp, std::span<const std::byte> private_data) = 0;
  virtual void reject(std::span<const std::byte> private_data) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;        // stops listening; connections continue
  virtual std::string uri() const = 0;  // with the values that the system chose filled in
};

enum class EventType : uint8_t {
  kConnectRequest,  // listener, request
  // listener: connections wait there because the system lacks a resource for them, such as
  // descriptors; repeated while that lasts
  kShortage,
  kEstablished,    // owner, private_data (of the accepting side, at the connecting end)
  kRejected,       // owner, private_data, ending
  kConnectFailed,  // owner, ending
  // owner, ending: the peer closed or died, or we did. No access by the peer is in progress any
  // more. Receives have taken the earlier messages as far as there were any Receives; their
  // completions may still be in the completion queue, before those of flushed ones.
  kDisconnected,
};

struct Event {
  EventType type = EventType::kDisconnected;
  void* owner = nullptr;  // QueuePairOptions::owner
  Listener* listener = nullptr;
  std::unique_ptr<ConnectRequest> request;
  std::array<std::byte, kMaxPrivateData> private_data;
  uint32_t private_data_length = 0;
  // kRejected, kConnectFailed, kDisconnected: what ended the connection first, as the driver knows
  // it; disconnect() is EndedBy::kProgram. It has a Refusal only if no completion reports that: if
  // the fabric does not acknowledge (Capabilities::acknowledges), a Write has already completed
  // when the peer reports that the Write's key is not valid for it.
  Ending ending = {};
};

// Returns the ending of an attempt that failed; the kind of the error tells which side is at fault.
Ending ending_of(const Error& error);

// How often something failed or was slow; `name` is a literal.
struct Counter {
  std::string_view name;
  uint64_t value;
};

// The time after which a connection that cannot be established fails, unless set otherwise.
constexpr std::chrono::milliseconds kConnectTimeout{30'000};

// The target of an address, as its driver knows it: what is connected to, or listened at.
class Place {
 public:
  virtual ~Place() = default;
  // The peer was found at `served` before: of several addresses, that one is tried first.
  virtual void begin_with(const NetworkAddress& /*served*/) {}

  // For a connection attempt (if not set: kConnectTimeout). For a listener: how long a peer's
  // handshake may take (if not set: each driver's own limit).
  std::optional<std::chrono::milliseconds> timeout;
};

// Whether names of hosts are resolved, which blocks for as long as name servers take.
enum class Names : uint8_t { kRefused, kLookedUp };

class Device {
 public:
  virtual ~Device() = default;
  virtual const Capabilities& capabilities() const = 0;

  virtual Result<std::unique_ptr<CompletionQueue>> create_completion_queue(uint32_t entries) = 0;
  virtual Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(
      uint32_t entries) = 0;
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options) = 0;

  // Places must be of this device's driver.
  virtual Result<std::unique_ptr<Listener>> listen(const Place& place) = 0;
  // Starts connecting; the outcome is an event. An immediate error (no such socket) is returned.
  // Does not block. If the place has several addresses, all are tried.
  virtual Result<void> connect(QueuePair& qp, const Place& place,
                               std::span<const std::byte> private_data) = 0;
  // The same for a caller that may wait for a name to be resolved.
  Result<std::unique_ptr<Listener>> listen(const std::string& uri);
  Result<void> connect(QueuePair& qp, const std::string& uri,
                       std::span<const std::byte> private_data);

  // Control events, oldest first; at most `most` per call, so that a storm cannot starve the
  // data path. What the device does for them stops when the budget is spent, but not before its
  // first step, and goes on in the next call. Never blocks. Called by one thread at a time.
  virtual std::vector<Event> poll_events(uint32_t most, base::Budget& budget) = 0;
  std::vector<Event> poll_events(uint32_t most) { return poll_events(most, base::Budget::none()); }
  // Readable when poll_events() has something to do.
  virtual int event_fd() const = 0;

  // Refusals and waits by reason, since the device was opened. Any thread.
  virtual std::vector<Counter> counters() const { return {}; }
};

// The first use of a device.
enum class Purpose : uint8_t { kListening, kConnecting };

// A driver of this build, named by the scheme of its addresses.
struct Driver {
  std::string_view scheme;  // "shm"
  // Opens the device for addresses of this scheme. Registers the memory's regions, now and as they
  // come and go. `memory` must outlive the device. May take long, and resolves a name in `uri`.
  Result<std::unique_ptr<Device>> (*open)(Memory& memory, std::string_view uri, Purpose purpose);
  // Returns the target of `uri`; null if that has a name, and names are refused. Any thread, and
  // without a device. Errors: kBadUri, kNotFound (of a name).
  Result<std::unique_ptr<Place>> (*find)(const std::string& uri, Names names);
};

// In drivers/registry.cc: the list of the drivers in this build.
std::span<const Driver* const> drivers();

// Errors: kBadUri, naming the existing schemes; kUnsupported. Messages do not repeat the address,
// here and in fabric::Device: the caller names it (base::about()). If a name has several addresses,
// they say which of these.
Result<const Driver*> find_driver(std::string_view uri);

// Returns the target of an address, as found by its driver. Blocks if it has a name.
Result<std::unique_ptr<Place>> look_up(const std::string& uri);

}  // namespace rrdk::fabric
