// What both halves of a connection's engine share.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/assert.h"
#include "engine/credits.h"
#include "engine/options.h"
#include "engine/receive_queue.h"
#include "engine/rfc5666/mode.h"
#include "engine/send_queue.h"
#include "engine/served_call.h"
#include "engine/upcalls.h"
#include "fabric/device.h"
#include "fabric/work.h"
#include "mem/loans.h"
#include "proto/codec.h"
#include "proto/header.h"
#include "proto/properties.h"
#include "rrdk/counters.h"

namespace rrdk::engine {

// The state of a connection's engine, and what it waits for.
enum class Phase : uint8_t {
  kNew,       // waits for on_established(): nothing is sent until then
  kUp,        // calls run
  kDraining,  // waits for the calls that run: no further call is taken
  kEnding,    // waits for the owner to disconnect: no call is started, but replies still go out
  kFailing,   // waits for on_disconnected(), since a request failed or the owner disconnects:
              // nothing is sent
  kDead,      // waits for posted requests and the calls above: the peer has no access any more
};

// The size in bytes of the largest whole Send from here to the peer, and from the peer to here.
struct Thresholds {
  uint32_t send = proto::kInlineThreshold;
  uint32_t receive = proto::kInlineThreshold;
};

// How many chunks and segments the peer takes, once it has said so in errors (draft-04 section
// 6.2.4).
struct PeerLimits {
  uint32_t read_chunks = UINT32_MAX;
  uint32_t write_chunks = UINT32_MAX;
  uint32_t segments = UINT32_MAX;  // of one chunk

  void learn(const proto::ErrorBody& error) noexcept {
    if (error.code == proto::ErrorCode::kReadChunks)
      read_chunks = std::min(read_chunks, error.maximum);
    else if (error.code == proto::ErrorCode::kWriteChunks)
      write_chunks = std::min(write_chunks, error.maximum);
    else if (error.code == proto::ErrorCode::kSegments)
      segments = std::min(segments, error.maximum);
  }
};

// Credits for the calls that one half makes or takes.
inline uint32_t credits_of(Role half, const ConnectionOptions& options) noexcept {
  return half == options.role ? options.credits : options.backward_credits;
}

// A client has Receives for replies and for backward calls; a server has Receives for calls and for
// the replies to its own calls (BIDIR-07).
inline uint32_t receive_slots(const ConnectionOptions& options) noexcept {
  return options.credits + options.backward_credits;
}

// Where Receives are shared: how many of these are promised for the life of the connection.
inline ReceiveShare::Least first_receives_of(const ConnectionOptions& options) noexcept {
  return {
      .calls = std::min(std::max(1u, options.first_credits), credits_of(Role::kResponder, options)),
      .replies = std::min(1u, credits_of(Role::kRequester, options))};
}

inline uint32_t receive_bytes(const ConnectionOptions& options) noexcept {
  return proto::receive_bytes(options.receive_size, options.limits.versions);
}

class Connection;
class Properties;

// Receives for property messages, beyond those that back credits (V2D4-POP-29): each end may have
// one announcement, one request and one answer in flight. They are posted when the peer turns out
// to speak draft-04.
constexpr uint32_t kPropertyReceives = 3;

inline uint32_t spare_receives(const ConnectionOptions& options) noexcept {
  return options.limits.versions.two == proto::Wire::kDraft04 ? kPropertyReceives : 0;
}
// A responder sends its properties right after its first reply. A requester with few credits may
// have no Receive left for them, and one that speaks only version 2 knows that they will come.
inline bool needs_spares_at_once(const ConnectionOptions& options) noexcept {
  bool speaks = options.role == Role::kRequester && options.speaks != Speaks::kOne;
  return speaks && (options.speaks == Speaks::kTwo || options.credits <= kPropertyReceives);
}

struct Common {
  Common(Connection& connection_, const SharedOptions& options_, const PerConnection& own,
         Memory& memory_, CallPool& pool_, fabric::RemoteKeys& keys_, Upcalls& upcalls_)
      : options(*options_),
        memory(memory_),
        pool(pool_),
        own_share(own.borrower == nullptr ? mem::Borrower::create(memory_) : nullptr),
        borrower(own_share != nullptr ? *own_share : *own.borrower),
        own_receives(own.shared_receives == nullptr ? own_queue() : nullptr),
        receives(own_receives != nullptr ? *own_receives : *own.shared_receives),
        upcalls(upcalls_),
        calling(options.role == Role::kRequester),
        share(receives, receive_slots(options) + done_receives(), spare_receives(options),
              first_receives_of(options)),
        sends(options.send_wrs, pool_.send_arrays(options.send_wrs)),
        keys(keys_),
        connection(connection_),
        shared_options(options_),
        most_granted(own.most_granted),
        known_as(own.peer) {
    RRDK_ASSERT(own.client_share != nullptr);
    shared_options.join();
    if (serves())
      borrower.join();
    rfc5666.spare_receives = done_receives();
    if (options.one_segment)
      peer.segments = 1;
    speak(options.speaks == Speaks::kOne || !options.limits.versions.two
              ? proto::Wire::kVersion1
              : *options.limits.versions.two);
  }

