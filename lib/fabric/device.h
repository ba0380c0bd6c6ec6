// The provider interface: what the drivers have in common, and nothing else. A Device is opened
// once per Memory and scheme; it makes completion queues, queue pairs and listeners.
//
// Threads: Device and Listener functions are the control path and are serialised by the caller. A
// CompletionQueue and all queue pairs on it belong to one thread (the poll core's). Exceptions are
// noted at the functions.
//
// Lifetime: Memory > Device > {CompletionQueue, SharedReceiveQueue} > QueuePair. Destroying a queue
// pair drops its completions that were not polled; the owner of buffers named in wr_ids takes them
// back first by disconnect() and polling until every posted request was reported, and with a shared
// receive queue until holds_receive() is false.
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
  bool reads_at_once;            // QueuePair::read_now() is worth trying
  uint32_t max_send_wrs;         // per queue pair
  uint32_t max_receive_wrs;      // per queue pair
  uint32_t max_shared_receives;  // per shared receive queue; 0: none
  uint32_t max_reads;            // RDMA Reads in flight per queue pair (ORD and IRD)
  uint32_t max_keys;             // remote keys of one queue pair
  uint64_t max_message;          // bytes of one Read or Write
  bool sends_invalidations;      // kSendInvalidate can be posted
  bool takes_invalidations;      // and the peer may do that to keys of ours; completions tell of it
  // A Send or Write that the peer refuses fails its own completion. Without it (iWARP) those
  // complete when their memory may be used again; that the peer refused one ends the connection.
  bool acknowledges;
  // What is named to the peer, by keys or in Writes, its processor reads where it lies.
  bool read_by_peer = false;
  uint32_t max_read_sges = kMaxSges;  // per Read
  // Bytes of a Read that a slow peer is to be seen bringing: where read_bytes() does not tell of
  // them as they come, Reads are short, and each that is complete tells of its own.
  uint32_t max_read_bytes = UINT32_MAX;
  // What follows holds for drivers in software. Devices differ.
  bool waits_for_receives = true;  // a message that finds no Receive waits for it; else it ends the
                                   // connection
  bool holds_receives = true;      // QueuePair::hold_receives() does something
  bool private_keys =
      true;  // a key serves its connection's peer alone; else every peer of the device
  bool guards_invalidation = true;  // and only that peer can invalidate it
  bool exact_bounds = true;         // a key is of use for the bytes it was bound to, no others
  bool exact_rights = true;         // and not for reading when it was bound for writing
  bool exact_private_data = true;   // else zeros may follow what the peer sent
  bool needs_descriptors = false;   // memory is of use only where its region has one (mem::Region)
  bool counts_causes =
      true;  // counters() has why a peer was refused, and whether it died or closed
};

class Lane;
class LaneUser;
class QueuePair;

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Up to out.size() completions. Cost does not grow with the number of idle queue pairs.
  virtual uint32_t poll(std::span<Completion> out) = 0;
  // Readable when there is something to poll after arm(). Drivers without one return -1.
  virtual int wake_fd() const = 0;
  // Asks for the fd to become readable at the next completion, or when a queue pair that refused a
  // request will take it. False: there may be something already; poll instead of sleeping.
  virtual bool arm() = 0;
  // After waking: takes the fd's readiness back.
  virtual void disarm() = 0;

  // How many messages, and Writes in front of them, have been taken in lanes (fabric/lane.h) by all
  // calls of poll() so far.
  // A core that compares it before and after knows whether a poll without completions did work.
  uint64_t lane_messages() const noexcept { return lane_messages_; }

 protected:
  uint64_t lane_messages_ = 0;
};

// Belongs to the thread of the queue pairs that share it. Which Receive a message takes is not
// said.
class SharedReceiveQueue {
 public:
  virtual ~SharedReceiveQueue() = default;
  // How many of `wrs` were taken, from the front.
  virtual uint32_t post(std::span<const ReceiveWr> wrs) = 0;
};

