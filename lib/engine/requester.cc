// The rare tasks of the requester half: setting it up (slots, their first XIDs, and memory for
// headers), creating and releasing OutgoingCall objects, and giving up calls.
#include "engine/requester.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/assert.h"

namespace rrdk::engine {

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kSlotsAtOnce = 16;
constexpr uint32_t kSlotsPerRoom = 32;  // as many as fit into a small buffer

}  // namespace

bool OutgoingCall::make_chunks() noexcept {
  chunks.reset(new (std::nothrow) CallChunks);
  return chunks != nullptr;
}

void OutgoingCall::release() {
  RRDK_ASSERT(stage == CallStage::kIdle, stage);
  reply = {};
  placed = {};
  message.clear();
  if (chunks != nullptr) {
    for (Buffer& room : chunks->rooms)
      room.reset();
  }
  release_buffers();
}

Requester::Requester(Common& common, uint32_t first_xid)
    : window(credits_of(Role::kRequester, common.options)),
      asked(credits_of(Role::kRequester, common.options)),
      common_(common),
      slot_bits_(static_cast<uint32_t>(std::bit_width(asked))),  // one number is no slot's
      slots_per_room_(
          std::clamp(common.memory.largest_buffer() / kCallHeaderRoom, 1u, kSlotsPerRoom)),
      first_xid_(first_xid & ~((1u << slot_bits_) - 1)),
      slot_pages_(std::max(asked, 1u) * sizeof(Slot)),
      slots_(static_cast<Slot*>(slot_pages_.data())) {
  rooms_.resize((asked + slots_per_room_ - 1) / slots_per_room_);
}

bool Requester::prepare() {
  return asked == 0 || make_room(0);
}

// Adds slots, all free. Their address space is reserved; the system provides the memory when it is
// touched.
void Requester::add_slots() noexcept {
  RRDK_ASSERT(num_slots_ < asked, num_slots_, asked);
  const uint32_t first = num_slots_;
  num_slots_ = std::min(asked, first + kSlotsAtOnce);
  for (uint32_t i = num_slots_; i-- != first;) {
    ::new (static_cast<void*>(slots_ + i)) Slot;
    slots_[i].xid = first_xid_ | i;
    put_free_slot(i);
  }
}

// Takes memory for the headers of this slot's calls and of its neighbours'.
bool Requester::make_room(uint32_t slot) noexcept {
  const uint32_t number = slot / slots_per_room_;
  const uint32_t first = number * slots_per_room_;
  Buffer& buffer = rooms_[number];
  if (!buffer) {
    const uint32_t bytes = std::min(slots_per_room_, asked - first) * kCallHeaderRoom;
    buffer = common_.memory.get(bytes);
    if (!buffer)
      return false;
    std::memset(buffer.data(), 0, bytes);
  }
  if (slot < num_slots_)
    slots_[slot].room = {buffer.data() + size_t{slot - first} * kCallHeaderRoom, kCallHeaderRoom,
                         buffer.region()};
  return true;
}

bool Requester::awaits_more_than(uint32_t receive_size) const noexcept {
  return std::ranges::any_of(slots(), [receive_size](const Slot& slot) {
    return slot.unanswered && slot.inline_reply > receive_size;
  });
}

uint64_t Requester::quiet_until() const noexcept {
  uint64_t until = UINT64_MAX;
  auto consider = [&until](const OutgoingCall& call) {
    if (call.deadline_ns != 0)
      until = std::min(until, call.deadline_ns);
  };
  if (!queued_.empty() && (common_.receives.has_bare() || waits_turn_))
    return 0;
  if (!queued_.empty())
    until = queued_due_ns_;
  for (const Slot& slot : slots()) {
    if (slot.call == nullptr)
      continue;
    if (slot.call->stage == CallStage::kInFlight)
      consider(*slot.call);
    else if (slot.call->stage == CallStage::kLent && slot.call->since_ns != 0)
      until = std::min(until, slot.call->since_ns + common_.options.lend_ns);
    else
      return 0;
  }
  if (starved() && common_.options.role == Role::kRequester && common_.options.starved_ns != 0)
    until = starved_since_ns_ == 0
                ? 0
                : std::min(until, starved_since_ns_ + common_.options.starved_ns);
  return until;
}

std::vector<uint32_t> Requester::last_xids() const {
  std::vector<uint32_t> xids;
  xids.reserve(asked);
  for (uint32_t i = 0; i < asked; ++i)
    xids.push_back(i >= num_slots_ ? first_xid_ | i : slots_[i].last_xid());
  return xids;
}

// Slot by slot, since each slot has its own count in the upper bits, and these may be arbitrarily
// far apart. The last slots mostly have not been used, and need not exist yet.
void Requester::continue_xids(std::span<const uint32_t> last) noexcept {
  RRDK_ASSERT(!common_.up(), common_.phase);
  if (last.size() != asked || asked == 0)
    return;
  RRDK_ASSERT(num_slots_ == 0, num_slots_);
  first_xid_ = last.back() & ~((1u << slot_bits_) - 1);
  uint32_t used = asked;
  while (used != 0 && last[used - 1] == (first_xid_ | (used - 1)))
    --used;
  while (num_slots_ < used)
    add_slots();
  for (uint32_t i = 0; i < used; ++i)
    slots_[i].xid = last[i];
}

