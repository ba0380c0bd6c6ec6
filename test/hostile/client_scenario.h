// Scenarios with a Client as the victim, as data. The runner (client_scenario.cc) holds each to the
// same: the calls end as they should, the victim says nothing but its calls, exactly these counters
// move, the bystander is not disturbed, a connection that should live makes another call, and all
// pools are whole in the end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenario_steps.h"

namespace rrdk::hostile {

// What the victim asks for. The words of the headers are those that scripts look at.
enum class Ask : uint8_t {
  kNull,   // no chunks: header words 0 to 6
  kEcho,   // one word there and back
  kLarge,  // 2000 bytes there and back, inline
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
  std::vector<Moved> counters;  // all others stand still
  After after = After::kServes;
  PeerOptions peer = {.private_data = usual_private_data()};
  ClientOptions client = {.credits = kCredits, .call_timeout_ms = 0};
  std::optional<Errc> connect_error = {};  // none: it connects
  bool first_grant = true;           // a call was answered before, so that all can be in flight
  size_t resent = 0;                 // messages that are a call's once more, under its XID
  std::vector<Message> errors = {};  // that the client says: draft-04's properties are answered
  bool errors_vary = false;          // as many of the one in `errors` as there is time for
  bool serves = false;               // the loopback program, to the peer
  size_t replies = 0;                // that the peer's calls of it get
  const char* connect_says = "";     // the end of the message of connect_error
};
void PrintTo(const ClientScenario& scenario, std::ostream* out);

// Steps for the victim's own part.
Step cancel(size_t call);
Step ended(size_t call);
// The memory of a kRead is as it was.
Step nothing_written(size_t call);

// Runs a scenario on a fabric.
void play(const fabric::test::FabricUnderTest& fabric, const ClientScenario& scenario);

class ClientScenarios
    : public testing::TestWithParam<std::tuple<fabric::test::FabricUnderTest, ClientScenario>> {};

}  // namespace rrdk::hostile
