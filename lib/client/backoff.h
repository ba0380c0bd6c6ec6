// How long to wait before the next attempt to connect: a step that doubles from attempt to attempt
// up to a bound, and a delay drawn from its upper half, so that the many clients of a server that
// went down do not all come back at the same moment.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rrdk {

class Backoff {
 public:
  // 1 <= first_ms <= most_ms.
  Backoff(uint32_t first_ms, uint32_t most_ms) noexcept
      : first_ms_(first_ms), most_ms_(most_ms), step_ms_(first_ms) {}

  // The delay before the next attempt: from half of the step to the whole of it. `random` is any
  // word.
  uint64_t next_ns(uint32_t random) noexcept {
    uint64_t step_ns = uint64_t{step_ms_} * 1'000'000;
    uint64_t half = step_ns / 2;
    step_ms_ = static_cast<uint32_t>(std::min<uint64_t>(uint64_t{step_ms_} * 2, most_ms_));
    return half + ((step_ns - half) >> 16) * (random >> 16) +
           (((step_ns - half) & 0xffff) * (random >> 16) >> 16);
  }
  void reset() noexcept { step_ms_ = first_ms_; }

 private:
  uint32_t first_ms_;
  uint32_t most_ms_;
  uint32_t step_ms_;
};

}  // namespace rrdk
