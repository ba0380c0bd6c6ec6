// The STags of one connection: the memory for which its remote keys stand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "drivers/common/key_table.h"
#include "fabric/work.h"

namespace rrdk::iwarp {

// A tagged payload of up to this length is taken from TCP together with what surrounds it, and
// copied to its place, which costs less than a system call of its own.
constexpr uint32_t kMostStagedWhole = 4096;

class Stags {
 public:
  explicit Stags(uint32_t count) : keys_(count) {}

  struct Window {
    std::byte* base = nullptr;
    uint32_t length = 0;
    fabric::Rights rights{};
    uint16_t runs = 0;  // if not 0, `base` is a list of these runs (fabric::SendWr::runs)

    uint64_t address() const noexcept { return reinterpret_cast<uintptr_t>(base); }
  };

  bool reserve(std::span<uint32_t> keys) noexcept {
    return (!windows_.empty() || begin()) && keys_.reserve(keys);
  }
  void release(uint32_t key) noexcept { keys_.release(key); }
  // Binds a reserved key. Returns false if the key is not reserved, or is already bound.
  bool bind(uint32_t key, const MemorySpan& span, fabric::Rights rights) noexcept;
  // The same for a list of runs.
  bool bind(uint32_t key, const MemorySpan& list, uint16_t runs, fabric::Rights rights) noexcept;
  // Unbinds a key if it is bound. Returns false if the key was never reserved.
  bool kill(uint32_t key) noexcept;
  void kill_all() noexcept;
  // Whether the peer may write more than kMostStagedWhole bytes somewhere.
  bool any_for_large_writes() const noexcept { return for_large_writes_ != 0; }
  // Returns null if no such key is bound now.
  const Window* find(uint32_t key) const noexcept {
    return keys_.use(key) == drivers::KeyTable::Use::kBound ? &windows_[keys_.index(key)] : nullptr;
  }

 private:
  static bool for_large_writes(const Window& window) noexcept {
    return window.rights == fabric::Rights::kRemoteWrite && window.length > kMostStagedWhole;
  }
  // Called for a connection's first key. Returns false if there is no memory.
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
