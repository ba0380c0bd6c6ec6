#include <algorithm>

#include "drivers/iwarp/stags.h"

namespace rrdk::iwarp {

Stags::Entry* Stags::entry(uint32_t key) noexcept {
  Entry& found = entries_[key & mask_];
  return found.key == key && found.use != Use::kFree ? &found : nullptr;
}

// A value for the key at `index` that it did not have lately. Never zero.
uint32_t Stags::fresh(uint32_t index) noexcept {
  Entry& of = entries_[index];
  uint32_t key;
  do {
    key = (nonces_.next() << index_bits_) | index;
  } while (key == 0 || std::ranges::find(of.recent, key) != of.recent.end());
  of.recent[of.next_memory++ % kRemembered] = key;
  return key;
}

bool Stags::reserve(std::span<uint32_t> keys) noexcept {
  if (free_tail_ - free_head_ < keys.size())
    return false;
  for (uint32_t& key : keys) {
    const uint32_t index = free_[free_head_++ & mask_];
    key = fresh(index);
    entries_[index].key = key;
    entries_[index].use = Use::kReserved;
  }
  return true;
}

void Stags::release(uint32_t key) noexcept {
  Entry* found = entry(key);
  if (found == nullptr)
    return;
  found->use = Use::kFree;
  free_[free_tail_++ & mask_] = key & mask_;
}

bool Stags::bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept {
  Entry* found = entry(key);
  if (found == nullptr || found->use != Use::kReserved)
    return false;
  found->use = Use::kBound;
  found->window = {span.data, span.length, rights};
  return true;
}

bool Stags::kill(uint32_t key) noexcept {
  Entry* found = entry(key);
  if (found == nullptr)
    return false;
  found->use = Use::kDead;
  return true;
}

void Stags::kill_all() noexcept {
  for (Entry& each : entries_)
    if (each.use == Use::kBound)
      each.use = Use::kDead;
}

const Stags::Window* Stags::find(uint32_t key) const noexcept {
  const Entry& found = entries_[key & mask_];
  return found.key == key && found.use == Use::kBound ? &found.window : nullptr;
}

}  // namespace rrdk::iwarp
