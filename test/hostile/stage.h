// The environment of a scenario: a real Server, a real Client and the bystander's connection
// between them, on one embedded core in one thread, and the hostile peer.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "bystander.h"
#include "peer.h"
#include "rrdk/counters.h"
#include "test/fabric/fabrics.h"

namespace rrdk::hostile {

// The expected count of a reason to refuse.
struct Moved {
  Moved(Refusal reason_in, uint64_t times_in = 1)
      : Moved(reason_in, times_in, /*unacknowledged_in=*/reason_in) {}
  Moved(Refusal reason_in, uint64_t times_in, Refusal unacknowledged_in)
      : reason(reason_in), times(times_in), unacknowledged(unacknowledged_in) {}
  Refusal reason;
  uint64_t times;
  Refusal unacknowledged;  // the reason on fabrics that do not say whether a Send was taken
};
struct Refusals {
  std::array<uint64_t, kRefusals> counts = {};

  uint64_t operator[](Refusal reason) const { return counts[static_cast<size_t>(reason)]; }
  uint64_t& operator[](Refusal reason) { return counts[static_cast<size_t>(reason)]; }
};
Refusals refusals_of(const Stats& stats);
Refusals operator-(Refusals now, const Refusals& before);
uint64_t breaches(const Refusals& refusals);
// Those that are not zero, for the messages of failures.
std::string describe(const Refusals& refusals);
Refusals sum(const std::vector<Moved>& moved, bool acknowledges);

struct VictimCall;  // client_scenario.cc

class Stage {
 public:
  Stage(const fabric::test::FabricUnderTest& fabric, const ServerOptions& server_options,
        const ClientOptions& client_options, bool client_serves = false);
  // Ends everything; the test fails if pools are not whole.
  ~Stage();

  // Polls all ends once.
  void pass();
  void passes(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i)
      pass();
  }
  // Polls until it is true; the test fails if that takes long.
  bool until(const char* what, const std::function<bool()>& done);
  // From here on the bystander's calls are compared with those that it made alone.
  void begin_comparison();
  void end_comparison();
  // Accesses that were refused because of their keys, at both ends: drivers count them where they
  // decide.
  uint64_t refused_accesses();
  void new_peer(const std::string& address, const PeerOptions& options) {
    peer = std::make_unique<Peer>(address, options);
  }

  loopback::Keeper keeper;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Server> server;
  std::string uri;
  std::unique_ptr<Client> client;
  std::unique_ptr<Bystander> bystander;
  std::unique_ptr<Peer> peer;
  std::vector<std::shared_ptr<VictimCall>> victim_calls;  // of a client as the victim

 private:
  static constexpr uint32_t kAlonePasses = 200;
  static constexpr uint32_t kFewestPasses = 100;
  // Calls per pass may fall to a third: the core also serves the hostile peer, in the same bursts.
  static constexpr uint64_t kRatio = 3;

  uint64_t passes_ = 0;
  uint64_t alone_ = 0;  // calls in kAlonePasses
  uint64_t from_pass_ = 0;
  uint64_t from_call_ = 0;
};

}  // namespace rrdk::hostile
