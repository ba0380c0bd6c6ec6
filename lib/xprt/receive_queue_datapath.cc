#include <algorithm>
#include <span>
#include <utility>

#include "xprt/receive_queue.h"

namespace rrdk::xprt {

ReceiveQueue::ReceiveQueue(Memory& memory, uint32_t slots, uint32_t spares, uint32_t size)
    : memory_(memory),
      size_(size),
      least_(size),
      spares_(spares),
      lacks_spares_(spares != 0),
      list_(slots + spares),
      slots_(slots + spares) {}

bool ReceiveQueue::prepare(bool with_spares) {
  uint32_t added = with_spares ? spares_ : 0;
  std::span<ReceiveSlot> first = std::span(slots_).first(slots_.size() - spares_ + added);
  for (ReceiveSlot& slot : first) {
    slot.buffer = memory_.get_fitting(size_);
    if (!slot.buffer) {
      for (ReceiveSlot& other : first)
        other.buffer.reset();
      return false;
    }
  }
  added_ = added;
  lacks_spares_ = added_ != spares_;
  for (ReceiveSlot& slot : first)
    post(slot);
  return true;
}

bool ReceiveQueue::add_spares() noexcept {
  for (ReceiveSlot& slot : std::span(slots_).last(spares_ - std::exchange(added_, spares_)))
    refill(slot);
  refill_bare();
  lacks_spares_ = posted_ < spares_;
  return !lacks_spares_;
}

void ReceiveQueue::post(ReceiveSlot& slot) noexcept {
  fabric::ReceiveWr& wr = list_.append();
  wr.wr_id = slot.tag.id();
  slot.size = slot.buffer.capacity() >= size_ ? size_ : least_;
  smaller_ += slot.size < size_;
  wr.buffer = slot.buffer.first(slot.size);
  ++posted_;
}

void ReceiveQueue::resize(uint32_t size) noexcept {
  size_ = size;
  least_ = std::min(least_, size);
  smaller_ = 0;
  for (const ReceiveSlot& slot : slots_)
    smaller_ += slot.size != 0 && slot.size < size_;
}

// Of the size that is wanted, or of the one that is promised.
Buffer ReceiveQueue::fresh() noexcept {
  Buffer buffer = memory_.get_fitting(size_);
  if (!buffer && least_ < size_) [[unlikely]]
    buffer = memory_.get_fitting(least_);
  return buffer;
}

void ReceiveQueue::repost(ReceiveSlot& slot) noexcept {
  if (closed_) {
    slot.buffer.reset();
    return;
  }
  if (slot.buffer.capacity() < size_) [[unlikely]] {
    Buffer larger = memory_.get_fitting(size_);
    if (larger || slot.buffer.capacity() < least_)
      slot.buffer = std::move(larger);
  }
  if (slot.buffer) [[likely]]
    post(slot);
  else
    refill(slot);
}

bool ReceiveQueue::refill(ReceiveSlot& slot) noexcept {
  if (closed_)
    return true;
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
  if (slot.buffer && !closed_) [[likely]] {
    repost(slot);
    return slot.size != 0;
  }
  slot.buffer.reset();
  return refill(slot);
}

void ReceiveQueue::give(Buffer buffer) noexcept {
  if (bare_.empty() || closed_ || buffer.capacity() < least_)
    return;
  ReceiveSlot& slot = bare_.pop();
  slot.buffer = std::move(buffer);
  post(slot);
}

void ReceiveQueue::refill_bare() noexcept {
  while (!bare_.empty() && !closed_) {
    Buffer buffer = fresh();
    if (!buffer)
      return;
    give(std::move(buffer));
  }
}

void ReceiveQueue::park(ReceiveSlot& slot, uint32_t length) noexcept {
  slot.length = length;
  parked_.push(slot);
}

void ReceiveQueue::drop_parked() noexcept {
  while (!parked_.empty())
    unpark().buffer.reset();
}

}  // namespace rrdk::xprt
