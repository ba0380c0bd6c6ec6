// What is rare at the requester half: setting it up (slots, their first XIDs, and room for
// headers), creating and releasing OutgoingCall objects, and calls that are given up.
#include "xprt/requester.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/assert.h"

namespace rrdk::xprt {

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kSlotsPerRoom = 32;  // as many as fit into a small buffer

}  // namespace

OutgoingCall::OutgoingCall() : state(std::make_unique<State>(*this)) {}
OutgoingCall::~OutgoingCall() {
  if (stages != nullptr)
    stages->complete();
}

void OutgoingCall::release() {
  RRDK_ASSERT(state->stage == CallStage::kIdle, state->stage);
  reply = {};
  placed = {};
  message.clear();
  for (Buffer& room : rooms)
    room.reset();
  state->release_buffers();
}

Requester::Requester(Link& link, uint32_t first_xid)
    : window(credits_of(Role::kRequester, link.options)),
      asked(credits_of(Role::kRequester, link.options)),
      link_(link),
      slot_bits_(static_cast<uint32_t>(std::bit_width(asked))),  // one number is no slot's
      slots_per_room_(
          std::clamp(link.memory.largest_buffer() / kCallHeaderRoom, 1u, kSlotsPerRoom)),
      slots_(asked) {
  rooms_.resize((slots_.size() + slots_per_room_ - 1) / slots_per_room_);
  uint32_t mask = (1u << slot_bits_) - 1;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    slots_[i].xid = (first_xid & ~mask) | i;
    slots_[i].next_free = i + 1 < slots_.size() ? i + 1 : kNoSlot;
  }
}

bool Requester::prepare() {
  return slots_.empty() || slots_[0].room.length != 0 || make_room(0);
}

// For the headers of this slot's calls and of those beside it.
bool Requester::make_room(uint32_t slot) noexcept {
  RRDK_ASSERT(slot < slots_.size() && slots_[slot].room.length == 0, slot);
  const uint32_t number = slot / slots_per_room_;
  const uint32_t first = number * slots_per_room_;
  const uint32_t end = std::min(first + slots_per_room_, static_cast<uint32_t>(slots_.size()));
  Buffer buffer = link_.memory.get((end - first) * kCallHeaderRoom);
  if (!buffer)
    return false;
  std::memset(buffer.data(), 0, size_t{end - first} * kCallHeaderRoom);
  for (uint32_t i = first; i < end; ++i)
    slots_[i].room = {buffer.data() + size_t{i - first} * kCallHeaderRoom, kCallHeaderRoom,
                      buffer.region()};
  rooms_[number] = std::move(buffer);
  return true;
}

bool Requester::awaits_more_than(uint32_t receive_size) const noexcept {
  return std::ranges::any_of(slots_, [receive_size](const Slot& slot) {
    return slot.unanswered && slot.inline_reply > receive_size;
  });
}

uint64_t Requester::quiet_until() const noexcept {
  uint64_t until = UINT64_MAX;
  auto consider = [&until](const State& call) {
    if (call.call->deadline_ns != 0)
      until = std::min(until, call.call->deadline_ns);
  };
  if (!queued_.empty() && link_.receives.has_bare())
    return 0;
  for (const State& call : queued_)
    consider(call);
  for (const Slot& slot : slots_) {
    if (slot.call == nullptr)
      continue;
    if (slot.call->stage == CallStage::kInFlight)
      consider(*slot.call);
    else if (slot.call->stage == CallStage::kLent && slot.call->lent_since_ns != 0)
      until = std::min(until, slot.call->lent_since_ns + link_.options.lend_ns);
    else
      return 0;
  }
  if (starved() && link_.options.role == Role::kRequester && link_.options.starved_ns != 0)
    until =
        starved_since_ns_ == 0 ? 0 : std::min(until, starved_since_ns_ + link_.options.starved_ns);
  return until;
}

std::vector<uint32_t> Requester::last_xids() const {
  std::vector<uint32_t> xids;
  xids.reserve(slots_.size());
  for (const Slot& slot : slots_)
    xids.push_back(slot.xid);
  return xids;
}

// Slot by slot: each has a count of its own in the upper bits, and how far they are apart is not
// bounded.
void Requester::continue_xids(std::span<const uint32_t> last) noexcept {
  RRDK_ASSERT(!link_.up(), link_.phase);
  if (last.size() != slots_.size())
    return;
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i].xid = last[i];
}

