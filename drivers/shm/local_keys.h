// The remote keys that this end hands out: private bookkeeping behind the entries that the peer
// sees (KeyEntry). A key is an index in the low bits and a random nonce above it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "drivers/shm/region_table.h"
#include "drivers/shm/segment.h"
#include "fabric/work.h"

namespace rrdk::shm {

class LocalKeys {
 public:
  LocalKeys(KeyEntry* entries, uint32_t count);

  bool reserve(std::span<uint32_t> keys) noexcept;
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
  enum class Use : uint8_t { kFree, kReserved, kBound, kDead };
  // A nonce is not repeated while one of these remembers it.
  static constexpr size_t kRemembered = 4;
  struct Local {
    uint32_t key = 0;
    Use use = Use::kFree;
    uint8_t next_memory = 0;
    std::array<uint32_t, kRemembered> recent{};
  };

  Local* find(uint32_t key) noexcept;
  uint32_t fresh(uint32_t index) noexcept;

  KeyEntry* entries_;
  uint32_t mask_;
  uint32_t index_bits_;
  base::Random nonces_;
  std::vector<Local> locals_;
  std::vector<uint32_t> free_;  // a ring of indexes, so that reuse comes as late as possible
  uint64_t free_head_ = 0;
  uint64_t free_tail_ = 0;
};

}  // namespace rrdk::shm