  ~Common() {
    if (serves())
      borrower.part();
    shared_options.part();
  }
  Common(const Common&) = delete;
  Common& operator=(const Common&) = delete;

  // What a short call and its reply touch comes first.
  const ConnectionOptions& options;  // in shared_options
  Memory& memory;
  CallPool& pool;
  const mem::BorrowerRef own_share;  // null: that of the peer's connections together
  mem::Borrower& borrower;
  const std::unique_ptr<ReceiveQueue> own_receives;  // null: they are shared
  ReceiveQueue& receives;
  Upcalls& upcalls;
  // Where Sends that need not wait are posted at once, past the list; null: all go to the list.
  fabric::QueuePair* port = nullptr;
  Properties* properties = nullptr;  // beside this object in the Connection, and so is:
  const Grant* grant = nullptr;      // the responder half's
  // How many calls may be in flight for a further one to be sent in the lane, as returned by
  // Requester::plain_limit(); 0: it must be asked again. Every other event of the connection sets
  // it to 0.
  uint32_t plain_limit = 0;
  bool sent_now = false;  // something was posted to `port`; the owner must call post_send()
  Phase phase = Phase::kNew;
  bool invalidate = false;                    // version 1: both ends set R (RFC 8797 section 4.1)
  proto::Wire wire = proto::Wire::kVersion1;  // of our calls
  bool settled = true;                        // the peer has shown that it knows that version
  // A server may call once it has been called: then it knows the version (BIDIR-12), and that the
  // client is ready for it (BIDIR-13).
  bool calling;
  proto::BackwardSupport backward = proto::BackwardSupport::kInline;  // the peer's, in draft-04
  Thresholds calls;  // for our calls and their replies
  Thresholds by_version[2] = {{}, {proto::kInlineThreshold2, proto::kInlineThreshold2}};
  ReceiveShare share;
  SendQueue sends;
  Rfc5666State rfc5666;
  Counters counters;  // those that every call touches are in the first line
  Unposted unposted;

  fabric::RemoteKeys& keys;
  Connection& connection;
  const SharedOptions& shared_options;
  std::atomic<uint32_t>* const most_granted;  // PerConnection's
  const ExtensionPeer known_as;               // and its peer
  PeerLimits peer;
  EndReason end_reason;

  std::unique_ptr<ReceiveQueue> own_queue() {
    uint32_t most = receive_slots(options) + done_receives() + spare_receives(options);
    return std::make_unique<ReceiveQueue>(memory, most, receive_bytes(options),
                                          ReceiveQueue::Users::kOne);
  }
  uint32_t own_receives_posted() const noexcept {
    return receives.shared() ? 0 : receives.posted();
  }
  bool both_ways() const noexcept { return options.backward_credits != 0; }
  // Whether this end takes calls, in either direction.
  bool serves() const noexcept { return options.role == Role::kResponder || both_ways(); }
  // Receives that can back credits, without those that are promised in the other direction.
  uint32_t receives_for_calls() const noexcept;
  uint32_t receives_for_replies() const noexcept;
  // Whether our calls may have chunks: backward calls only if the client says so, and never in
  // version 1 (BIDIR-10, V2D4-PROP-28).
  bool offers_chunks() const noexcept {
    return options.role == Role::kRequester ||
           (options.backward_chunks && wire == proto::Wire::kDraft04 &&
            backward == proto::BackwardSupport::kGeneral);
  }

