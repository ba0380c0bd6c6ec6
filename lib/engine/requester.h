// The requester half: sends calls and takes replies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/list.h"
#include "base/prefetch_datapath.h"
#include "base/system.h"
#include "engine/common.h"
#include "engine/credits.h"
#include "engine/outgoing_call.h"
#include "proto/codec.h"

namespace rrdk::engine {

class ReplyReader;

class Requester {
 public:
  // A reply is found by its XID: the low bits are a slot's number, the rest change with each use.
  // The jobs belong to the slot, so that their completions find the call that it has by then.
  // While it has a call that is sent again, later XIDs may have been used.
  struct alignas(64) Slot {
    uint32_t xid = 0;
    uint32_t next_free = 0;
    OutgoingCall* call = nullptr;
    uint64_t inline_reply = 0;  // the longest Send of the reply; 0: the reply has a Reply chunk
    MemorySpan room;            // for headers; empty until needed
    bool unanswered = false;  // holds a credit; without `call`: the call was given up, V1-CREDIT-23
    bool has_newer = false;   // newest_xid counts
    uint32_t newest_xid = 0;
    Job send_job{{WorkKind::kCall, this}};
    Job revoke_job{{WorkKind::kRevoke, this}};

    bool settled() const noexcept { return send_job.settled() && revoke_job.settled(); }
    uint32_t last_xid() const noexcept { return has_newer ? newest_xid : xid; }
  };
  static_assert(sizeof(Slot) <= 192 && offsetof(Slot, send_job) <= 48);

  // Control path. XIDs begin at `first_xid`, which must be unpredictable.
  Requester(Common& common, uint32_t first_xid);

  void submit(OutgoingCall& call) noexcept;
  bool submit_at_once(OutgoingCall& call) noexcept;
  void cancel(OutgoingCall& call) noexcept;
  void end_queued(CallStatus status) noexcept;

  // Returns false if the message is a call by the peer; nothing was done with it then.
  bool on_receive(ReceiveSlot& slot, const fabric::Completion& completion) noexcept;
  // Called for a message that answers no call: it must not invalidate a key.
  void note_invalidation(const fabric::Completion& completion) noexcept {
    if (completion.has_invalidated) [[unlikely]]
      note_invalidation(nullptr, completion);
  }
  // Brings what every call touches into the caches: two lines.
  void prefetch() const noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
    static_assert(offsetof(Requester, rooms_) <= 128);
#pragma GCC diagnostic pop
    base::prefetch_lines(this, &rooms_);
  }
  // Whether an answer may come.
  bool awaits() const noexcept { return window.in_flight() != 0; }
  // Whether the answer to a call in flight may need a larger Receive than that.
  bool awaits_more_than(uint32_t receive_size) const noexcept;
  // Called when a call has ended, and its arguments are not needed any more: if no buffer is free
  // for a Receive, it takes those that the arguments were in. Otherwise calls that wait for their
  // turn could hold all memory, and no reply could come to end one.
  void give_arguments(Message& arguments) noexcept {
    if (common_.receives.has_bare()) [[unlikely]]
      give_buffers(arguments);
  }
  // Called when something that the call waited for has happened; ends the call if that was the
  // last.
  void advance(OutgoingCall& call) noexcept;
  void advance(Slot& slot) noexcept {
    RRDK_ASSERT(slot.call != nullptr, slot.xid);
    advance(*slot.call);
  }
  // A call that was submitted has got this deadline, which is not 0.
  void note_deadline(uint64_t deadline_ns) noexcept {
    queued_due_ns_ = std::min(queued_due_ns_, deadline_ns);
  }
  void on_tick(uint64_t now_ns) noexcept;
  void on_dead() noexcept;
  // Starts queued calls as far as credits, Receives, keys and buffers permit.
  void pump() noexcept;
  bool waiting() const noexcept { return !queued_.empty() || common_.receives.has_bare(); }

  // Post what they can. Return false if the send queue is full.
  bool emit_call(Slot& slot) noexcept;
  bool emit_revoke(Slot& slot) noexcept;

