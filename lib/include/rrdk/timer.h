/**
 * When an application next wants to run on a poll core. A core that sleeps (IdlePolicy::kAdaptive),
 * or whose reactor sleeps on Runtime::wake_fd(), wakes for it: a load generator's next call, a
 * lease that expires, a periodic job.
 *
 *   void beat(rrdk::Timer& timer, void* site) {
 *     static_cast<Site*>(site)->renew_leases();
 *     timer.start(rrdk::Runtime::now_ns() + 1'000'000'000);       // and again in a second
 *   }
 *   auto timer = rrdk::must(rrdk::Timer::create(*runtime, 0, beat, &site));
 *   timer->start(rrdk::Runtime::now_ns());
 *
 * A reactor of its own needs no more than it has for calls: poll() runs what is due, and when
 * arm_wake() has returned true, wake_fd() becomes readable as soon as a timer is due, also one that
 * is started after that.
 *
 * Threads: start() and stop() are meant for the core's thread (callbacks, handlers, and whoever
 * polls an embedded core), where they cost a few nanoseconds, allocate nothing and take effect at
 * once. Other threads may call them too: start() then takes effect on the core's next pass, and
 * stop() waits for the core (see "Waiting" in rrdk/runtime.h), for 5 seconds at most.
 */
#pragma once

#include <cstdint>
#include <memory>

#include "rrdk/error.h"
#include "rrdk/runtime.h"

namespace rrdk {

class Timer {
 public:
  /** In a pass of the core. As with any callback there: it does not block, throw, poll or destroy
      this timer. It may start it again, or stop it. */
  using Fire = void (*)(Timer& timer, void* argument);

  /**
   * A timer of core `core`, not running. `runtime` outlives it, which is not checked.
   * Errors: kInvalidArgument (there is no such core, or no `fire`).
   */
  [[nodiscard]] static Result<std::unique_ptr<Timer>> create(Runtime& runtime, uint32_t core,
                                                             Fire fire, void* argument);
  /** Stops it as stop() does. */
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /**
   * Fires once, at the first pass of the core at or after `due_ns` on Runtime::now_ns()'s clock; a
   * time that has passed is due at once. A timer that runs is moved to the new time.
   */
  void start(uint64_t due_ns);
  /**
   * It does not fire any more, once this has returned. Where another thread's core has not been
   * polled for 5 seconds, it returns all the same: nothing is begun then, but a Fire that is
   * running there may still run.
   */
  void stop();

 private:
  struct Impl;
  explicit Timer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rrdk
