#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace rrdk::base {
namespace {

// Appendix A of the paper, and the first of the reference implementation's vectors: the key's bytes
// are 0 to 15, the input's 0, 1, 2 and so on.
TEST(SipHash, AgreesWithThePaper) {
  constexpr SipKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::vector<std::byte> bytes;
  auto hash = [&](size_t length) {
    bytes.clear();
    for (size_t i = 0; i < length; ++i)
      bytes.push_back(static_cast<std::byte>(i));
    return sip_hash(kKey, bytes);
  };
  EXPECT_EQ(hash(0), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(hash(1), 0x74f839c593dc67fdu);
  EXPECT_EQ(hash(8), 0x93f5f5799a932462u);
  EXPECT_EQ(hash(15), 0xa129ca6149be45e5u);
}

}  // namespace
}  // namespace rrdk::base
