// How long one pass of a core may do slow work: make and end connections, take control events, copy
// much data. What is left then goes on in the next pass. A pass does at least one step of each
// kind, so none starves.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/count.h"

namespace rrdk::base {

// The clock is read only where there is slow work: before its first step in a pass, and after each.
//
// For one thread, but for none().
class Budget {
 public:
  // `passes` counts the passes, and outlives the budget. 0: no limit.
  Budget(uint32_t us, const Count& passes)
      : limit_(us == 0 ? 0 : Tsc::from_ns(uint64_t{us} * 1000)), passes_(&passes) {}
  // Without a limit, for any thread.
  static Budget& none() noexcept {
    static Budget unlimited;
    return unlimited;
  }

  // Must be called before a step of slow work. The first one in a pass starts the clock.
  void begin() noexcept {
    if (limit_ == 0 || pass_ == *passes_)
      return;
    pass_ = *passes_;
    began_ = Tsc::ticks();
  }
  // After a step: whether the pass must leave the rest to the next one.
  bool spent() noexcept {
    if (limit_ == 0)
      return false;
    begin();
    if (Tsc::ticks() - began_ < limit_)
      return false;
    spent_in_ = pass_;
    return true;
  }
  // Whether this pass has been told so, without reading the clock.
  bool known_spent() const noexcept { return limit_ != 0 && spent_in_ == *passes_; }

 private:
  Budget() = default;

  const uint64_t limit_ = 0;  // in ticks
  const Count* const passes_ = nullptr;
  uint64_t pass_ = UINT64_MAX;  // in which it began
  uint64_t began_ = 0;
  uint64_t spent_in_ = UINT64_MAX;  // the last pass in which it was spent
};

}  // namespace rrdk::base
