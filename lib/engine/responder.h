// The responder half: takes calls and sends replies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/assert.h"
#include "base/list.h"
#include "base/prefetch_datapath.h"
#include "engine/common.h"
#include "engine/credits.h"
#include "engine/rfc5666/read_read.h"
#include "engine/served_call.h"
#include "proto/codec.h"
#include "rrdk/extensions.h"
#include "rrdk/xdr.h"

namespace rrdk::engine {

// Calls that wait, in the order of their arrival.
using CallQueue = base::Queue<ServedCall, &ServedCall::next_call>;

class Responder {
 public:
  Responder(Common& common, const PerConnection& own)
      : grant(credits_of(Role::kResponder, common.options), first_credits(common),
              common.receives.shared()),
        turn{*own.client_share},
        common_(common),
        max_calls_(2 * std::max(1u, credits_of(Role::kResponder, common.options))) {
    tell_most_granted();
  }

  // Events. After each, pump() must be called to do the work that has become possible.
  void on_receive(ReceiveSlot& slot, uint32_t length) noexcept;
  void on_read_completed(ServedCall& call, uint32_t bytes) noexcept;
  void on_reply_completed(ServedCall& call) noexcept;
  void on_dead() noexcept;
  // Refuses calls that have waited too long for buffers, and gives up on a peer that keeps other
  // connections waiting for them.
  void on_tick(uint64_t now_ns) noexcept;
  // Retries the calls that wait for a turn, a buffer, a call object or an RDMA Read. The Connection
  // pumps Sends.
  void pump() noexcept;

  void reply(ServedCall& call) noexcept;
  void refuse(ServedCall& call, uint32_t max_reads, uint32_t max_writes) noexcept;
  void drop(ServedCall& call) noexcept;
  // Posts as much as possible of the call's Writes and Send. Returns false if the send queue is
  // full.
  bool emit(ServedCall& call) noexcept;
  bool emit_error(ServedCall& call) noexcept;

  // Brings what every call touches into the caches: four lines.
  void prefetch() const noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
    static_assert(offsetof(Responder, held_up_) <= 256);
#pragma GCC diagnostic pop
    base::prefetch_lines(this, &held_up_);
  }

  uint32_t calls() const noexcept { return calls_; }
  bool waiting() const noexcept {
    return turn.waits || !wait_buffers_.empty() || !wait_reads_.empty() || !wait_room_.empty() ||
           common_.share.parked() != nullptr || common_.receives.has_bare() || !exposed_.empty();
  }

  // Whether data of calls is being read.
  bool reading() const noexcept { return reading_bytes_ != 0; }
  // If nothing waits: as Connection's. See check_progress().
  uint64_t quiet_until() const noexcept {
    return reading() ? progress_tick_ns_ + common_.options.progress_wait_ns / 8 : UINT64_MAX;
  }
  // Whether more allowance would start a call that waits.
  bool backlogged() const noexcept {
    return turn.waits && !wait_turn_.empty() && has_room(*wait_turn_.front()) && common_.up();
  }

  uint32_t send_threshold(const ServedCall& call) const noexcept {
    return common_.thresholds(Role::kResponder, call.wire).send;
  }
  bool reads_padding() const noexcept { return common_.options.rfc5666.enabled; }
  uint64_t max_reply() const noexcept { return common_.options.max_reply; }
  Connection& connection() const noexcept { return common_.connection; }
  mem::Borrower& borrower() const noexcept { return common_.borrower; }
  OpaquePadding padding(const ServedCall& call) noexcept;  // rfc5666/padding_datapath.cc

  // Grants fewer credits, as the engine does by itself while Receives are scarce (RFC 5666 section
  // 3.3). At most options.credits.
  void set_granted_credits(uint32_t credits) noexcept {
    RRDK_ON_CORE(common_.pool);
    grant.configure(std::min(credits, common_.options.credits));
  }

