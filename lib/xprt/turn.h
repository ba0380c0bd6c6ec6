// What one connection may take of its poll core before it is others' turn: a deficit round robin in
// bytes, in which a call costs about what it takes to serve one without chunks. A connection may
// overdraw its allowance by the last call that it starts, and by what it then writes; it pays back
// from later turns.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rrdk::xprt {

class Turn {
 public:
  static constexpr int64_t kCallCost = 4096;
  static constexpr int64_t kQuantum = 4 * kCallCost;  // of one turn
  // Of a connection that has the core for itself: what one batch of completions can bring.
  static constexpr int64_t kBurst = 32 * kCallCost;
  static constexpr int64_t kMostDebt = 1 << 20;  // more is forgiven

  // Calls wait: for a turn, or for earlier ones.
  bool waits = false;

  bool open() const noexcept { return allowance_ > 0; }
  void charge(uint64_t bytes) noexcept { allowance_ -= static_cast<int64_t>(bytes); }
  void fill(bool alone) noexcept { allowance_ = alone ? kBurst : kQuantum; }
  void refill(uint64_t turns) noexcept {
    constexpr uint64_t kPaysAll = kMostDebt / kQuantum + 1;
    int64_t more = static_cast<int64_t>(std::min(turns, kPaysAll)) * kQuantum;
    allowance_ = std::min(kQuantum, std::max(std::min(allowance_, kQuantum), -kMostDebt) + more);
  }

 private:
  int64_t allowance_ = INT64_MAX;  // nobody shares with us yet
};

}  // namespace rrdk::xprt
