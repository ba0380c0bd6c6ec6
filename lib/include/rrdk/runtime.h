/**
 * A Runtime has the cores that do the work: poll cores, which own connections and do everything for
 * them (completions, decoding, timers, sending), and optional workers for slow handlers. Its
 * options say which threads poll, which work, and what an idle core does.
 *
 *   rrdk::must(rrdk::ensure_eal());
 *   auto memory = rrdk::must(rrdk::Memory::create({}));
 *   auto runtime = rrdk::must(rrdk::Runtime::create(*memory, {.poll_cpus = {1}}));
 *
 * Modes: a connection stays on its poll core for life. The same code runs in three modes:
 *
 *   - run-to-completion: RuntimeOptions::poll_cpus lists CPUs; each gets a pinned thread, which
 *     runs the handlers, too.
 *   - dedicated: as before, but with worker_cpus. Procedures declared Dispatch::kWorker run on
 *     worker threads, reached through bounded lock-free rings.
 *   - embedded: poll_cpus is empty, and no poll thread is started. The application's own reactor
 *     (an SPDK poller, say) calls poll() repeatedly.
 *
 * Lifetime: destroy in this order, after answering every ServerCall that was kept:
 *
 *   1. Telemetry, Timers and Calls
 *   2. Servers, ClientConnections and Clients
 *   3. the Runtime
 *   4. Buffers and RegisteredMemory
 *   5. the Memory
 *
 * A Client may also go before its connections, a Call that is not in flight at any time before the
 * Memory, and Buffers and RegisteredMemory that nothing uses likewise. Any other order is logged as
 * an error, and what is destroyed too early lives on until nothing uses it: a Runtime's threads,
 * for instance, until its last Server is gone. Timers and Telemetry are not checked in this way.
 *
 * Threads: create and destroy a Runtime on one thread. For each core, always the same thread must
 * call poll(). All else may be called from any thread. The library has a few more threads, which
 * mostly sleep; doc/guide-cores-and-memory.md lists them, and has rules for programs that use
 * liburcu. RRDK's threads block all signals except those of a thread's own fault (SIGSEGV and the
 * like), so signals reach the application's threads. For fork() see rrdk/eal.h.
 *
 * Waiting: what may take long comes in two forms. One does not wait: it returns in less than a
 * millisecond, may be used anywhere, in callbacks and handlers too, and reports the end by a
 * callback on a poll core. The other is built on it, and waits:
 *
 *   does not wait                             waits
 *   Client::connect_start()                   connect()
 *   ClientConnection::close_start()           ~ClientConnection(), not after kClosed
 *   ClientConnection::drain_start()           drain()
 *   send_option()                             send_option_and_wait()
 *   Call::submit()                            submit_and_wait()
 *   Call::cancel(), and then its callback     ~Call() of a call in flight
 *   Server::listen_start()                    listen()
 *   Server::remove_service_start()            remove_service()
 *   Server::drain_start()                     drain()
 *   Server::close_start()                     ~Server(), not after its callback
 *   start_capture(), stop_capture() with a    those without
 *     callback
 *   Timer::stop(), ~Timer() on its core       the same on other threads
 *   run_aside()                               rpcbind_lookup(), call_over_tcp() and the like
 *
 * Set-up has only the form that waits: ensure_eal(), Memory::create(), allocate() and adopt(),
 * GssAcceptor::create(), establish_context(), Runtime::create() and its destructor, and
 * Telemetry's.
 *
 * A function that waits must not be called from a handler or callback. If the core that it waits
 * for is embedded, the thread that last polled the core polls it meanwhile; so does any thread if
 * that one has ended, or if the core was never polled. Other threads only wait: forever if no
 * thread polls, but in destructors at most 5 seconds. What is then destroyed lives on internally
 * until it can be freed, and the Runtime must live and be polled until then. Any wait of 5 seconds
 * for a core is logged as an error, which names what was waited for.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rrdk/capture.h"
#include "rrdk/counters.h"
#include "rrdk/error.h"
#include "rrdk/memory.h"
#include "rrdk/stages.h"

namespace rrdk {

struct FaultPlan;
struct FaultCounts;

/**
 * What a poll or worker thread of the Runtime does when it finds no work. On an embedded core the
 * application decides: a loop of bare poll() takes a whole CPU and suits only a CPU of its own. An
 * application that shares CPUs sleeps on wake_fd():
 *
 *   while (!stop)
 *     if (runtime->poll() == 0 && runtime->arm_wake())
 *       epoll_wait(...);  // of a set that wake_fd() is in
 *
 * or, like kAdaptive, does so after a number of empty polls.
 */
