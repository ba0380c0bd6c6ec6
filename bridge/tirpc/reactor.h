// Poll cores of one Runtime, which the process's threads share: a few for CLIENTs, and one for all
// SVCXPRTs.
//
// One thread at a time leads a core: only that thread polls it, or begins something there. A thread
// that waits for an answer polls meanwhile. Another thread that wants to begin something gets the
// core after the current pass; the first one then sleeps, and is told of its answer by the polling
// thread, or polls again when no other thread does. So a program with one thread polls for itself,
// without a hop to another thread.
//
// If work must continue although no thread waits, the core has a keeper: a thread that polls when
// no other thread has done so for a millisecond.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "rrdk/runtime.h"

struct pollfd;

namespace rrdk::tirpc {

// In a process that was forked from one that uses this library: returns an error that says so.
Result<void> check_process();

// A function of the system has failed, as errno says: kSystem, with its remedy.
tl::unexpected<Error> system_failure(const char* function);
// Wakes a sleeper.
Result<int> open_eventfd();

// The event for which one thread waits, and which a pass of the core reports.
class Wait {
 public:
  bool over() const noexcept { return state_.load(std::memory_order_acquire) == kOver; }
  void restart() noexcept { state_.store(kOpen, std::memory_order_relaxed); }
  void finish() noexcept;

 private:
  friend class Reactor;
  enum State : uint32_t { kOpen, kAsleep, kPromoted, kOver };

  void sleep() noexcept;    // until it is over or promoted
  bool promote() noexcept;  // false: it is over

  std::atomic<State> state_ = kOpen;
};

class Reactor {
 public:
  // The core for CLIENTs that the calling thread makes. Any thread. Errors: those of starting.
  static Result<Reactor*> of_clients();
  static Result<Reactor*> of_servers();

  Reactor(Runtime& runtime, uint32_t core, int kick) noexcept
      : runtime_(runtime), core_(core), kick_(kick) {}
  ~Reactor();  // only if not all wanted cores could be made
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  Runtime& runtime() noexcept { return runtime_; }
  uint32_t core() const noexcept { return core_; }

  // Begins something with start(), and waits until `wait` is over. The caller does not lead.
  template <typename Start>
  void run(Wait& wait, Start&& start) {
    lead();
    start();
    bool leads = true;
    while (!wait.over())
      leads = leads ? poll_until([&wait] { return wait.over(); }) : follow(wait);
    if (leads)
      resign();
  }

  // From here on the caller leads, which it did not before.
  void lead() {
    uint32_t free = 0;
    if (!state_.compare_exchange_strong(free, kLed)) [[unlikely]]
      return lead_after_others();
    terms_.store(terms_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void resign() {
    uint32_t led = kLed;
    if (!state_.compare_exchange_strong(led, 0)) [[unlikely]]
      resign_to_others();
  }
  // The functions from here to need() are for the leader.
  uint32_t poll() { return runtime_.poll(core_); }
  // Returns false if the caller no longer leads.
  template <typename Done>
  bool poll_until(Done&& done) {
    while (!done()) {
      if (is_wanted()) {
        resign();
        return false;
      }
      if (poll() != 0)
        found_something();
      else if (is_tired() && !sleep())
        return false;
    }
    return true;
  }
  bool is_wanted() const noexcept { return wanting_.load(std::memory_order_relaxed) != 0; }
  // After a pass that found something.
  void found_something() noexcept { idle_since_ns_ = 0; }
  // After a pass that found nothing. Returns true if that has lasted for long enough, and the core
  // is armed: call sleep().
  bool is_tired();
  // Sleeps until there is work for the core, one of `more` has an event (see its revents), or
  // another thread leads. Returns false in the last case.
  bool sleep(std::vector<pollfd>& more) { return sleep(more, false); }
  bool sleep();
  // Returns true if wake_fd() becomes readable at the next work, if the core is free until then.
  bool arm() { return runtime_.arm_wake(core_); }
  int wake_fd() const { return runtime_.wake_fd(core_); }
  // From now on the program may sleep on wake_fd() too: the keeper gives it some time to lead.
  void share_wake_fd();

  // From now on, until unneed() was called as often, work must continue although no thread waits.
  // Errors: kSystem (the keeper cannot be started). Any thread.
  Result<void> need();
  void unneed() noexcept { needs_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  // Who has the core. If none of these is set it is free, and lead() and resign() are one exchange
  // each; otherwise changes are made under mutex_.
  enum Bits : uint32_t {
    kLed = 1,
    kSleeper = 2,  // a thread that has led sleeps on the armed core, and will lead again
    kWaiters = 4,  // a thread that resigns has to find the next one
  };

  bool is_led() const noexcept { return (state_.load() & kLed) != 0; }
  bool is_free() const noexcept { return (state_.load() & (kLed | kSleeper)) == 0; }
  bool is_needed() const noexcept { return needs_.load(std::memory_order_relaxed) != 0; }
  void lead_after_others();
  void resign_to_others();
  bool follow(Wait& wait);  // returns true if the caller leads
  void keep();
  bool sleep(std::vector<pollfd>& more, bool is_keeper);
  // The rest is called with mutex_ held.
  void take_lead();
  void pass_on();
  void note_waiters();

  Runtime& runtime_;
  const uint32_t core_;
  const int kick_;              // an eventfd: wakes the sleeper when another thread leads
  uint64_t idle_since_ns_ = 0;  // 0: the last pass found something

  std::atomic<uint32_t> state_ = 0;
  std::atomic<uint64_t> terms_ = 0;  // how often a thread has led; written by the leader
  std::mutex mutex_;
  bool kicked_ = false;  // one that was the sleeper has not yet noticed that it no longer is
  std::vector<Wait*> followers_;
  std::atomic<uint32_t> wanting_ = 0;  // threads that wait in lead(), in order
  uint64_t tickets_ = 0, served_ = 0;  // of these
  std::condition_variable resigned_;   // the events for which they wait
  std::atomic<uint32_t> needs_ = 0;
  bool keeper_runs_ = false, keeper_waits_ = false;
  bool shared_ = false;                 // see share_wake_fd()
  std::condition_variable unattended_;  // the event for which the keeper waits
};

// Leads while it lives.
class Lead {
 public:
  explicit Lead(Reactor& reactor) : reactor_(reactor) { reactor.lead(); }
  ~Lead() { reactor_.resign(); }
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

 private:
  Reactor& reactor_;
};

}  // namespace rrdk::tirpc