struct QueuePairOptions {
  CompletionQueue* cq = nullptr;      // for sends and receives
  SharedReceiveQueue* srq = nullptr;  // null: a receive queue of its own
  uint32_t send_wrs = 128;            // depth of the send queue
  uint32_t receive_wrs = 64;          // depth of its own receive queue
  uint32_t keys = 256;                // remote keys that can be alive at once
  uint32_t reads = 16;                // RDMA Reads that it may have in flight (ORD)
  void* owner = nullptr;              // comes back in completions and events
};

// Where remote keys of one connection come from, and how far its Reads are; apart, because it is
// all that the engine needs.
class RemoteKeys {
 public:
  // Takes unused keys for kBindKey, all of keys.size() or none. Unpredictable, and never a value
  // that this connection used recently. Data path.
  virtual bool reserve_keys(std::span<uint32_t> keys) = 0;
  // What a reserved key will be called once it is bound to `span` with `rights`: the same, but on
  // devices whose keys are made by registering. The new name takes the place of the old one
  // everywhere. Asked before the peer hears of the key and kBindKey is posted. Data path.
  virtual uint32_t name_key(uint32_t key, const MemorySpan& /*span*/, Rights /*rights*/) {
    return key;
  }
  // Gives a key back, after its invalidation completed or the queue pair is in error with nothing
  // of the peer's in progress (its kDisconnected event was delivered).
  virtual void release_key(uint32_t key) = 0;
  // A Read by this key of the peer's is likely to come soon: for prefetching. Data path.
  virtual void expect_read(uint32_t /*key*/) {}
  // How many bytes of data RDMA Reads have brought so far, those still in flight too. 0 for ever:
  // the device tells only when a Read is complete.
  virtual uint64_t read_bytes() const { return 0; }

 protected:
  ~RemoteKeys() = default;
};

// A reliable connection's end. Created unconnected; posting Receives is allowed at once, so that
// they are there before the first message; sends only when established.
class QueuePair : public RemoteKeys {
 public:
  virtual ~QueuePair() = default;

  // How many requests were taken, from the front: fewer when the queue is full. Requests and their
  // span arrays are copied; the memory they name must stay until they complete. On a queue pair in
  // error they are taken as before, and flushed; before establishment no send is taken (the peer's
  // first message can be received before the event that tells of the establishment). The accepting
  // end must have received something before it sends: some iWARP devices end the connection
  // otherwise (RFC 5044 section 7.1). With a shared receive queue, post_receive() takes none. A
  // peer that sleeps is woken; one that falls asleep during the call is woken by our next poll that
  // finds nothing, or by arm().
  virtual uint32_t post_send(std::span<const SendWr> wrs) = 0;
  virtual uint32_t post_receive(std::span<const ReceiveWr> wrs) = 0;
  // A Send at once, without a request for it: the spans, of at most Capabilities::max_copied bytes,
  // are copied, and nothing is reported. `invalidate_key` as of kSendInvalidate; 0: none. A peer
  // that sleeps is woken for it by the next post_send() only, which may be of nothing. False: it
  // has to be posted.
  virtual bool send_now(std::span<const MemorySpan> /*spans*/, uint32_t /*invalidate_key*/) {
    return false;
  }
  // kBindKey at once, for a Send behind it.
  virtual bool bind_now(uint32_t /*key*/, const MemorySpan& /*span*/, Rights /*rights*/) {
    return false;
  }
  // kRead at once, before what is still to be posted: all of the data is there when it returns.
  // False: nothing was counted, and it has to be posted, which tells what is wrong, if anything is.
  virtual bool read_now(const MemorySpan& /*to*/, uint32_t /*key*/, uint64_t /*remote_address*/) {
    return false;
  }

