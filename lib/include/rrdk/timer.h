/**
 * A Timer runs a function of the application on a poll core at a given time. A core that sleeps
 * (IdlePolicy::kAdaptive), or whose reactor sleeps on Runtime::wake_fd(), wakes for it: for a load
 * generator's next call, a lease that expires, or a periodic job.
 *
 *   void beat(rrdk::Timer& timer, void* site) {
 *     static_cast<Site*>(site)->renew_leases();
 *     timer.start(rrdk::Runtime::now_ns() + 1'000'000'000);       // and again in a second
 *   }
 *   auto timer = rrdk::must(rrdk::Timer::create(*runtime, 0, beat, &site));
 *   timer->start(rrdk::Runtime::now_ns());
 *
 * Reactors: an application's own reactor needs nothing beyond what calls need: poll() runs what is
 * due, and after arm_wake() has returned true, wake_fd() becomes readable as soon as a timer is
 * due, even one that is started later.
 *
 * Threads: start() and stop() are meant for the core's thread (callbacks, handlers, and the thread
 * that polls an embedded core), where they cost a few nanoseconds, allocate nothing and take effect
 * at once. Other threads may call them too: start() then takes effect on the core's next pass, and
 * stop() waits for the core (see "Waiting" in rrdk/runtime.h), at most 5 seconds.
 */
#pragma once

#include <cstdint>
#include <memory>

#include "rrdk/error.h"
#include "rrdk/runtime.h"

namespace rrdk {

class Timer {
 public:
  /**
   * Runs during a pass of the core. Like any callback there, it must not block, throw, poll or
   * destroy this timer. It may start it again, or stop it.
   */
  using Fire = void (*)(Timer& timer, void* argument);

  /**
   * Creates a timer of core `core`, which is not running. `runtime` must outlive it, which is not
   * checked. Errors: kInvalidArgument (no such core, or no `fire`).
   */
  [[nodiscard]] static Result<std::unique_ptr<Timer>> create(Runtime& runtime, uint32_t core,
                                                             Fire fire, void* argument);
  /** Stops as stop() does. */
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /**
   * Fires once, at the first pass of the core at or after `due_ns` on the clock of
   * Runtime::now_ns(); a time in the past is due at once. If the timer is running, it is moved to
   * the new time.
   */
  void start(uint64_t due_ns);
  /**
   * Stops the timer: it does not fire any more once this has returned. If another thread's core has
   * not been polled for 5 seconds, stop() returns nevertheless: no Fire begins after that, but one
   * that is running there may still run.
   */
  void stop();

 private:
  struct Impl;
  explicit Timer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rrdk
