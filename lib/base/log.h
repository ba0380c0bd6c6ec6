// Writing to the log (rrdk/log.h says who reads it). Control path only: it formats and locks.
#pragma once

#include <atomic>

#include "rrdk/log.h"

namespace rrdk::base {

[[gnu::format(printf, 1, 2)]] void log_error(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_warning(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_info(const char* format, ...);
[[gnu::format(printf, 1, 2)]] void log_debug(const char* format, ...);

// A fact worth one line in the life of the process, however many objects meet it:
//   static base::LogOnce once;
//   if (once.first()) base::log_info(...);
class LogOnce {
 public:
  bool first() { return !said_.exchange(true, std::memory_order_relaxed); }

 private:
  std::atomic<bool> said_{false};
};

}  // namespace rrdk::base