  // The connection's lane; null: it has none, or is not established. It stays where it is, and is
  // of use outside LaneUser::on_burst() as well.
  virtual Lane* lane() { return nullptr; }
  // Who takes messages from it, from the next poll() on; null: no one does, as in the beginning.
  virtual void set_lane_user(LaneUser* /*user*/) {}
  // When the connection has ended because the peer refused a Write that Lane::write() was given:
  // the bytes of the message that was sent behind it. Else null.
  virtual const std::byte* behind_refused_write() const noexcept { return nullptr; }

  // Moves to error: everything posted is flushed to the completion queue, the peer sees the
  // connection end. Idempotent.
  // Each connect() and accept() that succeeded is answered by one kRejected, kConnectFailed or
  // kDisconnected in the end, whichever side ended it.
  virtual void disconnect() = 0;
  virtual uint32_t reads_allowed() const = 0;  // after negotiation with the peer (ORD)
  // With a shared receive queue: whether it has taken a Receive that it has yet to report. False
  // after kDisconnected: none will come any more.
  virtual bool holds_receive() const { return false; }
  // With a shared receive queue, where messages wait for Receives: those of this one wait as if
  // there were none, until they are held no more.
  virtual void hold_receives(bool /*hold*/) {}
  // Who is at the other end, and where ours is. From kEstablished on; any thread.
  virtual Peer peer() const = 0;
};

// Who a peer is, beyond one connection: the same when it connects again, and another for every
// peer that can be told from it. Its words mean something to the driver only; others compare them.
struct Identity {
  std::array<uint64_t, 3> words = {};  // all zero: not known

  bool known() const noexcept { return words != std::array<uint64_t, 3>{}; }
  bool operator==(const Identity&) const = default;
};

// Whether who bore that identity is gone for good, so that it will not be seen again. False where
// that cannot be known. Not on the data path: it may ask the kernel.
using HasEnded = bool (*)(const Identity& identity);

// A connection that a peer asks for.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;
  virtual std::span<const std::byte> private_data() const = 0;
  virtual Peer peer() const = 0;  // any thread, until the request was answered
  // Never of the peer's own choosing: from the kernel (a process), or from the network (an address
  // without its port). Until the request was answered.
  virtual Identity identity() const { return {}; }
  // For limits: one identity for everything that this peer could come as. A host can take as many
  // addresses of its IPv6 network as it likes.
  virtual Identity group() const { return identity(); }
  // For what is kept of peers that have left: one identity for all that come from one place, where
  // it is easy to come as many peers one after the other. Processes of one user; IPv4 addresses
  // that have the first `ipv4_prefix` bits, 1 to 32, in common; all addresses of this host.
  virtual Identity origin(uint32_t /*ipv4_prefix*/) const { return group(); }
  // Null: it cannot be known of any peer.
  virtual HasEnded has_ended() const { return nullptr; }
  // Whether the peer is known to have given up waiting for the answer.
  virtual bool has_hung_up() const { return false; }
  // Makes our end, on which Receives can be posted before accept() connects it. Dropping a request
  // without an answer closes it.
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options) = 0;
  // `qp` is one made by create_queue_pair. Establishment is reported by an event.
  virtual Result<void> accept(QueuePair& qp, std::span<const std::byte> private_data) = 0;
  virtual void reject(std::span<const std::byte> private_data) = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;        // stops listening; connections live on
  virtual std::string uri() const = 0;  // with what the system chose filled in
};

enum class EventType : uint8_t {
  kConnectRequest,  // listener, request
  // listener: connections wait there since the system has nothing left for them, such as
  // descriptors; while that lasts, again and again
  kShortage,
  kEstablished,    // owner, private_data (of the accepting side, at the connecting end)
  kRejected,       // owner, private_data, ending
  kConnectFailed,  // owner, ending
  // owner, ending: the peer closed or died, or we did. No peer access is in progress any more. The
  // messages that came before have been taken by Receives as far as there were any; their
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
  // kRejected, kConnectFailed, kDisconnected: what was first to end it, as the driver knows;
  // disconnect() is EndedBy::kProgram. It has a Refusal only if no completion tells of that: where
  // the fabric does not acknowledge (Capabilities::acknowledges), a Write had completed when the
  // peer says that it met a key that is not good for it.
  Ending ending = {};
};

