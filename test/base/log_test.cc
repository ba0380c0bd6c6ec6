#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
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

TEST_F(Log, LevelDropsLessSevereLines) {
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
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::MatchesRegex("2[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9.]+Z rrdk: error: lost 1\n"));
}

TEST_F(Log, LinesHaveTheStyleThatIsWanted) {
  set_log_sink(nullptr);
  set_log_style(LogStyle::kPlain);
  testing::internal::CaptureStderr();
  base::log_error("lost %d", 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rrdk: error: lost 1\n");
  set_log_style(LogStyle::kJson);
  testing::internal::CaptureStderr();
  base::log_warning("a \"name\"\\\n%s", std::string(3000, '"').c_str());
  const auto line = nlohmann::json::parse(testing::internal::GetCapturedStderr());
  set_log_style(LogStyle::kTime);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["process"], getpid());
  EXPECT_EQ(line["message"].get<std::string>().substr(0, 12), "a \"name\"\\\n\"\"");
}

// Bytes of another encoding, overlong forms, surrogates and truncated characters: JSON cannot
// contain these.
TEST_F(Log, JsonLinesAreValidUtf8ForAnyInput) {
  set_log_sink(nullptr);
  set_log_style(LogStyle::kJson);
  testing::internal::CaptureStderr();
  base::log_warning(
      "%s", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \xFF|\xC0\xAF|\xED\xA0\x80|\xF4\x90|\xE2\x82");
  const auto line = nlohmann::json::parse(testing::internal::GetCapturedStderr());
  set_log_style(LogStyle::kTime);
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(line["message"], "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 " + bad + "|" + bad + bad +
                                 "|" + bad + bad + bad + "|" + bad + bad + "|" + bad + bad);
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

// In its own process, where nothing has been logged yet.
std::string log_with(const char* level, const char* style = "plain") {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  fflush(nullptr);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    setenv("RRDK_LOG", level, 1);
    setenv("RRDK_LOG_STYLE", style, 1);
    execl("/proc/self/exe", "test_base", "--gtest_filter=LogOfAProcess.*", nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string output;
  char chunk[1024];
  for (ssize_t n; (n = read(ends[0], chunk, sizeof chunk)) > 0;)
    output.append(chunk, static_cast<size_t>(n));
  close(ends[0]);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  return output;
}

TEST(LogOfAProcess, SaysThree) {
  base::log_error("one");
  base::log_warning("two");
  base::log_debug("three");
}

TEST(LogLevelOfTheEnvironment, InvalidValuesAreReportedOnce) {
  EXPECT_EQ(log_with("error"), "rrdk: error: one\n");
  EXPECT_EQ(log_with("debug"), "rrdk: error: one\nrrdk: warning: two\nrrdk: debug: three\n");
  EXPECT_EQ(log_with("trace"),
            "rrdk: warning: RRDK_LOG=trace is not one of error, warning, info and debug\n"
            "rrdk: error: one\nrrdk: warning: two\n");
  EXPECT_THAT(log_with("error", "loud"),
              testing::StartsWith(
                  "rrdk: warning: RRDK_LOG_STYLE=loud is not one of time, plain and json\n2"));
  EXPECT_THAT(log_with("error", "json"), testing::StartsWith("{\"time\": \"2"));
}

TEST(Must, GivesTheValue) {
  EXPECT_EQ(must(Result<int>(5)), 5);
  EXPECT_EQ(*must(Result<std::unique_ptr<int>>(std::make_unique<int>(6))), 6);
  must(Result<void>());
}

TEST(MustDeathTest, PrintsTheMessageAndExits) {
  EXPECT_EXIT(must(Result<int>(fail(Errc::kLimit, "shm:/x: too many of them"))),
              testing::ExitedWithCode(EXIT_FAILURE), "^test_base: shm:/x: too many of them\n$");
  EXPECT_EXIT(must(Result<void>(fail(Errc::kLimit, "no"))), testing::ExitedWithCode(EXIT_FAILURE),
              "^test_base: no\n$");
}

// The same for a sink that changes the sink; neither waits for itself.
TEST_F(Log, ASinkThatLogsLosesThoseLines) {
  struct Seen {
    int lines = 0;
    int others = 0;
  } seen;
  set_log_sink(
      [](LogLevel, const char*, void* user) {
        ++static_cast<Seen*>(user)->lines;
        base::log_error("from within the sink");
      },
      &seen);
  for (int i = 0; i < 3; ++i)
    base::log_error("a line");
  EXPECT_EQ(seen.lines, 3);
  set_log_sink(
      [](LogLevel, const char*, void* user) {
        set_log_sink(
            [](LogLevel, const char*, void* other) { ++static_cast<Seen*>(other)->others; }, user);
      },
      &seen);
  base::log_error("a line");
  base::log_error("another");
  EXPECT_EQ(seen.others, 1);
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace rrdk
