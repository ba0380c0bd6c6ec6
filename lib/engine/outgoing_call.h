// One call that we make: the upper layer's part of the record, and the engine's.
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

constexpr uint32_t kMaxResultRooms = 16;  // Write chunks of one call
constexpr uint32_t kMaxResultSpans = 64;  // all results of a call together

// Memory that the requester offers for one DDP-eligible result: one Write chunk. One span is one
// segment.
struct ResultRoom {
  std::span<const MemorySpan> spans;
};

// A message of a registered type that is sent in place of an RPC call. Its OutgoingCall has no
// message of its own.
struct Optional {
  // In; valid until the call has ended. The payload's XID is filled in.
  uint32_t type = 0;
  std::span<const std::byte> info = {};
  std::span<const std::byte> payload = {};
  // Takes a copy of the answer, so that it cannot change after it was checked: kMostOptionInfo +
  // kMostOptionPayload bytes.
  std::span<std::byte> room = {};

  // Out, if the status is kOk.
  uint32_t answer_type = 0;
  std::span<const std::byte> answer_info = {};
  std::span<const std::byte> answer_payload = {};
};

constexpr uint32_t kMaxOffers = 96;  // segments of one call, in all lists
constexpr uint32_t kMaxResults = kMaxResultRooms;
constexpr uint32_t kMaxMessageBuffers = 32;  // of a long call, and of a long reply
// Registered bytes that each slot has for its calls' headers. The last four are zeros for the pads
// that we send. The four before them take pads that responders write (V1-PAD-13), and have no
// meaning.
constexpr uint32_t kCallHeaderRoom = 128;
constexpr uint32_t kPadRoom = 4;

// Memory that the peer may access during one call.
struct Offer {
  MemorySpan span;
  uint32_t key;
  fabric::Rights rights;
  bool revoked;       // by the peer's Send With Invalidate
  uint16_t runs = 0;  // if not 0, `span` begins with a list of them (fabric::SendWr::runs)

  proto::Segment segment() const noexcept {
    return {key, span.length, reinterpret_cast<uint64_t>(span.data)};
  }
  void fill_bind(fabric::SendWr& wr) const noexcept {
    wr.key = key;
    wr.rights = rights;
    wr.runs = runs;
    wr.num_sges = 1;
    wr.sges[0] = span;
    if (runs != 0) [[unlikely]]
      wr.sges[0].length = runs * static_cast<uint32_t>(sizeof(MemorySpan));
  }
};
static_assert(sizeof(Offer) <= 24);

// The part of a call that is needed only if its message or its reply does not travel in one plain
// Send. A call object gets it when it first needs it, and keeps it.
struct CallChunks {
  // Write chunk k has offers [result_first[k], result_first[k + 1]).
  std::array<uint16_t, kMaxResults + 1> result_first;
  SendPlan plan;
  std::array<Offer, kMaxOffers> offers;
  std::array<Fragment, kMaxOffers> fragments;  // what came back in each offer of a chunk
  std::array<ItemView, kMaxResults> placed;
  // Of a long call, of the Reply chunk, and for lists of runs (Offer::runs).
  std::array<Buffer, 2 * kMaxMessageBuffers> buffers;
  // The upper layer may keep here what it refers to in `results`. rooms[k], if not empty, is the
  // buffer of the only span of results[k].
  std::array<ResultRoom, kMaxResultRooms> results;
  std::array<MemorySpan, kMaxResultSpans> spans;
  std::array<Buffer, kMaxResultRooms> rooms;
};
static_assert(sizeof(CallChunks) <= 6464);

enum class CallStage : uint8_t {
  kIdle,      // not with the engine
  kQueued,    // waits for a credit, keys or buffers
  kInFlight,  // waits for the reply or another end; its Send may not have completed yet
  kRevoking,  // over, with its status known; waits for the Send and the invalidations to complete
  kLent,  // over for its caller (requester.cc); waits for the reply, since the peer has its memory
};

// How a call was last sent.
enum class CallWay : uint8_t {
  kLane,     // Requester::begin_plain()
  kPlain,    // the header and the message, unchanged; how they were gathered is not recorded
  kPlanned,  // as CallChunks::plan says
};

// The progress of a call: only numbers, which a stand-in copies as they are.
struct CallProgress {
  uint32_t xid = 0;
  uint32_t slot = 0;
  CallStage stage = CallStage::kIdle;
  CallWay way = CallWay::kPlain;
  proto::Wire wire = proto::Wire::kVersion1;  // in which it was sent
  bool again = false;   // to be sent again under its XID once its memory is fenced
  bool mended = false;  // was sent again with memory of the size that the peer named
  bool lent = false;    // its caller has been told that it ended: a stand-in has it
  bool clean = false;   // all members are as begin_plain() needs them
  uint8_t num_results = 0;
  uint16_t num_offers = 0;
  uint16_t message_offers = 0;  // the first ones: the Position-Zero chunk's
  uint16_t reply_first = 0;     // offers from here on are the Reply chunk's
  uint16_t bound = 0;           // offers whose binds were posted
  uint16_t revoked = 0;         // the first ones: their invalidations were posted or are not needed
  uint16_t num_buffers = 0;