enum class IdlePolicy {
  kBusy,      ///< keeps polling; lowest latency; needs a CPU of its own
  kYield,     ///< keeps polling, yields the CPU (sched_yield) between empty polls
  kAdaptive,  ///< after adaptive_us without work sleeps in epoll; the first event wakes it
};

struct RuntimeOptions {
  std::vector<int> poll_cpus = {};    ///< CPUs of dedicated poll threads; -1: not pinned
  std::vector<int> worker_cpus = {};  ///< CPUs of worker threads; -1: not pinned
  uint32_t embedded_cores = 1;        ///< poll cores that the application polls (poll_cpus empty)
  /**
   * For poll and worker threads. On an embedded Runtime without workers it only says whether a
   * function that waits, such as submit_and_wait(), yields between empty polls (all but kBusy):
   * kAdaptive does not make the application sleep, which does so itself (arm_wake()).
   */
  IdlePolicy idle = IdlePolicy::kYield;
  uint32_t adaptive_us = 50;  ///< kAdaptive: microseconds of idleness before sleeping
  /**
   * Entries of each ring between cores, a power of two. If a ring is full, its producer keeps the
   * item and retries on its next pass; it never blocks and never drops.
   */
  uint32_t ring_size = 4096;
  uint32_t stamp_every = 16;  ///< initial value of Runtime::stamp_every()
  /**
   * Microseconds of slow work in one pass of a core, see Runtime::poll(). Less makes passes shorter
   * and the slow work slower: a pass does at least one step. 0: no limit.
   */
  uint32_t pass_budget_us = 100;
  Reserved<8> reserved = {};  ///< spare bytes for later releases
};

/** Poll cores and workers; see the top of this header. */
class Runtime {
 public:
  /**
   * Starts the threads. Needs EAL. `memory` must outlive the Runtime. Errors: kInvalidArgument (a
   * CPU below -1, or one that does not exist or that this process may not use; no cores or more
   * than 128; a ring_size that is not a power of two; no EAL), kNoMemory, kSystem.
   */
  [[nodiscard]] static Result<std::unique_ptr<Runtime>> create(Memory& memory,
                                                               const RuntimeOptions& options = {});
  /** Stops the threads and waits for them. Servers and clients must be destroyed before. */
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /**
   * Embedded: makes one pass of core `core`; returns the number of things done (0: idle). Never
   * blocks. Also returns 0 within a handler or callback, if there is no such core, and on a Runtime
   * that is not embedded, whose cores have their own threads.
   *
   * How long a pass takes: it handles a bounded number of messages, calls and callbacks, and of the
   * slow work as much as RuntimeOptions::pass_budget_us allows. Slow work is to make, accept, close
   * and end connections, to take connection events and due timers, and to copy large data (shm,
   * iwarp). The rest goes on in the next pass, in order and each kind in turn, and until then
   * arm_wake() returns false. So a pass takes at most about
   *
   *   its messages, of which one may be a long copy, + pass_budget_us + one step of slow work
   *
   * and longer only by the program's own handlers and callbacks, by memory that is taken for the
   * first time (2 ms for 2 MiB), and by the operating system. The longest steps are over shm to
   * begin and to accept a connection, 0.45 ms each, mostly for the memory that both ends share.
   * doc/guide-cores-and-memory.md has the others, and passes as measured.
   *
   * A peer that falls asleep while a pass sends to it is woken by the next pass. So poll once more
   * before the thread does anything long. Before it sleeps, arm_wake() takes care of that.
   */
  uint32_t poll(uint32_t core = 0);
  /**
   * Embedded, for an event-driven reactor: readable when poll(core) has work, after arm_wake(core)
   * returned true. Work is whatever poll() does: messages, what other threads submit, and timers
   * that are due, the library's and the application's (rrdk/timer.h), so the reactor needs no
   * time-out for them. Wait for it level-triggered and never read it: poll() disarms it, so arm it
   * again before each sleep. The Runtime owns the descriptor. -1 if there is no such core, or it is
   * not embedded.
   */
  int wake_fd(uint32_t core = 0) const;
  /**
   * Embedded: prepares to sleep on wake_fd(). Returns false if there is work now, so poll instead
   * of sleeping, or if there is no such embedded core.
   */
  [[nodiscard]] bool arm_wake(uint32_t core = 0);

