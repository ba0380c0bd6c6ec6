// What both halves of a connection's engine share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/codec.h"
#include "xprt/call_pool.h"
#include "xprt/connection.h"
#include "xprt/peer_limits.h"
#include "xprt/receive_queue.h"
#include "xprt/send_queue.h"

namespace rrdk::xprt {

enum class Phase : uint8_t {
  kNew,          // not established: nothing is sent
  kEstablished,  //
  kFailing,      // a work request failed: nothing more is sent; waits for on_disconnected()
  kDead,         // no access by the peer any more; waits until everything posted was reported
};

// Bytes of the largest whole Send from here to the peer, and from the peer to here.
struct Thresholds {
  uint32_t send = proto::kInlineThreshold;
  uint32_t receive = proto::kInlineThreshold;
};

inline uint32_t receive_bytes(const ConnectionOptions& options) noexcept {
  return proto::receive_bytes(options.receive_size, options.limits.versions);
}

struct Link {
  Link(Connection& connection_, const ConnectionOptions& options_, Memory& memory_, CallPool& pool_,
       fabric::RemoteKeys& keys_, Upcalls& upcalls_)
      : connection(connection_),
        options(options_),
        memory(memory_),
        pool(pool_),
        keys(keys_),
        upcalls(upcalls_),
        sends(options_.send_wrs),
        receives(memory_, options_.credits, receive_bytes(options_)) {
    if (options.one_segment)
      peer.segments = 1;
    speak(options.speaks == Speaks::kOne || !options.limits.versions.two
              ? proto::Wire::kVersion1
              : *options.limits.versions.two);
  }

  Connection& connection;
  ConnectionOptions options;
  Memory& memory;
  CallPool& pool;
  fabric::RemoteKeys& keys;
  Upcalls& upcalls;

  Phase phase = Phase::kNew;
  bool wants_disconnect = false;
  bool draining = false;                      // no more calls; disconnect when there are none
  const char* fault = nullptr;                // what the peer did, when that is why; a literal
  bool invalidate = false;                    // version 1: both ends set R (RFC 8797 section 4.1)
  proto::Wire wire = proto::Wire::kVersion1;  // of our calls
  bool settled = true;                        // the peer has shown that it knows that version
  PeerLimits peer;
  Thresholds calls;  // of our calls and their replies
  Thresholds by_version[2] = {{}, {proto::kInlineThreshold2, proto::kInlineThreshold2}};
  SendQueue sends;
  ReceiveQueue receives;
  Counters counters;

  void refused(Refusal reason) noexcept { ++counters.refusals[reason]; }

  Thresholds& thresholds(proto::Wire of) noexcept { return by_version[proto::version_of(of) - 1]; }
  // From now on our calls are of this kind. The first message of version 2 can meet a peer that
  // knows only version 1, with its Receives (draft-04 section 7).
  void speak(proto::Wire what) noexcept {
    wire = what;
    settled = wire == proto::Wire::kVersion1;
    calls = thresholds(wire);
    if (!settled)
      calls.send = proto::kInlineThreshold;
  }
  void settle() noexcept {
    settled = true;
    calls = thresholds(wire);
  }
  bool up() const noexcept { return phase == Phase::kEstablished; }
};

}  // namespace rrdk::xprt
