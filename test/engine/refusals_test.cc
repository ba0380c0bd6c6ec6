// Which refusals count as protocol breaches by the peer.
#include <gtest/gtest.h>

#include "engine/connection.h"
#include "rrdk/counters.h"

namespace rrdk::engine::test {
namespace {

TEST(Breaches, CountEachEventOnce) {
  Counters counters;
  uint64_t sum = 0;
  for (Refusal reason : all_refusals()) {
    counters.refusals[reason] += 3;
    sum += is_breach(reason) ? 3 : 0;
    EXPECT_EQ(counters.breaches(), sum) << to_string(reason);
  }
}

TEST(Breaches, AreWhatNoCorrectPeerDoes) {
  for (Refusal reason : {Refusal::kTooShort, Refusal::kTruncated, Refusal::kXid,
                         Refusal::kCreditOverrun, Refusal::kNoReplyRoom, Refusal::kBindingChunks,
                         Refusal::kUnknownXid, Refusal::kForeignKey, Refusal::kAlteredSegment})
    EXPECT_TRUE(is_breach(reason)) << to_string(reason);
  for (Refusal reason :
       {Refusal::kLateReply, Refusal::kNoBuffers, Refusal::kBadVersion, Refusal::kNoCommonVersion,
        Refusal::kUnknownOption, Refusal::kOptionNotServed, Refusal::kTooManyBytes,
        Refusal::kRpcVersion, Refusal::kNoProgram, Refusal::kNoVersion, Refusal::kNoProcedure,
        Refusal::kDone, Refusal::kTrailingBytes, Refusal::kAccessRefused})
    EXPECT_FALSE(is_breach(reason)) << to_string(reason);
}

}  // namespace
}  // namespace rrdk::engine::test
