#include <utility>

#include "xprt/receive_queue.h"

namespace rrdk::xprt {

ReceiveQueue::ReceiveQueue(Memory& memory, uint32_t slots, uint32_t size)
    : memory_(memory), size_(size), list_(slots), slots_(slots) {}

bool ReceiveQueue::prepare() {
  for (ReceiveSlot& slot : slots_) {
    slot.buffer = memory_.get_fitting(size_);
    if (!slot.buffer) {
      for (ReceiveSlot& other : slots_)
        other.buffer.reset();
      return false;
    }
  }
  for (ReceiveSlot& slot : slots_)
    post(slot);
  return true;
}

void ReceiveQueue::post(ReceiveSlot& slot) noexcept {
  fabric::ReceiveWr& wr = list_.append();
  wr.wr_id = slot.tag.id();
  wr.buffer = slot.buffer.first(size_);
  ++posted_;
}

void ReceiveQueue::repost(ReceiveSlot& slot) noexcept {
  if (closed_)
    slot.buffer.reset();
  else
    post(slot);
}

bool ReceiveQueue::refill(ReceiveSlot& slot) noexcept {
  if (closed_)
    return true;
  slot.buffer = memory_.get_fitting(size_);
  if (slot.buffer) [[likely]] {
    post(slot);
    return true;
  }
  slot.next = bare_;
  bare_ = &slot;
  return false;
}

bool ReceiveQueue::exchange(ReceiveSlot& slot, Buffer& other) noexcept {
  std::swap(slot.buffer, other);
  if (slot.buffer && slot.buffer.capacity() >= size_ && !closed_) [[likely]] {
    post(slot);
    return true;
  }
  slot.buffer.reset();
  return refill(slot);
}

void ReceiveQueue::give(Buffer buffer) noexcept {
  if (bare_ == nullptr || closed_)
    return;
  ReceiveSlot& slot = *std::exchange(bare_, bare_->next);
  slot.buffer = std::move(buffer);
  post(slot);
}

void ReceiveQueue::refill_bare() noexcept {
  while (bare_ != nullptr && !closed_) {
    Buffer buffer = memory_.get_fitting(size_);
    if (!buffer)
      return;
    give(std::move(buffer));
  }
}

void ReceiveQueue::park(ReceiveSlot& slot, uint32_t length) noexcept {
  slot.length = length;
  slot.next = nullptr;
  if (parked_ == nullptr)
    parked_ = &slot;
  else
    last_parked_->next = &slot;
  last_parked_ = &slot;
}

ReceiveSlot& ReceiveQueue::unpark() noexcept {
  return *std::exchange(parked_, parked_->next);
}

void ReceiveQueue::park_first(ReceiveSlot& slot) noexcept {
  if (parked_ == nullptr)
    last_parked_ = &slot;
  slot.next = parked_;
  parked_ = &slot;
}

void ReceiveQueue::drop_parked() noexcept {
  while (parked_ != nullptr)
    unpark().buffer.reset();
}

}  // namespace rrdk::xprt
