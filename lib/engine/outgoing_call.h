// One call that we make: the upper layer's side of it, and the engine's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "engine/send_queue.h"
#include "engine/stage_log_datapath.h"
#include "engine/stream_datapath.h"
#include "proto/header.h"
#include "rrdk/call_status.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

constexpr uint32_t kMaxResultRooms = 16;  // of one call: its Write chunks
constexpr uint32_t kMaxResultSpans = 64;  // of a call together

// Room that the requester offers for one DDP-eligible result: one Write chunk. One span is one
// segment.
struct ResultRoom {
  std::span<const MemorySpan> spans;
};

// A message of a registered type that takes the place of an RPC call: its OutgoingCall has no
// message of its own.
struct Optional {
  // In, until the call has ended. The payload's XID is filled in.
  uint32_t type = 0;
  std::span<const std::byte> info = {};
  std::span<const std::byte> payload = {};
  // For a copy of the answer, so that what was checked cannot change: kMostOptionInfo +
  // kMostOptionPayload bytes.
  std::span<std::byte> room = {};

  // Out, with kOk.
  uint32_t answer_type = 0;
  std::span<const std::byte> answer_info = {};
  std::span<const std::byte> answer_payload = {};
};

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

// What a call has whose message or reply does not move in one plain Send each. A call object takes
// it at its first need, and keeps it.
struct CallChunks {
  // Write chunk k has offers [result_first[k], result_first[k + 1]).
  std::array<uint16_t, kMaxResults + 1> result_first;
  SendPlan plan;
  std::array<Offer, kMaxOffers> offers;
  std::array<Fragment, kMaxOffers> fragments;  // what came back in each offer of a chunk
  std::array<ItemView, kMaxResults> placed;
  std::array<Buffer, 2 * kMaxMessageBuffers> buffers;  // of a long call and of the Reply chunk
  // The upper layer may keep here what it names in `results`. rooms[k], if there is one, is the
  // buffer of the one span of results[k].
  std::array<ResultRoom, kMaxResultRooms> results;
  std::array<MemorySpan, kMaxResultSpans> spans;
  std::array<Buffer, kMaxResultRooms> rooms;
};
static_assert(sizeof(CallChunks) <= 6464);

enum class CallStage : uint8_t {
  kIdle,      // not the engine's
  kQueued,    // for a credit, keys or buffers
  kInFlight,  // for the reply, or whatever else ends the call: its Send may still be on its way
  kRevoking,  // over, with its status known; for the Send and the invalidations to complete
  kLent,      // over for its caller (requester.cc); waits for the reply, as the peer has its memory
};

// How a call was sent last.
enum class CallWay : uint8_t {
  kLane,     // Requester::begin_plain()
  kPlain,    // a header and the message, as they are: nothing is kept of how they were gathered
  kPlanned,  // as CallChunks::plan says
};

// How far the engine has got with a call: numbers only, which a stand-in takes over as they are.
struct CallProgress {
  uint32_t xid = 0;
  uint32_t slot = 0;
  CallStage stage = CallStage::kIdle;
  CallWay way = CallWay::kPlain;
  proto::Wire wire = proto::Wire::kVersion1;  // in which it was sent
  bool again = false;   // is to be sent again, under its XID, when its memory is fenced
  bool mended = false;  // was sent again with the room that the peer named
  bool lent = false;    // its caller has been told of its end: it is a stand-in's
  bool clean = false;   // all is as begin_plain() needs it
  uint8_t num_results = 0;
  uint16_t num_offers = 0;
  uint16_t message_offers = 0;  // the first ones: the Position-Zero chunk's
  uint16_t reply_first = 0;     // offers from here on are the Reply chunk's
  uint16_t bound = 0;           // offers whose binds were posted
  uint16_t revoked = 0;         // the first ones: their invalidations were posted, or need not be
  uint16_t num_buffers = 0;

  bool fenced() const noexcept { return revoked == num_offers; }
};
static_assert(sizeof(CallProgress) <= 28 && std::is_trivially_copyable_v<CallProgress>);

