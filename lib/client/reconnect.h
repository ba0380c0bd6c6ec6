// Connecting again: when the next attempt is made, and which version it speaks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace rrdk {

// How long to wait before the next attempt to connect: a step that doubles from attempt to attempt
// up to a bound, and a delay drawn from its upper half, so that the many clients of a server that
// went down do not all come back at the same moment.
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

namespace rrdk::client {

// Which servers do not know version 2, for a time: they may be upgraded, and asking them again at
// every connection could go on for ever (draft-04 section 7.2).
//
// Any thread.
class VersionMemory {
 public:
  explicit VersionMemory(uint32_t ms) noexcept : lifetime_ns_(ms * 1'000'000ull) {}

  // True: that is news.
  bool knows_only_one(const std::string& uri, uint64_t now_ns);
  bool is_known(const std::string& uri, uint64_t now_ns) const;

 private:
  // Addresses are the application's own; this is for one that makes them up.
  static constexpr size_t kMost = 4096;

  const uint64_t lifetime_ns_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, uint64_t> until_ns_;
};

}  // namespace rrdk::client
