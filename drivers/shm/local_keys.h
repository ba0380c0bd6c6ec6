// The remote keys that this end hands out, and the entries by which it shows them to the peer
// (KeyEntry), which only this end can write.
#pragma once

#include <cstdint>
#include <span>

#include "drivers/common/key_table.h"
#include "drivers/shm/regions.h"
#include "drivers/shm/segment.h"
#include "fabric/work.h"

namespace rrdk::shm {

class LocalKeys {
 public:
  // `count` is the number of entries, a power of two.
  LocalKeys(KeyEntry* entries, uint32_t count) : entries_(entries), keys_(count) {}

  bool reserve(std::span<uint32_t> keys) noexcept { return keys_.reserve(keys); }
  void release(uint32_t key) noexcept;

  // Binds a reserved key. Returns false if the key is not reserved, or already bound.
  // `runs` is as for fabric::SendWr: if it is not 0, the span begins with a list of RemoteSges, and
  // its length is that of what they name.
  bool bind(uint32_t key, const MemorySpan& span, const RegionTable::Place& place,
            fabric::Rights rights, uint32_t runs = 0) noexcept;
  // Unbinds a key if it is bound. Returns false if the key was never reserved.
  bool kill(uint32_t key) noexcept;
  // Unbinds a key that the peer named. Returns false if it is invalid.
  bool kill_for_peer(uint32_t key) noexcept;
  void kill_all() noexcept;
  // Returns the entry of a key; null if the key is not bound.
  const KeyEntry* bound(uint32_t key) const noexcept;

 private:
  KeyEntry& entry(uint32_t key) const noexcept { return entries_[keys_.index(key)]; }

  KeyEntry* entries_;
  drivers::KeyTable keys_;
};

}  // namespace rrdk::shm
