#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace rrdk::base {
namespace {

// RFC 8439 section 2.3.2.
TEST(ChaCha20, BlockFunctionOfTheStandard) {
  const std::array<uint32_t, 8> key = {0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c,
                                       0x13121110, 0x17161514, 0x1b1a1918, 0x1f1e1d1c};
  const std::array<uint32_t, 3> nonce = {0x09000000, 0x4a000000, 0x00000000};
  const std::array<uint32_t, 16> expected = {0xe4e7f110, 0x15593bd1, 0x1fdd0f50, 0xc47120a3,
                                             0xc7f4d1c7, 0x0368c033, 0x9aaa2204, 0x4e6cd4c3,
                                             0x466482d2, 0x09aa9f07, 0x05d7c214, 0xa2028bd9,
                                             0xd19c12b5, 0xb94e16de, 0xe883d0cb, 0x4e3c50a2};
  EXPECT_EQ(chacha20_block(key, 1, nonce), expected);
}

std::vector<uint32_t> draw(Random& random, size_t count) {
  std::vector<uint32_t> words(count);
  std::generate(words.begin(), words.end(), [&] { return random.next(); });
  return words;
}

// Among 10000 draws from 2^32 about 0.01 pairs are equal: ten would be a fault, not chance.
TEST(Random, DrawsAreDistinctAcrossRefills) {
  Random random;
  std::vector<uint32_t> words = draw(random, 10'000);
  std::sort(words.begin(), words.end());
  const auto repeated = words.end() - std::unique(words.begin(), words.end());
  EXPECT_LT(repeated, 10);
}

TEST(Random, TwoGeneratorsDiffer) {
  Random one;
  Random other;
  EXPECT_NE(draw(one, 16), draw(other, 16));
}

// Each bit of 100000 words is set 50000 times give or take 158 (one sigma); ten sigma never happen.
TEST(Random, EveryBitIsFair) {
  Random random;
  std::array<int, 32> set{};
  for (uint32_t word : draw(random, 100'000)) {
    for (size_t bit = 0; bit < set.size(); ++bit)
      set[bit] += static_cast<int>(word >> bit & 1);
  }
  for (int count : set)
    EXPECT_NEAR(count, 50'000, 1580);
}

}  // namespace
}  // namespace rrdk::base
