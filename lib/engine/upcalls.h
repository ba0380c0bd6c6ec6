// What an engine reports: upcalls, counters, and why it ends.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/count.h"
#include "rrdk/call_status.h"
#include "rrdk/connection.h"
#include "rrdk/counters.h"

namespace rrdk::engine {

struct OutgoingCall;  // engine/outgoing_call.h: a call that we make
struct ServedCall;    // engine/served_call.h: a call that the peer made

// A counter for each reason to refuse.
struct Refusals {
  std::array<base::Count, kRefusals> counts;

  base::Count& operator[](Refusal reason) noexcept { return counts[static_cast<size_t>(reason)]; }
  const base::Count& operator[](Refusal reason) const noexcept {
    return counts[static_cast<size_t>(reason)];
  }
};

// The counters of a connection. Only the connection's core writes them.
struct Counters {
#define RRDK_CONNECTION_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
  Refusals refusals;

  uint64_t breaches() const noexcept;
  void add_to(Stats& sum) const noexcept;
};

// Why the engine ends the connection. Unlike an Ending, it can be made on the data path.
struct EndReason {
  EndedBy by = EndedBy::kNobody;
  std::optional<Refusal> refusal = {};
  Errc code = Errc::kConnectionLost;
  const char* text = "";  // must outlive the engine unless it belongs to the engine
};

constexpr EndReason kCallDropped = {
    EndedBy::kProgram, {}, Errc::kShutdown, "one of its calls was dropped"};

class Upcalls {
 public:
  virtual void on_call(ServedCall& call) = 0;          // a whole call has arrived
  virtual void on_call_ended(OutgoingCall& call) = 0;  // exactly once per submit()

  // Requester: the call has its XID, and is about to be sent, perhaps once more (RFC 2203 section
  // 5.3.3.1 wants another sequence number then). If it is `sealed` already, only its XID may have
  // changed. Returns kOk, or how the call ends; after kNoMemory it may be tried again when other
  // calls have ended, and after kFull it is, and at each tick.
  virtual CallStatus seal_call(OutgoingCall& /*call*/) { return CallStatus::kOk; }
  // Requester: a call that was given up has been answered after all, so another one has its credit.
  virtual void on_credit_back() {}
  // Responder: the peer did not allow an RDMA Read or Write for the call with this XID, or we could
  // not perform it. The connection is lost.
  virtual void on_access_failed(uint32_t /*xid*/) {}
  // Responder: returns whether that happened to a call with this XID on an earlier connection of
  // the peer. If so, the call is answered ERR_CHUNK at once (V1-ERR-19). Called only for calls with
  // chunks.
  virtual bool failed_before(uint32_t /*xid*/) { return false; }
  // Responder: the client has said that it takes backward calls with chunks, in the form in which
  // we make them.
  virtual void on_chunks_taken() {}
  // Returns whether our `receives` Receives may grow to that size; they then take other buffers.
  virtual bool may_grow(uint32_t /*bytes*/, uint32_t /*receives*/) { return true; }
  // Requester with Speaks::kAuto: the peer does not know version 2, so version 1 is spoken from now
  // on.
  virtual void on_version_refused() {}

 protected:
  ~Upcalls() = default;
};

}  // namespace rrdk::engine
