// What an engine is told at its beginning.
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

// Which half of the engine has the forward calls; the other one has the backward ones. As an
// option: the end that connects is the requester.
enum class Role : uint8_t { kRequester, kResponder };

// What a requester speaks. The responder answers every call in the version that it came in.
enum class Speaks : uint8_t {
  kOne,
  kTwo,   // of the draft in limits.versions
  kAuto,  // 2, and 1 from the moment when the peer turns out not to know it (draft-04 section 7)
};

// What is the same for all connections of a server, or of a client, over one device.
struct ConnectionOptions {
  Role role = Role::kResponder;
  Speaks speaks = Speaks::kOne;
  // Credits that a requester asks for and at most uses, and that a responder at most grants.
  uint32_t credits = 32;
  // What a responder grants at first, and again to a peer that uses little, where Receives are
  // shared. 0: they are not to be.
  uint32_t first_credits = 0;
  // Credits for backward calls: at a responder, how many it may have in flight to its client; at a
  // requester, how many it takes. 0: no backward calls. Adds as many Receives.
  uint32_t backward_credits = 0;
  // Backward calls may have chunks, in draft-04 and where both ends say so (RDMA2_BKREQSUP_GENL).
  bool backward_chunks = false;
  uint32_t send_size = 4096;     // largest Send we issue; RFC 8797's Send Size
  uint32_t receive_size = 4096;  // of our posted Receives; RFC 8797's Receive Size
  // Up to what our Receives may grow when the peer asks for it, or raise_receives() does.
  uint32_t max_receive_size = 262144;
  bool properties = true;  // draft-04's are told, heard and changed
  proto::Limits limits = {};
  uint64_t max_call = 8u << 20;   // bytes of one call's stream, chunks included
  uint64_t max_reply = 8u << 20;  // of one reply's
  // A responder's: bytes of chunks, of calls and of the room offered for replies, that calls in
  // progress may have. Calls beyond wait for earlier ones to end; one call alone never waits.
  uint64_t max_chunk_bytes = UINT64_MAX;
  // Eligible items of at least this many bytes move in chunks even when they would fit inline.
  uint32_t chunk_threshold = 1024;
  uint32_t send_wrs = 256;                    // depth of the queue pair's send queue; at least 8
  uint32_t max_sges = fabric::kMaxSges;       // of the device, per Send or Write; at least 2
  uint32_t max_copied = 0;                    // of the device: Sends that are copied when posted
  bool reads_at_once = false;                 // of the device: QueuePair::read_now()
  bool read_by_peer = false;                  // of the device: peers read chunks in place
  uint32_t max_read_sges = fabric::kMaxSges;  // and per Read
  uint32_t max_read_bytes = UINT32_MAX;
  // Remote invalidation, as far as the device goes: whether replies may invalidate a key of the
  // peer's call, and whether the peer may do so to keys of ours.
  bool sends_invalidations = true;
  bool takes_invalidations = true;
  // While others wait for buffers: in every such time a peer sends a part of the data that its
  // calls have buffers for, or its connection is over.
  uint64_t progress_wait_ns = 1'000'000'000;
  // A call that waits longer than this for pool buffers (perhaps more than there are) is answered
  // ERR_CHUNK, so that those behind it go on. Long enough to find out which peer holds them.
  uint64_t buffer_wait_ns = 2'000'000'000;
  // A call that is over waits for the completion of its Send. A peer that takes none for so long
  // costs it the connection. TCP rests for 3 s after it has lost the same segment four times, which
  // is no fault of the peer's.
  uint64_t send_wait_ns = 4'000'000'000;
  // A call that was given up leaves the peer the memory that it was offered until the reply comes,
  // at most for so long; then its keys are revoked. 0: they are revoked at once.
  uint64_t lend_ns = 30'000'000'000;
  // When all credits are held by calls that were given up, and nothing is received for so long, the
  // connection is of no use any more. 0: it is kept nevertheless.
  uint64_t starved_ns = 5'000'000'000;
  uint32_t overrun_limit = 64;  // calls beyond the grant that end the connection (V1-CREDIT-16)
  uint32_t first_xid = 0;       // 0: one that no one can guess; else for runs that are replayed
  // A requester's concessions to responders that fall short (EXP-10, EXP-32); not both.
  bool pad_write_chunks = false;  // a last segment for the pad, where room is no multiple of four
  bool one_segment = false;       // no chunk of several segments: what needs one is not sent
  Rfc5666Options rfc5666 = {};
  const Extensions* extensions = nullptr;  // null: no types, no properties
};

// Options as engines have them: within the engine's limits, unchanging, and one object for all
// connections that have the same. Its owner, the server or the client, keeps it until the last of
// these connections has gone.
class SharedOptions {
 public:
  explicit SharedOptions(const ConnectionOptions& wanted);
  ~SharedOptions() { RRDK_ASSERT(connections_.load(std::memory_order_relaxed) == 0, connections_); }
  SharedOptions(const SharedOptions&) = delete;
  SharedOptions& operator=(const SharedOptions&) = delete;

  const ConnectionOptions& operator*() const noexcept { return options_; }
  const ConnectionOptions* operator->() const noexcept { return &options_; }

  // Any thread. A connection that has them comes or goes.
  void join() const noexcept { connections_.fetch_add(1, std::memory_order_relaxed); }
  void part() const noexcept {
    // Release: the owner may see that none is left, and free them.
    [[maybe_unused]] const uint32_t before = connections_.fetch_sub(1, std::memory_order_release);
    RRDK_ASSERT(before != 0);
  }

 private:
  const ConnectionOptions options_;
  mutable std::atomic<uint32_t> connections_ = 0;
};

// What belongs to one connection. All of it outlives the connection.
struct PerConnection {
  // The peer to which the buffers of calls' chunks and of results are lent, on all its connections.
  // Null: the connection has a share of its own (mem/loans.h).
  mem::Borrower* borrower = nullptr;
  // What it has in common with its client's other connections on the same core; never null.
  ClientShare* client_share = nullptr;
  // Receives that other connections of the core take from, too: this one holds as many as it has
  // promised to its peer. Null: it has Receives of its own, one for each credit, and grants all
  // credits at once.
  ReceiveQueue* shared_receives = nullptr;
  // A responder's: raised to what it could grant at most, before it is granted; of all connections
  // of its client. Null: it is not asked for.
  std::atomic<uint32_t>* most_granted = nullptr;
  ExtensionPeer peer = {0, ""};  // as the functions of extensions are told
};

}  // namespace rrdk::engine
