// How long one pass of a core may do slow work. What is left then goes on in the next pass.
//
//   what it is                                            asks
//   of a kind that takes turns: control tasks, timers,    may_begin(), and after each step
//   control events                                        may_go_on()
//   along with messages: large copies, ends of queue      begin() before a step, and spent() after
//   pairs                                                 it
//
// A pass that has spent the budget begins no further kind. The first one that it has refused goes
// first in the next pass: until that has begun, no other kind begins, and what comes with messages
// does no more than one step. So a pass takes the budget and one step, and each kind has its turn.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/count.h"

namespace rrdk::base {

enum class SlowWork : uint8_t { kTasks, kTimers, kEvents };
constexpr uint32_t kKindsOfSlowWork = 3;

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
    static const Count no_passes;
    static Budget unlimited(0, no_passes);
    return unlimited;
  }

  // Must be called before a step of slow work. The first one in a pass starts the clock.
  void begin() noexcept {
    if (limit_ == 0 || pass_ == *passes_)
      return;
    pass_ = *passes_;
    is_reserved_ = reserved_in_ == pass_;
    turn_ = is_reserved_ ? next_turn_ : turn_;
    began_ = Tsc::ticks();
  }
  // After a step: whether the pass must leave the rest to the next one.
  bool spent() noexcept {
    if (limit_ == 0)
      return false;
    begin();
    if (!is_reserved_ && Tsc::ticks() - began_ < limit_)
      return false;
    spent_in_ = pass_;
    return true;
  }
  // Whether this pass has been told so, without reading the clock.
  bool known_spent() const noexcept { return spent_in_ == *passes_; }

  // Before the first step of a kind in a pass. If it must wait, there must be such work in the next
  // pass, too, which lets it begin.
  bool may_begin(SlowWork kind) noexcept {
    if (limit_ == 0)
      return true;
    begin();
    if (is_reserved_ && kind == turn_) {
      is_reserved_ = false;
      return true;
    }
    if (!is_reserved_ && may_go_on())
      return true;
    reserve(kind);
    return false;
  }
  // After a step of a kind that has begun.
  bool may_go_on() noexcept {
    if (limit_ == 0)
      return true;
    if (Tsc::ticks() - began_ < limit_)
      return true;
    spent_in_ = pass_;
    return false;
  }

 private:
  // The next pass belongs to the first of those that this one refuses, counted from the kind that
  // had the last turn.
  void reserve(SlowWork kind) noexcept {
    if (reserved_in_ == pass_ + 1 && distance(next_turn_) <= distance(kind))
      return;
    reserved_in_ = pass_ + 1;
    next_turn_ = kind;
  }
  uint32_t distance(SlowWork kind) const noexcept {
    const auto from = static_cast<uint32_t>(turn_) + 1;
    return (static_cast<uint32_t>(kind) + kKindsOfSlowWork - from) % kKindsOfSlowWork;
  }

  const uint64_t limit_;  // in ticks
  const Count* const passes_;
  uint64_t pass_ = UINT64_MAX;  // in which it began
  uint64_t began_ = 0;
  uint64_t spent_in_ = UINT64_MAX;     // the last pass in which it was spent; never without a limit
  uint64_t reserved_in_ = UINT64_MAX;  // the pass that belongs to next_turn_
  SlowWork next_turn_ = SlowWork::kTasks;
  SlowWork turn_ = SlowWork::kEvents;  // whose turn it was last
  bool is_reserved_ = false;           // that kind has not begun in this pass
};

}  // namespace rrdk::base