  // The XID of a message that is no call. No call ever has it, since its low bits are not the
  // number of a slot.
  uint32_t other_xid(uint32_t which) const noexcept { return which << slot_bits_ | asked; }

  bool prepare();  // takes memory for the headers of a first few calls; false: no buffers
  // The XID that each slot used last. An engine that is not yet established can continue those of
  // an earlier one, since a responder may recognise calls by their XIDs beyond a connection's end.
  std::vector<uint32_t> last_xids() const;
  void continue_xids(std::span<const uint32_t> last) noexcept;
  bool may_send() const noexcept { return queued_.empty() && may_start(); }
  bool idle() const noexcept { return active_ == 0 && queued_.empty(); }
  bool needs_tick() const noexcept { return !idle() || starved(); }
  uint64_t quiet_until() const noexcept;  // as Connection's

  // The calls that may be in flight at once: those that were given up hold their credits.
  uint32_t credits_for_calls() const noexcept {
    const uint32_t most = window.for_calls();
    return most - std::min(most, zombies_);
  }

  // Plain calls of version 1 that are sent and answered in the fabric's lane by its user
  // (calls/plain_calls.h).
  //
  // Returns how many calls may be in flight there; 0 if further calls must take the general path,
  // because something waits or is not settled. Common::plain_limit keeps the answer.
  uint32_t plain_limit() const noexcept;
  // Whether replies to such calls may be taken there.
  bool takes_plain() const noexcept {
    return common_.up() && common_.settled && common_.wire == proto::Wire::kVersion1 &&
           common_.rfc5666.reader == nullptr;
  }
  bool may_begin_plain() const noexcept {
    return window.in_flight() < common_.plain_limit && has_slot() &&
           (!common_.receives.shared() || window.in_flight() < common_.share.replies() ||
            common_.receives.unpromised() != 0);
  }
  bool look_for_plain() noexcept {
    common_.plain_limit = plain_limit();
    return may_begin_plain();
  }
  // For assertions: whether nothing has changed since plain_limit() was asked.
  bool plain_limit_holds() const noexcept {
    return common_.plain_limit == 0 || !may_start() || common_.plain_limit == plain_limit();
  }
  // Returns whether a call has one chunk of one segment and can be sent there, and takes a key for
  // it. False if it has other chunks or there is no key.
  bool may_have_chunk(OutgoingCall& call) noexcept {
    prepare_plain(call);
    return has_one_chunk(call);
  }
  bool bind_chunk(OutgoingCall& call) noexcept;
  // Writes the header of such a call.
  void encode_chunk(const OutgoingCall& call, std::byte* header) const noexcept;
  // Takes its reply, which names what was written. Returns false if the reply is not as it must be.
  bool take_result(OutgoingCall& call, const proto::Segment& written) noexcept;
  void release_chunk(OutgoingCall& call) noexcept;
  // Prepares the call, which must be sent next; returns its XID.
  uint32_t begin_plain(OutgoingCall& call) noexcept;
  // Returns the call that waits for that reply, if it was sent so and nothing has happened to it
  // since.
  OutgoingCall* match_plain(uint32_t xid) noexcept {
    const Slot* const slot = match(xid);
    const bool found = slot != nullptr && slot->call != nullptr &&
                       slot->call->way == CallWay::kLane &&
                       slot->call->stage == CallStage::kInFlight;
    return found ? slot->call : nullptr;
  }
  // The key that its reply must invalidate; 0: none.
  static uint32_t key_shown(const OutgoingCall& call) noexcept {
    return call.num_offers != 0 ? call.chunks->offers[0].key : 0;
  }
  void end_plain(OutgoingCall& call) noexcept;
  void take_plain_grant(uint32_t credits) noexcept {
    if (credits == window.granted_last()) [[likely]]
      return;
    window.on_grant(credits);
    common_.plain_limit = 0;
  }
  // The length of the longest plain call, and of a reply to one without its transport header.
  struct PlainSizes {
    uint64_t call, reply;
  };
  PlainSizes plain_sizes() const noexcept {
    return {
        std::min<uint64_t>(common_.calls.send, proto::kMinHeader + common_.options.max_call),
        std::min<uint64_t>(common_.calls.receive - proto::kMinHeader, common_.options.max_reply)};
  }
  uint32_t receive_bytes() const noexcept { return common_.receives.size(); }
  // Makes room for the reply's contents. Returns false if there is no buffer; the reply then keeps
  // its Receive.
  bool make_room_for_plain(OutgoingCall& call) noexcept {
    if (!call.receive || call.receive.capacity() < common_.receives.size()) [[unlikely]]
      call.receive = common_.memory.get_fitting(common_.receives.size());
    return static_cast<bool>(call.receive);
  }
  void count_plain(uint32_t replies) noexcept {
    common_.counters.messages_received += replies;
    common_.counters.replies_received += replies;
  }
  [[gnu::cold]] void sample(OutgoingCall& call) noexcept;

