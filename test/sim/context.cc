#include "context.h"

#include <cstdarg>
#include <cstdio>

namespace rrdk::sim {

namespace {

std::string format_text(const char* format, va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  return text;
}

}  // namespace

void Context::fail(const std::string& who, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = format_text(format, arguments);
  va_end(arguments);
  if (failed())
    return;
  failure = "step " + std::to_string(schedule.steps()) + ", " +
            std::to_string(schedule.now() / 1000) + " us, " + who + ": " + text;
  if (traced)
    trace(who, "BROKEN: %s", text.c_str());
}

void Context::trace(const std::string& who, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::string text = format_text(format, arguments);
  va_end(arguments);
  uint64_t now = schedule.now();
  std::printf("%10llu.%03llu  %-8s %s\n", static_cast<unsigned long long>(now / 1000),
              static_cast<unsigned long long>(now % 1000), who.c_str(), text.c_str());
}

uint64_t Context::delay() {
  switch (random.below(16)) {
    case 0:
    case 1:
    case 2:
      return 0;
    case 3:
      return 50 * random.below(static_cast<uint32_t>(longest_delay));
    default:
      return random.below(static_cast<uint32_t>(longest_delay));
  }
}

}  // namespace rrdk::sim
