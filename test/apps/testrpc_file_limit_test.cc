// Many connections need many file descriptors.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "apps/testrpc/file_limit.h"

namespace rrdk::testrpc {
namespace {

class FileLimit : public testing::Test {
 protected:
  FileLimit() { ::getrlimit(RLIMIT_NOFILE, &before_); }
  ~FileLimit() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  rlimit now() const {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit;
  }
  rlimit before_{};
};

TEST_F(FileLimit, IsRaisedAsFarAsConnectionsNeed) {
  rlimit low = before_;
  low.rlim_cur = 128;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(raise_file_limit(1, true), "");
  EXPECT_EQ(now().rlim_cur, 128u);
  EXPECT_EQ(raise_file_limit(40, false), "");
  EXPECT_EQ(now().rlim_cur, 128u);
  EXPECT_EQ(raise_file_limit(40, true), "");
  EXPECT_GT(now().rlim_cur, 128u);
}

TEST_F(FileLimit, ThatDoesNotSufficeIsNamed) {
  const std::string text = raise_file_limit(UINT32_MAX, false);
  EXPECT_NE(text.find(std::to_string(UINT32_MAX) + " connections"), std::string::npos) << text;
  EXPECT_NE(text.find("ulimit"), std::string::npos);
}

}  // namespace
}  // namespace rrdk::testrpc
