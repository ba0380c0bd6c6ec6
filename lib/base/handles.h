// Handles that detect late use: numbers that stand for objects that are used again.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace rrdk::base {

// A program in C may use a handle after its end. If the handle were a pointer, that mistake could
// do great harm, since the object may have another use by then. A handle of this class leads to its
// object while the slot is open for it, and to nothing ever after.
//
//   bits 0 to 21   which slot
//   bit 22         set in each handle, and in the slot while it is open
//   the others     how often the slot was opened before: 2^41 times until a number comes again
//
// Slots stay where they are for good, so that a handle can be checked whatever has become of its
// object. An object has its slot for its whole life. Never destroyed; of static duration.
template <typename Object>
class Handles {
 public:
  class alignas(32) Slot {
   public:
    // Returns the handle for the next use of the object. Called by its owner while the slot is not
    // open.
    uint64_t open() noexcept {
      const uint64_t handle = state_.load(std::memory_order_relaxed) + kOnce + kOpen;
      state_.store(handle, std::memory_order_release);
      return handle;
    }
    // The handle, as returned by open().
    uint64_t handle() const noexcept { return state_.load(std::memory_order_relaxed); }

   private:
    friend class Handles;
    std::atomic<uint64_t> state_ = 0;  // the handle; without kOpen, the last one
    Object* object_ = nullptr;
    Slot* next_ = nullptr;  // in the list of free ones
  };

  // Called for a new object. Returns null if there are already four million. Locks.
  Slot* take(Object& object) {
    std::lock_guard lock(mutex_);
    if (free_ == nullptr && !grow())
      return nullptr;
    Slot* const slot = free_;
    free_ = slot->next_;
    slot->object_ = &object;
    return slot;
  }
  // Called when the object is destroyed: closes the slot if it is open. Does nothing if `slot` is
  // null. Locks.
  void give_back(Slot* slot) noexcept {
    if (slot == nullptr)
      return;
    slot->state_.fetch_and(~kOpen, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    slot->next_ = free_;
    free_ = slot;
  }

  // Returns null if the slot is no longer open for the handle, or if it never was a handle. Any
  // thread.
  Object* find(uint64_t handle) const noexcept {
    Slot* const slot = slot_of(handle);
    return slot != nullptr && (handle & kOpen) != 0 &&
                   slot->state_.load(std::memory_order_acquire) == handle
               ? slot->object_
               : nullptr;
  }
  // The same, and closes the slot. If several threads call it at once, one gets the object.
  Object* close(uint64_t handle) noexcept {
    Slot* const slot = slot_of(handle);
    return slot != nullptr && (handle & kOpen) != 0 &&
                   slot->state_.compare_exchange_strong(handle, handle & ~kOpen,
                                                        std::memory_order_acq_rel)
               ? slot->object_
               : nullptr;
  }

 private:
  static constexpr uint64_t kOpen = uint64_t{1} << 22;
  static constexpr uint64_t kOnce = kOpen << 1;
  static constexpr uint32_t kInBlock = 1024;
  static constexpr uint32_t kBlocks = kOpen / kInBlock;

  Slot* slot_of(uint64_t handle) const noexcept {
    const auto index = static_cast<uint32_t>(handle & (kOpen - 1));
    Slot* const block = blocks_[index / kInBlock].load(std::memory_order_acquire);
    return block != nullptr ? block + index % kInBlock : nullptr;
  }

  bool grow() {
    if (num_blocks_ == kBlocks)
      return false;
    const uint32_t first = num_blocks_ * kInBlock;
    Slot* const block = std::make_unique<Slot[]>(kInBlock).release();
    for (uint32_t i = kInBlock; i-- != 0;) {
      block[i].state_.store(first + i, std::memory_order_relaxed);
      block[i].next_ = free_;
      free_ = &block[i];
    }
    blocks_[num_blocks_++].store(block, std::memory_order_release);
    return true;
  }

  std::mutex mutex_;
  Slot* free_ = nullptr;
  uint32_t num_blocks_ = 0;
  std::array<std::atomic<Slot*>, kBlocks> blocks_ = {};
};

}  // namespace rrdk::base
