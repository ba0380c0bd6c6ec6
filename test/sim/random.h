// Random numbers of one simulation: all chance comes from one of these.
#pragma once

#include <cstdint>

namespace rrdk::sim {

// SplitMix64, with a mixed start: otherwise the streams of neighbouring seeds would be one stream,
// shifted by one.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(mix(seed + kStep)) {}

  uint64_t next() noexcept { return mix(state_ += kStep); }
  // In [0, n); n > 0.
  uint32_t below(uint32_t n) noexcept {
    return static_cast<uint32_t>(((next() >> 32) * uint64_t{n}) >> 32);
  }
  // In [low, high].
  uint32_t between(uint32_t low, uint32_t high) noexcept { return low + below(high - low + 1); }
  // n == 0: never.
  bool one_in(uint32_t n) noexcept { return n != 0 && below(n) == 0; }

 private:
  static constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;

  static uint64_t mix(uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t state_;
};

}  // namespace rrdk::sim
