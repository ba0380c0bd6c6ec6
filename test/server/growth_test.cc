// What growing Receives leave of the size classes from which calls take their buffers.
#include <gtest/gtest.h>

#include "rrdk/eal.h"
#include "server/server_link.h"

namespace rrdk::server {
namespace {

class GrowthTest : public testing::Test {
 protected:
  // A quarter of each class is kept for calls: 12 of 16384 bytes may be taken, 12 of 65536.
  std::unique_ptr<Memory> memory = [] {
    EXPECT_TRUE(ensure_eal());
    return std::move(Memory::create({.classes = {{8192, 64}, {16384, 16}, {65536, 16}},
                                     .hugepages = HugepagePolicy::kNever})
                         .value());
  }();
  Growth growth{*memory, 4096};
};

TEST_F(GrowthTest, AShrinkingConnectionKeepsItsShare) {
  GrowthShares one, other;
  ASSERT_TRUE(growth.take(65536, 12, one));
  // When its Receives are to become smaller, they still hold those buffers, whatever their class.
  for (uint32_t bytes : {8192u, 16384u}) {
    ASSERT_TRUE(growth.take(bytes, 12, one));
    EXPECT_FALSE(growth.take(65536, 1, other)) << bytes;
  }
  EXPECT_FALSE(growth.take(16384, 1, other));
  EXPECT_TRUE(growth.take(65536, 12, one)) << "what it has it may use again";
  growth.give_back(one);
  EXPECT_TRUE(growth.take(65536, 12, other));
  EXPECT_TRUE(growth.take(16384, 12, other));
  growth.give_back(other);
}

TEST_F(GrowthTest, ARefusedGrowthChangesNothing) {
  GrowthShares one, other;
  ASSERT_TRUE(growth.take(16384, 8, one));
  auto refused = growth.take(16384, 5, other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kNoMemory);
  growth.give_back(other);
  EXPECT_TRUE(growth.take(16384, 4, other));
  EXPECT_FALSE(growth.take(16384, 9, one));
  growth.give_back(other);
  EXPECT_TRUE(growth.take(16384, 12, one));
  growth.give_back(one);
}

}  // namespace
}  // namespace rrdk::server
