// How other threads wake a core that sleeps: an eventfd, written only when the core has said that
// it goes to sleep.
//
// No wake-up is lost: a producer publishes its work and then exchanges the flag; the sleeper sets
// the flag by an exchange and then looks for work. Both exchanges are on one variable, so one comes
// first. If the producer's does, the sleeper's reads from it and sees the work; if the sleeper's
// does, the producer sees the flag and writes the eventfd.
#pragma once

#include <atomic>

#include "rrdk/error.h"

namespace rrdk::runtime {

class Alarm {
 public:
  // `enabled`: whether the core ever sleeps; otherwise ring() costs nothing.
  explicit Alarm(bool enabled) noexcept : enabled_(enabled) {}
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  Result<void> open();  // Errors: kSystem

  int fd() const noexcept { return fd_; }
  // Any thread, after publishing work.
  void ring() noexcept {
    if (enabled_ && asleep_.exchange(false, std::memory_order_acq_rel))
      write_fd();
  }
  // The core: before its last look for work.
  void set() noexcept { asleep_.exchange(true, std::memory_order_acq_rel); }
  // The core: awake again; takes the descriptor's readiness back.
  void clear() noexcept;

 private:
  void write_fd() noexcept;

  const bool enabled_;
  int fd_ = -1;
  alignas(64) std::atomic<bool> asleep_ = false;
};

}  // namespace rrdk::runtime