  bool embedded() const noexcept;
  uint32_t num_cores() const noexcept;
  uint32_t num_workers() const noexcept;
  Memory& memory() noexcept;
  /**
   * Counts of a poll core since it started, with its connections (rrdk/counters.h). All zeros if
   * there is no such core. Any thread.
   */
  Stats stats(uint32_t core) const;
  /**
   * Injects faults (rrdk/faults.h) into this Runtime's connections and its Memory, for all users of
   * that Memory; replaces the previous plan. Any thread, while calls run; each core applies it at
   * its next batch. Errors: kInvalidArgument (an invalid rate, a delay that is too long, a
   * SlowStage that does not exist).
   */
  [[nodiscard]] Result<void> set_faults(const FaultPlan& plan);
  /**
   * Ends fault injection. It repairs nothing: clients connect again if they are set to
   * (rrdk/client.h). Any thread.
   */
  void clear_faults();
  /** The faults injected so far. Any thread. */
  FaultCounts fault_counts() const;
  /**
   * Writes what this Runtime's connections send and receive into `file` (rrdk/capture.h), which is
   * emptied if it exists; a FIFO needs a reader already (otherwise kSystem). One capture at a time.
   * Any thread, while calls run, but not in a handler or a callback, which the file would delay.
   * Errors: kInvalidArgument (options; a capture is in progress), kNoMemory, kSystem (the file),
   * kPermission (the file is another user's, or open to others).
   */
  [[nodiscard]] Result<void> start_capture(const std::string& file,
                                           const CaptureOptions& options = {});
  using CaptureStarted = void (*)(Result<void>&& started, void* argument);
  /**
   * As above, without waiting; may be called from anywhere. `started` is called once, on poll core
   * 0.
   */
  void start_capture(const std::string& file, const CaptureOptions& options, CaptureStarted started,
                     void* argument);
  /**
   * Ends the capture, and returns its counts; zeros if there was no capture. Waits for the passes
   * in progress, and then until all is in the file: at most 5 seconds each, unless the file makes
   * progress. After that an error is logged, and the rest is not waited for. Any thread, but not in
   * a handler or a callback.
   */
  CaptureCounts stop_capture();
  using CaptureStopped = void (*)(const CaptureCounts& counts, void* argument);
  /**
   * As above, without waiting; may be called from anywhere. `stopped` is called once, on poll core
   * 0.
   */
  void stop_capture(CaptureStopped stopped, void* argument);
  /** Counts of the capture in progress; zeros if there is no capture. Any thread. */
  CaptureCounts capture_counts() const;
  /**
   * Samples one of every `calls` calls that are made and served from now on: the times at which it
   * passes its stages are kept (rrdk/stages.h). 0: no calls. Any thread, while calls run.
   */
  void stamp_every(uint32_t calls);
  /**
   * For each core, the last kStampedCalls calls that were sampled and have ended; those of one core
   * oldest first. Any thread.
   */
  std::vector<StampedCall> stamped_calls() const;
  /**
   * For each core, up to kSlowCalls sampled calls: the slowest of the last minute that
   * stamped_calls() no longer has, in no order. A call's time is from its first stage to its last;
   * calls that did not reach it (because the connection was lost, say) are not included. A call can
   * move from stamped_calls() to here between the two calls, so ask that first. Any thread.
   */
  std::vector<StampedCall> slow_calls() const;
  using Task = void (*)(void* argument);
  /**
   * Runs `task(argument)` on the helper thread, where it may block: for what has no other form,
   * such as rpcbind_lookup(). Tasks run one after the other, in one queue with listen_start() and
   * with start_capture() and stop_capture() with a callback; a long task delays these, but not name
   * look-ups. A task may use everything that any thread may use, but nothing that waits for a core,
   * unless other threads poll. Tasks that have not begun when the Runtime is destroyed are not run.
   * Any thread; does not wait. Errors: kInvalidArgument (no task), kSystem (no thread can be
   * started).
   *
   *   void find(void* argument) {                                     // on rrdk-aside
   *     auto& site = *static_cast<Site*>(argument);
   *     auto port = rrdk::rpcbind_lookup(kService, {.host = site.host});
   *     site.found(port);                                             // calls connect_start()
   *   }
   *   rrdk::must(runtime->run_aside(find, &site));
   */
  [[nodiscard]] Result<void> run_aside(Task task, void* argument);
  /** Monotonic nanoseconds, the clock of every time in this API. */
  static uint64_t now_ns() noexcept;

  struct Impl;

 private:
  friend struct Internals;
  explicit Runtime(std::unique_ptr<Impl> impl);
  Impl& impl() noexcept { return *impl_; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk
