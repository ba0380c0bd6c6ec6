// Shared by the tests of memory: a running EAL, the log's lines, and pools that are checked at the
// end.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rrdk/eal.h"
#include "rrdk/log.h"
#include "rrdk/memory.h"

namespace rrdk::test {

class MemoryTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Result<void> started = ensure_eal();
    ASSERT_TRUE(started) << started.error().message;
  }

  MemoryTest() {
    set_log_sink(
        [](LogLevel level, const char* line, void* lines) {
          static_cast<std::vector<std::pair<LogLevel, std::string>>*>(lines)->emplace_back(level,
                                                                                           line);
        },
        &log_);
  }
  ~MemoryTest() override { set_log_sink(nullptr); }

  static std::unique_ptr<Memory> create(std::vector<SizeClass> classes) {
    Result<std::unique_ptr<Memory>> memory = Memory::create({.classes = std::move(classes)});
    if (!memory)
      ADD_FAILURE() << memory.error().message;
    return memory ? std::move(*memory) : nullptr;
  }

  // The lines of this level since the test began.
  std::vector<std::string> lines(LogLevel level) const {
    std::vector<std::string> found;
    for (const auto& [line_level, line] : log_) {
      if (line_level == level)
        found.push_back(line);
    }
    return found;
  }

 private:
  std::vector<std::pair<LogLevel, std::string>> log_;
};

}  // namespace rrdk::test
