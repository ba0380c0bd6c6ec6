// Scenarios with a Server as the victim, as data. The runner (server_scenario.cc) checks the same
// for each: exactly these bytes come back, exactly these counters change, the bystander is not
// disturbed, a connection that should live serves another call, and all pools are whole in the end.
#pragma once

#include <string>
#include <vector>

#include "scenario_steps.h"

namespace rrdk::hostile {

struct ServerScenario {
  const char* name;
  std::vector<Step> script;
  std::vector<Message> answers;  // all that come, in this order
  std::vector<Moved> counters;   // all other counters stay unchanged
  After after = After::kServes;
  PeerOptions peer = {.private_data = usual_private_data()};
  ServerOptions server = {.credits = kCredits, .version2 = {.properties = false}};
  bool waits = true;  // for its connection, before the script begins
  // Answers may grant anything from one to the server's credits: the number of free Receives
  // depends on how messages are distributed over passes.
  bool grants_vary = false;
};
void PrintTo(const ServerScenario& scenario, std::ostream* out);

// Runs a scenario on a fabric.
void play(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario);

class ServerScenarios
    : public testing::TestWithParam<std::tuple<fabric::test::FabricUnderTest, ServerScenario>> {};

}  // namespace rrdk::hostile