// Calls that are given up: cancelled, or past their deadline, after they were sent and before they
// were answered. The peer does not know that, and goes on using the memory that the call offers. If
// a key is revoked meanwhile, the peer's next access fails, which ends the connection and all other
// calls on it. So, if its memory allows it, the call ends for its caller only:
//
//   the caller's OutgoingCall   ends at once
//   a stand-in                  takes its place in the slot, where the peer's answer will find it,
//                               with its message and chunks: all that the peer may use is "lent"
//
// until the answer comes, the time limit passes, or the connection ends. Then the keys are revoked
// like those of any call, the memory goes back, and `released` is called if it is set.

void Requester::give_up(OutgoingCall& call, CallStatus status) noexcept {
  ++common_.counters.calls_given_up;
  if (may_lend(call) && has_stand_in())
    lend(call, status);
  else
    conclude(call, status);
}

// Whether the peer may still use memory of the call, and all of that memory can be left to it. A
// peer that has answered no longer needs it (its reply may still be being read, RFC 5666 section
// 3.5).
bool Requester::may_lend(const OutgoingCall& call) const noexcept {
  bool used = call.num_offers != 0 || !slots_[call.slot].send_job.settled();
  bool borrowed = call.message.borrows();
  auto is_room = [&call](const MemorySpan& span, size_t k) {
    return call.chunks != nullptr && call.chunks->rooms[k] &&
           call.chunks->rooms[k].data() == span.data;
  };
  for (size_t k = 0; k < call.results.size(); ++k) {
    for (const MemorySpan& span : call.results[k].spans)
      borrowed |= span.length != 0 && !is_room(span, k);
  }
  return used && slots_[call.slot].unanswered && call.option == nullptr &&
         common_.options.lend_ns != 0 && (!borrowed || call.released != nullptr);
}

// Returns false if there is no memory for another stand-in.
bool Requester::has_stand_in() noexcept {
  if (!free_stand_ins_.empty())
    return true;
  try {
    free_stand_ins_.reserve(stand_ins_.size() + 1);
    stand_ins_.push_back(std::make_unique<OutgoingCall>());
  } catch (const std::bad_alloc&) {
    return false;
  }
  free_stand_ins_.push_back(stand_ins_.back().get());
  return true;
}

void Requester::lend(OutgoingCall& out, CallStatus status) noexcept {
  RRDK_ASSERT(out.stage == CallStage::kInFlight && !out.lent, out.stage);
  RRDK_ASSERT(!free_stand_ins_.empty());
  OutgoingCall& stand_in = *free_stand_ins_.back();
  free_stand_ins_.pop_back();
  static_cast<CallProgress&>(stand_in) = out;
  static_cast<CallProgress&>(out) = {.mended = out.mended};
  std::swap(stand_in.message, out.message);
  std::swap(stand_in.chunks, out.chunks);
  stand_in.released = std::exchange(out.released, nullptr);
  stand_in.released_argument = out.released_argument;
  slots_[stand_in.slot].call = &stand_in;
  stand_in.stage = CallStage::kLent;
  stand_in.status = status;
  stand_in.lent = true;
  stand_in.since_ns = 0;
  ++zombies_;
  ++common_.counters.calls_lent;
  out.sent = true;  // or will be: its Send may still wait
  end(out, status);
}

// The limit counts from the first tick that sees the call: it may be up to a tick longer, never
// shorter.
void Requester::check_lent(OutgoingCall& call, uint64_t now_ns) noexcept {
  if (call.since_ns == 0)
    call.since_ns = now_ns;
  if (now_ns - call.since_ns < common_.options.lend_ns)
    return;
  ++common_.counters.lends_expired;
  conclude(call, call.status);
}

// Called when the peer can no longer use what was lent to it.
void Requester::give_back(OutgoingCall& stand_in) noexcept {
  RRDK_ASSERT(stand_in.lent, stand_in.stage);
  auto* released = std::exchange(stand_in.released, nullptr);
  stand_in.stage = CallStage::kIdle;
  stand_in.lent = false;
  stand_in.release();
  free_stand_ins_.push_back(&stand_in);
  if (released != nullptr)
    released(stand_in.released_argument);
}

// Calls that were given up hold all credits: no call can be sent until one of these is answered.
bool Requester::starved() const noexcept {
  return zombies_ != 0 && zombies_ >= window.for_calls();
}

// A slow peer answers eventually, and its late answers return the credits. Only if nothing arrives
// at all is a new connection needed to get new credits (V1-CREDIT-23). A server cannot make one,
// and its client's calls continue (BIDIR-17).
void Requester::check_starved(uint64_t now_ns) noexcept {
  if (!starved() || common_.options.starved_ns == 0 || !common_.running() ||
      common_.options.role == Role::kResponder) {
    starved_since_ns_ = 0;
    return;
  }
  uint64_t heard = common_.counters.messages_received;
  if (starved_since_ns_ == 0 || heard != starved_heard_) {
    starved_since_ns_ = now_ns;
    starved_heard_ = heard;
  }
  if (now_ns - starved_since_ns_ < common_.options.starved_ns)
    return;
  uint32_t credits = window.for_calls();
  starved_text_ = credits == 1 ? "the only credit is held by a call that was given up"
                               : "all " + std::to_string(credits) +
                                     " credits are held by calls that were given up";
  starved_text_ +=
      ", and nothing came for " + std::to_string(common_.options.starved_ns / kMs) + " ms";
  common_.end(Refusal::kNoAnswers, starved_text_.c_str());
}

}  // namespace rrdk::engine
