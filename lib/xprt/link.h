// What both halves of a connection's engine share.
#pragma once

#include <cstdint>

#include "xprt/call_pool.h"
#include "xprt/connection.h"
#include "xprt/receive_queue.h"
#include "xprt/send_queue.h"

namespace rrdk::xprt {

enum class Phase : uint8_t {
  kNew,          // not established: nothing is sent
  kEstablished,  //
  kFailing,      // a work request failed: nothing more is sent; waits for on_disconnected()
  kDead,         // no access by the peer any more; waits until everything posted was reported
};

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
        receives(memory_, options_.credits, options_.receive_size) {}

  Connection& connection;
  ConnectionOptions options;
  Memory& memory;
  CallPool& pool;
  fabric::RemoteKeys& keys;
  Upcalls& upcalls;

  Phase phase = Phase::kNew;
  bool wants_disconnect = false;
  bool draining = false;              // no more calls; disconnect when there are none
  const char* fault = nullptr;        // what the peer did, when that is why; a literal
  bool invalidate = false;            // both ends set R (RFC 8797 section 4.1)
  uint32_t send_threshold = 1024;     // largest whole Send from here to the peer
  uint32_t receive_threshold = 1024;  // and from the peer to here
  SendQueue sends;
  ReceiveQueue receives;
  Counters counters;

  void refused(Refusal reason) noexcept { ++counters.refusals[reason]; }
  bool up() const noexcept { return phase == Phase::kEstablished; }
};

}  // namespace rrdk::xprt