  // RFC 5666's compatibility mode (rfc5666/reader_datapath.cc).
  OutgoingCall* reading_call(uint32_t xid) noexcept;

  Window window;
  // Credits that each call asks for: as many as there are Receives for replies.
  const uint32_t asked;

 private:
  friend class ReplyReader;
  using Calls = base::Queue<OutgoingCall, &OutgoingCall::next_queued>;
  enum class Plan : uint8_t { kReady, kTooLarge, kNoOptions, kNoMemory, kWait };
  static constexpr uint32_t kNoSlot = UINT32_MAX;

  bool has_slot() const noexcept { return first_free_ != kNoSlot || num_slots_ != asked; }
  uint32_t take_free_slot() noexcept {
    if (first_free_ == kNoSlot) [[unlikely]]
      add_slots();
    return std::exchange(first_free_, slots_[first_free_].next_free);
  }
  void put_free_slot(uint32_t index) noexcept {
    slots_[index].next_free = std::exchange(first_free_, index);
  }
  // The same after a call that may have been sent again: its XID may not be the slot's last one.
  void leave_slot(uint32_t index) noexcept {
    Slot& slot = slots_[index];
    if (std::exchange(slot.has_newer, false)) [[unlikely]]
      slot.xid = slot.newest_xid;
    put_free_slot(index);
  }
  void add_slots() noexcept;
  std::span<Slot> slots() noexcept { return {slots_, num_slots_}; }
  std::span<const Slot> slots() const noexcept { return {slots_, num_slots_}; }
  uint32_t index_of(const Slot& slot) const noexcept {
    return static_cast<uint32_t>(&slot - slots_);
  }

  // requester_datapath.cc: the life of a call
  bool may_start() const noexcept;
  bool emit_now(OutgoingCall& call) noexcept;
  bool emit_plain(Slot& slot, OutgoingCall& call) noexcept;
  bool may_start_or_grow() noexcept;
  bool lacks_receives() noexcept;
  void give_buffers(Message& message) noexcept;
  bool make_room(uint32_t slot) noexcept;
  void reset(OutgoingCall& call) noexcept;
  void prepare_plain(OutgoingCall& call) noexcept {
    if (!call.clean) [[unlikely]]
      reset(call);
    call.clean = true;
  }
  bool start(OutgoingCall& call) noexcept;
  void note_start(OutgoingCall& call) noexcept;
  bool take_slot(OutgoingCall& call) noexcept;
  bool take_own_slot(OutgoingCall& call) noexcept;
  void free_slot(OutgoingCall& call) noexcept;
  void check_stuck(OutgoingCall& call, uint64_t now_ns) noexcept;
  void answer(Slot& slot) noexcept;
  void conclude(OutgoingCall& call, CallStatus status) noexcept;
  void end(OutgoingCall& call, CallStatus status) noexcept;
  template <typename Predicate>
  Calls unqueue(Predicate&& wanted) noexcept;
  Calls unqueue_late(uint64_t now_ns) noexcept;
  void note_queued(const OutgoingCall& call) noexcept;
  void end_all(Calls calls, CallStatus status) noexcept;
  void requeue(OutgoingCall& call) noexcept;
  void send_again(OutgoingCall& call) noexcept;
  void give_up_again(OutgoingCall& call, CallStatus status) noexcept;

