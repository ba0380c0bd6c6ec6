// For what ends by itself: a timer that looks whether it has ended, soon at first, and rarely if it
// takes long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "runtime/poll_core.h"
#include "runtime/timers.h"

namespace rrdk::runtime {

// Belongs to one core, whose thread calls everything here.
class LookAgain final : private Timer {
 public:
  // Calls (owner.*look)() once, at `latest_ns` at the latest. The owner must exist until then, or
  // until cancel().
  template <auto look, typename Owner>
  void start(PollCore& core, Owner& owner, uint64_t latest_ns = UINT64_MAX) {
    owner_ = &owner;
    fire = [](Timer& timer) {
      (static_cast<Owner*>(static_cast<LookAgain&>(timer).owner_)->*look)();
    };
    wait_ns_ = std::clamp(2 * wait_ns_, kFirstNs, kLongestNs);
    cancel(core);
    core.start_timer(*this, std::min(base::Tsc::now_ns() + wait_ns_, latest_ns));
  }
  void cancel(PollCore& core) { core.timers().cancel(*this); }
  // Something else begins to end: the next look is soon.
  void reset() noexcept { wait_ns_ = 0; }

 private:
  static constexpr uint64_t kFirstNs = 50'000;
  static constexpr uint64_t kLongestNs = 10'000'000;

  void* owner_ = nullptr;
  uint64_t wait_ns_ = 0;  // before the last look
};

}  // namespace rrdk::runtime
