// The lane of a connection (fabric/lane.h): what its inline functions leave to the driver, and the
// turns of its user.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

template <typename Value>
Value once(const Value& shared) noexcept {
  return fabric::load_once<Value>(reinterpret_cast<const std::byte*>(&shared));
}

}  // namespace

fabric::Lane* QueuePair::lane() {
  return status_.load(std::memory_order_acquire) == Status::kEstablished ? this : nullptr;
}

void QueuePair::set_lane_user(fabric::LaneUser* user) {
  lane_user_ = user;
  offered_ = 0;
  cq_.activate(*this);
}

// One turn of receiving: the lane's user first, then the messages that it leaves. A message that
// comes after those that it took is left to the next turn, since it may suit the lane as well.
uint32_t QueuePair::receive(std::span<fabric::Completion> out, uint32_t burst) noexcept {
  turn_began_ = taken_;
  written_ = 0;
  if (!lane_runs())
    return pull(out);
  if (!message_ready())
    return 0;
  RRDK_ASSERT(active);
  open_lane();
  lane_user_->on_burst(*this, burst);
  const uint64_t took = taken_ - turn_began_;
  if (took == 0)
    offered_ = taken_ + 1;  // a user that did not even look has refused it
  cq_.count_lane(took);
  Lane::flush();
  if (took != 0 && offered_ != taken_ + 1)
    return 0;
  return pull(out);
}

// Each time, and not when the connection is made, which is another thread's task.
void QueuePair::open_lane() noexcept {
  in_ = reinterpret_cast<const std::byte*>(theirs_.slots);
  in_mask_ = theirs_.slot_mask;
}

// Writes before a message are placed, within the limits of a turn.
fabric::LaneMessage QueuePair::slow_peek(uint64_t bits) noexcept {
  constexpr auto kAcquire = std::memory_order_acquire;
  auto word = std::bit_cast<SlotWord>(bits);
  while (is_next(word) && (word.flags & kWrite) != 0 && take_next_write()) {
    // Now, as the burst may last: the peer measures by its Writes whether we still take anything.
    mine_.state->consumed.store(taken_, std::memory_order_release);
    word = theirs_.slot(taken_).word.load(kAcquire);
  }
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return {};
  if (!is_next(word)) {
    if (word.sequence != previous_sequence())
      offered_ = taken_ + 1;  // nonsense: pull() ends the connection
    return {};
  }
  offered_ = taken_ + 1;
  constexpr uint32_t kAnyway = kInvalidate | kAckWanted;
  if ((word.flags & ~kAnyway) == kCopied)
    return peek_copied(word.flags);
  if ((word.flags & ~kAnyway) != kInline || word.length - 4u > kMostInSlot - 4 ||
      word.length % 4 != 0)
    return {};
  const Slot& slot = theirs_.slot(taken_);
  const uint32_t key =
      (word.flags & kInvalidate) != 0 ? fabric::load_once<uint32_t>(slot.room + word.length) : 0;
  return found_with(slot.room, word.length, word.flags, key);
}

// A message that the peer has put into its copies. It is read there: its user has to copy it in any
// case, since the peer can change it, and one copy is enough.
fabric::LaneMessage QueuePair::peek_copied(uint32_t flags) noexcept {
  const Slot& slot = theirs_.slot(taken_);
  const uint32_t length = once(slot.far.length);
  const uint64_t at = once(slot.far.address);
  const uint32_t key = once(slot.far.key);
  const bool good = length >= fabric::LaneMessage::kAlwaysReadable && length <= most_ &&
                    length % 4 == 0 && at % kCacheLine == 0 && length <= theirs_.copies_bytes &&
                    at <= theirs_.copies_bytes - length;
  if (!good)
    return {};
  return found_with(theirs_.copies + at, length, flags, key);
}

// A message with an invalid key is not for the lane.
fabric::LaneMessage QueuePair::found_with(const std::byte* bytes, uint32_t length, uint32_t flags,
                                          uint32_t key) noexcept {
  const bool invalidates = (flags & kInvalidate) != 0;
  if (invalidates && keys_.bound(key) == nullptr)
    return {};
  acks_ = (flags & kAckWanted) != 0;
  return found(bytes, length, invalidates ? key : 0, !invalidates && !acks_);
}

// The message itself shows that the peer no longer reads by this key. Its owner may have taken it
// back meanwhile.
void QueuePair::slow_take(const fabric::LaneMessage& message) noexcept {
  if (message.invalidated() != 0)
    keys_.kill_for_peer(message.invalidated());
  acknowledge_ = acknowledge_ || std::exchange(acks_, false);
}

// How many messages may go into our ring before the peer's progress is checked again. None while a
// posted Send waits for its place, since it goes first.
void QueuePair::open_sends() noexcept {
  send_end_ = refused_copy_ != 0 ? 0 : consumed_by_peer_ + (uint64_t{mine_.slot_mask} + 1) / 2;
}

std::byte* QueuePair::slow_begin(uint32_t most) noexcept {
  if (claimed_ != Claimed::kNothing || refused_copy_ != 0 || most > most_ ||
      status_.load(std::memory_order_acquire) != Status::kEstablished)
    return nullptr;
  if (half_full() && (!read_consumed() || half_full()))
    return nullptr;
  open_sends();
  if (most <= kMostInSlot) {
    claimed_ = Claimed::kSlot;
    return slot_out() + kSlotWord;
  }
  std::optional<uint64_t> at = copies_.find(most);
  if (!at && read_consumed())
    at = copies_.find(most);
  if (!at)
    return nullptr;
  claimed_ = Claimed::kElsewhere;
  claimed_at_ = *at;
  return mine_.copies + copies_.offset(*at);
}

// A message that turned out short goes into the slot nevertheless.
void QueuePair::slow_send(uint32_t length, uint32_t invalidate) noexcept {
  if (claimed_ != Claimed::kElsewhere)
    return;  // the connection has ended since begin()
  const uint32_t at = copies_.offset(claimed_at_);
  RRDK_ASSERT(length <= mine_.copies_bytes - at, length, at);
  if (length <= kMostInSlot) {
    std::memcpy(slot_out() + kSlotWord, mine_.copies + at, length);
    claimed_ = Claimed::kSlot;
    return Lane::send(length, invalidate);
  }
  claimed_ = Claimed::kNothing;
  copies_.keep(claimed_at_, length, sent_ + 1);
  name_copy(at, length, invalidate, 0);
}

void QueuePair::slow_flush() noexcept {
  if (status_.load(std::memory_order_relaxed) != Status::kEstablished)
    return;
  if (taken_ != taken_told_)
    tell_consumed();
  if (sent_something_)
    tell_messages();
}

}  // namespace rrdk::shm
