// The life of a call at the requester, from submit() to on_call_ended().
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/requester.h"
#include "engine/rfc5666/read_read.h"

namespace rrdk::engine {

using fabric::Op;
using fabric::SendWr;

// Clears what an earlier use has left.
void Requester::reset(OutgoingCall& call) noexcept {
  call.reply = {};
  call.placed = {};
  call.clear();
  call.num_offers = call.message_offers = call.reply_first = 0;
  call.num_results = 0;
  call.bound = call.revoked = 0;
  call.again = call.clean = call.sealed = false;
  call.unmend();
}

void Requester::submit(OutgoingCall& call) noexcept {
  reset(call);
  call.sent = false;
  if (common_.phase == Phase::kDead) {
    end(call, CallStatus::kConnectionLost);
    return;
  }
  if (common_.refuses_calls()) [[unlikely]] {
    end(call, CallStatus::kRemoteError);
    return;
  }
  call.stage = CallStage::kQueued;
  if (queued_.empty() && may_start_or_grow() && start(call)) [[likely]]
    return;
  ++(may_start() ? common_.counters.waits_key : common_.counters.waits_credit);
  if (call.submitted_ticks == 0)
    call.submitted_ticks = base::Tsc::ticks();
  queued_.push(call);
  note_queued(call);
}

// For a call of the library's that must not wait behind others. Returns false if it would wait.
bool Requester::submit_at_once(OutgoingCall& call) noexcept {
  reset(call);
  call.sent = false;
  if (!common_.running() || common_.refuses_calls() || !may_start_or_grow())
    return false;
  if (!queued_.empty() && (queued_.front()->resend || queued_.front()->again))
    return false;  // it needs its own slot
  call.stage = CallStage::kQueued;
  common_.plain_limit = 0;
  if (start(call))
    return true;
  call.stage = CallStage::kIdle;
  return false;
}

void Requester::note_queued(const OutgoingCall& call) noexcept {
  if (call.deadline_ns != 0)
    note_deadline(call.deadline_ns);
}

// A Receive for the reply must be posted before the call is sent (V1-CREDIT-15). On a connection
// that is about to end, a call that is sent is lost; one that is not sent can be carried over.
bool Requester::may_start() const noexcept {
  return common_.running() && window.open() && has_slot() && again_ == 0 && common_.calling &&
         common_.receives_for_replies() > window.in_flight();
}

uint32_t Requester::plain_limit() const noexcept {
  const bool open = takes_plain() && may_start() && queued_.empty() && common_.sends.idle() &&
                    common_.sends.empty() && common_.rfc5666.align == 0;
  if (!open || common_.receives.shared())  // otherwise each call takes an unpromised Receive
    return open ? window.for_calls() : 0;
  return std::min(window.for_calls(), common_.receives_for_replies());
}

// There are only as many shared Receives as calls have needed so far.
bool Requester::may_start_or_grow() noexcept {
  if (may_start()) [[likely]]
    return true;
  if (!common_.receives.shared() || common_.receives_for_replies() > window.in_flight())
    return false;
  common_.receives.make_more_unpromised(1);
  return may_start();
}

// There are too few Receives for a single reply, and no call of ours will free any.
bool Requester::lacks_receives() noexcept {
  if (!common_.up() || common_.receives.shared() || !common_.receives.has_bare() || active_ != 0 ||
      window.in_flight() != 0)
    return false;
  common_.receives.refill_bare();
  return common_.share.backing() == 0;
}

void Requester::give_buffers(Message& message) noexcept {
  for (Buffer& buffer : message.buffers()) {
    // Larger ones would stay posted for good; they are taken only so that any reply can come.
    if (buffer.capacity() / 2 < common_.receives.size() || common_.receives.posted() == 0)
      common_.receives.give(std::move(buffer));
  }
  message.clear();
}

// Returns false if the call needs keys or buffers that are not available now. Otherwise it is in
// flight, or has ended because it is larger than what can be sent.
bool Requester::start(OutgoingCall& call) noexcept {
  RRDK_ASSERT(may_start() && call.stage == CallStage::kQueued, call.stage);
  if (!take_slot(call)) [[unlikely]] {
    if (!call.resend)
      return false;
    end(call, CallStatus::kNoMemory);  // others must not wait for the call that has its slot
    return true;
  }
  if (slots_[call.slot].room.length == 0 && !make_room(call.slot)) [[unlikely]] {
    free_slot(call);
    if (active_ != 0)
      return false;
    end(call, CallStatus::kNoMemory);  // no call will give back what is missing
    return true;
  }
  if (common_.pool.stages().samples(call.xid)) [[unlikely]]
    sample(call);
  if (call.secured) [[unlikely]] {
    const CallStatus status = common_.upcalls.seal_call(call);
    if (status != CallStatus::kOk) {
      free_slot(call);
      waits_turn_ = status == CallStatus::kFull;
      if (waits_turn_ || (status == CallStatus::kNoMemory && active_ != 0))
        return false;
      end(call, status);
      return true;
    }
    call.sealed = true;
    waits_turn_ = false;
  }
  if (is_plain(call)) [[likely]] {
    send_plain(call);
    return true;
  }
  Plan plan = plan_call(call);
  if (plan != Plan::kReady) [[unlikely]] {
    free_slot(call);
    call.release_buffers();
    if (plan == Plan::kTooLarge)  // a call that was refused before ends as refused
      end(call, call.again ? CallStatus::kChunkError : CallStatus::kTooLarge);
    else if (plan == Plan::kNoOptions)
      end(call, CallStatus::kVersionError);
    else if (plan == Plan::kNoMemory || active_ == 0)  // no call will give back what is missing
      end(call, CallStatus::kNoMemory);
    else
      return false;
    return true;
  }
  note_start(call);
  Slot& slot = slots_[call.slot];
  if (!common_.sends.idle() || !emit_call(slot)) [[unlikely]] {
    ++common_.counters.waits_send_queue;
    common_.sends.push(slot.send_job);
  }
  return true;
}

void Requester::sample(OutgoingCall& call) noexcept {
  if (call.stages != nullptr)  // it is sent again, or its start was attempted before
    call.stages->complete();
  call.stages = common_.pool.stages().take(call.xid, true);
  if (call.stages == nullptr)
    return;
  // Another CPU's counter may be ahead of ours.
  const uint64_t now = std::max(base::Tsc::ticks(), call.submitted_ticks);
  call.stages->stamp(Stage::kSubmitted, call.submitted_ticks != 0 ? call.submitted_ticks : now);
  call.stages->stamp(Stage::kStarted, call.stages->pass(Stage::kStarted, now));
  common_.unposted.add(*call.stages, Stage::kPosted);
}

// The call is planned: from here on it has a credit, and an answer may come.
void Requester::note_start(OutgoingCall& call) noexcept {
  window.on_call();
  common_.share.promise_replies(window.in_flight());
  Slot& slot = slots_[call.slot];
  RRDK_ASSERT(slot.call == &call && !slot.unanswered, call.slot);
  slot.unanswered = true;
  if (common_.rfc5666.reader != nullptr) [[unlikely]]
    common_.rfc5666.reader->note_call(call.slot);
  call.stage = CallStage::kInFlight;
  call.wire = common_.wire;
  ++common_.counters.calls_sent;
  common_.counters.calls_resent += call.resend || call.again;
  call.again = call.sealed = false;
}

bool Requester::take_slot(OutgoingCall& call) noexcept {
  if (call.resend || call.again) [[unlikely]]
    return take_own_slot(call);
  call.slot = take_free_slot();
  Slot& slot = slots_[call.slot];
  slot.xid += 1u << slot_bits_;
  slot.call = &call;
  call.xid = slot.xid;
  ++active_;
  return true;
}

// Takes the slot that the call's XID names. It is free if calls that are sent again come before
// others. Returns false if it is not, since others went first while the call waited for a security
// context.
bool Requester::take_own_slot(OutgoingCall& call) noexcept {
  uint32_t index = call.xid & ((1u << slot_bits_) - 1);
  if (index >= asked)
    return false;
  while (num_slots_ <= index)
    add_slots();
  uint32_t* link = &first_free_;
  while (*link != kNoSlot && *link != index)
    link = &slots_[*link].next_free;
  if (*link == kNoSlot)
    return false;
  Slot& slot = slots_[index];
  *link = slot.next_free;
  call.slot = index;
  if (slot.xid != call.xid) [[unlikely]] {  // no later call may have the same XID once more
    slot.newest_xid = slot.xid;
    slot.has_newer = true;
    slot.xid = call.xid;
  }
  slot.call = &call;
  ++active_;
  return true;
}

// The call is over, but a Send that the peer does not take, or what is behind that Send, still uses
// its memory. Only the end of the connection frees it.
void Requester::check_stuck(OutgoingCall& call, uint64_t now_ns) noexcept {
  if (slots_[call.slot].settled() || !common_.running())
    return;
  if (call.since_ns == 0)
    call.since_ns = now_ns;
  else if (now_ns - call.since_ns >= common_.options.send_wait_ns)
    common_.end(Refusal::kNotReceived, "it takes no messages");
}

// The call has left the slot. If it was not answered, the slot still holds a credit; it becomes
// free when the answer comes after all.
void Requester::free_slot(OutgoingCall& call) noexcept {
  Slot& slot = slots_[call.slot];
  RRDK_ASSERT(slot.call == &call && active_ != 0, call.slot, active_);
  slot.call = nullptr;
  --active_;
  if (slot.unanswered) {
    zombies_ += !call.lent;
    return;
  }
  leave_slot(call.slot);
}

void Requester::answer(Slot& slot) noexcept {
  RRDK_ASSERT(slot.unanswered);
  slot.unanswered = false;
  window.on_answer();
  common_.share.promise_replies(window.in_flight());
  if (common_.rfc5666.reader != nullptr) [[unlikely]]
    common_.rfc5666.reader->note_answer(index_of(slot));
  if (slot.call != nullptr) {
    zombies_ -= slot.call->lent;
    return;
  }
  RRDK_ASSERT(zombies_ != 0);
  --zombies_;
  leave_slot(index_of(slot));
  common_.upcalls.on_credit_back();
}

void Requester::pump() noexcept {
  common_.plain_limit = 0;
  common_.receives.refill_bare();
  while (!queued_.empty() && may_start_or_grow()) {
    OutgoingCall& call = queued_.pop();
    if (!start(call)) {
      queued_.push_front(call);
      return;
    }
  }
}

// Sends past the list. Returns false if the rest, including Binds, must be appended.
bool Requester::emit_now(OutgoingCall& call) noexcept {
  for (; call.bound < call.num_offers; ++call.bound) {
    const Offer& offer = call.chunks->offers[call.bound];
    if (offer.runs != 0 || !common_.port->bind_now(offer.key, offer.span, offer.rights))
        [[unlikely]]
      return false;
  }
  return common_.send_now(call.chunks->plan.spans(), 0);
}

bool Requester::emit_call(Slot& slot) noexcept {
  OutgoingCall& call = *slot.call;
  RRDK_ASSERT(call.stage >= CallStage::kInFlight, call.stage);
  if (call.way == CallWay::kPlain)
    return emit_plain(slot, call);
  const uint64_t length = call.chunks->plan.length();
  if (common_.may_send_now(length) && emit_now(call)) [[likely]] {
    call.sent = true;
    return true;
  }
  const bool copied = length <= common_.options.max_copied;
  for (; call.bound < call.num_offers; ++call.bound) {
    if (common_.sends.free_slots() == 0)
      return false;
    const Offer& offer = call.chunks->offers[call.bound];
    SendWr& wr = copied ? common_.sends.append_copied(slot.send_job, Op::kBindKey)
                        : common_.sends.append(slot.send_job, Op::kBindKey, false);
    offer.fill_bind(wr);
  }
  if (common_.sends.free_slots() == 0)
    return false;
  call.chunks->plan.fill(copied ? common_.sends.append_copied(slot.send_job, Op::kSend)
                                : common_.sends.append(slot.send_job, Op::kSend, true));
  call.sent = true;
  return true;
}

bool Requester::emit_revoke(Slot& slot) noexcept {
  OutgoingCall& call = *slot.call;
  RRDK_ASSERT(call.stage == CallStage::kRevoking, call.stage);
  uint16_t end = call.num_offers;
  while (end > call.revoked && call.chunks->offers[end - 1].revoked)
    --end;
  for (; call.revoked < end; ++call.revoked) {
    const Offer& offer = call.chunks->offers[call.revoked];
    if (offer.revoked)
      continue;
    if (common_.sends.free_slots() == 0)
      return false;
    SendWr& wr = common_.sends.append(slot.revoke_job, Op::kInvalidateKey, call.revoked + 1 == end);
    wr.key = offer.key;
    wr.num_sges = 0;
  }
  call.revoked = call.num_offers;
  return true;
}

// The call is over. Its memory is fenced before its end is reported (V1-MEM-07). Binds that are
// still to be posted go first, since the send queue is a FIFO.
void Requester::conclude(OutgoingCall& call, CallStatus status) noexcept {
  RRDK_ASSERT(call.stage == CallStage::kInFlight || call.lent, call.stage);
  call.status = status;
  call.stage = CallStage::kRevoking;
  call.since_ns = 0;
  common_.plain_limit = 0;  // invalidations may have to wait
  if (call.num_offers != 0 && common_.up()) {
    Slot& slot = slots_[call.slot];
    if (!common_.sends.idle() || !emit_revoke(slot))
      common_.sends.push(slot.revoke_job);
  }
  advance(call);
}

// Keys that could not be revoked are fenced by the end of the connection (V1-MEM-08).
void Requester::advance(OutgoingCall& call) noexcept {
  if (call.stage < CallStage::kRevoking || !slots_[call.slot].settled())
    return;
  if (call.stage == CallStage::kLent && call.num_offers == 0)
    call.stage = CallStage::kRevoking;  // only its Send used memory
  const bool fenced =
      call.num_offers == 0 || common_.phase == Phase::kDead || (common_.up() && call.fenced());
  if (call.stage != CallStage::kRevoking || !fenced)
    return;
  for (uint32_t i = 0; i < call.num_offers; ++i)
    common_.keys.release_key(call.chunks->offers[i].key);
  call.num_offers = call.revoked = 0;
  free_slot(call);
  if (call.lent) [[unlikely]]
    give_back(call);
  else if (call.again) [[unlikely]]
    requeue(call);
  else
    end(call, call.status);
}

// Once its memory is fenced, the call is sent again before all others. It keeps its XID, which
// still names the slot that it had.
void Requester::send_again(OutgoingCall& call) noexcept {
  call.again = true;
  ++again_;
}

void Requester::requeue(OutgoingCall& call) noexcept {
  RRDK_ASSERT(again_ != 0, again_);
  --again_;
  call.release_buffers();
  call.sent = false;
  call.bound = 0;
  call.stage = CallStage::kQueued;
  queued_.push_front(call);
  note_queued(call);
  pump();
}

// The only place where a call ends.
void Requester::end(OutgoingCall& call, CallStatus status) noexcept {
  RRDK_ASSERT(!call.lent, call.stage);
  call.stage = CallStage::kIdle;
  call.status = status;
  if (status != CallStatus::kOk) {
    call.reply = {};
    call.placed = {};
    call.release_buffers();
  }
  common_.upcalls.on_call_ended(call);
}

static bool is_late(const OutgoingCall& call, uint64_t now_ns) noexcept {
  return call.deadline_ns != 0 && call.deadline_ns <= now_ns;
}

// Takes the queued calls that are `wanted` out of the queue, in the same order.
template <typename Predicate>
Requester::Calls Requester::unqueue(Predicate&& wanted) noexcept {
  Calls taken;
  Calls all = queued_.take();
  for (OutgoingCall& call : all) {
    if (!wanted(call)) {
      queued_.push(call);
      continue;
    }
    call.stage = CallStage::kRevoking;  // can no longer be cancelled,
    call.again = false;                 // and is not sent again
    taken.push(call);
  }
  return taken;
}

Requester::Calls Requester::unqueue_late(uint64_t now_ns) noexcept {
  queued_due_ns_ = UINT64_MAX;
  return unqueue([&](const OutgoingCall& call) {
    if (is_late(call, now_ns))
      return true;
    note_queued(call);
    return false;
  });
}

void Requester::end_all(Calls calls, CallStatus status) noexcept {
  while (!calls.empty())
    end(calls.pop(), status);
}

void Requester::end_queued(CallStatus status) noexcept {
  end_all(unqueue([](const OutgoingCall&) { return true; }), status);
}

void Requester::cancel(OutgoingCall& call) noexcept {
  if (call.stage == CallStage::kQueued)
    end_all(unqueue([&](const OutgoingCall& queued) { return &queued == &call; }),
            CallStatus::kCancelled);
  else if (call.stage == CallStage::kInFlight)
    give_up(call, CallStatus::kCancelled);
  else if (call.again)
    give_up_again(call, CallStatus::kCancelled);
}

// The call was to be sent again; instead it ends once its memory is fenced.
void Requester::give_up_again(OutgoingCall& call, CallStatus status) noexcept {
  RRDK_ASSERT(call.again && again_ != 0, again_);
  call.again = false;
  call.status = status;
  --again_;
}

void Requester::on_tick(uint64_t now_ns) noexcept {
  uint32_t left = active_;  // most slots are free, and the first ones are used first
  for (Slot& slot : slots()) {
    if (left == 0)
      break;
    if (slot.call == nullptr)
      continue;
    --left;
    if (slot.call->stage == CallStage::kInFlight && is_late(*slot.call, now_ns))
      give_up(*slot.call, CallStatus::kTimeout);
    else if (slot.call->stage == CallStage::kLent)
      check_lent(*slot.call, now_ns);
    else if (slot.call->stage == CallStage::kRevoking)
      check_stuck(*slot.call, now_ns);
    if (slot.call != nullptr && slot.call->again && is_late(*slot.call, now_ns)) [[unlikely]]
      give_up_again(*slot.call, CallStatus::kTimeout);
  }
  if (queued_due_ns_ <= now_ns)  // thousands may wait, so a tick does not look at each
    end_all(unqueue_late(now_ns), CallStatus::kTimeout);
  if (!queued_.empty() && lacks_receives()) [[unlikely]]
    end_queued(CallStatus::kNoMemory);
  check_starved(now_ns);
}

void Requester::on_dead() noexcept {
  RRDK_ASSERT(common_.phase == Phase::kDead, common_.phase);
  for (Slot& slot : slots()) {
    if (slot.call == nullptr)
      continue;
    if (slot.call->again)
      give_up_again(*slot.call, CallStatus::kConnectionLost);
    if (slot.call->stage == CallStage::kInFlight || slot.call->lent)
      conclude(*slot.call, CallStatus::kConnectionLost);
    else
      advance(*slot.call);
  }
  end_queued(CallStatus::kConnectionLost);
}

}  // namespace rrdk::engine
