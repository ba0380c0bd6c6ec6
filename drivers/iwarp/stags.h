// The remote keys (STags) of one connection. A key is an index in the low bits and a random nonce
// above it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "fabric/work.h"

namespace rrdk::iwarp {

class Stags {
 public:
  explicit Stags(uint32_t count);

  struct Window {
    std::byte* base = nullptr;
    uint32_t length = 0;
    fabric::Rights rights{};

    uint64_t address() const noexcept { return reinterpret_cast<uintptr_t>(base); }
  };

  bool reserve(std::span<uint32_t> keys) noexcept;
  void release(uint32_t key) noexcept;
  // Gives a reserved key meaning. False: it is not one, or had one before.
  bool bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept;
  // Takes a key's meaning away, if it has one. False: it was never reserved.
  bool kill(uint32_t key) noexcept;
  void kill_all() noexcept;
  // Null: no such key has a meaning now.
  const Window* find(uint32_t key) const noexcept;

 private:
  enum class Use : uint8_t { kFree, kReserved, kBound, kDead };
  // A nonce is not repeated while one of these remembers it.
  static constexpr size_t kRemembered = 4;
  struct Entry {
    uint32_t key = 0;
    Use use = Use::kFree;
    uint8_t next_memory = 0;
    Window window;
    std::array<uint32_t, kRemembered> recent{};
  };

  Entry* entry(uint32_t key) noexcept;
  uint32_t fresh(uint32_t index) noexcept;

  uint32_t mask_;
  uint32_t index_bits_;
  base::Random nonces_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // a ring of indexes, so that reuse comes as late as possible
  uint64_t free_head_ = 0;
  uint64_t free_tail_ = 0;
};

}  // namespace rrdk::iwarp
