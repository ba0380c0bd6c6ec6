#include "base/assert.h"
#include "drivers/shm/local_keys.h"

namespace rrdk::shm {

using Use = drivers::KeyTable::Use;

void LocalKeys::release(uint32_t key) noexcept {
  kill(key);
  keys_.release(key);
}

bool LocalKeys::bind(uint32_t key, const MemorySpan& span, const RegionTable::Place& place,
                     fabric::Rights rights, uint32_t runs) noexcept {
  RRDK_ASSERT(place.offset >= 0, place.offset);
  if (keys_.use(key) != Use::kReserved)
    return false;
  keys_.set(key, Use::kBound);
  KeyEntry& shown = entry(key);
  RRDK_ASSERT(shown.key.load(std::memory_order_relaxed) == 0, key);  // the last one was taken away
  shown.rights.store(static_cast<uint32_t>(rights), std::memory_order_relaxed);
  shown.region.store(place.wire_id, std::memory_order_relaxed);
  shown.runs.store(runs, std::memory_order_relaxed);
  shown.offset.store(static_cast<uint64_t>(place.offset), std::memory_order_relaxed);
  shown.address.store(reinterpret_cast<uintptr_t>(span.data), std::memory_order_relaxed);
  shown.length.store(span.length, std::memory_order_relaxed);
  shown.key.store(key, std::memory_order_release);
  return true;
}

bool LocalKeys::kill(uint32_t key) noexcept {
  const Use use = keys_.use(key);
  if (use == Use::kFree)
    return false;
  RRDK_ASSERT(use != Use::kBound || entry(key).key.load(std::memory_order_relaxed) == key, key);
  if (use == Use::kBound)
    entry(key).key.store(0, std::memory_order_seq_cst);
  keys_.set(key, Use::kDead);
  return true;
}

// The peer itself gives it up, so no access by the peer has to be waited for.
bool LocalKeys::kill_for_peer(uint32_t key) noexcept {
  if (keys_.use(key) != Use::kBound)
    return false;
  RRDK_ASSERT(entry(key).key.load(std::memory_order_relaxed) == key, key);
  entry(key).key.store(0, std::memory_order_relaxed);
  keys_.set(key, Use::kDead);
  return true;
}

void LocalKeys::kill_all() noexcept {
  keys_.for_each_bound([this](uint32_t key) { kill(key); });
}

const KeyEntry* LocalKeys::bound(uint32_t key) const noexcept {
  return keys_.use(key) == Use::kBound ? &entry(key) : nullptr;
}

}  // namespace rrdk::shm
