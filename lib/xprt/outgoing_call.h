// One call that we make: the engine's side of an OutgoingCall.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/header.h"
#include "rrdk/xdr.h"
#include "xprt/connection.h"
#include "xprt/send_queue.h"
#include "xprt/stream_datapath.h"

namespace rrdk::xprt {

class Requester;

constexpr uint32_t kMaxOffers = 96;  // segments of one call, all lists together
constexpr uint32_t kMaxResults = kMaxResultRooms;
constexpr uint32_t kMaxMessageBuffers = 32;  // of a long call, and of a long reply
// Registered bytes that each slot has for its calls' headers. The last four are zeros for pads that
// we send; the four before them take pads that responders write (V1-PAD-13), and mean nothing.
constexpr uint32_t kCallHeaderRoom = 128;
constexpr uint32_t kPadRoom = 4;

// Memory that the peer may access during one call.
struct Offer {
  MemorySpan span;
  uint32_t key;
  fabric::Rights rights;
  bool revoked;  // by the peer's Send With Invalidate

  proto::Segment segment() const noexcept {
    return {key, span.length, reinterpret_cast<uint64_t>(span.data)};
  }
};
static_assert(sizeof(Offer) <= 24);

enum class CallStage : uint8_t {
  kIdle,      // not the engine's
  kQueued,    // for a credit, keys or buffers
  kInFlight,  // for the reply, or whatever else ends the call: its Send may still be on its way
  kRevoking,  // over, with its status known; for the Send and the invalidations to complete
  kLent,      // over for its caller (requester.cc); waits for the reply, as the peer has its memory
};

struct OutgoingCall::State {
  explicit State(OutgoingCall& owner) noexcept : call(&owner) {}

  OutgoingCall* call;  // never null; a stand-in's while `lent`
  CallStage stage = CallStage::kIdle;
  CallStatus status = CallStatus::kOk;
  uint8_t num_results = 0;
  uint16_t num_offers = 0;
  uint16_t message_offers = 0;  // the first ones: the Position-Zero chunk's
  uint16_t reply_first = 0;     // offers from here on are the Reply chunk's
  uint16_t bound = 0;           // offers whose binds were posted
  uint16_t revoked = 0;         // offers that were looked at for revocation
  bool fenced = false;          // all invalidations were posted
  bool again = false;           // is to be sent again, under its XID, when its memory is fenced
  bool mended = false;          // was sent again with the room that the peer named
  bool lent = false;            // its caller has been told of its end
  bool plain = false;           // was sent in the lane (Requester::begin_plain())
  bool clean = false;           // all is as begin_plain() needs it
  uint64_t lent_since_ns = 0;   // 0: no tick has seen it lent yet
  uint16_t rooms = 0;           // how many of the results' rooms are offered at most
  uint64_t reply_extra = 0;     // room for the reply beyond what the upper layer expects
  uint64_t inline_reply = 0;    // the most that the reply's Send may have; 0: it has a Reply chunk
  uint64_t stuck_since_ns = 0;  // since when it is over and not settled(); 0: not seen so
  uint32_t slot = 0;
  uint32_t xid = 0;
  proto::Wire wire = proto::Wire::kVersion1;  // in which it was sent
  State* next = nullptr;                      // while queued
  Job send_job{{WorkKind::kCall, this}};
  Job revoke_job{{WorkKind::kRevoke, this}};
  Buffer receive;  // the reply's Send, kept until the next one takes its place
  Fragment whole;  // the reply, when it is inline
  SendPlan plan;

  // Touched by calls with chunks. Write chunk k has offers [result_first[k], result_first[k+1]).
  std::array<uint16_t, kMaxResults + 1> result_first;
  std::array<ItemView, kMaxResults> placed;
  uint16_t num_buffers = 0;
  std::array<Buffer, 2 * kMaxMessageBuffers> buffers;  // of a long call and of the Reply chunk
  std::array<Offer, kMaxOffers> offers;
  std::array<Fragment, kMaxOffers> fragments;  // what came back in each offer of a chunk

  bool settled() const noexcept { return send_job.settled() && revoke_job.settled(); }
  // What a new call does not need.
  void clear() noexcept {
    while (num_buffers != 0)
      buffers[--num_buffers].reset();
    plan.clear();
  }
  void release_buffers() noexcept {
    clear();
    receive.reset();
  }
};
static_assert(sizeof(OutgoingCall) <= 360 && sizeof(OutgoingCall::State) <= 5280);
// What every call touches.
static_assert(offsetof(OutgoingCall::State, result_first) <= 496);

}  // namespace rrdk::xprt
