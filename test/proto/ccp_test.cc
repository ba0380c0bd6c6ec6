// RFC 5666 section 6.2: three words in each direction.
#include <gtest/gtest.h>

#include "proto/negotiation.h"

namespace rrdk::proto {
namespace {

// Shows: V1-CCP-01, V1-CCP-02, V1-CCP-03
TEST(ConnectionConfiguration, WordsStandInTheStatedOrder) {
  auto body = ccp::encode(ccp::Request{0x01020304, 0x05060708, 0x090a0b0c});
  for (size_t i = 0; i < body.size(); ++i)
    EXPECT_EQ(std::to_integer<size_t>(body[i]), i + 1);
  body = ccp::encode(ccp::Reply{0x01020304, 0x05060708, 0x090a0b0c});
  for (size_t i = 0; i < body.size(); ++i)
    EXPECT_EQ(std::to_integer<size_t>(body[i]), i + 1);
  EXPECT_EQ(ccp::kProgram, 100417u);
  EXPECT_EQ(ccp::kVersion, 1u);
  EXPECT_EQ(ccp::kConfRdma, 1u);
}

TEST(ConnectionConfiguration, RoundTrips) {
  const ccp::Request request = {1, 0x80000000, 0xffffffff};
  const ccp::Reply reply = {0xffffffff, 2, 0x7fffffff};
  EXPECT_EQ(ccp::decode_request(ccp::encode(request)), request);
  EXPECT_EQ(ccp::decode_reply(ccp::encode(reply)), reply);
}

}  // namespace
}  // namespace rrdk::proto
