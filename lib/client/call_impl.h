// What is behind a Call.
//
//   phase      who has the call                  waits for
//   kIdle      its caller, or the core's inbox   submit(), then the core's next pass
//   kEngine    the engine                        reply, deadline, cancel or the connection's end
//   kEnded     the core's deferred ends          the core's next pass, then the callback
#pragma once

#include <array>
#include <atomic>
#include <optional>

#include "rpc/reply_datapath.h"
#include "rrdk/client.h"
#include "runtime/work_item.h"
#include "xprt/connection.h"

namespace rrdk {

struct Call::Impl : runtime::WorkItem {
  enum class Phase : uint8_t { kIdle, kEngine, kEnded };
  // Through the inbox by itself, since the call's own item may be there.
  struct Cancel : runtime::WorkItem {
    Impl* call = nullptr;
    std::atomic<uint64_t> serial = 0;  // of the call that is meant
    std::atomic<bool> queued = false;
  };

  Impl(Call& owner_in, ClientConnection::Impl& connection_in)
      : owner(owner_in), connection(connection_in) {
    outgoing.user = this;
    cancelling.call = this;
  }

  void add_room(std::span<const MemorySpan> segments) noexcept;
  // Whether it may be sent; else why not.
  CallStatus check() noexcept;

  Call& owner;
  ClientConnection::Impl& connection;
  xprt::OutgoingCall outgoing;
  std::optional<Encoder> args;
  Decoder results;
  rpc::ReplyHeader reply;
  CallStatus status = CallStatus::kOk;

  // Of the call being made.
  const Binding* binding = nullptr;
  uint32_t procedure = 0;
  uint32_t timeout_ms = 0;
  uint64_t variable_reply = 0;
  uint32_t num_rooms = 0;
  uint32_t num_spans = 0;
  bool too_many = false;
  std::array<xprt::ResultRoom, kMaxOffers> rooms;
  std::array<MemorySpan, kMaxOfferSegments> spans;
  Completion completion = nullptr;
  void* argument = nullptr;

  // Callers see whether it is in flight; the phase is the core's alone.
  std::atomic<bool> in_flight = false;
  Phase phase = Phase::kIdle;
  bool timed = false;                // on_tick() has seen it and set its deadline
  std::atomic<uint64_t> serial = 0;  // of submits
  std::atomic<bool> cancel_wanted = false;
  Cancel cancelling;
  Impl* previous = nullptr;  // in the connection's list of calls that the engine has
  Impl* following = nullptr;
};

}  // namespace rrdk