// One call that we make: a record of the upper layer's, reused from call to call. It belongs to the
// engine from submit() to Upcalls::on_call_ended. A plain call touches what comes before `chunks`.
struct alignas(64) OutgoingCall : CallProgress {
  // In. The RPC call message; its first word (the XID) is filled in by submit().
  Message message;
  std::span<const ResultRoom> results;  // for the reply's eligible results, in stream order
  uint64_t max_reply = 1024;            // bound of the reply stream without the placed results
  uint64_t deadline_ns = 0;             // on on_tick's clock; 0: none
  bool by_library = false;              // it has no program's Call: the library made it for itself
  bool force_long = false;              // send as RDMA_NOMSG though it would fit (V1-LONG-14)
  bool only_short = false;              // never as RDMA_NOMSG: the binding forbids it (EXP-33)
  bool no_ddp = false;                  // no item in a chunk of its own (SEC-04); no `results`
  // Send under the XID of its last submit(). This engine has as many credits as the one of that
  // submit() and continues its XIDs (continue_xids()). Calls that are sent again are submitted
  // before all others.
  bool resend = false;
  // Running it twice does no harm: it is sent again when the peer names the room that its reply
  // needs.
  bool repeatable = false;

  // Out, valid until release(): whether the peer may have seen it, how it ended, and with kOk the
  // reduced reply and what was placed. The message is as it was before submit(), but for its XID.
  bool sent = false;
  CallStatus status = CallStatus::kOk;
  std::span<const Fragment> reply;
  std::span<const ItemView> placed;

  // The engine's.
  Buffer receive;  // the reply's Send, kept until the next one takes its place
  Fragment whole;  // the reply, when it is inline

  // Null: it is not sampled. It is completed by what is told of the call's end, or by the
  // destructor.
  StageRecord* stages = nullptr;
  // When the upper layer was asked to submit the call, if earlier than the engine's submit(); 0: at
  // the engine's submit().
  uint64_t submitted_ticks = 0;

  std::unique_ptr<CallChunks> chunks;  // the engine's, and for `results`
  Optional* option = nullptr;          // in
  // A call that is given up ends at once, although the peer may still use its memory, if the engine
  // can keep all of that memory: the buffers of `message`, and those of `results` that are in
  // chunks->rooms. Memory of the caller's own is left to the peer only if `released` is set: the
  // engine then takes `released` over and calls it once, when the peer is done with the memory. If
  // `released` is still set when the call ends, nothing is left to the peer.
  void (*released)(void* argument) = nullptr;
  void* released_argument = nullptr;

  // Out. With kChunkError, kVersionError and kRemoteError: what the peer said.
  proto::ErrorBody error = {};
  uint32_t error_version = 0;

  // The engine's. The first two change with `mended` only.
  uint64_t reply_extra = 0;             // room for the reply beyond what the upper layer expects
  uint16_t most_results = kMaxResults;  // how many of the results' rooms are offered at most
  uint64_t since_ns = 0;  // first tick that saw it lent, or over and not settled; 0: none has yet
  OutgoingCall* next_queued = nullptr;

  OutgoingCall() = default;
  ~OutgoingCall() {
    if (stages != nullptr)
      stages->complete();
  }
  OutgoingCall(const OutgoingCall&) = delete;
  OutgoingCall& operator=(const OutgoingCall&) = delete;
  // Returns the reply's buffers and those of the message. submit() ends the reply too, and keeps
  // one buffer for the next.
  void release();
  // False: there is no memory.
  bool take_chunks() noexcept { return chunks != nullptr || make_chunks(); }
  // A new call has all of its rooms, and no more.
  void unmend() noexcept {
    if (!mended) [[likely]]
      return;
    mended = false;
    reply_extra = 0;
    most_results = kMaxResults;
  }
  // What a new call does not need.
  void clear() noexcept {
    while (num_buffers != 0)
      chunks->buffers[--num_buffers].reset();
    if (way == CallWay::kPlanned)
      chunks->plan.clear();
    way = CallWay::kPlain;
  }
  void release_buffers() noexcept {
    clear();
    receive.reset();
  }

 private:
  bool make_chunks() noexcept;
};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
static_assert(offsetof(OutgoingCall, chunks) <= 208 && sizeof(OutgoingCall) <= 320);
#pragma GCC diagnostic pop

}  // namespace rrdk::engine
