// Writing to the log (rrdk/log.h says where it goes). Control path only: it formats and locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "rrdk/log.h"

namespace rrdk::base {

[[gnu::format(printf, 2, 3)]] void log(LogLevel level, const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_error(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_warning(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_info(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_debug(const char* format, ...);

// A fact worth one line in the life of the process, however many objects encounter it:
//
//   static base::LogOnce once;
//   if (once.first()) base::log_info(...);
class LogOnce {
 public:
  bool first() { return !said_.exchange(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> said_{false};
};

// For events that may come in storms (refused connections, for example): one line at intervals,
// which says how many were left out. Any thread.
//
//   if (auto left_out = limit.allow(now_ns))
//     base::log_warning("%s refused%s", who, base::and_more(*left_out).text);
class LogLimit {
 public:
  explicit LogLimit(uint64_t interval_ns = 1'000'000'000) : interval_ns_(interval_ns) {}
  // Returns nothing if no line may be written now; otherwise how many were left out since the last
  // one.
  std::optional<uint64_t> allow(uint64_t now_ns);

 private:
  const uint64_t interval_ns_;
  std::atomic<uint64_t> next_ns_{0};
  std::atomic<uint64_t> left_out_{0};
};

// The end of such a line: empty, or " (3 more since the last such line)".
struct AndMore {
  char text[64];
};
AndMore and_more(uint64_t left_out);

// Returns the length in UTF-8 of the character at the beginning of `text`; 0 if it is invalid (RFC
// 3629).
size_t utf8_length(const char* text);

}  // namespace rrdk::base
