// The remote keys that this end hands out: private bookkeeping behind the entries that the peer
// sees (KeyEntry).
#pragma once

#include <cstdint>
#include <span>

#include "drivers/common/key_table.h"
#include "drivers/shm/region_table.h"
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
  // Kills a key that the peer named. False: it is not alive, or in use at this moment.
  bool kill_for_peer(uint32_t key) noexcept;
  void kill_all() noexcept;

  // True while an access by the peer is in progress.
  bool in_use(uint32_t key) const noexcept;
  // The same for all keys; reads only shared words, so any thread may ask.
  bool any_in_use() const noexcept;

 private:
  KeyEntry& entry(uint32_t key) const noexcept { return entries_[keys_.index(key)]; }

  KeyEntry* entries_;
  drivers::KeyTable keys_;
};

}  // namespace rrdk::shm
