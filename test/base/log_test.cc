#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "rrdk/error.h"

namespace rrdk {
namespace {

using Lines = std::vector<std::pair<LogLevel, std::string>>;

class Log : public testing::Test {
 protected:
  Log() {
    set_log_sink([](LogLevel level, const char* line,
                    void* lines) { static_cast<Lines*>(lines)->emplace_back(level, line); },
                 &lines_);
  }
  ~Log() override {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kInfo);
  }
  Lines lines_;
};

TEST_F(Log, SinkGetsFormattedLinesWithTheirLevel) {
  base::log_error("%d of %s", 3, "four");
  base::log_warning("careful");
  const Lines expected = {{LogLevel::kError, "3 of four"}, {LogLevel::kWarning, "careful"}};
  EXPECT_EQ(lines_, expected);
}

TEST_F(Log, LevelDropsWhatIsLessSevere) {
  set_log_level(LogLevel::kWarning);
  base::log_info("no");
  base::log_warning("yes");
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_EQ(lines_[0].second, "yes");
  set_log_level(LogLevel::kDebug);
  base::log_debug("now");
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(Log, LongLinesAreCutNotOverrun) {
  base::log_error("%s", std::string(10'000, 'x').c_str());
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_LT(lines_[0].second.size(), 10'000u);
}

TEST_F(Log, WithoutASinkLinesGoToStderrWithAPrefix) {
  set_log_sink(nullptr);
  testing::internal::CaptureStderr();
  base::log_error("lost %d", 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rrdk: error: lost 1\n");
}

TEST(LogOnce, SaysItOnce) {
  base::LogOnce once;
  EXPECT_TRUE(once.first());
  EXPECT_FALSE(once.first());
}

TEST(Errc, EveryKindHasAName) {
  for (int code = 0; code <= static_cast<int>(Errc::kSystem); ++code)
    EXPECT_STRNE(to_string(static_cast<Errc>(code)), "unknown error");
  EXPECT_STREQ(to_string(Errc::kAddressInUse), "address in use");
}

TEST_F(Log, AStormIsALineNowAndThenThatTellsHowManyAreLeftOut) {
  base::LogLimit limit(100);
  EXPECT_EQ(limit.allow(1000), 0u);
  EXPECT_EQ(limit.allow(1000), std::nullopt);
  EXPECT_EQ(limit.allow(1099), std::nullopt);
  EXPECT_EQ(limit.allow(1100), 2u);
  EXPECT_EQ(limit.allow(1150), std::nullopt);
  EXPECT_EQ(limit.allow(5000), 1u);
  EXPECT_EQ(limit.allow(6000), 0u);
}

}  // namespace
}  // namespace rrdk