  // requester.cc: calls that end before their answer
  void give_up(OutgoingCall& call, CallStatus status) noexcept;
  bool may_lend(const OutgoingCall& call) const noexcept;
  bool has_stand_in() noexcept;
  void lend(OutgoingCall& call, CallStatus status) noexcept;
  void check_lent(OutgoingCall& call, uint64_t now_ns) noexcept;
  void give_back(OutgoingCall& call) noexcept;
  bool starved() const noexcept;
  void check_starved(uint64_t now_ns) noexcept;

  // reply_datapath.cc: replies
  Slot* match(uint32_t xid) noexcept {
    const uint32_t index = xid & ((1u << slot_bits_) - 1);
    if (index >= num_slots_)
      return nullptr;
    Slot& slot = slots_[index];
    return slot.xid == xid && slot.unanswered ? &slot : nullptr;
  }
  Slot* slot_of(const proto::Header& header, proto::Verdict verdict) noexcept;
  bool is_property(const proto::Header& header, std::span<const std::byte> message) noexcept;
  void note_trailing(proto::MessageType type, std::span<const std::byte> rpc) noexcept;
  bool take_plain(const proto::Plain& plain, ReceiveSlot& receive,
                  const fabric::Completion& completion) noexcept;
  void take_grant(const proto::Header& header) noexcept;
  void settle(bool is_error) noexcept;
  void take_receive(ReceiveSlot& receive, OutgoingCall& call, bool keeps) noexcept;
  bool is_call(const proto::Header& header) const noexcept;
  void note_invalidation(const Slot* slot, const fabric::Completion& completion) noexcept;
  CallStatus read_reply(OutgoingCall& call, const proto::Header& header,
                        std::span<const std::byte> rpc) noexcept;
  CallStatus malformed(Refusal reason) noexcept;
  bool exceeds(const OutgoingCall& call, const proto::ErrorBody& error) const noexcept;
  bool mend(OutgoingCall& call, const proto::ErrorBody& error) noexcept;
  CallStatus read_error(OutgoingCall& call, const proto::Header& header) noexcept;
  bool is_foreign_draft(const OutgoingCall& call, const proto::ErrorBody& error) const noexcept;
  bool was_not_run(const proto::ErrorBody& error) const noexcept;
  bool falls_back(const OutgoingCall& call, const proto::ErrorBody& error) const noexcept;
  bool read_writes(OutgoingCall& call, const proto::ChunkLists& lists) noexcept;
  bool read_long(OutgoingCall& call, const proto::ChunkLists& lists) noexcept;

  // version2/optional.cc: messages of registered types
  Plan plan_option(OutgoingCall& call) noexcept;
  Slot* slot_of_option(const proto::Header& header, Refusal& reason) noexcept;
  CallStatus end_option(OutgoingCall& call, const proto::Header& header,
                        const proto::Decoded& decoded, std::span<const std::byte> message) noexcept;
  CallStatus read_option(OutgoingCall& call, const proto::Header& header,
                         std::span<const std::byte> message, uint32_t header_length) noexcept;
  CallStatus bad_option(const OutgoingCall& call, Refusal reason) noexcept;
  void tell_refused(const OutgoingCall& call) noexcept;

