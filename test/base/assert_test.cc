#include "base/assert.h"

#include <gtest/gtest.h>

#include "base/list.h"

namespace rrdk::base {
namespace {

struct Core final : OwnedByThread {
  bool mine = true;
  bool here() const noexcept override { return mine; }
};

struct Item {
  Item* next = nullptr;
};

#ifndef NDEBUG

TEST(AssertDeathTest, SaysWhereWhatAndTheValues) {
  uint32_t posted = 3, most = 2;
  EXPECT_DEATH(RRDK_ASSERT(posted <= most, posted, most),
               "assert_test.cc:[0-9]+: assertion failed: posted <= most; 3, 2 \\(posted, most\\)");
  EXPECT_DEATH(RRDK_ASSERT(posted == 0), "assertion failed: posted == 0\n");
}

TEST(AssertDeathTest, UseOnAnotherThreadIsCaught) {
  Core core;
  RRDK_ON_CORE(core);
  core.mine = false;
  EXPECT_DEATH(RRDK_ON_CORE(core), "assertion failed: \\(core\\).here\\(\\)");
}

TEST(AssertDeathTest, NothingIsTakenFromAnEmptyList) {
  Queue<Item, &Item::next> queue;
  EXPECT_DEATH(queue.pop(), "list.h:[0-9]+: assertion failed: !empty\\(\\)");
}

#endif

TEST(Assert, LooksAtNothingInReleaseBuilds) {
  int looks = 0;
  auto look = [&looks] { return ++looks != 0; };
  RRDK_ASSERT(look());
#ifdef NDEBUG
  EXPECT_EQ(looks, 0);
#else
  EXPECT_EQ(looks, 1);
#endif
}

}  // namespace
}  // namespace rrdk::base
