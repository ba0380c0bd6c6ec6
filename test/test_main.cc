#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/sanitizer.h"
#include "test/no_descriptors.h"

#if RRDK_HAS_FEATURE(undefined_behavior_sanitizer)

// UBSan checks each virtual table that it meets for the first time through a pipe, in whatever
// thread that is. If it gets no pipe it takes the object for one of another type, and ends the
// program. So it gets a pipe that was made before.
namespace {

using Pipe = std::array<int, 2>;
constexpr size_t kPipes = 64;
std::array<Pipe, kPipes> pipes;
std::atomic<size_t> pipes_left = 0;

bool take_pipe(int* ends) {
  size_t left = pipes_left.load();
  while (left != 0 && !pipes_left.compare_exchange_weak(left, left - 1)) {
  }
  if (left == 0)
    return false;
  ends[0] = pipes[left - 1][0];
  ends[1] = pipes[left - 1][1];
  return true;
}

}  // namespace

extern "C" int pipe(int* ends) noexcept {
  return ::pipe2(ends, 0) == 0 || take_pipe(ends) ? 0 : -1;
}

void rrdk::test::NoDescriptors::keep_pipes() {
  for (size_t i = 0; i < kPipes; ++i)
    ASSERT_EQ(::pipe2(pipes[i].data(), O_CLOEXEC), 0);
  pipes_left = kPipes;
}

void rrdk::test::NoDescriptors::close_pipes() {
  for (Pipe ends; take_pipe(ends.data());) {
    ::close(ends[0]);
    ::close(ends[1]);
  }
}

#else

void rrdk::test::NoDescriptors::keep_pipes() {}
void rrdk::test::NoDescriptors::close_pipes() {}

#endif

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
