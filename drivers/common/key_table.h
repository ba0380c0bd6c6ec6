// The remote keys of one connection, at the end that hands them out. A key has an index in the low
// bits and a random nonce above it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/random.h"

namespace rrdk::drivers {

class KeyTable {
 public:
  enum class Use : uint8_t { kFree, kReserved, kBound, kDead };

  explicit KeyTable(uint32_t count)
      : mask_(std::bit_ceil(count == 0 ? 1u : count) - 1),
        index_bits_(static_cast<uint32_t>(std::bit_width(mask_))),
        free_tail_(count) {
    RRDK_ASSERT(count <= size(), count);
  }

  // Returns false if fewer are free.
  bool reserve(std::span<uint32_t> keys) noexcept;
  void release(uint32_t key) noexcept;

  uint32_t size() const noexcept { return mask_ + 1; }
  uint32_t index(uint32_t key) const noexcept { return key & mask_; }
  // Returns kFree for a key that is not handed out.
  Use use(uint32_t key) const noexcept {
    if (entries_.empty()) [[unlikely]]
      return Use::kFree;
    const Entry& entry = entries_[index(key)];
    return entry.key == key ? entry.use : Use::kFree;
  }
  // The key must be handed out.
  void set(uint32_t key, Use use) noexcept {
    RRDK_ASSERT(entries_[index(key)].key == key && entries_[index(key)].use != Use::kFree, key);
    entries_[index(key)].use = use;
  }
  // Calls fn(key) for each key that is bound.
  template <typename Fn>
  void for_each_bound(Fn&& fn) {
    for (const Entry& entry : entries_) {
      if (entry.use == Use::kBound)
        fn(entry.key);
    }
  }

 private:
  // A nonce is not repeated while one of these remembers it.
  static constexpr size_t kRemembered = 4;
  struct Entry {
    uint32_t key = 0;
    Use use = Use::kFree;
    uint8_t next_memory = 0;
    std::array<uint32_t, kRemembered> recent{};
  };

  // Called for a connection's first key. Returns false if there is no memory.
  bool begin() noexcept try {
    free_.resize(mask_ + 1);
    std::iota(free_.begin(), free_.end(), 0u);
    entries_.resize(mask_ + 1);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  uint32_t fresh(uint32_t index) noexcept;

  uint32_t mask_;
  uint32_t index_bits_;
  base::Random nonces_;
  // Empty until the first is reserved, which many connections never do.
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // a ring of indexes, so that reuse comes as late as possible
  uint64_t free_head_ = 0;
  uint64_t free_tail_;
};

}  // namespace rrdk::drivers
