// Taking buffers from a pool and giving them back: a few nanoseconds each when the calling thread
// is one that EAL knows, and its cache has one.
#pragma once

#include <rte_lcore.h>

#include <cassert>
#include <utility>

#include "base/sanitizer.h"
#include "mem/pool.h"

namespace rrdk::mem {

// A cache passes from one thread to the next when an lcore id is reused, under a lock of EAL's,
// which TSan does not see.
class Pool::CacheOfThisCore {
 public:
  // `caches`: of all cores, or null.
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
  assert(!slot->held);
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
  assert(slot->held && "a buffer was put back twice");
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