// Calls that are given up: cancelled, or past their deadline, after they were sent and before they
// were answered. The peer does not know of it, and goes on using the memory that the call offers.
// Revoking a key meanwhile turns the peer's next access into an error, which ends the connection
// and all other calls on it. So, where the caller allows it, the call ends for its caller only:
//
//   the caller's OutgoingCall   ends at once; it gets a new State
//   a stand-in                  takes over the State that the peer's answer will find, the message
//                               and the buffers: all that the peer may use is "lent"
//
// until the answer comes, the bound passes, or the connection ends. Then the keys are revoked as
// those of any call, the memory goes back, and `released` is called if there is one.

void Requester::give_up(State& call, CallStatus status) noexcept {
  ++link_.counters.calls_given_up;
  if (may_lend(call))
    lend(call, status);
  else
    conclude(call, status);
}

// Whether the peer may still use memory of the call, and all of that can be left to it. A peer that
// has answered (and whose reply is being read, RFC 5666 section 3.5) is done with it.
bool Requester::may_lend(const State& call) const noexcept {
  const OutgoingCall& out = *call.call;
  bool used = call.num_offers != 0 || !call.send_job.settled();
  bool borrowed = out.message.borrows();
  for (size_t k = 0; k < out.results.size(); ++k) {
    for (const MemorySpan& span : out.results[k].spans)
      borrowed |= span.length != 0 && !(out.rooms[k] && out.rooms[k].data() == span.data);
  }
  return used && slots_[call.slot].unanswered && out.option == nullptr &&
         link_.options.lend_ns != 0 && (!borrowed || out.released != nullptr);
}

void Requester::lend(State& call, CallStatus status) noexcept {
  RRDK_ASSERT(call.stage == CallStage::kInFlight && !call.lent, call.stage);
  if (free_stand_ins_.empty()) {
    stand_ins_.push_back(std::make_unique<OutgoingCall>());
    free_stand_ins_.push_back(stand_ins_.back().get());
  }
  OutgoingCall& out = *call.call;
  OutgoingCall& stand_in = *free_stand_ins_.back();
  free_stand_ins_.pop_back();
  std::swap(stand_in.state, out.state);
  std::swap(stand_in.message, out.message);
  std::swap(stand_in.rooms, out.rooms);
  stand_in.released = std::exchange(out.released, nullptr);
  stand_in.released_argument = out.released_argument;
  call.call = &stand_in;
  stand_in.results = {};  // the caller's own array
  out.state->call = &out;
  out.state->receive = std::move(call.receive);

  call.stage = CallStage::kLent;
  call.status = status;
  call.lent = true;
  call.lent_since_ns = 0;
  ++zombies_;
  ++link_.counters.calls_lent;
  end(*out.state, status);
}

// The bound counts from the first tick that sees the call: up to a tick long, never short.
void Requester::check_lent(State& call, uint64_t now_ns) noexcept {
  if (call.lent_since_ns == 0)
    call.lent_since_ns = now_ns;
  if (now_ns - call.lent_since_ns < link_.options.lend_ns)
    return;
  ++link_.counters.lends_expired;
  conclude(call, call.status);
}

// The peer can no longer use what was lent to it.
void Requester::give_back(State& call) noexcept {
  RRDK_ASSERT(call.lent && call.settled(), call.stage);
  OutgoingCall& stand_in = *call.call;
  auto* released = std::exchange(stand_in.released, nullptr);
  call.stage = CallStage::kIdle;
  call.lent = false;
  stand_in.release();
  free_stand_ins_.push_back(&stand_in);
  if (released != nullptr)
    released(stand_in.released_argument);
}

// All credits are held by calls that were given up: no call can be sent until one of them is
// answered.
bool Requester::starved() const noexcept {
  return zombies_ != 0 && zombies_ >= window.for_calls();
}

// A slow peer answers eventually, and its late answers give the credits back. Only where nothing
// comes at all does it take a new connection to get new ones (V1-CREDIT-23). A server can not make
// one, and its client's calls go on (BIDIR-17).
void Requester::check_starved(uint64_t now_ns) noexcept {
  if (!starved() || link_.options.starved_ns == 0 || !link_.running() ||
      link_.options.role == Role::kResponder) {
    starved_since_ns_ = 0;
    return;
  }
  uint64_t heard = link_.counters.messages_received;
  if (starved_since_ns_ == 0 || heard != starved_heard_) {
    starved_since_ns_ = now_ns;
    starved_heard_ = heard;
  }
  if (now_ns - starved_since_ns_ < link_.options.starved_ns)
    return;
  uint32_t credits = window.for_calls();
  starved_text_ = credits == 1 ? "the only credit is held by a call that was given up"
                               : "all " + std::to_string(credits) +
                                     " credits are held by calls that were given up";
  starved_text_ +=
      ", and nothing came for " + std::to_string(link_.options.starved_ns / kMs) + " ms";
  link_.end(Refusal::kNoAnswers, starved_text_.c_str());
}

}  // namespace rrdk::xprt
