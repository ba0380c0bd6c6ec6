#include "base/clock.h"

#include <ctime>
#include <limits>

namespace rrdk::base {

namespace {

constexpr uint64_t kMeasureNs = 20'000'000;
constexpr int kTries = 16;

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

struct Pair {
  uint64_t ticks;
  uint64_t ns;
};

// Reads both clocks at one moment: of several attempts, the one that was interrupted least.
Pair read_both() {
  Pair best{};
  uint64_t narrowest = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = Tsc::ticks();
    const uint64_t ns = monotonic_ns();
    const uint64_t width = Tsc::ticks() - before;
    if (width < narrowest) {
      narrowest = width;
      best = {before + width / 2, ns};
    }
  }
  return best;
}

}  // namespace

Tsc::Calibration Tsc::measure() noexcept {
  const Pair start = read_both();
  while (monotonic_ns() - start.ns < kMeasureNs) {
  }
  const Pair end = read_both();
  const uint64_t ticks = end.ticks - start.ticks;
  const uint64_t ns = end.ns - start.ns;
  return {.start_ticks = start.ticks,
          .start_ns = start.ns,
          .ns_per_tick = static_cast<uint64_t>((Uint128{ns} << kShift) / ticks),
          .ticks_per_ns = static_cast<uint64_t>((Uint128{ticks} << kShift) / ns)};
}

}  // namespace rrdk::base
