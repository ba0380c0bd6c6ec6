#include <algorithm>

#include "base/assert.h"
#include "drivers/common/key_table.h"

namespace rrdk::drivers {

// Returns a value for the key at `index` that it has not had recently. Never zero.
uint32_t KeyTable::fresh(uint32_t index) noexcept {
  Entry& of = entries_[index];
  uint32_t key;
  do {
    key = (nonces_.next() << index_bits_) | index;
  } while (key == 0 || std::ranges::find(of.recent, key) != of.recent.end());
  of.recent[of.next_memory++ % kRemembered] = key;
  return key;
}

bool KeyTable::reserve(std::span<uint32_t> keys) noexcept {
  if (entries_.empty() && !begin()) [[unlikely]]
    return false;
  if (free_tail_ - free_head_ < keys.size())
    return false;
  for (uint32_t& key : keys) {
    const uint32_t index = free_[free_head_++ & mask_];
    RRDK_ASSERT(entries_[index].use == Use::kFree, index, entries_[index].use);
    key = fresh(index);
    entries_[index].key = key;
    entries_[index].use = Use::kReserved;
  }
  return true;
}

void KeyTable::release(uint32_t key) noexcept {
  if (use(key) == Use::kFree)
    return;
  set(key, Use::kFree);
  RRDK_ASSERT(free_tail_ - free_head_ < size(), free_head_, free_tail_);
  free_[free_tail_++ & mask_] = index(key);
}

}  // namespace rrdk::drivers
