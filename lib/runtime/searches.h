// Finds out where addresses lead. A name can take as long as its name server likes: names do not
// wait for each other, and what needs no name server waits for none.
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
  // Names that are looked up at a time; further ones wait for their turn.
  static constexpr uint32_t kMostNames = 8;

  struct Search {
    std::string host;  // that `find` looks up; empty: none
    // May block in the resolver, and outlives all else if it does: it owns what it uses.
    std::function<void()> find;
    // With what it found; not once stop() was called.
    std::function<void()> then;
    // Set when the search of the name begins (Tsc::now_ns()), if not before.
    std::shared_ptr<std::atomic<uint64_t>> began_ns;
  };

  Searches();
  ~Searches() { stop(); }
  Searches(const Searches&) = delete;
  Searches& operator=(const Searches&) = delete;

  // Any thread; waits for nothing. Both parts run on a thread of ours; those of one host one after
  // the other. Errors: kSystem.
  Result<void> start(Search search);
  // Waits for a `then` that runs, and for no `find`: that thread is left to itself. Idempotent.
  void stop();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace rrdk::runtime