  // Plain calls of version 1 that are served in place by the user of the fabric's lane
  // (service/plain_calls.h).
  //
  // Returns the credits that each reply grants; 0 if calls must take the general path, because
  // something waits or is not settled. The result holds until something else is asked of the
  // engine.
  uint32_t plain_credits() const noexcept;
  // Whether that still holds after a handler has run, which may have answered other calls or ended
  // the connection.
  bool plain_goes_on(uint32_t credits) const noexcept {
    return common_.phase == Phase::kUp && grant.last() == credits;
  }
  uint32_t receive_bytes() const noexcept {  // of each Receive: a longer message breaks the rules
    return common_.receives.size();
  }
  void begin_plain(ServedCall& call) noexcept;  // initializes a record for such calls
  void end_plain(ServedCall& call) noexcept;    // gives back what the record has
  void count_plain(uint32_t calls) noexcept;    // calls that were answered
  // Called when the handler has not answered the call there: the engine has it until reply() or
  // drop().
  void adopt_plain(ServedCall& call) noexcept;
  bool may_adopt_plain() const noexcept { return calls_ < max_calls_ && may_have_call(); }
  // Returns whether such a call, with one chunk of one segment, may be served there
  // (service/chunk_calls_datapath.cc). Its header is in its part.
  bool may_serve_chunk(const ServedCall& call) const noexcept;
  // Reads the chunk and assembles the call. Returns false if it must be read by the general path.
  bool fetch_at_once(ServedCall& call) noexcept;
  // Counts what was moved in its chunk, and charges it to the turn.
  void charge_moved(const ServedCall& call, uint32_t written) noexcept;
  // The key that its reply invalidates; 0: none.
  uint32_t key_to_invalidate(const ServedCall& call) noexcept {
    return key_to_invalidate(call.part->header);
  }

  Grant grant;
  Turn turn;

 private:
  enum class Plan : uint8_t { kReady, kNoRoom, kWait };

  // responder_datapath.cc: the life of a call
  bool take(ReceiveSlot& slot, uint32_t length) noexcept;
  bool leave_unserved(ReceiveSlot& slot) noexcept;
  // What became of a message: it is a call, it has been dealt with, or it stays in its Receive.
  struct Taken {
    ServedCall* call = nullptr;
    uint32_t header_length = 0;
    bool done = false;
  };
  static constexpr Taken kDone = {nullptr, 0, true};
  static constexpr Taken kLater = {nullptr, 0, false};
  Taken take_plain(const proto::Plain& plain) noexcept;
  Taken take_other(ReceiveSlot& slot, std::span<const std::byte> bytes) noexcept;
  bool may_have_call() const noexcept;
  bool has_spares(const proto::Header& header, proto::Verdict verdict) noexcept;
  void adapt_grant(uint64_t answers, uint32_t most) noexcept;
  void tell_most_granted() const noexcept;
  bool take_property(ReceiveSlot& slot, uint32_t length) noexcept;
  bool is_property_error(std::span<const std::byte> message) noexcept;
  void admit(ServedCall& call) noexcept;
  void enroll(ServedCall& call) noexcept;
  void accept(ServedCall& call, uint32_t header_length, uint32_t length) noexcept;
  void refill_receive() noexcept;
  void return_receive(ServedCall& call) noexcept;
  static bool names_arguments(const ServedCall& call) noexcept;
  void deliver(ServedCall& call) noexcept;
  static void note_whole(const ServedCall& call) noexcept;
  void refuse_xid(ServedCall& call) noexcept;
  static uint32_t first_credits(const Common& common) noexcept {
    uint32_t all = std::max(1u, credits_of(Role::kResponder, common.options));
    return common.receives.shared() ? std::clamp(common.options.first_credits, 1u, all) : all;
  }
  uint32_t grant_credits() noexcept;
  void refuse_overdue(CallQueue& queue, uint64_t now_ns) noexcept;
  void answer(ServedCall& call, Plan plan, const proto::ErrorBody& error) noexcept;
  void post(ServedCall& call) noexcept;
  void release_memory(ServedCall& call) noexcept;
  void finish(ServedCall& call) noexcept;

  // call_errors_datapath.cc: errors in calls
  void refuse_message(ReceiveSlot& slot, Refusal reason) noexcept;
  bool ignore(const proto::Header& header, proto::Verdict verdict, ReceiveSlot& slot) noexcept;
  void refuse(ServedCall& call, proto::Verdict verdict) noexcept;
  void refuse_type(ServedCall& call) noexcept;
  bool refuse_backward(ServedCall& call) noexcept;
  void answer_error(ServedCall& call, const proto::ErrorBody& error) noexcept;
  void answer_error(ServedCall& call, proto::ErrorCode code) noexcept;

  // version2/optional.cc: messages of registered types
  void take_option(ServedCall& call, std::span<const std::byte> message,
                   uint32_t header_length) noexcept;
  void serve_option(ServedCall& call, const OptionType& type, std::span<const std::byte> info,
                    std::span<const std::byte> payload) noexcept;
  void refuse_option(ServedCall& call, const OptionType& type, OptionError::Why why, Refusal reason,
                     proto::ErrorCode code) noexcept;

