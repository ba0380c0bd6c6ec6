// Setting up the requester half: slots, their first XIDs, and room for headers; and the calls that
// the upper layer makes and empties.
#include "xprt/requester.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace rrdk::xprt {

OutgoingCall::OutgoingCall() : state(std::make_unique<State>(*this)) {}
OutgoingCall::~OutgoingCall() {
  if (stages != nullptr)
    stages->complete();
}

void OutgoingCall::release() {
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
      slots_(asked) {
  uint32_t mask = (1u << slot_bits_) - 1;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    slots_[i].xid = (first_xid & ~mask) | i;
    slots_[i].next_free = i + 1 < slots_.size() ? i + 1 : kNoSlot;
  }
}

bool Requester::prepare() {
  if (slots_.empty())
    return true;
  uint32_t bytes = std::min(static_cast<uint32_t>(slots_.size()) * kCallHeaderRoom,
                            link_.memory.largest_buffer());
  MemorySpan rest;
  for (Slot& slot : slots_) {
    if (rest.length < kCallHeaderRoom) {
      Buffer buffer = link_.memory.get(bytes);
      if (!buffer) {
        rooms_.clear();
        return false;
      }
      rest = buffer.span();
      rooms_.push_back(std::move(buffer));
    }
    slot.room = {rest.data, kCallHeaderRoom, rest.region};
    std::memset(slot.room.data, 0, kCallHeaderRoom);
    rest = {rest.data + kCallHeaderRoom, rest.length - kCallHeaderRoom, rest.region};
  }
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
  if (last.size() != slots_.size())
    return;
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i].xid = last[i];
}

}  // namespace rrdk::xprt
