// Scenarios with a Client as the victim, as data. The runner (client_scenario.cc) checks the same
// for each: the calls end as they should, the victim sends nothing but its calls, exactly these
// counters change, the bystander is not disturbed, a connection that should live makes another
// call, and all pools are whole in the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenario_steps.h"

namespace rrdk::hostile {

// The call that the victim makes. The words of the headers are those that scripts use.
enum class Ask : uint8_t {
  kNull,   // no chunks: header words 0 to 6
  kEcho,   // one word in each direction
  kLarge,  // 2000 bytes in each direction, inline
  kRead,  // a Write chunk of two segments, 600 and 400 bytes, at words 7 and 11; 16: no Reply chunk
  kWrite,  // 8000 bytes in a Read chunk: Position in word 5, segment at word 6
  kLong,   // a Reply chunk of one segment at word 8
  kBoth,   // the Write chunk of kRead, and a Reply chunk of one segment at word 18
};

struct Asked {
  Asked(Ask what_in, CallStatus status_in, uint32_t timeout_ms_in = 0)
      : what(what_in), status(status_in), timeout_ms(timeout_ms_in) {}
  Ask what;
  CallStatus status;  // in which it is to end
  uint32_t timeout_ms;
};

struct ClientScenario {
  const char* name;
  std::vector<Asked> asked;     // submitted at once
  std::vector<Step> script;     // the peer's answers; waits for the first call
  std::vector<Moved> counters;  // all other counters stay unchanged
  After after = After::kServes;
  PeerOptions peer = {.private_data = usual_private_data()};
  ClientOptions client = {.credits = kCredits, .call_timeout_ms = 0};
  std::optional<Errc> connect_error = {};  // empty: it connects
  bool first_grant = true;           // a call was answered before, so that all can be in flight
  size_t resent = 0;                 // messages that repeat a call, under its XID
  std::vector<Message> errors = {};  // which the client sends: draft-04's properties are answered
  bool errors_vary = false;          // as many of the counter in `errors` as there is time for
  bool serves = false;               // the loopback program, for calls from the peer
  size_t replies = 0;                // which the peer's calls to it get
  const char* connect_says = "";     // the end of the message of connect_error
};
void PrintTo(const ClientScenario& scenario, std::ostream* out);

// Steps that the victim takes itself.
Step cancel(size_t call);
Step ended(size_t call);
// The memory of a kRead is unchanged.
Step nothing_written(size_t call);

// Runs a scenario on a fabric.
void play(const fabric::test::FabricUnderTest& fabric, const ClientScenario& scenario);

class ClientScenarios
    : public testing::TestWithParam<std::tuple<fabric::test::FabricUnderTest, ClientScenario>> {};

}  // namespace rrdk::hostile
