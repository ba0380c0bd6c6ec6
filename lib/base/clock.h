// Time from the time stamp counter: one instruction to read, and one multiplication for nanoseconds
// of CLOCK_MONOTONIC. All CPUs of our instruction set level (x86-64-v3) count at a constant rate.
#pragma once

#include <cstdint>

namespace rrdk::base {

class Tsc {
 public:
  // Not __rdtsc(): including <x86intrin.h> takes half a second in every file.
  static uint64_t ticks() noexcept { return __builtin_ia32_rdtsc(); }

  // Lengths of time.
  static uint64_t to_ns(uint64_t ticks) noexcept { return scale(ticks, calibration().ns_per_tick); }
  static uint64_t from_ns(uint64_t ns) noexcept { return scale(ns, calibration().ticks_per_ns); }

  // Nanoseconds of CLOCK_MONOTONIC, as accurate as the calibration (some parts per million).
  static uint64_t now_ns() noexcept {
    const Calibration& c = calibration();
    return c.start_ns + scale(ticks() - c.start_ticks, c.ns_per_tick);
  }

  // Measures the counter's rate, which takes some ten milliseconds. Otherwise the first use does
  // it.
  static void calibrate() { calibration(); }

 private:
  __extension__ using Uint128 = unsigned __int128;
  static constexpr unsigned kShift = 40;  // of the fixed-point rates below

  struct Calibration {
    uint64_t start_ticks;
    uint64_t start_ns;
    uint64_t ns_per_tick;   // times 2^kShift
    uint64_t ticks_per_ns;  // times 2^kShift
  };

  static uint64_t scale(uint64_t value, uint64_t rate) noexcept {
    return static_cast<uint64_t>((Uint128{value} * rate) >> kShift);
  }
  static const Calibration& calibration() noexcept {
    static const Calibration measured = measure();
    return measured;
  }
  static Calibration measure() noexcept;
};

}  // namespace rrdk::base
