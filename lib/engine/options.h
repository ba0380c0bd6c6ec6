// The options of an engine.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/assert.h"
#include "engine/rfc5666/mode.h"
#include "fabric/work.h"
#include "proto/header.h"
#include "rrdk/extensions.h"

namespace rrdk::mem {
class Borrower;  // mem/loans.h
}

namespace rrdk::engine {

class ReceiveQueue;  // engine/receive_queue.h
struct ClientShare;  // engine/credits.h

// Which half of the engine has the forward calls; the other half has the backward calls. As an
// option it names the end: the one that connects is the requester.
enum class Role : uint8_t { kRequester, kResponder };

// The version that a requester speaks. A responder answers every call in the call's own version.
enum class Speaks : uint8_t {
  kOne,
  kTwo,   // the draft in limits.versions
  kAuto,  // 2, then 1 as soon as the peer turns out not to know 2 (draft-04 section 7)
};

// Options that all connections of a server, or of a client, have in common over one device.
struct ConnectionOptions {
  Role role = Role::kResponder;
  Speaks speaks = Speaks::kOne;
  // Requester: credits to ask for, and the most that it uses. Responder: the most that it grants.
  uint32_t credits = 32;
  // Where Receives are shared: credits that a responder grants at first, and again to a peer that
  // uses few. 0: Receives are not shared.
  uint32_t first_credits = 0;
  // Credits for backward calls. Responder: how many calls to its client may be in flight.
  // Requester: how many it takes. 0: no backward calls. Adds as many Receives.
  uint32_t backward_credits = 0;
  // Backward calls may have chunks, in draft-04 and if both ends say so (RDMA2_BKREQSUP_GENL).
  bool backward_chunks = false;
  uint32_t send_size = 4096;     // largest Send we issue; RFC 8797's Send Size
  uint32_t receive_size = 4096;  // size of our posted Receives; RFC 8797's Receive Size
  // Our Receives may grow to this size if the peer asks for it, or raise_receives() does.
  uint32_t max_receive_size = 262144;
  bool properties = true;  // draft-04's properties are sent, received and changed
  proto::Limits limits = {};
  uint64_t max_call = 8u << 20;   // bytes of one call's stream, including chunks
  uint64_t max_reply = 8u << 20;  // bytes of one reply's stream
  // Responder: bytes that calls in progress may have in chunks and in the memory offered for
  // replies. Further calls wait for earlier ones to end; a call that is alone never waits.
  uint64_t max_chunk_bytes = UINT64_MAX;
  // Eligible items of at least this many bytes move in chunks even if they would fit inline.
  uint32_t chunk_threshold = 1024;
  uint32_t send_wrs = 256;               // depth of the queue pair's send queue; at least 8
  uint32_t max_sges = fabric::kMaxSges;  // of the device, per Send or Write; at least 2
  uint32_t max_copied = 0;               // of the device: longest Send that is copied when posted
  bool reads_at_once = false;            // of the device: QueuePair::read_now()
  bool read_by_peer = false;             // of the device: peers read chunks in place
  bool binds_lists = false;              // of the device: a key can stand for several runs
  uint32_t max_read_sges = fabric::kMaxSges;  // and per Read
  uint32_t max_read_bytes = UINT32_MAX;
  // Remote invalidation, as far as the device supports it: whether replies may invalidate a key of
  // the peer's call, and whether the peer may invalidate keys of ours.
  bool sends_invalidations = true;
  bool takes_invalidations = true;
  // While others wait for buffers, a peer must send some of the data for which its calls have
  // buffers in each period of this length; otherwise its connection is ended.
  uint64_t progress_wait_ns = 1'000'000'000;
  // A call that waits longer than this for pool buffers (it may need more than there are) is
  // answered ERR_CHUNK, so that those behind it can proceed. Long enough to find out which peer
  // holds the buffers.
  uint64_t buffer_wait_ns = 2'000'000'000;
  // A call that is over waits for the completion of its Send. If the peer takes no Send for this
  // long, the connection is ended. TCP pauses for 3 s after it has lost the same segment four
  // times, which is no fault of the peer's.
  uint64_t send_wait_ns = 4'000'000'000;
  // A call that was given up leaves the peer the memory that it was offered until the reply comes,
  // but at most for this long; then its keys are revoked. 0: they are revoked at once.
  uint64_t lend_ns = 30'000'000'000;
  // If calls that were given up hold all credits and nothing is received for this long, the
  // connection is given up. 0: never.
  uint64_t starved_ns = 5'000'000'000;
  uint32_t overrun_limit = 64;  // calls beyond the grant that end the connection (V1-CREDIT-16)
  uint32_t first_xid = 0;  // 0: an unpredictable one; otherwise fixed, for runs that are replayed
  // A requester's concessions to responders with known faults (EXP-10, EXP-32); not both.
  // a last segment for the pad if the offered memory is no multiple of four
  bool pad_write_chunks = false;
  // No chunk has several segments; a call that needs such a chunk is not sent.
  bool one_segment = false;
  Rfc5666Options rfc5666 = {};
  const Extensions* extensions = nullptr;  // null: no types, no properties
};

// Checked, constant options: within the engine's limits, and one object for all connections with
// equal options. The owner, a server or a client, keeps it until the last of these connections is
// gone.
class SharedOptions {
 public:
  explicit SharedOptions(const ConnectionOptions& wanted);
  ~SharedOptions() { RRDK_ASSERT(connections_.load(std::memory_order_relaxed) == 0, connections_); }
  SharedOptions(const SharedOptions&) = delete;
  SharedOptions& operator=(const SharedOptions&) = delete;

  const ConnectionOptions& operator*() const noexcept { return options_; }
  const ConnectionOptions* operator->() const noexcept { return &options_; }

  // Any thread. Called when a connection with these options is created or destroyed.
  void join() const noexcept { connections_.fetch_add(1, std::memory_order_relaxed); }
  void part() const noexcept {
    // Release: the owner may see that no connection is left and free the options.
    [[maybe_unused]] const uint32_t before = connections_.fetch_sub(1, std::memory_order_release);
    RRDK_ASSERT(before != 0);
  }

 private:
  const ConnectionOptions options_;
  mutable std::atomic<uint32_t> connections_ = 0;
};

// What differs between connections. All members must outlive the connection.
struct PerConnection {
  // The peer to which buffers for chunks and results are lent, on all its connections. If null, the
  // connection has a share of its own (mem/loans.h).
  mem::Borrower* borrower = nullptr;
  // Shared with the same client's other connections on this core; never null.
  ClientShare* client_share = nullptr;
  // Receives that other connections of the core use too; this connection holds as many as it has
  // promised to its peer. If null, it has its own Receives, one per credit, and grants all credits
  // at once.
  ReceiveQueue* shared_receives = nullptr;
  // Responder: raised to the most that could be granted before it is granted; shared by all
  // connections of the client. May be null.
  std::atomic<uint32_t>* most_granted = nullptr;
  ExtensionPeer peer = {0, ""};  // what the functions in `extensions` are told
};

}  // namespace rrdk::engine
