// All buffers of one size class on one NUMA node: a depot of the free ones, and in front of it a
// cache for each core.
//
// A BufferSlot describes a fixed slice of an arena, and is itself in private memory: what a peer
// process can write (the arena) holds nothing that the pool relies on. Buffers come in slabs: all
// at once for a class with a fixed count, one by one from the budget for an elastic class.
#pragma once

#include <rte_lcore.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/assert.h"
#include "base/count.h"
#include "base/sanitizer.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

constexpr uint32_t kNoSlot = UINT32_MAX;

// Finds slots by number: those of one slab form a row. Rows remain when their slab goes, and are
// used again when it comes back.
class SlotTable {
 public:
  // For `slabs` slabs of at most 2^shift slots (pool.cc).
  SlotTable(uint32_t slabs, uint32_t shift);
  ~SlotTable();
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;
  // Returns the slab's row, which is made if it does not exist. Returns null if there is no memory.
  BufferSlot* make_row(uint32_t slab, uint32_t count) noexcept;

  uint32_t slab_of(uint32_t index) const noexcept { return index >> shift_; }
  uint32_t index_of(uint32_t slab, uint32_t place) const noexcept { return slab << shift_ | place; }
  BufferSlot* at(uint32_t index) const noexcept {
    // The row existed before the number was put where it was found.
    RRDK_ASSERT(slab_of(index) < slabs_, index, slabs_);
    BufferSlot* row = rows_[slab_of(index)].load(std::memory_order_relaxed);
    RRDK_ASSERT(row != nullptr, index);
    return row + (index & ((1u << shift_) - 1));
  }

 private:
  uint32_t slabs_;
  uint32_t shift_;
  std::unique_ptr<std::atomic<BufferSlot*>[]> rows_;
};

