// Timeouts as programs of libtirpc state them.
#pragma once

#include <sys/time.h>

#include <cstdint>
#include <limits>

namespace rrdk::tirpc {

constexpr bool is_zero(const timeval& time) {
  return time.tv_sec == 0 && time.tv_usec == 0;
}

constexpr bool is_time(const timeval& time) {
  return time.tv_sec >= 0 && time.tv_usec >= 0 && time.tv_usec < 1'000'000;
}

// The largest value of Call::set_timeout_ms(), which is 49 days.
constexpr uint32_t milliseconds(const timeval& time) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  if (time.tv_sec >= kMost / 1000)
    return kMost;
  return static_cast<uint32_t>(time.tv_sec * 1000 + (time.tv_usec + 999) / 1000);
}

}  // namespace rrdk::tirpc