// The ending of an attempt that failed: who is to blame follows from the kind of the error.
Ending ending_of(const Error& error);

// How often something went wrong or slow; `name` is a literal.
struct Counter {
  std::string_view name;
  uint64_t value;
};

// Until a connection that is not made has failed, where nothing else is said.
constexpr std::chrono::milliseconds kConnectTimeout{30'000};

// Where an address leads, as its driver knows it: what is connected to, or listened at.
class Place {
 public:
  virtual ~Place() = default;
  // The peer was found at `served` before: of several addresses that one is tried first.
  virtual void begin_with(const NetworkAddress& /*served*/) {}

  // Of an attempt to connect (kConnectTimeout without one). Of a listener: how long a peer's
  // handshake may take (each driver has its own bound without one).
  std::optional<std::chrono::milliseconds> timeout;
};

// Whether names of hosts are looked up, which blocks for as long as name servers like.
enum class Names : uint8_t { kRefused, kLookedUp };

class Device {
 public:
  virtual ~Device() = default;
  virtual const Capabilities& capabilities() const = 0;

  virtual Result<std::unique_ptr<CompletionQueue>> create_completion_queue(uint32_t entries) = 0;
  virtual Result<std::unique_ptr<SharedReceiveQueue>> create_shared_receive_queue(
      uint32_t entries) = 0;
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairOptions& options) = 0;

  // Places are of this device's driver.
  virtual Result<std::unique_ptr<Listener>> listen(const Place& place) = 0;
  // Starts connecting; the outcome is an event. What is wrong at once (no such socket) is returned
  // at once. Does not block. Of a place with several addresses all are tried.
  virtual Result<void> connect(QueuePair& qp, const Place& place,
                               std::span<const std::byte> private_data) = 0;
  // The same for a caller that may wait for a name to be looked up.
  Result<std::unique_ptr<Listener>> listen(const std::string& uri);
  Result<void> connect(QueuePair& qp, const std::string& uri,
                       std::span<const std::byte> private_data);

  // Control events, oldest first; at most `most` a call, so that a storm cannot starve the
  // data path. Never blocks. Called by one thread at a time.
  virtual std::vector<Event> poll_events(uint32_t most) = 0;
  // Readable when poll_events() has something to do.
  virtual int event_fd() const = 0;

  // Refusals and waits by reason, since the device was opened. Any thread.
  virtual std::vector<Counter> counters() const { return {}; }
};

// What a device is opened for, first of all.
enum class Purpose : uint8_t { kListening, kConnecting };

// The drivers of this build, by the scheme of the addresses that they serve.
struct Driver {
  std::string_view scheme;  // "shm"
  // Opens the device for addresses of this scheme. Registers the memory's regions, now and as they
  // come and go. `memory` outlives the device.
  // May take its time, and look up the name that `uri` has.
  Result<std::unique_ptr<Device>> (*open)(Memory& memory, std::string_view uri, Purpose purpose);
  // Where `uri` leads; null: it has a name, and names are refused. Any thread, and without a
  // device. Errors: kBadUri, kNotFound (of a name).
  Result<std::unique_ptr<Place>> (*find)(const std::string& uri, Names names);
};

// In drivers/registry.cc: the one list of what was built.
std::span<const Driver* const> drivers();

// Errors: kBadUri, naming the schemes there are; kUnsupported. Neither here nor in fabric::Device
// do messages repeat the address: who asked names it (base::about()). Where a name has several
// addresses, they say which of these.
Result<const Driver*> find_driver(std::string_view uri);

// Where an address leads, by its driver. Blocks if it has a name.
Result<std::unique_ptr<Place>> look_up(const std::string& uri);

}  // namespace rrdk::fabric
