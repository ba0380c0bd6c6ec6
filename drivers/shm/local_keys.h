// The remote keys that this end hands out, and the entries by which it shows them to the peer
// (KeyEntry), which it alone can write.
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
  // As many as there are entries, a power of two.
  LocalKeys(KeyEntry* entries, uint32_t count) : entries_(entries), keys_(count) {}

  bool reserve(std::span<uint32_t> keys) noexcept { return keys_.reserve(keys); }
  void release(uint32_t key) noexcept;

  // Gives a reserved key meaning. False: it is not one, or is bound already.
  bool bind(uint32_t key, const MemorySpan& span, const RegionTable::Place& place,
            fabric::Rights rights) noexcept;
  // Takes a key's meaning away, if it has one. False: it was never reserved.
  bool kill(uint32_t key) noexcept;
  // Kills a key that the peer named. False: it is not alive.
  bool kill_for_peer(uint32_t key) noexcept;
  void kill_all() noexcept;
  // What a key stands for; null if it is not alive.
  const KeyEntry* bound(uint32_t key) const noexcept;

 private:
  KeyEntry& entry(uint32_t key) const noexcept { return entries_[keys_.index(key)]; }

  KeyEntry* entries_;
  drivers::KeyTable keys_;
};

}  // namespace rrdk::shm
