// Collects the log's lines while it lives.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rrdk/log.h"

namespace rrdk::loopback {

class LogLines {
 public:
  // `seen`, if given, is called for each line, on the thread that logs it.
  explicit LogLines(std::function<void(const std::string&)> seen = {}) : seen_(std::move(seen)) {
    set_log_sink([](LogLevel level, const char* line,
                    void* self) { static_cast<LogLines*>(self)->take(level, line); },
                 this);
  }
  ~LogLines() { set_log_sink(nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // The number of lines of this level that contain both.
  int count(LogLevel level, const std::string& one, const std::string& other = "") {
    std::lock_guard lock(mutex_);
    int found = 0;
    for (const auto& [line_level, line] : lines_)
      found += line_level == level && line.find(one) != std::string::npos &&
               line.find(other) != std::string::npos;
    return found;
  }

 private:
  void take(LogLevel level, const char* line) {
    {
      std::lock_guard lock(mutex_);
      lines_.emplace_back(level, line);
    }
    if (seen_)
      seen_(line);
  }

  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
  std::function<void(const std::string&)> seen_;
};

}  // namespace rrdk::loopback
