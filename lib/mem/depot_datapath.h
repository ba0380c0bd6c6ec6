// Buffers of one pool that are in no core's cache: a lock-free stack of slots, linked by number.
//
// What came back last goes out first: it may still be in a core's cache, and a few calls of a
// megabyte do not walk through the whole class. A slot's memory is never anything else than a slot
// of its pool, so whoever is slow may look at one that is long gone: the head's tag tells.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "rrdk/memory.h"

namespace rrdk::mem {

constexpr uint32_t kNoSlot = UINT32_MAX;

// Finds slots by number: those of one slab stand in a row. Rows stay when their slab goes, and are
// used again when it comes back.
class SlotTable {
 public:
  // For `slabs` slabs of at most 2^shift slots (pool.cc).
  SlotTable(uint32_t slabs, uint32_t shift);
  ~SlotTable();
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;
  // The slab's row; made, if it has none. Null: no memory.
  BufferSlot* make_row(uint32_t slab, uint32_t count) noexcept;

  uint32_t slab_of(uint32_t index) const noexcept { return index >> shift_; }
  uint32_t index_of(uint32_t slab, uint32_t place) const noexcept { return slab << shift_ | place; }
  BufferSlot* at(uint32_t index) const noexcept {
    // The row was there before the number was put where it was found.
    BufferSlot* row = rows_[slab_of(index)].load(std::memory_order_relaxed);
    return row + (index & ((1u << shift_) - 1));
  }

 private:
  uint32_t slabs_;
  uint32_t shift_;
  std::unique_ptr<std::atomic<BufferSlot*>[]> rows_;
};

class Depot {
 public:
  // Slots that are linked by `next`, from `first` to `last`.
  struct Chain {
    BufferSlot* first = nullptr;
    BufferSlot* last = nullptr;
    uint32_t length = 0;

    void add(BufferSlot* slot) noexcept {
      if (last == nullptr)
        first = slot;
      else
        last->next.store(slot->index, std::memory_order_relaxed);
      last = slot;
      ++length;
    }
  };

  // Not an empty one.
  void push(const Chain& chain) noexcept {
    uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      chain.last->next.store(first_of(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, successor(head, chain.first->index, chain.length),
                                          std::memory_order_release, std::memory_order_relaxed));
    count_.fetch_add(static_cast<int32_t>(chain.length), std::memory_order_relaxed);
  }

  // At most `most`, into `out`, what came back last at the end of it.
  uint32_t pop(const SlotTable& slots, BufferSlot** out, uint32_t most) noexcept {
    uint64_t head = head_.load(std::memory_order_acquire);
    for (;;) {
      uint32_t index = first_of(head);
      uint32_t taken = 0;
      for (; taken < most && index != kNoSlot; ++taken) {
        out[taken] = slots.at(index);
        index = out[taken]->next.load(std::memory_order_relaxed);
      }
      if (taken == 0)
        return 0;
      if (head_.compare_exchange_weak(head, successor(head, index, 1), std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        count_.fetch_sub(static_cast<int32_t>(taken), std::memory_order_relaxed);
        std::reverse(out, out + taken);
        return taken;
      }
    }
  }

  // All of them: the first one's number, whose chain ends with kNoSlot.
  uint32_t take_all() noexcept {
    uint64_t head = head_.load(std::memory_order_acquire);
    while (!head_.compare_exchange_weak(head, successor(head, kNoSlot, 1),
                                        std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    return first_of(head);
  }
  // Of those that take_all() took, when their number is known.
  void took(uint32_t count) noexcept {
    count_.fetch_sub(static_cast<int32_t>(count), std::memory_order_relaxed);
  }

  // Exact when nobody is at it.
  uint32_t count() const noexcept {
    return static_cast<uint32_t>(std::max(count_.load(std::memory_order_relaxed), 0));
  }
  // A count, modulo 2^32, that grows by one for each buffer that comes, and by one for each time
  // that some go.
  uint32_t changes() const noexcept {
    return static_cast<uint32_t>(head_.load(std::memory_order_relaxed) >> 32);
  }

 private:
  static uint32_t first_of(uint64_t head) noexcept { return static_cast<uint32_t>(head); }
  static uint64_t successor(uint64_t head, uint32_t first, uint32_t changes) noexcept {
    return ((head >> 32) + changes) << 32 | first;
  }

  std::atomic<uint64_t> head_ = kNoSlot;  // the tag, and the number of the first
  std::atomic<int32_t> count_ = 0;
};

}  // namespace rrdk::mem
