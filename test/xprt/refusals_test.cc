// Which refusals are the peer's breaches of the protocol.
#include "rrdk/refusals.h"

#include <gtest/gtest.h>

namespace rrdk::xprt::test {
namespace {

uint64_t breaches_of(Refusal reason) {
  Refusals refusals;
  refusals[reason] = 3;
  return breaches(refusals);
}

TEST(Breaches, CountEachEventOnce) {
  Refusals all;
  uint64_t sum = 0;
  for (Refusal reason : all_refusals()) {
    all[reason] = 3;
    uint64_t own = breaches_of(reason);
    EXPECT_TRUE(own == 0 || own == 3) << to_string(reason);
    sum += own;
  }
  EXPECT_EQ(breaches(all), sum);
  EXPECT_EQ(breaches({}), 0u);
}

TEST(Breaches, AreWhatNoCorrectPeerDoes) {
  for (Refusal reason : {Refusal::kTooShort, Refusal::kTruncated, Refusal::kXid,
                         Refusal::kCreditOverrun, Refusal::kNoReplyRoom, Refusal::kBindingChunks,
                         Refusal::kUnknownXid, Refusal::kForeignKey, Refusal::kAlteredSegment})
    EXPECT_EQ(breaches_of(reason), 3u) << to_string(reason);
  for (Refusal reason :
       {Refusal::kLateReply, Refusal::kNoBuffers, Refusal::kBadVersion, Refusal::kNoCommonVersion,
        Refusal::kUnknownOption, Refusal::kOptionNotServed, Refusal::kTooManyBytes,
        Refusal::kRpcVersion, Refusal::kNoProgram, Refusal::kNoVersion, Refusal::kNoProcedure,
        Refusal::kDone, Refusal::kTrailingBytes, Refusal::kAccessRefused})
    EXPECT_EQ(breaches_of(reason), 0u) << to_string(reason);
}

}  // namespace
}  // namespace rrdk::xprt::test
