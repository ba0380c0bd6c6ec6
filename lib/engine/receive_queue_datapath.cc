#include <utility>

#include "base/assert.h"
#include "engine/receive_queue.h"

namespace rrdk::engine {

void ReceiveQueue::post(ReceiveSlot& slot) noexcept {
  RRDK_ASSERT(slot.buffer && slot.size == 0, slot.size);
  RRDK_ASSERT(!closed_ && posted_ < most_, posted_, most_);
  fabric::ReceiveWr& wr = list_.append();
  wr.wr_id = slot.tag.id();
  slot.size = slot.buffer.capacity() >= size_ ? size_ : least_;
  smaller_ += slot.size < size_;
  wr.buffer = slot.buffer.first(slot.size);
  ++posted_;
}

// Returns a buffer of the wanted size, or else of the promised size.
Buffer ReceiveQueue::fresh() noexcept {
  Buffer buffer = memory_.get_fitting(size_);
  if (!buffer && least_ < size_) [[unlikely]]
    buffer = memory_.get_fitting(least_);
  return buffer;
}

void ReceiveQueue::drop(ReceiveSlot& slot) noexcept {
  if (shared_) {
    repost(slot);
    return;
  }
  slot.buffer.reset();
}

bool ReceiveQueue::repost(ReceiveSlot& slot) noexcept {
  if (closed_ || too_many() || slot.buffer.capacity() < size_) [[unlikely]]
    return repost_otherwise(slot);
  post(slot);
  return true;
}

bool ReceiveQueue::repost_otherwise(ReceiveSlot& slot) noexcept {
  if (closed_ || too_many()) {
    slot.buffer.reset();
    if (!closed_)
      bare_.push(slot);
    return true;
  }
  Buffer larger = memory_.get_fitting(size_);
  if (larger || slot.buffer.capacity() < least_)
    slot.buffer = std::move(larger);
  if (!slot.buffer)
    return refill(slot);
  post(slot);
  return true;
}

bool ReceiveQueue::refill(ReceiveSlot& slot) noexcept {
  if (closed_)
    return true;
  if (too_many()) [[unlikely]] {
    bare_.push(slot);
    return true;
  }
  slot.buffer = fresh();
  if (slot.buffer) [[likely]] {
    post(slot);
    return true;
  }
  bare_.push(slot);
  return false;
}

bool ReceiveQueue::exchange(ReceiveSlot& slot, Buffer& other) noexcept {
  std::swap(slot.buffer, other);
  if (slot.buffer) [[likely]]
    return repost(slot);
  return refill(slot);
}

void ReceiveQueue::give(Buffer buffer) noexcept {
  if (!has_bare() || closed_ || buffer.capacity() < least_)
    return;
  ReceiveSlot& slot = bare_.pop();
  slot.buffer = std::move(buffer);
  post(slot);
}

void ReceiveQueue::refill_bare() noexcept {
  while (has_bare() && !closed_) {
    Buffer buffer = fresh();
    if (!buffer)
      return;
    give(std::move(buffer));
  }
}

bool ReceiveShare::park(ReceiveSlot& slot, uint32_t length) noexcept {
  RRDK_ASSERT(slot.buffer && slot.size == 0, slot.size);
  if (shared_) {
    const bool promised = promised_parked_ < calls_ + added_;
    if (!promised && !queue_.keeps_promises())
      return false;
    full_ = num_parked_ + 1 >= calls_ + added_;
  }
  slot.length = length;
  parked_.push(slot);
  note_parked();
  return true;
}

void ReceiveShare::note_parked() noexcept {
  ++num_parked_;
  if (promised_parked_ == calls_ + added_)
    return;
  ++promised_parked_;
  queue_.on_parked();
}

ReceiveSlot& ReceiveShare::unpark() noexcept {
  RRDK_ASSERT(num_parked_ != 0);
  full_ = --num_parked_ != 0 && full_;
  if (promised_parked_ != 0) {
    --promised_parked_;
    queue_.on_unparked();
  }
  return parked_.pop();
}

void ReceiveShare::park_first(ReceiveSlot& slot) noexcept {
  parked_.push_front(slot);
  note_parked();
}

}  // namespace rrdk::engine