  bool fenced() const noexcept { return revoked == num_offers; }
};
static_assert(sizeof(CallProgress) <= 28 && std::is_trivially_copyable_v<CallProgress>);

// One call that we make. The upper layer owns the record and reuses it from call to call. The
// engine has it from submit() until Upcalls::on_call_ended(). A plain call touches only the members
// before `chunks`.
struct alignas(64) OutgoingCall : CallProgress {
  // In. Upcalls::seal_call() completes its message each time it is sent. Never in the lane. It is
  // first, with the engine's `sealed`, because there is space behind the progress.
  bool secured = false;
  bool sealed = false;  // its message was completed, and has not been sent since
  // The RPC call message; submit() fills in its first word (the XID).
  Message message;
  std::span<const ResultRoom> results;  // for the reply's eligible results, in stream order
  uint64_t max_reply = 1024;            // bound on the reply stream without the placed results
  uint64_t deadline_ns = 0;             // on on_tick()'s clock; 0: none
  bool by_library = false;  // the library makes it for itself; no Call of the program belongs to it
  bool force_long = false;  // send as RDMA_NOMSG even if it fits inline (V1-LONG-14)
  bool only_short = false;  // never as RDMA_NOMSG: the binding forbids it (EXP-33)
  bool no_ddp = false;      // no item moves in a chunk of its own (SEC-04); no `results`
  // Send under the XID of the last submit(). This engine must have as many credits as the engine of
  // that submit() and continue its XIDs (continue_xids()). Calls that are sent again should be
  // submitted before all others: if another call has their slot, they end with kNoMemory.
  bool resend = false;
  // Running the call twice does no harm: it is sent again if the peer names the size that its reply
  // needs.
  bool repeatable = false;

  // Out, valid until release(): whether the peer may have seen the call, how it ended, and with kOk
  // the reduced reply and what was placed. The message is as it was before submit(), except its
  // XID, until Requester::give_arguments() may have emptied it.
  bool sent = false;
  CallStatus status = CallStatus::kOk;
  std::span<const Fragment> reply;
  std::span<const ItemView> placed;

  // The engine's.
  Buffer receive;  // the reply's Send, kept until the next one replaces it
  Fragment whole;  // the reply, if it is inline

  // Null if the call is not sampled. The record is completed when the call's end is reported, or by
  // the destructor.
  StageRecord* stages = nullptr;
  // When the upper layer was asked to submit the call, if that was before the engine's submit();
  // otherwise 0.
  uint64_t submitted_ticks = 0;

  std::unique_ptr<CallChunks> chunks;  // the engine's; also holds `results`
  Optional* option = nullptr;          // in
  // A call that is given up ends at once, although the peer may still use its memory, if the engine
  // can keep all of that memory: the buffers of `message`, and those of `results` that are in
  // chunks->rooms. Memory of the caller's own is left to the peer only if `released` is set: the
  // engine then takes `released` over and calls it once, when the peer no longer uses the memory.
  // If `released` is still set when the call ends, nothing is left to the peer.
  void (*released)(void* argument) = nullptr;
  void* released_argument = nullptr;

  // Out. With kChunkError, kVersionError and kRemoteError: what the peer said.
  proto::ErrorBody error = {};
  uint32_t error_version = 0;

  // The engine's. The first two change only together with `mended`.
  uint64_t reply_extra = 0;             // memory for the reply beyond what the upper layer expects
  uint16_t most_results = kMaxResults;  // how many of `results` are offered at most
  // The first tick at which it was lent, or was over but not settled; 0: no such tick yet.
  uint64_t since_ns = 0;
  OutgoingCall* next_queued = nullptr;

  OutgoingCall() = default;
  ~OutgoingCall() {
    if (stages != nullptr)
      stages->complete();
  }
  OutgoingCall(const OutgoingCall&) = delete;
  OutgoingCall& operator=(const OutgoingCall&) = delete;
  // Undoes the changes for an earlier call: a new call offers all of its results and no extra
  // memory.
  void release();
  // Returns false if there is no memory.
  bool take_chunks() noexcept { return chunks != nullptr || make_chunks(); }
  // A new call has all of its rooms, and no more.
  void unmend() noexcept {
    if (!mended) [[likely]]
      return;
    mended = false;
    reply_extra = 0;
    most_results = kMaxResults;
  }
  // Clears what a new call does not need.
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
