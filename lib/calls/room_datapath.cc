// The bound on the calls of a Caller that wait (ClientOptions::max_queued). Each call takes a place
// in submit(), and its end gives the place back. There are as many places as credits, and
// max_queued more.
//
// A refusal and an end may meet: the one notes that room is wanted and then looks for it again, and
// the other gives its place back and then looks whether it is wanted. So one of them sees the
// other.
#include <algorithm>
#include <mutex>

#include "base/lifetime.h"
#include "calls/calls.h"

namespace rrdk {

using runtime::WorkItem;

// Without a link, calls wait for one, or else end at once: then they are taken as if it were up.
void Caller::Impl::note_credits() noexcept {
  RRDK_ON_CORE(core_);
  const uint32_t now = up_ != nullptr        ? up_->engine().requester().credits_for_calls()
                       : waits_unconnected() ? 0
                                             : std::max(1u, defaults.credits);
  credits_.store(now, std::memory_order_seq_cst);
}

uint64_t Caller::Impl::places() const noexcept {
  return uint64_t{credits_.load(std::memory_order_seq_cst)} + defaults.max_queued;
}

uint32_t Caller::Impl::free_places() const noexcept {
  const uint64_t all = places();
  const uint64_t taken = outstanding_.load(std::memory_order_seq_cst);
  return static_cast<uint32_t>(std::min<uint64_t>(all - std::min(all, taken), UINT32_MAX));
}

// Whether on_room() may be called: no end of a call will make more room if there is none.
bool Caller::Impl::is_roomy() const noexcept {
  const uint32_t room = free_places();
  return room >= room_mark_.load(std::memory_order_relaxed) ||
         (room != 0 && outstanding_.load(std::memory_order_seq_cst) == 0);
}

bool Caller::Impl::take_place(Call::Impl& call) noexcept {
  if (!is_bounded())
    return true;
  if (core_.here())
    note_credits();
  uint32_t taken = outstanding_.load(std::memory_order_relaxed);
  while (taken < places()) {
    if (outstanding_.compare_exchange_weak(taken, taken + 1, std::memory_order_seq_cst)) {
      call.has_extras = call.has_place = true;
      return true;
    }
  }
  call.status = CallStatus::kFull;
  ++counters_.calls_full;
  want_room(false);
  return false;
}

bool Caller::Impl::may_wait_for_memory(Call::Impl& call) noexcept {
  // A call without a bound, or the only one that there is, ends with kNoMemory.
  if (!call.has_place || outstanding_.load(std::memory_order_seq_cst) == 1)
    return false;
  call.has_place = false;
  outstanding_.fetch_sub(1, std::memory_order_seq_cst);
  want_room(true);
  return true;
}

uint32_t Caller::Impl::room() noexcept {
  if (!is_bounded())
    return UINT32_MAX;
  if (retired() || base::forked)
    return 0;
  if (core_.here())
    note_credits();
  const uint32_t room = free_places();
  if (room == 0)
    want_room(false);
  return room;
}

void Caller::Impl::on_room(uint32_t mark, RoomCallback callback, void* argument) noexcept {
  const std::lock_guard lock(room_mutex_);  // datapath-allow: set up, or once per refusal
  room_mark_.store(std::max(1u, mark), std::memory_order_relaxed);
  room_callback_ = callback;
  room_argument_ = argument;
}

// `after_an_end`: there are places, but nothing else that a call needs.
void Caller::Impl::want_room(bool after_an_end) noexcept {
  room_wanted_.store(true, std::memory_order_seq_cst);
  if (after_an_end ? outstanding_.load(std::memory_order_seq_cst) == 0 : is_roomy())
    tell_room_later();
}

void Caller::Impl::look_at_room() noexcept {
  note_credits();
  if (room_wanted_.load(std::memory_order_seq_cst) && is_roomy())
    tell_room_later();
}

void Caller::Impl::tell_room_later() noexcept {
  if (room_item_used_.exchange(true, std::memory_order_acq_rel))
    return;
  room_item_.run = [](WorkItem& item) {
    Impl& caller = *static_cast<RoomItem&>(item).caller;
    caller.tell_room();
    caller.queued_.fetch_sub(1, std::memory_order_release);
  };
  queued_.fetch_add(1, std::memory_order_relaxed);
  core_.here() ? core_.defer(room_item_) : core_.submit(room_item_);
}

// Callbacks of calls may have used the room up by now; then later ends tell it. What is wanted from
// here on is told the next time.
void Caller::Impl::tell_room() noexcept {
  room_item_used_.store(false, std::memory_order_seq_cst);
  note_credits();
  if (!is_roomy() || !room_wanted_.exchange(false, std::memory_order_seq_cst))
    return;
  RoomCallback callback = nullptr;
  void* argument = nullptr;
  {
    const std::lock_guard lock(room_mutex_);  // datapath-allow: once per refusal
    callback = room_callback_;
    argument = room_argument_;
  }
  if (callback != nullptr)
    callback(argument);
}

}  // namespace rrdk
