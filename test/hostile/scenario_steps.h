// The parts of scenarios, for both kinds of victims.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "stage.h"

namespace rrdk::hostile {

// The expected end of the hostile connection.
enum class After : uint8_t {
  kServes,  // the victim continues: the next call is answered
  kStays,   // it is up, but the peer keeps it from serving
  kEnds,    // the victim ended it
  kLeft,    // the peer has left
};

using Step = std::function<void(Stage&)>;

// Steps. The victim, the peer and the bystander are polled once after each.
Step say(Message message);
Step say_times(uint32_t count, Message message);
// One after the other, so slowly that each can be answered before the next.
Step say_slowly(uint32_t count, Message message);
// One after the other, each when the one before it is answered.
Step say_in_turn(uint32_t count, Message message);
// This many answers have arrived.
Step hear(size_t count);
// The victim has ended the connection.
Step gone();
Step hang_up();
// With Send-with-Invalidate of the key at a word of the n-th message received.
Step say_invalidating(Message message, size_t n, size_t word);
Step say_invalidating(Message message, uint32_t key);
// An RDMA Write of the message to the segment at a word of the n-th message, and its outcome.
Step write_to(size_t n, size_t word, Message message, uint32_t skip = 0,
              fabric::WcStatus outcome = fabric::WcStatus::kSuccess);
// If the fabric does not acknowledge refusals, a refused Write completes like any other; the next
// steps check what the victim does then.
Step access_segment(fabric::Op op, size_t n, size_t word, uint32_t length, uint32_t skip,
                    fabric::WcStatus outcome);
// The driver has refused this many accesses, if it counts why it refuses.
Step refused_accesses(uint64_t count);
Step pause(uint32_t passes);
// The bytes of a message lie in the peer's readable memory, for request().
Step expose(Message message);
Step with_ally();
Step revoke(Peer::Memory which);
// `length` bytes were written to kWritable from `skip` on, with loopback's pattern from `offset`
// on; all others are unchanged.
Step written(uint32_t skip, uint64_t offset, uint32_t length);
Step untouched();

// The name of a test that plays an entry of a table on a fabric.
template <typename Scenario>
std::string scenario_name(
    const testing::TestParamInfo<std::tuple<fabric::test::FabricUnderTest, Scenario>>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

// Makes a test of each entry of a table, on each of these.
#define RRDK_SCENARIOS(concern, fixture, scenario, table)                                    \
  using concern = fixture;                                                                   \
  TEST_P(concern, Plays) {                                                                   \
    play(std::get<0>(GetParam()), std::get<1>(GetParam()));                                  \
  }                                                                                          \
  INSTANTIATE_TEST_SUITE_P(                                                                  \
      All, concern, testing::Combine(fabric::test::all_fabrics(), testing::ValuesIn(table)), \
      scenario_name<scenario>)
#define RRDK_SERVER_SCENARIOS(concern, table) \
  RRDK_SCENARIOS(concern, ServerScenarios, ServerScenario, table)
#define RRDK_CLIENT_SCENARIOS(concern, table) \
  RRDK_SCENARIOS(concern, ClientScenarios, ClientScenario, table)

}  // namespace rrdk::hostile
