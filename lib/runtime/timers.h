// Timers of one poll core: a binary heap of pointers to timers that their users own. The caller
// supplies the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "base/budget.h"
#include "base/work_item.h"

namespace rrdk::runtime {

using base::Timer;

class Timers {
 public:
  explicit Timers(base::Budget& budget = base::Budget::none()) : budget_(budget) {
    heap_.reserve(kReserve);
  }

  // Allocates only if more timers run at once than ever before.
  void start(Timer& timer, uint64_t due_ns) noexcept;
  void cancel(Timer& timer) noexcept;
  uint64_t next_due() const noexcept { return heap_.empty() ? UINT64_MAX : heap_.front()->due_ns; }

  uint32_t poll(uint64_t now_ns) noexcept { return peek(now_ns) ? fire_due(now_ns) : 0; }
  bool peek(uint64_t now_ns) const noexcept {
    return !heap_.empty() && heap_.front()->due_ns <= now_ns;
  }
  bool try_sleep(uint64_t now_ns) noexcept { return !peek(now_ns); }  // next_due() limits the sleep
  void wake() noexcept {}

 private:
  static constexpr size_t kReserve = 1024;
  static constexpr uint32_t kMostPerPass = 32;

  uint32_t fire_due(uint64_t now_ns) noexcept;
  void put(size_t place, Timer* timer) noexcept;
  void sift_up(size_t place) noexcept;
  void sift_down(size_t place) noexcept;

  base::Budget& budget_;
  std::vector<Timer*> heap_;
};

}  // namespace rrdk::runtime
