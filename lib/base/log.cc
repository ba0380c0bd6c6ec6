#include "base/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/lifetime.h"

namespace rrdk {

namespace {

constexpr size_t kMaxLine = 1024;

// Returns the one of `choices` that the environment names; if it names none, `otherwise`.
template <typename Choice, size_t N>
Choice from_environment(const char* variable, const Choice (&choices)[N], Choice otherwise,
                        const char* names) {
  const char* wanted = std::getenv(variable);
  if (wanted == nullptr)
    return otherwise;
  for (Choice choice : choices) {
    if (std::strcmp(wanted, to_string(choice)) == 0)
      return choice;
  }
  std::fprintf(stderr, "rrdk: warning: %s=%s is not one of %s\n", variable, wanted, names);
  return otherwise;
}

std::atomic<LogLevel>& current_level() {
  constexpr LogLevel kAll[] = {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo,
                               LogLevel::kDebug};
  static std::atomic<LogLevel> level{
      from_environment("RRDK_LOG", kAll, LogLevel::kInfo, "error, warning, info and debug")};
  return level;
}

std::atomic<LogStyle>& current_style() {
  constexpr LogStyle kAll[] = {LogStyle::kTime, LogStyle::kPlain, LogStyle::kJson};
  static std::atomic<LogStyle> style{
      from_environment("RRDK_LOG_STYLE", kAll, LogStyle::kTime, "time, plain and json")};
  return style;
}

// UTC, to the microsecond (RFC 3339).
struct TimeText {
  TimeText() {
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    tm parts = {};
    gmtime_r(&now.tv_sec, &parts);
    char seconds[32];
    std::strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
    std::snprintf(text, sizeof text, "%s.%06ldZ", seconds, now.tv_nsec / 1000);
  }
  char text[64];
};

// The contents of a JSON string. Invalid UTF-8, such as a path in another encoding, becomes U+FFFD,
// since parsers would refuse the line.
struct JsonText {
  explicit JsonText(const char* line) {
    char* to = text;
    while (*line != '\0' && to < text + sizeof text - kLongest) {
      const auto byte = static_cast<unsigned char>(*line);
      const size_t length = base::utf8_length(line);
      if (length == 0)
        to += std::snprintf(to, kLongest, "\\ufffd");
      else if (byte < 0x20 || byte == '"' || byte == '\\')
        to += std::snprintf(to, kLongest, "\\u%04x", byte);
      else
        to = static_cast<char*>(std::memcpy(to, line, length)) + length;
      line += std::max<size_t>(length, 1);
    }
    *to = '\0';
  }
  static constexpr size_t kLongest = 8;  // of one character
  char text[6 * kMaxLine + kLongest];
};

// In one call, so that lines of several processes do not mix. Allocates nothing: a core may be in
// its steady state.
void write_line(LogLevel level, const char* line) {
  const char* name = to_string(level);
  switch (log_style()) {
    case LogStyle::kPlain:
      std::fprintf(stderr, "rrdk: %s: %s\n", name, line);
      break;
    case LogStyle::kTime:
      std::fprintf(stderr, "%s rrdk: %s: %s\n", TimeText().text, name, line);
      break;
    case LogStyle::kJson:
      std::fprintf(stderr,
                   "{\"time\": \"%s\", \"level\": \"%s\", \"process\": %d, \"thread\": %d, "
                   "\"message\": \"%s\"}\n",
                   TimeText().text, name, getpid(), gettid(), JsonText(line).text);
      break;
  }
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

// True while the thread is in the sink, and so has the lock.
constinit thread_local bool in_sink = false;

// A sink that logs, or that calls something that does, must not wait for itself.
void drop_line() {
  static base::LogOnce once;
  if (once.first())
    write_line(LogLevel::kWarning,
               "a log sink has logged: lines that come from within it are dropped (logged once)");
}

[[gnu::format(printf, 2, 0)]] void vlog(LogLevel level, const char* format, va_list arguments) {
  if (level > log_level())
    return;
  char line[kMaxLine];
  std::vsnprintf(line, sizeof(line), format, arguments);
  if (in_sink)
    return drop_line();
  Sink& sink = current_sink();
  std::unique_lock lock(sink.mutex, std::defer_lock);
  if (!base::forked)
    lock.lock();
  else if (!lock.try_lock())  // a thread of the parent process may have held it
    return;
  if (sink.function != nullptr) {
    in_sink = true;
    sink.function(level, line, sink.user);
    in_sink = false;
  } else {
    write_line(level, line);
  }
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

const char* to_string(LogStyle style) {
  switch (style) {
    case LogStyle::kTime:
      return "time";
    case LogStyle::kPlain:
      return "plain";
    case LogStyle::kJson:
      return "json";
  }
  return "unknown";
}

void set_log_sink(LogSink sink, void* user) {
  Sink& current = current_sink();
  std::unique_lock lock(current.mutex, std::defer_lock);
  if (!in_sink)
    lock.lock();
  current.function = sink;
  current.user = user;
}

void set_log_level(LogLevel most_verbose) {
  current_level().store(most_verbose, std::memory_order_relaxed);
}

LogLevel log_level() {
  return current_level().load(std::memory_order_relaxed);
}

void set_log_style(LogStyle style) {
  current_style().store(style, std::memory_order_relaxed);
}

LogStyle log_style() {
  return current_style().load(std::memory_order_relaxed);
}

namespace base {

size_t utf8_length(const char* text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80)
    return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  // Excludes overlong forms, surrogates, and code points beyond U+10FFFF.
  const unsigned char least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) < (i == 1 ? least : 0x80) || byte(i) > (i == 1 ? most : 0xBF))
      return 0;
  }
  return length;
}

std::optional<uint64_t> LogLimit::allow(uint64_t now_ns) {
  uint64_t next = next_ns_.load(std::memory_order_relaxed);
  // If several threads get here at once, one writes the line.
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

void log(LogLevel level, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vlog(level, format, arguments);
  va_end(arguments);
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
