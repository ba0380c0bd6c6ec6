// All buffers of one size class on one NUMA node: a depot of those that are home, in front of which
// each core has a cache.
//
// A BufferSlot names a slice of an arena for good, and lies in private memory: what a peer process
// can write (the arena) holds nothing that the pool relies on. Buffers come in slabs, all at once
// for a class of a fixed count, one by one out of the budget for an elastic one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "mem/depot_datapath.h"
#include "rrdk/memory.h"

namespace rrdk::mem {

class Slabs;

struct PoolOptions {
  uint32_t buffer_size = 0;
  int numa_node = 0;
  uint32_t slabs = 0;       // that it can ever have
  uint32_t per_slab = 0;    // buffers
  uint32_t cached = 0;      // buffers that a core may keep; 0: there are no caches
  uint32_t resting = 0;     // instead, where some rest (Buffer::note_read_by_peer()); 0: no more
  Slabs* budget = nullptr;  // where an elastic class takes its slabs from
};

class Pool {
 public:
  // How many buffers a core may keep of a class of so many: a 32nd, so that what eight cores strand
  // is little more than a third of the class.
  static uint32_t cached_of(uint64_t buffers) noexcept;
  // PoolOptions::resting of a class of so many: up to an eighth, which only a core comes to that
  // sends them to peers on this host.
  static uint32_t resting_of(uint64_t buffers, uint32_t buffer_size) noexcept;

  // It has no buffers. Errors: kInvalidArgument (too many of them), kNoMemory.
  static Result<std::unique_ptr<Pool>> create(const PoolOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Data path (pool_datapath.h). Null, or false with nothing taken, when exhausted. Buffers in the
  // caches of other cores can not be had.
  BufferSlot* get() noexcept;
  bool get_bulk(std::span<Buffer> out) noexcept;
  void put(BufferSlot* slot) noexcept;

  // Under the lock of the budget, or before the pool is used. Makes buffers of the bytes from
  // `base` on. False: there is no memory for what describes them.
  bool add_slab(uint32_t slab, std::byte* base, RegionId region) noexcept;
  // Gives those slabs back to the budget whose buffers are all home, once this thread's cache is
  // emptied. How many.
  uint32_t remove_free_slabs() noexcept;
  // Whether remove_free_slabs() is worth its walk over all buffers that are home.
  bool may_have_free_slabs() const noexcept;

  // Empties the cache of a core that no thread owns any more.
  void flush_cache(unsigned lcore) noexcept;

  // Nothing was to be had from it.
  void count_refusal() noexcept { refusals_.fetch_add(1, std::memory_order_relaxed); }
  // Any thread; exact while nobody gets or puts.
  PoolAudit audit() const;
  uint32_t buffer_size() const noexcept { return options_.buffer_size; }
  uint32_t per_slab() const noexcept { return options_.per_slab; }
  uint32_t slabs() const noexcept { return slabs_.load(std::memory_order_relaxed); }
  bool elastic() const noexcept { return options_.budget != nullptr; }
  uint32_t more() const noexcept;    // buffers that it could still have of the budget
  uint32_t unused() const noexcept;  // those of them that no other class has; cheaper to know
  uint32_t home() const noexcept { return depot_.count(); }  // in no cache
  uint32_t within_reach() const noexcept;                    // in no cache but the calling core's

 private:
  static constexpr uint32_t kMostCached = 512;
  // Smaller ones fill no cache of a processor, and few of the larger ones do.
  static constexpr uint32_t kLeastRested = 4096;
  static constexpr uint32_t kMostRested = 128 << 10;
  // Twice what a core's own caches have, even if buffers are half full.
  static constexpr uint32_t kRestedBytes = 4 << 20;
  // One core's: a ring, the newest last. At most one and a half times `cached`, or `resting`.
  struct alignas(64) Cache {
    static constexpr uint32_t kPlaces = 2 * kMostCached;
    uint32_t length;
    uint32_t first;
    BufferSlot* places[kPlaces];

    BufferSlot*& at(uint32_t i) noexcept { return places[(first + i) % kPlaces]; }
    BufferSlot* pop() noexcept { return at(--length); }
    void push(BufferSlot* slot) noexcept { at(length++) = slot; }
    // Where it is taken last.
    void push_behind(BufferSlot* slot) noexcept {
      --first;
      ++length;
      at(0) = slot;
    }
    // Room behind those that are there.
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
  std::atomic<uint64_t> refusals_ = 0;
  std::unique_ptr<uint32_t[]> home_of_;  // by slab: buffers, while free slabs are looked for
  // Where no slab was free when last one was looked for: the depot's changes() until then, and how
  // many buffers must come back before there can be one.
  std::atomic<uint32_t> searched_at_ = 0;
  std::atomic<uint32_t> missed_ = 0;
};

}  // namespace rrdk::mem
