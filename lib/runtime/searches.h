// Resolves addresses, and does other work that may wait for a server. A name can take as long as
// its name server takes: names do not wait for each other, and an address that needs no name server
// waits for none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "rrdk/error.h"

namespace rrdk::runtime {

class Searches {
 public:
  // Names that are resolved at a time; further ones wait for their turn.
  static constexpr uint32_t kMostNames = 8;

  struct Search {
    std::string host;  // that `find` looks up; empty: none
    // `find` waits for a server of another kind: it counts as a name that is resolved, and `host`
    // only says which searches run one after the other.
    bool is_slow = false;
    // May block in the resolver, and then outlives everything else: it must own what it uses.
    std::function<void()> find;
    // Called with what it found, but not after stop() was called.
    std::function<void()> then;
    // Set when the search of the name begins (Tsc::now_ns()), unless already set.
    std::shared_ptr<std::atomic<uint64_t>> began_ns;
  };

  Searches();
  ~Searches() { stop(); }
  Searches(const Searches&) = delete;
  Searches& operator=(const Searches&) = delete;

  // Any thread; does not wait. Both parts run on a thread of ours; those for one host run one after
  // the other. Errors: kSystem.
  Result<void> start(Search search);
  // Waits for a `then` that runs, but not for a `find`: its thread is left behind. Idempotent.
  void stop();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace rrdk::runtime