  // call_plan_datapath.cc
  struct Draft;
  Plan plan_call(OutgoingCall& call) noexcept;
  bool is_plain(const OutgoingCall& call) const noexcept;
  void send_plain(OutgoingCall& call) noexcept;
  bool has_one_chunk(const OutgoingCall& call) const noexcept;
  bool offer_chunk(OutgoingCall& call) noexcept;
  Plan plan_one_chunk(OutgoingCall& call) noexcept;
  uint32_t key_to_offer(const OutgoingCall& call) const noexcept;
  bool draft_call(const OutgoingCall& call, Draft& draft) const noexcept;
  // How many Read segments an item needs: as many as runs of memory, unless one key can stand for
  // all.
  uint32_t read_segments_of(const Piece& piece) const noexcept {
    return common_.options.binds_lists ? 1 : static_cast<uint32_t>(piece.runs().size());
  }
  bool may_move(const Draft& draft, const Piece& piece) const noexcept;
  uint32_t pad_of(const ResultRoom& room) const noexcept;
  void pad(const OutgoingCall& call, Draft& draft) noexcept;
  bool take_buffer(OutgoingCall& call, uint32_t size) noexcept;
  bool take_lists(OutgoingCall& call, const Draft& draft) noexcept;
  bool take_memory(OutgoingCall& call, const Draft& draft) noexcept;
  void offer(OutgoingCall& call, const Draft& draft) noexcept;
  void write_header(OutgoingCall& call, const Draft& draft) noexcept;
  void copy_stream(OutgoingCall& call, const Draft& draft) noexcept;

  Common& common_;
  uint32_t slot_bits_;
  uint32_t first_free_ = kNoSlot;
  uint32_t active_ = 0;   // slots with a call
  uint32_t again_ = 0;    // calls that will be sent again, before all others
  uint32_t zombies_ = 0;  // slots whose call was given up and still holds a credit
  uint32_t slots_per_room_ = 0;
  // Only those of the `asked` slots that were ever used exist, and a few more: few connections ever
  // have many calls in flight.
  uint32_t num_slots_ = 0;
  uint32_t first_xid_;  // its low bits are zero
  const base::LazyPages slot_pages_;
  Slot* const slots_;
  Calls queued_;
  // Every call touches the members above.
  //
  // Each holds the headers of slots_per_room_ slots; taken when the first of these slots is used.
  std::vector<Buffer> rooms_;
  // Stand in for the callers' objects of lent calls; as many as were ever lent at once.
  std::vector<std::unique_ptr<OutgoingCall>> stand_ins_;
  std::vector<OutgoingCall*> free_stand_ins_;
  uint64_t queued_due_ns_ = UINT64_MAX;  // no deadline of a queued call is earlier
  bool waits_turn_ = false;              // the first queued call: seal_call() has said kFull
  uint64_t starved_since_ns_ = 0;        // 0: no tick has seen it starved
  uint64_t starved_heard_ = 0;           // messages that had been received by then
  std::string starved_text_;
};

inline uint32_t Requester::begin_plain(OutgoingCall& call) noexcept {
  RRDK_ASSERT(call.stage == CallStage::kIdle && has_slot(), call.stage);
  RRDK_ASSERT(plain_limit_holds() && may_start());
  prepare_plain(call);
  call.clean = false;
  call.way = CallWay::kLane;
  call.stage = CallStage::kInFlight;
  call.wire = proto::Wire::kVersion1;
  call.slot = take_free_slot();
  Slot& slot = slots_[call.slot];
  call.xid = slot.xid += 1u << slot_bits_;
  slot.call = &call;
  slot.unanswered = true;
  slot.inline_reply = proto::kMinHeader + call.max_reply;
  ++active_;
  window.on_call();
  common_.share.promise_replies(window.in_flight());
  ++common_.counters.calls_sent;
  call.sent = true;
  call.placed = {};
  return call.xid;
}

// As answer(), free_slot() and end() do it.
inline void Requester::end_plain(OutgoingCall& call) noexcept {
  Slot& slot = slots_[call.slot];
  RRDK_ASSERT(slot.call == &call && slot.unanswered && slot.settled() && active_ != 0, call.slot);
  slot.call = nullptr;
  slot.unanswered = false;
  put_free_slot(call.slot);
  --active_;
  window.on_answer();
  common_.share.promise_replies(window.in_flight());
  call.stage = CallStage::kIdle;
  call.clean = true;
  call.status = CallStatus::kOk;
}

}  // namespace rrdk::engine
