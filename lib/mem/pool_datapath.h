// Taking buffers from a pool and giving them back: a few nanoseconds each when the calling thread
// is one that EAL knows, and its cache has one.
#pragma once

#include <cassert>

#include "base/sanitizer.h"
#include "mem/pool.h"

namespace rrdk::mem {

// A cache passes from one thread to the next when an lcore id is reused, under a lock of EAL's; the
// pool's ring orders the slots themselves. TSan sees neither.
class CacheOfThisCore {
 public:
  // `caches`: of all cores, or null.
  explicit CacheOfThisCore(rte_mempool_cache* caches) noexcept {
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
  rte_mempool_cache* get() const noexcept { return cache_; }

 private:
  rte_mempool_cache* cache_;
};

inline void mark_held(BufferSlot* slot) noexcept {
  base::tsan_acquire(slot);
  assert(!slot->held);
  slot->held = true;
  base::unpoison(slot->data, slot->capacity);
}

inline BufferSlot* Pool::get() noexcept {
  CacheOfThisCore cache(caches_);
  void* object;
  if (rte_mempool_generic_get(mempool_, &object, 1, cache.get()) != 0)
    return nullptr;
  auto* slot = static_cast<BufferSlot*>(object);
  mark_held(slot);
  return slot;
}

inline void Pool::put(BufferSlot* slot) noexcept {
  assert(slot->held && "a buffer was put back twice");
  slot->held = false;
  base::poison(slot->data, slot->capacity);
  base::tsan_release(slot);
  CacheOfThisCore cache(caches_);
  void* object = slot;
  rte_mempool_generic_put(mempool_, &object, 1, cache.get());
}

}  // namespace rrdk::mem
