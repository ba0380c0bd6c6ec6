#include <algorithm>

#include "drivers/shm/local_keys.h"

namespace rrdk::shm {

LocalKeys::Local* LocalKeys::find(uint32_t key) noexcept {
  Local& local = locals_[key & mask_];
  return local.key == key && local.use != Use::kFree ? &local : nullptr;
}

// A value for the key at `index` that it did not have lately. Never zero.
uint32_t LocalKeys::fresh(uint32_t index) noexcept {
  Local& local = locals_[index];
  uint32_t key;
  do {
    key = (nonces_.next() << index_bits_) | index;
  } while (key == 0 || std::ranges::find(local.recent, key) != local.recent.end());
  local.recent[local.next_memory++ % kRemembered] = key;
  return key;
}

bool LocalKeys::reserve(std::span<uint32_t> keys) noexcept {
  if (free_tail_ - free_head_ < keys.size())
    return false;
  for (uint32_t& key : keys) {
    const uint32_t index = free_[free_head_++ & mask_];
    key = fresh(index);
    locals_[index].key = key;
    locals_[index].use = Use::kReserved;
  }
  return true;
}

void LocalKeys::release(uint32_t key) noexcept {
  Local* local = find(key);
  if (local == nullptr)
    return;
  kill(key);
  local->use = Use::kFree;
  free_[free_tail_++ & mask_] = key & mask_;
}

bool LocalKeys::bind(uint32_t key, const MemorySpan& span, const RegionTable::Place& place,
                     fabric::Rights rights) noexcept {
  Local* local = find(key);
  if (local == nullptr || local->use != Use::kReserved)
    return false;
  local->use = Use::kBound;
  KeyEntry& entry = entries_[key & mask_];
  entry.rights.store(static_cast<uint32_t>(rights), std::memory_order_relaxed);
  entry.region.store(place.wire_id, std::memory_order_relaxed);
  entry.offset.store(static_cast<uint64_t>(place.offset), std::memory_order_relaxed);
  entry.address.store(reinterpret_cast<uintptr_t>(span.data), std::memory_order_relaxed);
  entry.length.store(span.length, std::memory_order_relaxed);
  entry.key.store(key, std::memory_order_release);
  return true;
}

bool LocalKeys::kill(uint32_t key) noexcept {
  Local* local = find(key);
  if (local == nullptr)
    return false;
  if (local->use == Use::kBound)
    entries_[key & mask_].key.store(0, std::memory_order_seq_cst);
  local->use = Use::kDead;
  return true;
}

bool LocalKeys::kill_for_peer(uint32_t key) noexcept {
  const Local* local = find(key);
  if (local == nullptr || local->use != Use::kBound)
    return false;
  kill(key);
  return !in_use(key);
}

void LocalKeys::kill_all() noexcept {
  for (Local& local : locals_)
    if (local.use == Use::kBound)
      kill(local.key);
}

bool LocalKeys::in_use(uint32_t key) const noexcept {
  return entries_[key & mask_].users.load(std::memory_order_seq_cst) != 0;
}

bool LocalKeys::any_in_use() const noexcept {
  for (uint32_t i = 0; i <= mask_; ++i)
    if (in_use(i))
      return true;
  return false;
}

}  // namespace rrdk::shm
