// RFC 5666 section 6.2: three words each way, as rpcgen's codec has them too.
#include "proto/ccp.h"

#include <gtest/gtest.h>

#include <random>

#include "reference_config.h"
#include "test/seed.h"

namespace rrdk::proto {
namespace {

// Shows: V1-CCP-01, V1-CCP-02, V1-CCP-03
TEST(ConnectionConfiguration, WordsStandInTheStatedOrder) {
  ConfigBody body = ccp::encode(ccp::Request{0x01020304, 0x05060708, 0x090a0b0c});
  for (size_t i = 0; i < body.size(); ++i)
    EXPECT_EQ(std::to_integer<size_t>(body[i]), i + 1);
  body = ccp::encode(ccp::Reply{0x01020304, 0x05060708, 0x090a0b0c});
  for (size_t i = 0; i < body.size(); ++i)
    EXPECT_EQ(std::to_integer<size_t>(body[i]), i + 1);
  ConfigNumbers numbers = reference_config_numbers();
  EXPECT_EQ(ccp::kProgram, numbers.program);
  EXPECT_EQ(ccp::kVersion, numbers.version);
  EXPECT_EQ(ccp::kConfRdma, numbers.procedure);
}

TEST(ConnectionConfiguration, AgreesWithWhatRpcgenMakes) {
  std::mt19937_64 random(test::run_seed());
  for (int i = 0; i < 10000; ++i) {
    auto word = [&] { return static_cast<uint32_t>(random()); };
    ConfigWords w = {word(), word(), word()};
    ccp::Request request = {w[0], w[1], w[2]};
    ccp::Reply reply = {w[0], w[1], w[2]};
    ASSERT_EQ(ccp::encode(request), reference_config_request(w));
    ASSERT_EQ(ccp::encode(reply), reference_config_reply(w));
    ConfigBody body = ccp::encode(request);
    ASSERT_EQ(ccp::decode_request(body), request);
    ASSERT_EQ(ccp::decode_reply(body), reply);
    ASSERT_EQ(reference_config_request(body), w);
    ASSERT_EQ(reference_config_reply(body), w);
  }
}

}  // namespace
}  // namespace rrdk::proto
