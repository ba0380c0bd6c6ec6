// Scenarios with a Server as the victim, as data. The runner (server_scenario.cc) holds each to the
// same: exactly these bytes come back, exactly these counters move, the bystander is not disturbed,
// a connection that should live serves another call, and all pools are whole in the end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "stage.h"

namespace rrdk::hostile {

// What becomes of the hostile connection.
enum class After : uint8_t {
  kServes,  // the victim goes on: the next call is answered
  kStays,   // it is up, but can not be asked to serve: the peer keeps it from that
  kEnds,    // the victim ended it
  kLeft,    // the peer has left
};

using Step = std::function<void(Stage&)>;

struct ServerScenario {
  const char* name;
  std::vector<Step> script;
  std::vector<Message> answers;  // all that come, in this order
  std::vector<Moved> counters;   // all others stand still
  After after = After::kServes;
  PeerOptions peer = {.private_data = usual_private_data()};
  ServerOptions server = {.credits = kCredits};
  bool waits = true;  // for its connection, before the script begins
};
void PrintTo(const ServerScenario& scenario, std::ostream* out);

// Steps. Everyone is polled once after each.
Step say(Message message);
Step say_times(uint32_t count, Message message);
// So many answers are here by then.
Step hear(size_t count);
Step hang_up();
Step pause(uint32_t passes);
// The bytes of a message lie in the peer's readable memory, for request().
Step expose(Message message);
Step with_ally();
Step revoke(Peer::Memory which);
// So many bytes were written to kWritable from `skip` on, loopback's pattern from `offset` on; all
// others are as they were.
Step written(uint32_t skip, uint64_t offset, uint32_t length);
Step untouched();

// Runs a scenario on a fabric.
void play(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario);

class ServerScenarios
    : public testing::TestWithParam<std::tuple<fabric::test::FabricUnderTest, ServerScenario>> {};

inline std::string scenario_name(const testing::TestParamInfo<ServerScenarios::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
}

// Makes a test of each entry of a table, on each fabric.
#define RRDK_SERVER_SCENARIOS(concern, table)                                                \
  using concern = ServerScenarios;                                                           \
  TEST_P(concern, Plays) {                                                                   \
    play(std::get<0>(GetParam()), std::get<1>(GetParam()));                                  \
  }                                                                                          \
  INSTANTIATE_TEST_SUITE_P(                                                                  \
      All, concern, testing::Combine(fabric::test::all_fabrics(), testing::ValuesIn(table)), \
      scenario_name)

}  // namespace rrdk::hostile
