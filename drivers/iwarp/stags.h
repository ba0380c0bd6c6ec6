// The STags of one connection: what its remote keys stand for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "drivers/common/key_table.h"
#include "fabric/work.h"

namespace rrdk::iwarp {

// A tagged payload of up to so many bytes is taken from TCP together with what is around it, and
// copied to its place: that costs less than a system call of its own.
constexpr uint32_t kMostStagedWhole = 4096;

class Stags {
 public:
  explicit Stags(uint32_t count) : keys_(count) {}

  struct Window {
    std::byte* base = nullptr;
    uint32_t length = 0;
    fabric::Rights rights{};

    uint64_t address() const noexcept { return reinterpret_cast<uintptr_t>(base); }
  };

  bool reserve(std::span<uint32_t> keys) noexcept {
    return (!windows_.empty() || begin()) && keys_.reserve(keys);
  }
  void release(uint32_t key) noexcept { keys_.release(key); }
  // Gives a reserved key meaning. False: it is not one, or had one before.
  bool bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept;
  // Takes a key's meaning away, if it has one. False: it was never reserved.
  bool kill(uint32_t key) noexcept;
  void kill_all() noexcept;
  // Whether the peer may write more than kMostStagedWhole bytes somewhere.
  bool any_for_large_writes() const noexcept { return for_large_writes_ != 0; }
  // Null: no such key has a meaning now.
  const Window* find(uint32_t key) const noexcept {
    return keys_.use(key) == drivers::KeyTable::Use::kBound ? &windows_[keys_.index(key)] : nullptr;
  }

 private:
  static bool for_large_writes(const Window& window) noexcept {
    return window.rights == fabric::Rights::kRemoteWrite && window.length > kMostStagedWhole;
  }
  // With a connection's first key. False: there is no memory.
  bool begin() noexcept try {
    windows_.resize(keys_.size());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  drivers::KeyTable keys_;
  std::vector<Window> windows_;  // of keys that are bound; empty until the first is reserved
  uint32_t for_large_writes_ = 0;
};

}  // namespace rrdk::iwarp
