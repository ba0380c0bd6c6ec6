// Where the time of a call went, computed from the records of both ends.
#include <gtest/gtest.h>

#include "apps/testrpc/stages.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kXid = 7, kProcedure = 1;
constexpr uint64_t kConnection = 3;
constexpr uint64_t kLong = 40'000'000'000;  // ticks: more than 4.29 s, the limit of 32 bits of ns

// A call that was made at 1000 ticks, and whose reply came `away` later.
StampedCall call_of(uint64_t away) {
  StampedCall call = {
      .made = true, .connection = kConnection, .xid = kXid, .procedure = kProcedure};
  call.ticks = {1000, 1010, 1020, 1020 + away, 1030 + away, 1040 + away};
  return call;
}

uint64_t step(const Steps& steps, Step which) {
  return steps[static_cast<size_t>(which)].value_or(UINT64_MAX);
}

TEST(Stages, ARequestOfMoreThanFourSecondsIsNotCutAndNotTheResponse) {
  const StampedCall call = call_of(kLong + 300);
  const Served served = {.received = 1020 + kLong};
  const std::vector<ServedCalls> told = {
      {.connection = kConnection, .same_host = true, .calls = {{{kXid, kProcedure}, served}}}};
  const Steps steps = steps_of(call, told);
  EXPECT_GT(ticks_to_ns(kLong), uint64_t{UINT32_MAX});
  EXPECT_EQ(step(steps, Step::kRequest), ticks_to_ns(kLong));
  EXPECT_LE(step(steps, Step::kResponse), 1000u);
}

TEST(Stages, AHandlerOfMoreThanFourSecondsIsTheHandlersOwn) {
  const uint64_t handled = ticks_to_ns(kLong);
  const StampedCall call = call_of(kLong + 3000);
  const Served served = {
      .received = 1100, .entered = 10, .answered = 10 + handled, .replied = 20 + handled};
  const std::vector<ServedCalls> told = {
      {.connection = kConnection, .same_host = true, .calls = {{{kXid, kProcedure}, served}}}};
  const Steps steps = steps_of(call, told);
  EXPECT_EQ(step(steps, Step::kHandler), handled);
  EXPECT_EQ(step(steps, Step::kNetwork), UINT64_MAX);
}

TEST(Stages, ImpossibleServerTimesAreIgnored) {
  const StampedCall call = call_of(3000);
  const Served served = {.received = 1100, .whole = UINT64_MAX};
  const std::vector<ServedCalls> told = {
      {.connection = kConnection, .same_host = true, .calls = {{{kXid, kProcedure}, served}}}};
  const Steps steps = steps_of(call, told);
  EXPECT_EQ(step(steps, Step::kFetch), UINT64_MAX);
  EXPECT_EQ(step(steps, Step::kNetwork), ticks_to_ns(3000));
}

}  // namespace
}  // namespace rrdk::testrpc