  // Receives beyond those of the credits, for the RDMA_DONEs of replies that the peer may read, so
  // that an RDMA_DONE takes no Receive that was promised to a call (RFC 5666 section 3.8).
  uint32_t done_receives() const noexcept {
    bool exposes = options.rfc5666.enabled && options.role == Role::kResponder;
    return exposes ? std::min(options.rfc5666.exposed_replies, options.credits) : 0;
  }
  // Whether a message of that length can be posted past the list, which must be empty.
  bool may_send_now(uint64_t length) noexcept {
    return length <= options.max_copied && port != nullptr && sends.list().empty();
  }
  // Requires may_send_now(). Returns false if the message must be appended instead.
  bool send_now(std::span<const MemorySpan> spans, uint32_t invalidate_key) noexcept {
    RRDK_ON_CORE(pool);
    if (!port->send_now(spans, invalidate_key)) [[unlikely]]
      return false;
    sent_now = true;
    unposted.stamp();
    return true;
  }
  // Posts the lists as far as the queues take them, before an action that takes long.
  void post_listed() noexcept {
    RRDK_ON_CORE(pool);
    receives.post(*port);
    unposted.stamp();
    sent_now = true;
    sends.post(*port);
  }
  void refused(Refusal reason) noexcept { ++counters.refusals[reason]; }
  // Ends the connection because of something that the peer did, which is counted. The first reason
  // counts.
  void end(Refusal reason, const char* text) noexcept {
    refused(reason);
    end({EndedBy::kPeer, reason, Errc::kConnectionLost, text});
  }
  void end(const EndReason& reason) noexcept {
    if (end_reason.by == EndedBy::kNobody)
      end_reason = reason;
    if (phase == Phase::kUp || phase == Phase::kDraining)
      phase = Phase::kEnding;
    plain_limit = 0;
  }
  // Notes that what is in these buffers is named to the peer.
  void note_named(std::span<Buffer> buffers) const noexcept {
    if (!options.read_by_peer)
      return;
    for (Buffer& buffer : buffers)
      buffer.note_read_by_peer();
  }

  Thresholds& thresholds(proto::Wire of) noexcept { return by_version[proto::version_of(of) - 1]; }
  // What one half sends and gets. In the backward direction the smaller value counts for both, so
  // that one number says how large a message may be (BIDIR-09).
  Thresholds thresholds(Role half, proto::Wire of) noexcept {
    Thresholds t = thresholds(of);
    if (half != options.role)
      t.send = t.receive = std::min(t.send, t.receive);
    return t;
  }
  // Sets the version of our calls. The first message of version 2 may reach a peer that knows only
  // version 1, with Receives of its size (draft-04 section 7).
  void speak(proto::Wire what) noexcept {
    wire = what;
    settled = wire == proto::Wire::kVersion1;
    calls = thresholds(Role::kRequester, wire);
    if (!settled)
      calls.send = proto::kInlineThreshold;
  }
  void settle() noexcept {
    settled = true;
    calls = thresholds(Role::kRequester, wire);
  }
  // Server: makes the version in which it was called that of its own calls, and of what is reported
  // about the connection.
  void follow(proto::Wire called) noexcept {
    if (calling && wire == called) [[likely]]
      return;
    wire = called;
    calling = true;
    settle();
  }
  // Our part in remote invalidation as stated by RFC 8797's R bit: the client's keys can be
  // invalidated, and the server sends what invalidates them. Version 1 has no keys in backward
  // calls.
  bool invalidates() const noexcept {
    return options.role == Role::kRequester ? options.takes_invalidations
                                            : options.sends_invalidations;
  }
  // Server: whether its client has said that it takes no calls (V2D4-PROP-28).
  bool refuses_calls() const noexcept {
    return options.role == Role::kResponder && wire == proto::Wire::kDraft04 &&
           backward == proto::BackwardSupport::kNone;
  }
  // Whether what is posted is sent.
  bool up() const noexcept { return phase >= Phase::kUp && phase <= Phase::kEnding; }
  // The same, and calls run: the connection is not to end, except perhaps after them.
  bool running() const noexcept { return phase == Phase::kUp || phase == Phase::kDraining; }
};

// Seven cache lines, and the first one of the counters.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(Common, counters) <= 448);
#pragma GCC diagnostic pop
static_assert(offsetof(Counters, messages_received) < 64 && offsetof(Counters, replies_sent) < 64);
static_assert(sizeof(Common) - sizeof(Counters) <= 704);

// As many Receives as there are replies to wait for are never promised to calls; otherwise calls
// could take every Receive for good when there are few.
inline uint32_t Common::receives_for_calls() const noexcept {
  if (receives.shared())
    return share.calls() + receives.unpromised();
  uint32_t replies = credits_of(Role::kRequester, options) + rfc5666.spare_receives;
  return share.backing() - std::min(share.backing(), replies);
}

inline uint32_t Common::receives_for_replies() const noexcept {
  if (receives.shared())
    return share.replies() + receives.unpromised();
  uint32_t calls_due = both_ways() ? grant->due() : 0;
  return share.backing() - std::min(share.backing(), calls_due);
}

// Why the engine refuses, in the terms of the public statistics.

// The reason to count when a work request failed because of the peer.
constexpr Refusal refusal_of(fabric::WcStatus status) noexcept {
  switch (status) {
    case fabric::WcStatus::kLocalLength:
      return Refusal::kMessageTooLong;
    case fabric::WcStatus::kRemoteAccess:
      return Refusal::kAccessRefused;
    case fabric::WcStatus::kRemoteInvalid:
    case fabric::WcStatus::kRnrExceeded:
      return Refusal::kNotReceived;
    default:
      return Refusal::kWorkFailed;
  }
}

}  // namespace rrdk::engine
