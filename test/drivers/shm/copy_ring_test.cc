// The sender's records of the copies, beside a plain model of which copy has which byte.
#include "drivers/shm/copy_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "test/seed.h"

namespace rrdk::shm {
namespace {

constexpr uint32_t kBytes = 8192;
constexpr uint32_t kSlots = 64;

struct Lent {
  uint64_t number;
  uint32_t at;
  uint32_t length;
};

TEST(CopyRings, LendNoByteTwiceAndRefuseOnlyWhenFull) {
  std::mt19937_64 random(rrdk::test::run_seed());
  CopyRing ring(kBytes, kSlots);
  std::deque<Lent> lent;
  std::vector<bool> taken(kBytes);
  uint64_t number = 0;
  uint64_t refused = 0;
  bool asked = false;  // by the last one, to be told of free space
  for (int i = 0; i < 5000; ++i) {
    const auto length = static_cast<uint32_t>(random() % 3 == 0 ? 4096 : 245 + random() % 3852);
    const bool fits = ring.fits(length);
    const std::optional<uint32_t> at =
        lent.size() < kSlots ? ring.take(length, number + 1) : std::nullopt;
    if (lent.size() < kSlots) {
      ASSERT_EQ(at.has_value(), fits);
    }
    if (at) {
      ASSERT_LE(*at + length, kBytes);
      for (uint32_t k = *at; k != *at + length; ++k) {
        ASSERT_FALSE(taken[k]);
        taken[k] = true;
      }
      lent.push_back({++number, *at, length});
      asked = !ring.fits(4096);
    } else {
      ++refused;
      ASSERT_FALSE(lent.empty()) << "nothing will ever make room";
      ASSERT_TRUE(asked) << "the peer will not tell of room";
    }
    if (at && random() % 3 != 0)
      continue;
    uint64_t consumed = lent.front().number - 1 + random() % (lent.size() + 1);
    for (; !lent.empty() && lent.front().number <= consumed; lent.pop_front())
      std::fill_n(taken.begin() + lent.front().at, lent.front().length, false);
    ring.consumed(consumed);
  }
  EXPECT_GT(refused, 100u);
}

// As much as there is: two of the longest, wherever the last one ended.
TEST(CopyRings, HaveRoomForAllWhenAllWasConsumed) {
  for (uint32_t length = 245; length <= 4096; ++length) {
    CopyRing ring(kBytes, kSlots);
    ASSERT_TRUE(ring.take(length, 1));
    ring.consumed(1);
    EXPECT_EQ(ring.take(4096, 2), 0u);
    EXPECT_EQ(ring.take(4096, 3), 4096u);
    EXPECT_EQ(ring.take(245, 4), std::nullopt);
    ring.consumed(2);
    EXPECT_EQ(ring.take(245, 4), 0u);
  }
}

}  // namespace
}  // namespace rrdk::shm
