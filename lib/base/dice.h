// Decides from a seed whether something happens this time: the n-th roll of the same seed always
// has the same result, whatever is rolled elsewhere. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

namespace rrdk::base {

class Dice {
 public:
  // A rate from 0 to 1; or every `every`-th time, if that is not 0. Starts over.
  void set(uint64_t seed, double rate, uint32_t every) noexcept {
    uint64_t below = rate >= 1 ? UINT64_MAX : static_cast<uint64_t>(rate * 0x1p64);
    seed_.store(seed, std::memory_order_relaxed);
    below_.store(below, std::memory_order_relaxed);
    every_.store(every, std::memory_order_relaxed);
    rolls_.store(0, std::memory_order_relaxed);
  }
  void off() noexcept { set(0, 0, 0); }

  bool roll() noexcept {
    uint64_t below = below_.load(std::memory_order_relaxed);
    uint32_t every = every_.load(std::memory_order_relaxed);
    if (below == 0 && every == 0)
      return false;
    uint64_t n = rolls_.fetch_add(1, std::memory_order_relaxed);
    bool hit = every != 0 ? (n + 1) % every == 0
                          : mixed(seed_.load(std::memory_order_relaxed) + n) <= below;
    if (hit)
      hits_.fetch_add(1, std::memory_order_relaxed);
    return hit;
  }
  uint64_t hits() const noexcept { return hits_.load(std::memory_order_relaxed); }  // in total

 private:
  // The output function of SplitMix64.
  static uint64_t mixed(uint64_t n) noexcept {
    n *= 0x9e3779b97f4a7c15;
    n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9;
    n = (n ^ (n >> 27)) * 0x94d049bb133111eb;
    return n ^ (n >> 31);
  }

  std::atomic<uint64_t> seed_ = 0;
  std::atomic<uint64_t> below_ = 0;
  std::atomic<uint32_t> every_ = 0;
  std::atomic<uint64_t> rolls_ = 0;
  std::atomic<uint64_t> hits_ = 0;
};

}  // namespace rrdk::base
