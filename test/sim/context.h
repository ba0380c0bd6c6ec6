// What all parts of one simulation share: chance, time, the trace, and the verdict.
#pragma once

#include <cstdint>
#include <string>

#include "random.h"
#include "schedule.h"

namespace rrdk::sim {

struct Context {
  Context(uint64_t seed_, bool traced_) : seed(seed_), traced(traced_), random(seed_) {}

  uint64_t seed;
  bool traced;  // one line per event on standard output
  Random random;
  Schedule schedule;
  std::string failure;  // the first broken invariant, or empty
  uint64_t longest_delay = 20'000;

  bool failed() const noexcept { return !failure.empty(); }
  // An invariant is broken: the simulation stops. `who` names the connection.
  void fail(const std::string& who, const char* format, ...) __attribute__((format(printf, 3, 4)));
  // One trace line: time, who, what. Cheap without a trace; the caller tests `traced` first.
  void trace(const std::string& who, const char* format, ...) __attribute__((format(printf, 3, 4)));
  // How long something takes: mostly short, sometimes nothing, sometimes long.
  uint64_t delay();
};

}  // namespace rrdk::sim