// Buffers of one pool that are in no core's cache: a lock-free stack of slots, linked by number.
//
// The buffer that came back last is taken first: it may still be in a core's cache, and a few calls
// of a megabyte do not go through the whole class. The memory of a slot is never used for anything
// else, so a slow core may read a slot that was taken long ago: the head's tag then makes it start
// over.
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

  void push(const Chain& chain) noexcept {
    RRDK_ASSERT(chain.length != 0 && chain.last != nullptr, chain.length);
    uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      chain.last->next.store(first_of(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, successor(head, chain.first->index, chain.length),
                                          std::memory_order_release, std::memory_order_relaxed));
    count_.fetch_add(static_cast<int32_t>(chain.length), std::memory_order_relaxed);
  }

  // Takes at most `most` into `out`; the one that came back last is at the end.
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

  // Takes all. Returns the number of the first, whose chain ends with kNoSlot.
  uint32_t take_all() noexcept {
    uint64_t head = head_.load(std::memory_order_acquire);
    while (!head_.compare_exchange_weak(head, successor(head, kNoSlot, 1),
                                        std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    return first_of(head);
  }
  // Subtracts those that take_all() took, once their number is known.
  void took(uint32_t count) noexcept {
    count_.fetch_sub(static_cast<int32_t>(count), std::memory_order_relaxed);
  }

  // Exact while no other thread uses the depot.
  uint32_t count() const noexcept {
    return static_cast<uint32_t>(std::max(count_.load(std::memory_order_relaxed), 0));
  }
  // A count, modulo 2^32, that increases by one for each buffer that is put, and by one each time
  // that some are taken.
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

class Slabs;

struct PoolOptions {
  uint32_t buffer_size = 0;
  int numa_node = 0;
  uint32_t slabs = 0;       // that it can ever have
  uint32_t per_slab = 0;    // buffers
  uint32_t cached = 0;      // buffers that a core may keep; 0: there are no caches
  uint32_t resting = 0;     // the same while some rest (Buffer::note_read_by_peer()); 0: no more
  Slabs* budget = nullptr;  // where an elastic class takes its slabs from
};

class Pool {
 public:
  // How many buffers a core may keep of a class with `buffers` buffers: a 32nd, so that what eight
  // cores strand is little more than a third of the class.
  static uint32_t cached_of(uint64_t buffers) noexcept;
  // PoolOptions::resting for a class with `buffers` buffers: up to an eighth. Only a core that
  // sends such buffers to peers on this host keeps as many.
  static uint32_t resting_of(uint64_t buffers, uint32_t buffer_size) noexcept;

  // The new pool has no buffers. Errors: kInvalidArgument (too many buffers), kNoMemory.
  static Result<std::unique_ptr<Pool>> create(const PoolOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Data path. Null, or false with nothing taken, if exhausted. Buffers in the caches of other
  // cores are not available.
  BufferSlot* get() noexcept;
  bool get_bulk(std::span<Buffer> out) noexcept;
  void put(BufferSlot* slot) noexcept;

  // Under the lock of the budget, or before the pool is used. Makes buffers from the bytes at
  // `base`. Returns false if there is no memory for their descriptions.
  bool add_slab(uint32_t slab, std::byte* base, RegionId region) noexcept;
  // Empties this thread's cache, then gives back to the budget the slabs all of whose buffers are
  // free. Returns how many.
  uint32_t remove_free_slabs() noexcept;
  // Whether remove_free_slabs() is worth walking over all free buffers.
  bool may_have_free_slabs() const noexcept;

  // Empties the cache of a core that no thread owns any more.
  void flush_cache(unsigned lcore) noexcept;

  // Counts a request that could not be satisfied.
  void count_missing() noexcept { ++missing_; }
  // Any thread; exact while no buffers are taken or given back.
  PoolAudit audit() const;
  uint32_t buffer_size() const noexcept { return options_.buffer_size; }
  uint32_t per_slab() const noexcept { return options_.per_slab; }
  uint32_t slabs() const noexcept { return slabs_.load(std::memory_order_relaxed); }
  bool elastic() const noexcept { return options_.budget != nullptr; }
  uint32_t more() const noexcept;  // buffers that it could still get from the budget
  // Of these, those that no other class has; cheaper to determine.
  uint32_t unused() const noexcept;
  uint32_t home() const noexcept { return depot_.count(); }  // in no cache
  uint32_t within_reach() const noexcept;  // in no cache other than the calling core's

 private:
  static constexpr uint32_t kMostCached = 512;
  // Smaller buffers fill no processor cache, and a few larger ones do.
  static constexpr uint32_t kLeastRested = 4096;
  static constexpr uint32_t kMostRested = 128 << 10;
  // Twice the size of a core's own caches, even if buffers are half full.
  static constexpr uint32_t kRestedBytes = 4 << 20;
  // The cache of one core: a ring, the newest last. At most one and a half times `cached`, or
  // `resting`.
  struct alignas(64) Cache {
    static constexpr uint32_t kPlaces = 2 * kMostCached;
    uint32_t length;
    uint32_t first;
    BufferSlot* places[kPlaces];

    BufferSlot*& at(uint32_t i) noexcept { return places[(first + i) % kPlaces]; }
    BufferSlot* pop() noexcept {
      RRDK_ASSERT(length != 0);
      return at(--length);
    }
    void push(BufferSlot* slot) noexcept {
      RRDK_ASSERT(length < kPlaces, length);
      at(length++) = slot;
    }
    // Adds the slot where it is taken last.
    void push_behind(BufferSlot* slot) noexcept {
      RRDK_ASSERT(length < kPlaces, length);
      --first;
      ++length;
      at(0) = slot;
    }
    // Space after those that are there.
    BufferSlot** room() noexcept;
  };
  class CacheOfThisCore;

  Pool(const PoolOptions& options, uint32_t shift);
  uint32_t take_home(BufferSlot** out, uint32_t most) noexcept;
  bool take(std::span<BufferSlot*> out) noexcept;
  void fill(Cache& cache) noexcept;
  void rest(Cache& cache, BufferSlot* slot) noexcept;
  void drain(Cache& cache, uint32_t most) noexcept;
  void give_back_free(uint32_t first) noexcept;
  uint32_t fewest_missing() const noexcept;

  Cache* caches_ = nullptr;  // by lcore; null if the class is too small for them
  PoolOptions options_;
  const uint32_t most_cached_;
  SlotTable slots_;
  Depot depot_;
  std::atomic<uint32_t> slabs_ = 0;
  std::atomic<uint32_t> least_ = UINT32_MAX;
  base::SharedCount missing_;
  // By slab: number of free buffers, while free slabs are searched for.
  std::unique_ptr<uint32_t[]> home_of_;
  // If the last search found no free slab: the depot's changes() at that time, and how many buffers
  // must come back before there can be a free slab.
  std::atomic<uint32_t> searched_at_ = 0;
  std::atomic<uint32_t> missed_ = 0;
};

// Taking buffers and giving them back takes a few nanoseconds each if EAL knows the calling thread,
// and its cache has one.

// A cache passes from one thread to the next when an lcore id is reused, under a lock of EAL's,
// which TSan does not see.
class Pool::CacheOfThisCore {
 public:
  // `caches`: those of all cores, or null.
  explicit CacheOfThisCore(Cache* caches) noexcept {
    const unsigned lcore = rte_lcore_id();
    cache_ = caches != nullptr && lcore < RTE_MAX_LCORE ? &caches[lcore] : nullptr;
    if (cache_ != nullptr)
      base::tsan_acquire(cache_);
  }
  ~CacheOfThisCore() {
    if (cache_ != nullptr)
      base::tsan_release(cache_);
  }
  CacheOfThisCore(const CacheOfThisCore&) = delete;
  CacheOfThisCore& operator=(const CacheOfThisCore&) = delete;
  Cache* get() const noexcept { return cache_; }

 private:
  Cache* cache_;
};

inline void mark_held(BufferSlot* slot) noexcept {
  base::tsan_acquire(slot);
  RRDK_ASSERT(!slot->held, slot->index);
  slot->held = true;
  base::unpoison(slot->data, slot->capacity);
}

inline BufferSlot* Pool::get() noexcept {
  BufferSlot* slot;
  {
    CacheOfThisCore mine(caches_);
    Cache* cache = mine.get();
    if (cache == nullptr) {
      if (take_home(&slot, 1) == 0)
        return nullptr;
    } else {
      if (cache->length == 0) [[unlikely]] {
        fill(*cache);
        if (cache->length == 0)
          return nullptr;
      }
      slot = cache->pop();
    }
  }
  mark_held(slot);
  return slot;
}

inline void Pool::put(BufferSlot* slot) noexcept {
  RRDK_ASSERT(slot->held && "a buffer was put back twice", slot->index);
  RRDK_ASSERT(slot->pool == this && slot->borrower == nullptr);
  slot->held = false;
  const bool rests = std::exchange(slot->read_by_peer, false);
  base::poison(slot->data, slot->capacity);
  base::tsan_release(slot);
  CacheOfThisCore mine(caches_);
  Cache* cache = mine.get();
  if (cache == nullptr) {
    Depot::Chain chain;
    chain.add(slot);
    return depot_.push(chain);
  }
  if (cache->length >= most_cached_) [[unlikely]]
    drain(*cache, cache->length - most_cached_ / 3);
  if (rests) [[unlikely]]
    rest(*cache, slot);
  else
    cache->push(slot);
}

}  // namespace rrdk::mem
