// What an engine tells those around it: upcalls, counts, and why it ends.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/count.h"
#include "rrdk/connection.h"
#include "rrdk/counters.h"

namespace rrdk::engine {

struct OutgoingCall;  // engine/outgoing_call.h: a call that we make
struct ServedCall;    // engine/served_call.h: a call that the peer made

// A count for each reason.
struct Refusals {
  std::array<base::Count, kRefusals> counts;

  base::Count& operator[](Refusal reason) noexcept { return counts[static_cast<size_t>(reason)]; }
  const base::Count& operator[](Refusal reason) const noexcept {
    return counts[static_cast<size_t>(reason)];
  }
};

// What a connection counts. The connection's core writes it.
struct Counters {
#define RRDK_CONNECTION_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
  Refusals refusals;

  uint64_t breaches() const noexcept;
  void add_to(Stats& sum) const noexcept;
};

// Why the engine ends the connection. Unlike an Ending it can be made on the data path.
struct EndReason {
  EndedBy by = EndedBy::kNobody;
  std::optional<Refusal> refusal = {};
  Errc code = Errc::kConnectionLost;
  const char* text = "";  // outlives the engine, or is part of it
};

constexpr EndReason kCallDropped = {
    EndedBy::kProgram, {}, Errc::kShutdown, "one of its calls was dropped"};

class Upcalls {
 public:
  virtual void on_call(ServedCall& call) = 0;          // a whole call is here
  virtual void on_call_ended(OutgoingCall& call) = 0;  // exactly once per submit()

  // Responder: the peer did not allow an RDMA Read or Write by which the call of this XID was to be
  // served, or we could not do it. The connection is lost by that.
  virtual void on_access_failed(uint32_t /*xid*/) {}
  // Responder: whether that happened to a call of this XID on an earlier connection of the peer.
  // It is then answered ERR_CHUNK at once (V1-ERR-19). Asked for calls with chunks only.
  virtual bool failed_before(uint32_t /*xid*/) { return false; }
  // Responder: its client has said that it takes backward calls with chunks, as we make them.
  virtual void on_chunks_taken() {}
  // Whether our Receives, that many, may become that large: they take other buffers then.
  virtual bool may_grow(uint32_t /*bytes*/, uint32_t /*receives*/) { return true; }
  // Requester with Speaks::kAuto: the peer does not know version 2; 1 is spoken from now on.
  virtual void on_version_refused() {}

 protected:
  ~Upcalls() = default;
};

}  // namespace rrdk::engine
