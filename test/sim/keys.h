// All remote keys that one simulated queue pair has ever given out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "context.h"
#include "fabric/work.h"

namespace rrdk::sim {

struct Key {
  enum class State : uint8_t { kReserved, kBound, kDead, kReleased };
  uint32_t value;
  State state;
  fabric::Rights rights;
  bool called;  // a call showed it to the peer; `xid` says which
  uint32_t xid;
  MemorySpan span;
};

class KeyTable {
 public:
  explicit KeyTable(uint32_t limit) : limit_(limit) {}

  // Gives all of `out` or none. The values have no pattern and never repeat.
  bool reserve(Random& random, std::span<uint32_t> out) {
    if (limit_ - held_ < out.size())
      return false;
    held_ += static_cast<uint32_t>(out.size());
    for (uint32_t& value : out) {
      value = random.between(1, 0xffff) << 16 | static_cast<uint32_t>(keys_.size());
      keys_.push_back({value, Key::State::kReserved, {}, false, 0, {}});
    }
    return true;
  }
  // Returns null if no such key was ever given out.
  Key* find(uint32_t value) {
    uint32_t index = value & 0xffff;
    return index < keys_.size() && keys_[index].value == value ? &keys_[index] : nullptr;
  }
  void release(Key& key) {
    key.state = Key::State::kReleased;
    --held_;
  }
  uint32_t held() const { return held_; }  // reserved and not released
  std::span<const Key> all() const { return keys_; }

 private:
  uint32_t limit_;
  uint32_t held_ = 0;
  std::vector<Key> keys_;
};

}  // namespace rrdk::sim
