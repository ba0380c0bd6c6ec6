#include "base/log.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace rrdk {

namespace {

constexpr size_t kMaxLine = 1024;

LogLevel level_from_environment() {
  const char* wanted = std::getenv("RRDK_LOG");
  if (wanted != nullptr) {
    for (LogLevel level :
         {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
      if (std::strcmp(wanted, to_string(level)) == 0)
        return level;
    }
    std::fprintf(stderr, "rrdk: warning: RRDK_LOG=%s is none of error, warning, info and debug\n",
                 wanted);
  }
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& current_level() {
  static std::atomic<LogLevel> level{level_from_environment()};
  return level;
}

struct Sink {
  std::mutex mutex;
  LogSink function = nullptr;
  void* user = nullptr;
};

Sink& current_sink() {
  static Sink sink;
  return sink;
}

[[gnu::format(printf, 2, 0)]] void vlog(LogLevel level, const char* format, va_list arguments) {
  if (level > log_level())
    return;
  char line[kMaxLine];
  std::vsnprintf(line, sizeof(line), format, arguments);
  Sink& sink = current_sink();
  std::lock_guard lock(sink.mutex);
  if (sink.function != nullptr)
    sink.function(level, line, sink.user);
  else
    std::fprintf(stderr, "rrdk: %s: %s\n", to_string(level), line);
}

}  // namespace

const char* to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "unknown";
}

void set_log_sink(LogSink sink, void* user) {
  Sink& current = current_sink();
  std::lock_guard lock(current.mutex);
  current.function = sink;
  current.user = user;
}

void set_log_level(LogLevel most_verbose) {
  current_level().store(most_verbose, std::memory_order_relaxed);
}

LogLevel log_level() {
  return current_level().load(std::memory_order_relaxed);
}

namespace base {

std::optional<uint64_t> LogLimit::allow(uint64_t now_ns) {
  uint64_t next = next_ns_.load(std::memory_order_relaxed);
  // Of several threads at once, one has the line.
  if (now_ns < next ||
      !next_ns_.compare_exchange_strong(next, now_ns + interval_ns_, std::memory_order_relaxed)) {
    left_out_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  }
  return left_out_.exchange(0, std::memory_order_relaxed);
}

AndMore and_more(uint64_t left_out) {
  AndMore more = {};
  if (left_out != 0)
    std::snprintf(more.text, sizeof(more.text), " (%lu more since the last such line)", left_out);
  return more;
}

void log_error(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vlog(LogLevel::kError, format, arguments);
  va_end(arguments);
}

void log_warning(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vlog(LogLevel::kWarning, format, arguments);
  va_end(arguments);
}

void log_info(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vlog(LogLevel::kInfo, format, arguments);
  va_end(arguments);
}

void log_debug(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vlog(LogLevel::kDebug, format, arguments);
  va_end(arguments);
}

}  // namespace base
}  // namespace rrdk
