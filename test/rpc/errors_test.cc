// Errors and call statuses as other interfaces express them: errno, and std::error_code.
#include <gtest/gtest.h>

#include <string>

#include "rrdk/call_status.h"
#include "rrdk/error.h"

namespace rrdk {
namespace {

constexpr int kKinds = static_cast<int>(Errc::kSystem) + 1;
constexpr int kStatuses = static_cast<int>(CallStatus::kFull) + 1;

TEST(Errors, HaveAnErrnoEach) {
  EXPECT_EQ(errno_of(Errc::kTimeout), ETIMEDOUT);
  EXPECT_EQ(errno_of(Errc::kBadUri), EINVAL);
  for (int i = 0; i < kKinds; ++i)
    EXPECT_GT(errno_of(static_cast<Errc>(i)), 0) << i;
}

TEST(Errors, CompareWithTheStandardsOwn) {
  const std::error_code code = Errc::kTimeout;
  EXPECT_EQ(code, std::errc::timed_out);
  EXPECT_NE(code, std::errc::connection_reset);
  EXPECT_EQ(code.message(), "timeout");
  EXPECT_STREQ(code.category().name(), "rrdk");
  for (int i = 0; i < kKinds; ++i) {
    const std::error_code each = static_cast<Errc>(i);
    EXPECT_TRUE(each) << i;
    EXPECT_EQ(each.default_error_condition().value(), errno_of(static_cast<Errc>(i))) << i;
  }
}

TEST(CallStatuses, AreOfOneKindEach) {
  EXPECT_EQ(errc_of(CallStatus::kOk), std::nullopt);
  EXPECT_EQ(errc_of(CallStatus::kMalformedReply), Errc::kConnectionLost);
  EXPECT_EQ(errc_of(CallStatus::kCancelled), Errc::kShutdown);
  for (int i = 1; i < kStatuses; ++i) {
    const auto status = static_cast<CallStatus>(i);
    EXPECT_TRUE(errc_of(status)) << to_string(status);
    // kSystem is for system calls: no call ends with it.
    EXPECT_NE(errc_of(status), Errc::kSystem) << to_string(status);
  }
}

TEST(CallStatuses, CompareWithTheStandardsOwn) {
  EXPECT_FALSE(std::error_code(CallStatus::kOk));
  const std::error_code late = CallStatus::kTimeout;
  EXPECT_EQ(late, std::errc::timed_out);
  EXPECT_EQ(late.message(), "timeout");
  // They are of the same kind, but not the same: the status also says what the server may have
  // done.
  EXPECT_NE(late, std::error_code(Errc::kTimeout));
  for (int i = 1; i < kStatuses; ++i) {
    const auto status = static_cast<CallStatus>(i);
    const std::error_code each = status;
    EXPECT_TRUE(each) << to_string(status);
    EXPECT_EQ(each.default_error_condition().value(), errno_of(*errc_of(status)));
  }
}

}  // namespace
}  // namespace rrdk
