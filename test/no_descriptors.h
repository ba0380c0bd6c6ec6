// A process that has no descriptor left, for tests of its behaviour then.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace rrdk::test {

// While it lives this process gets no new descriptor, even if others close some meanwhile, as
// threads of earlier tests may do. `but` descriptors remain available, if no others are closed.
class NoDescriptors {
 public:
  explicit NoDescriptors(rlim_t but = 0) {
    keep_pipes();
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int lowest = ::dup(0);
    ::close(lowest);
    const rlimit few{but == 0 ? 0 : static_cast<rlim_t>(lowest) + but, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~NoDescriptors() {
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0);
    close_pipes();
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  // Those that UBSan needs meanwhile (test_main.cc).
  static void keep_pipes();
  static void close_pipes();

  rlimit before_{};
};

}  // namespace rrdk::test
