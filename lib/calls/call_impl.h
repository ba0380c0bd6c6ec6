// What is behind a Call.
//
//   phase      who has the call                  waits for
//   kIdle      its caller, or the core's inbox   submit(), then the core's next pass
//   kWaiting   the Caller::Impl                  a connection, deadline, cancel or its giving up
//   kEngine    the engine                        reply, deadline, cancel or the connection's end
//   kEnded     the core's deferred ends          the core's next pass, then the callback
// A call whose connection is lost goes from kEngine back to kWaiting, if the policy says so.
//
// It can outlive its Call: one that is destroyed in a pass of its core goes when it is no longer
// busy().
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "base/list.h"
#include "rpc/call_datapath.h"
#include "rpc/reply_datapath.h"
#include "rrdk/call.h"
#include "runtime/work.h"
#include "xprt/connection.h"

namespace rrdk {

// The completion of a call whose end nobody wants to be told of.
inline void no_callback(Call&, void*) {}

struct Call::Impl : runtime::WorkItem {
  enum class Phase : uint8_t { kIdle, kWaiting, kEngine, kEnded };
  // What begin() returns when it is refused.
  struct Refused {
    explicit Refused(Memory& memory) : encoder(message, memory, 0, 0) { encoder.fail(); }
    Message message;
    Encoder encoder;
  };
  struct Farewell : runtime::WorkItem {
    Impl* call = nullptr;
  };
  // Through the inbox by itself, since the call's own item may be there.
  struct Cancel : runtime::WorkItem {
    Impl* call = nullptr;
    std::atomic<uint64_t> serial = 0;  // of the call that is meant
    std::atomic<bool> queued = false;
  };

  Impl(Call& owner_in, std::shared_ptr<Caller::Impl> caller_in)
      : owner(owner_in), caller(*caller_in), caller_held(std::move(caller_in)) {
    outgoing.user = this;
    cancelling.call = this;
    farewell.call = this;
  }

  // Whether a thread may still come to it: from submit() until the callback has returned, and while
  // a cancel() is on its way.
  bool busy() const noexcept {
    return is_in_flight() || cancelling.queued.load(std::memory_order_acquire);
  }
  bool is_in_flight() const noexcept {
    // In this order: deliver() sets the second before it clears the first.
    return in_flight.load(std::memory_order_acquire) || delivering.load(std::memory_order_acquire);
  }

  void add_room(std::span<const MemorySpan> segments) noexcept;
  void add_room(Buffer room, uint32_t length) noexcept;
  // Whether it may be sent; else why not.
  CallStatus check() noexcept;
  void plan_reply() noexcept;
  void cancel_quietly() noexcept;
  void abandon() noexcept;
  // Misuse (call.cc).
  Encoder& refuse_begin() noexcept;
  bool refuse_submit() noexcept;
  void refuse_retired() noexcept;

  Call& owner;
  Caller::Impl& caller;
  const std::shared_ptr<Caller::Impl> caller_held;  // it may be retired()
  xprt::OutgoingCall outgoing;
  std::optional<Encoder> args;
  bool begun = false;  // and not submitted since
  Decoder results;
  const xprt::StageRecord* stamped = nullptr;  // in the callback of a sampled call
  rpc::ReplyHeader reply;
  CallStatus status = CallStatus::kOk;

  // Of the call being made.
  std::atomic<const Binding*> binding = nullptr;
  bool binding_ok = false;
  std::atomic<uint32_t> procedure = 0;
  const ProcedureBinding* entry = nullptr;  // of the procedure; null: it has none
  uint32_t timeout_ms = 0;
  bool retransmit = false;
  uint64_t variable_reply = 0;
  bool transformed = false;  // forbid_ddp()
  uint32_t growth = 0;       // of the transformed reply
  uint32_t num_rooms = 0;
  uint32_t num_spans = 0;
  bool too_many = false;
  CallStatus bad_room = CallStatus::kOk;  // why it can not be sent with the room that was offered
  std::array<xprt::ResultRoom, kMaxOffers> rooms;
  std::array<MemorySpan, kMaxOfferSegments> spans;
  std::atomic<Completion> completion = nullptr;
  void* argument = nullptr;
  // The caller's, as of the last begin().
  uint64_t credential_version = 0;
  std::shared_ptr<const rpc::PreparedAuth> credential;

  // Callers see whether it is in flight; the phase is the core's alone.
  std::atomic<bool> in_flight = false;   // until the callback begins
  std::atomic<bool> delivering = false;  // until it has returned
  std::atomic<bool> abandoned = false;   // its Call is being destroyed: no callback any more
  std::atomic<bool> let_go = false;      // by Call::abandon(): to destroy it is no mistake
  Phase phase = Phase::kIdle;
  bool timed = false;                // on_tick() has seen it and set its deadline
  std::atomic<uint64_t> serial = 0;  // of submits
  std::atomic<bool> cancel_wanted = false;
  Cancel cancelling;
  Farewell farewell;
  std::unique_ptr<Refused> refused;
  base::Links<Impl> links;  // in the one of the caller's lists that it is in
};

// Calls of one Caller, of its core's thread. A call is in one list at a time.
using CallList = base::List<Call::Impl, &Call::Impl::links>;

}  // namespace rrdk
