// Transport properties from a server that are wrong, or almost right, to a client that announces
// its own.
#include "client_scenario.h"
#include "version2.h"

namespace rrdk::hostile {
namespace {

constexpr uint32_t kSize = 1;

ClientScenario scenario(const char* name, std::vector<Step> script, std::vector<Moved> counters,
                        std::vector<Message> errors = {}) {
  script.push_back(pause(20));
  script.push_back(say(echo_reply2(k04, xid(0))));
  ClientScenario all = {
      name, {{Ask::kEcho, CallStatus::kOk}}, std::move(script), std::move(counters)};
  all.client.version = RpcRdmaVersion::kTwo;
  all.errors = std::move(errors);
  return all;
}
// V2D4-PROP-12: the client is the responder for properties that it cannot read.
ClientScenario bad(const char* name, Message message) {
  return scenario(name, {say(std::move(message))}, {Refusal::kBadProperties},
                  {{7, 2, 1, kError, kBadXdr}});
}
ClientScenario taken(const char* name, Message message, std::vector<Moved> counters = {}) {
  return scenario(name, {say(std::move(message))}, std::move(counters));
}

// Shows: V2D4-PROP-12, V2D4-PROP-08
std::vector<ClientScenario> all() {
  return {
      bad("WithoutASet", {7, 2, kCredits, kUpdProp}),
      bad("LargestCount", {7, 2, kCredits, kConnProp, 0xffffffff, kSize, 4, 8192, 0}),
      bad("LargestLength", {7, 2, kCredits, kReqProp, 1, kSize, 0xffffffff, 8192}),
      bad("LargestSubset", {7, 2, kCredits, kConnProp, 0, 0xffffffff}),
      bad("ASizeBelow1024", {7, 2, kCredits, kConnProp, 1, kSize, 4, 1023, 0}),
      taken("TheSmallestSize", {7, 2, kCredits, kConnProp, 1, kSize, 4, 1024, 0},
            {Refusal::kSmallReceives}),
      taken("TheLargestSize", {7, 2, kCredits, kConnProp, 1, kSize, 4, 0xffffffff, 0}),
      // Shows: V2D4-POP-26
      taken("AnAnswerToNothing", {7, 2, kCredits, kRespProp, 1, 1, 0, 1, kSize, 4, 1024},
            {Refusal::kUnknownXid}),
      taken("AFaultyAnswerToTheCall", {xid(0), 2, kCredits, kRespProp, 5}, {Refusal::kUnknownXid}),
      taken("AChangeOfWhatWasNeverSaid", {7, 2, kCredits, kUpdProp, 1, kSize, 4, 65536},
            {Refusal::kFixedProperty}),
      taken("WithoutCredits", {7, 2, 0, kConnProp, 0, 0}),
  };
}

RRDK_CLIENT_SCENARIOS(ClientProperties, all());

}  // namespace
}  // namespace rrdk::hostile
