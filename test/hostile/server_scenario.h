// Scenarios with a Server as the victim, as data. The runner (server_scenario.cc) holds each to the
// same: exactly these bytes come back, exactly these counters move, the bystander is not disturbed,
// a connection that should live serves another call, and all pools are whole in the end.
#pragma once

#include <string>
#include <vector>

#include "scenario_steps.h"

namespace rrdk::hostile {

struct ServerScenario {
  const char* name;
  std::vector<Step> script;
  std::vector<Message> answers;  // all that come, in this order
  std::vector<Moved> counters;   // all others stand still
  After after = After::kServes;
  PeerOptions peer = {.private_data = usual_private_data()};
  ServerOptions server = {.credits = kCredits, .version2 = {.properties = false}};
  bool waits = true;  // for its connection, before the script begins
  // Answers may grant anything from one to the server's credits: how many Receives are free depends
  // on how messages fall into passes.
  bool grants_vary = false;
};
void PrintTo(const ServerScenario& scenario, std::ostream* out);

// Runs a scenario on a fabric.
void play(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario);

class ServerScenarios
    : public testing::TestWithParam<std::tuple<fabric::test::FabricUnderTest, ServerScenario>> {};

}  // namespace rrdk::hostile
