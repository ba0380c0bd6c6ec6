// The parameters of a simulation, drawn from its seed before anything happens.
#pragma once

#include <cstdint>

#include "engine/connection.h"
#include "random.h"
#include "rrdk/server.h"

namespace rrdk::sim {

// The largest number of credits of a responder.
constexpr uint32_t kMostCredits = 8;

struct Weather {
  explicit Weather(Random& random);

  bool crowd;               // thousands of connections, each with little to do
  uint32_t lines;           // connections that share pools
  uint32_t calls;           // in all, before it gets quiet
  uint32_t calls_at_once;   // of one connection
  uint64_t longest_delay;   // usual, of one step of the fabric, in ns
  uint64_t longest_pause;   // between two submits
  uint64_t longest_answer;  // of a handler
  uint64_t tick_ns;         // 0: time does not pass for the engines
  uint64_t lend_ns;         // how long calls that are given up leave their memory to the peer
  uint64_t starved_ns;      // how long a requester waits without any credit
  uint32_t largest_item;
  uint32_t keys;
  int requester_memory;  // which of the rig's; 0: there is plenty
  int responder_memory;
  bool shared_receives;     // of the responders
  uint32_t most_receives;   // of these
  uint32_t incoming_calls;  // of the responders' pool
  bool lazy_posting;        // work requests are posted some time after the engine made them
  bool takes_turns;         // a responder's calls wait for its turns
  bool answers_at_once;     // some handlers answer within on_call()
  bool both_ways;           // servers call their clients, too
  // All connections belong to one client, and its calls run once: lost calls are repeated under
  // their XIDs, possibly before the responder knows of the loss.
  bool once;
  uint32_t once_credits;  // of each requester, for its lifetime: XIDs continue slot by slot
  uint32_t longest_kept;  // reply
  uint32_t most_lanes;    // for which there is space
  // Faults.
  uint64_t longest_peace;  // between two; 0: there are no faults
  bool breaks, errors, strays, cancels, credit_changes, size_changes, deadlines, failed_connects,
      drains;
  bool abrupt;  // ends with calls in flight

  bool scarce_at_requester() const { return requester_memory != 0 && !crowd; }
  bool scarce_at_responder() const { return responder_memory != 0 && !crowd; }
  bool scarce() const {
    return crowd || scarce_at_requester() || scarce_at_responder() || incoming_calls < 64;
  }
  bool few_keys() const { return keys < 1000; }
  // All connections may break at once.
  bool storms() const { return once || crowd; }
  // Options of the duplicate request cache.
  ReplayOptions replay_options() const;
  // Options of one end of a new connection.
  engine::ConnectionOptions options(Random& random, engine::Role role) const;
  // The versions that the two ends of one connection support.
  static void choose_versions(Random& random, engine::ConnectionOptions& requester,
                              engine::ConnectionOptions& responder);

 private:
  void gather(Random& random);
};

}  // namespace rrdk::sim
