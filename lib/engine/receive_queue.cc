// What happens to Receives when connections open, close, grow and change; nothing here is done per
// message.
#include "engine/receive_queue.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/assert.h"

namespace rrdk::engine {

namespace {

// Returns one in `part` Receives of the class.
uint32_t part_of(const Memory& memory, uint32_t size, uint32_t part, uint32_t most) {
  const PoolAudit pool = memory.audit_fitting(size);
  return std::clamp((pool.count + pool.more) / part, 1u, most);
}

}  // namespace

ReceiveQueue::ReceiveQueue(Memory& memory, uint32_t most, uint32_t size, Users users)
    : memory_(memory),
      most_(most),
      shared_(users == Users::kMany),
      step_(part_of(memory, size, 32, kMostStep)),
      reserve_(part_of(memory, size, 8, kMostReserve)),
      spare_(shared_ ? reserve_ + kStepsSpare * step_ : most),
      size_(size),
      least_(size),
      list_(most) {}

void ReceiveQueue::add_slab(uint32_t slots) {
  std::vector<ReceiveSlot>& slab = slabs_.emplace_back(slots);
  slots_ += slots;
  for (ReceiveSlot& slot : slab)
    bare_.push(slot);
}

bool ReceiveQueue::post_more(uint32_t count) {
  std::vector<Buffer> buffers(count);
  for (Buffer& buffer : buffers) {
    buffer = memory_.get_fitting(size_);
    if (!buffer)
      return false;
  }
  add_slab(count);
  wanted_ += count;
  for (Buffer& buffer : buffers) {
    ReceiveSlot& slot = bare_.pop();
    slot.buffer = std::move(buffer);
    post(slot);
  }
  return true;
}

void ReceiveQueue::post_or_leave_bare(uint32_t count) {
  add_slab(count);
  wanted_ += count;
  refill_bare();
}

void ReceiveQueue::resize(uint32_t size) noexcept {
  if (shared_)
    return;
  size_ = size;
  least_ = std::min(least_, size);
  smaller_ = 0;
  for (const std::vector<ReceiveSlot>& slab : slabs_) {
    for (const ReceiveSlot& slot : slab)
      smaller_ += slot.size != 0 && slot.size < size_;
  }
}

// Returns how many more could be posted.
uint32_t ReceiveQueue::room_for_more(Need need) const {
  const PoolAudit pool = memory_.audit_fitting(size_);
  const uint32_t kept = (pool.count + pool.more) / (need == Need::kBasic ? 4 : 2);
  const uint32_t left = pool.available + pool.more;
  return left - std::min(left, kept);
}

void ReceiveQueue::look() noexcept {
  capacity_ = std::min(most_, posted_ + parked_ + room_for_more(Need::kMore));
}

void ReceiveQueue::grow(uint32_t count, Need need) noexcept try {
  look();
  const uint32_t there = posted_ + parked_;
  const uint32_t slots = (count + step_ - 1) / step_ * step_;
  uint32_t more = std::min({slots, room_for_more(need), most_ - std::min(most_, there)});
  tries_left_ = more < count ? kTries : 0;
  for (; more != 0; --more) {
    Buffer buffer = memory_.get_fitting(size_);
    if (!buffer)
      break;
    if (bare_.empty())
      add_slab(step_);
    ReceiveSlot& slot = bare_.pop();
    slot.buffer = std::move(buffer);
    post(slot);
  }
} catch (const std::bad_alloc&) {
  tries_left_ = kTries;
}

bool ReceiveQueue::promise(uint32_t count) {
  RRDK_ASSERT(shared_);
  const uint32_t all = promised_ + count;
  if (unpromised() < count)
    grow(all + reserve_ - std::min(all, posted_ + parked_), Need::kBasic);
  if (lasting() < all)
    return false;
  promised_ = all;
  return true;
}

bool ReceiveShare::open(bool with_spares) {
  RRDK_ASSERT(!open_);
  const uint32_t spares = with_spares ? spares_ : 0;
  if (shared_) {
    if (!queue_.promise(least_.calls + least_.replies + spares))
      return false;
    calls_ = least_.calls;
    replies_ = least_.replies;
  } else if (!queue_.post_more(slots_ + spares)) {
    return false;
  }
  added_ = spares;
  lacks_spares_ = added_ != spares_;
  open_ = true;
  return true;
}

void ReceiveShare::close() noexcept {
  if (!std::exchange(open_, false))
    return;
  while (!parked_.empty())
    queue_.drop(unpark());
  if (shared_)
    queue_.take_back(std::exchange(calls_, 0) + std::exchange(replies_, 0) + added_ +
                     std::exchange(begun_, false));
}

bool ReceiveShare::add_spares() noexcept {
  const uint32_t lacking = spares_ - added_;
  if (shared_) {
    // If no spare Receive is available, the reserve serves: what uses a reserve Receive gives it
    // back at once.
    if (lacking != 0 && queue_.promise(lacking))
      added_ = spares_;
    lacks_spares_ = false;
    return true;
  }
  added_ = spares_;
  if (lacking != 0)
    queue_.post_or_leave_bare(lacking);
  else
    queue_.refill_bare();
  lacks_spares_ = queue_.posted() < spares_;
  return !lacks_spares_;
}

}  // namespace rrdk::engine