  // responder_datapath.cc: the start of a call
  void begin(ServedCall& call) noexcept;
  void start(ServedCall& call) noexcept;
  void start_waiting() noexcept;
  void note_held_up() noexcept;
  bool has_room(const ServedCall& call) const noexcept {
    return chunk_bytes_ + call.chunk_bytes <= common_.options.max_chunk_bytes &&
           !common_.borrower.exceeded();
  }

  // read_chunks_datapath.cc
  bool fits_sinks(const ServedCall& call) const noexcept;
  void fetch(ServedCall& call) noexcept;
  bool take_sinks(ServedCall& call) noexcept;
  void start_reads(ServedCall& call) noexcept;
  bool read_now(ServedCall& call) noexcept;
  bool post_read(ServedCall& call) noexcept;
  void pump_reads() noexcept;
  void on_fetched(ServedCall& call) noexcept;
  void note_shortage(mem::Shortage shortage) noexcept;
  void check_progress(uint64_t now_ns) noexcept;

  // reply_plan_datapath.cc
  uint32_t key_to_invalidate(const proto::Header& call) noexcept;
  bool send_plain(ServedCall& call) noexcept;
  bool send_with_result(ServedCall& call) noexcept;
  void send_reply(ServedCall& call, const MemorySpan& header, std::span<const Piece> pieces,
                  uint64_t length) noexcept;
  // With kNoRoom, `error` says what is missing.
  Plan plan_reply(ServedCall& call, proto::ErrorBody& error) noexcept;

  // rfc5666/exposer_datapath.cc: replies that the peer reads
  bool take_done(ReceiveSlot& slot, uint32_t length) noexcept;
  bool expose(ServedCall& call) noexcept;
  bool emit_exposure(ServedCall& call) noexcept;
  bool on_exposed(ServedCall& call) noexcept;
  void revoke(ServedCall& call) noexcept;
  void unexpose(ServedCall& call) noexcept;
  void check_dones(uint64_t now_ns) noexcept;
  void refuse_reads(ServedCall& call) noexcept;

  Common& common_;
  const uint32_t max_calls_;  // in any state; further messages wait in their Receives
  uint32_t calls_ = 0;        // of this connection, in any state
  uint64_t chunk_bytes_ = 0;  // of the calls that were started
  base::List<ServedCall, &ServedCall::links> all_;
  // The call that is being taken, and its slot, until that is posted again.
  struct InHand {
    const ServedCall* call = nullptr;
    ReceiveSlot* slot = nullptr;
  } in_hand_;
  CallQueue wait_turn_;
  CallQueue wait_buffers_;
  CallQueue wait_reads_;
  CallQueue wait_room_;
  base::List<Exposure, &Exposure::links> exposed_;  // newest first
  uint64_t reading_bytes_ = 0;                      // of calls in kReading
  // Every call touches the members above.
  // the front of wait_turn_ if bytes or buffers delay it; otherwise null
  const ServedCall* held_up_ = nullptr;
  // What the front of wait_buffers_ waits for, as other threads see it.
  mem::Shortage shortage_ = mem::Shortage::kNone;
  // Since progress_since_ns_ (0: no tick has seen a Read in progress): bytes of the Reads that have
  // completed, and RemoteKeys::read_bytes() at that time.
  uint64_t completed_ = 0;
  uint64_t arrived_before_ = 0;
  uint64_t missing_before_ = 0;  // and mem::Borrower::missing() at that time
  uint64_t progress_since_ns_ = 0;
  uint64_t progress_tick_ns_ = 0;  // when it was last checked
};

// Fills `message`: puts the chunks in their places.
void assemble(ServedCall& call) noexcept;
// The first word, even if it is split between fragments; empty if there are fewer than four bytes.
std::optional<uint32_t> first_word(std::span<const Fragment> message) noexcept;

// The XID in the transport header must be that of the message (V1-HDR-16, V1-LONG-15).
inline void Responder::deliver(ServedCall& call) noexcept {
  RRDK_ASSERT(common_.up() && call.reads_posted == 0, common_.phase, call.reads_posted);
  std::span<const Fragment> message = call.message;
  bool has_xid = !message.empty() && message[0].length >= 4;
  if ((has_xid ? xdr::load_u32(message[0].data) : first_word(message)) == call.xid) [[likely]] {
    if (call.stages != nullptr) [[unlikely]]
      note_whole(call);
    call.state = CallState::kAbove;
    common_.plain_limit = 0;  // what was listed before it goes before what its handler sends
    common_.upcalls.on_call(call);
  } else {
    refuse_xid(call);
  }
}

}  // namespace rrdk::engine
