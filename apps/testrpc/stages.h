// Where the time of sampled calls goes, from submit() to callback, on both ends: the client has its
// own times (rrdk/stages.h), and asks the server for the server's times of the same calls.
//
// The server offers them by the program STAGES (0x20005668, version 2; version 1 had 32 bits for
// each stage, which overflow after 4.29 s). Its procedure 1 answers for the connection that it is
// called on, with the last calls and the slowest of those before, the latest first, at most 50:
//
//   struct stages_args {
//       unsigned hyper before;                    /* only calls received before; 0: all */
//   };
//   struct stages_call {
//       unsigned int   xid, program, procedure;
//       unsigned hyper received;                  /* ticks of the time stamp counter */
//       unsigned hyper whole, decoded, entered, answered, replied;  /* nanoseconds since then */
//   };
//   struct stages_res {
//       unsigned hyper boot;                      /* equal: the same host, so the same counter */
//       stages_call    calls<>;
//   };
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "histogram.h"
#include "rrdk/client.h"
#include "rrdk/server.h"

namespace rrdk::testrpc {

// The server's side. `runtime` outlives it, and it outlives the Server.
class StageService {
 public:
  explicit StageService(const Runtime& runtime) : runtime_(runtime) {}
  Service service();

 private:
  static void tell(ServerCall call, void* self);

  const Runtime& runtime_;
};

// The steps of a call, in order. Between different hosts kRequest and kResponse cannot be
// distinguished and are one step, kNetwork. If the server has no times of the call, kNetwork
// includes the server's steps, too.
enum class Step : uint8_t {
  kWait,      // for a credit
  kPost,      // until its Send is handed to the driver
  kRequest,   // until the server has its header: the transfer, and what the server did meanwhile
  kFetch,     // until its chunks are read and it may begin
  kDecode,    // until its procedure is found
  kQueue,     // until its handler begins
  kHandler,   // until it answers
  kReply,     // until the reply is handed to the driver
  kResponse,  // until the client has it
  kNetwork,
  kComplete,  // until the callback begins
  kSteps
};
const char* to_string(Step step);
const char* side_of(Step step);  // client, network, server

// Nanoseconds in each step, empty if unknown.
using Steps = std::array<std::optional<uint64_t>, static_cast<size_t>(Step::kSteps)>;

// The server's times of one call: when it was received, and nanoseconds since then.
struct Served {
  uint64_t received = 0;
  uint64_t whole = 0, decoded = 0, entered = 0, answered = 0, replied = 0;
};

// The server's times of one connection's calls.
struct ServedCalls {
  uint64_t connection = 0;  // ConnectionInfo::id
  bool same_host = false;
  bool told = false;  // the server answers such questions
  bool timed_out = false;
  std::map<std::pair<uint32_t, uint32_t>, Served> calls;  // by XID and procedure
};

// Asks on each connection, on 64 at most, and stops at the first that is not answered in time. The
// calls of a connection are empty if the server has no times for it.
std::vector<ServedCalls> ask_server(std::span<const std::unique_ptr<ClientConnection>> connections,
                                    const Binding& binding);

// Combines the client's stamps of a call with the server's times.
Steps steps_of(const StampedCall& made, std::span<const ServedCalls> served);

struct StepTimes {
  uint64_t calls = 0;  // that the times are taken from
  uint64_t p50_ns = 0;
  std::optional<uint64_t> p90_ns = {}, p99_ns = {};  // empty if there are too few calls
  uint64_t max_ns = 0;
  double mean_ns = 0;
};

// The stages of the calls of one procedure.
struct ProcedureStages {
  std::string name;
  uint64_t calls = 0;  // that were sampled
  StepTimes round_trip;
  StepTimes callback;  // not part of the round trip
  std::array<std::optional<StepTimes>, static_cast<size_t>(Step::kSteps)> steps;

  // Returns the sum of the medians of all steps.
  uint64_t sum_ns() const;
};

// Collects the stages of a run's calls. The client's own stages come from every sampled call,
// counted in its callback. The others need the server's times of the same calls; the server has
// only those of the latest calls, and is asked between the pieces of a run and at its end.
class StageCollector {
 public:
  // Resets everything, and prepares for calls of this program.
  void begin(const Binding& binding);
  // Called in a call's callback; allocates nothing.
  void count(const Call& call) noexcept;
  // Called when no call is in flight. Calls that were joined before are left out.
  void join(const Runtime& runtime, std::span<const ServedCalls> served);
  std::vector<ProcedureStages> told() const;

 private:
  struct Procedure {
    Histogram round_trip, callback, away;  // away: from the Send to the reply
    std::array<Histogram, static_cast<size_t>(Step::kSteps)> steps;
    // The longest of the slow calls, which no percentile includes, since they would outweigh the
    // others.
    std::array<uint64_t, static_cast<size_t>(Step::kSteps)> longest = {};
  };

  Procedure* find(const StampedCall& call) noexcept;
  void add_joined(const StampedCall& call, std::span<const ServedCalls> served, bool slow);

  const Binding* binding_ = nullptr;
  std::vector<std::unique_ptr<Procedure>> procedures_;  // in the order of the binding
  uint64_t since_ticks_ = 0;  // calls made before it have been joined, or do not belong to the run
};

void print_stages(const std::string& run, const ProcedureStages& stages);

}  // namespace rrdk::testrpc
