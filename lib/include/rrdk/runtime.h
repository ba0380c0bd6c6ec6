/**
 * The cores: who polls, who works, and what an idle core does.
 *
 * A poll core owns connections for life and does everything for them: completions, decoding,
 * timers, sending. Three ways to run, one code path:
 *
 *  - dedicated: RuntimeOptions::poll_cpus names cores; each gets a pinned thread. With worker_cpus,
 *    procedures declared Dispatch::kWorker run on worker threads, reached through bounded
 *    lock-free rings.
 *  - run-to-completion: the same without worker_cpus; handlers run on the poll core.
 *  - embedded: poll_cpus is empty and the application's own reactor calls poll() again and again
 *    (an SPDK poller, say). No poll thread is started.
 *
 * Threads: create(), start-up and destruction on one thread. poll(core) always by the same thread
 * for one core. The rest: any thread.
 *
 * Threads that there are, all of them RRDK's own:
 *
 *   rrdk-poll-N      one for each of poll_cpus, from create() to ~Runtime()
 *   rrdk-work-N      one for each of worker_cpus, likewise
 *   rrdk-aside       one, from the first use to ~Runtime(): listen_start(); start_capture() and
 *                    stop_capture() with a callback; run_aside(). It sleeps otherwise. ~Runtime()
 *                    waits for the task that it is running
 *   rrdk-find        up to nine, while there is something to find for connections and
 *                    listen_start(): one looks up names of /etc/hosts, the others one other name
 *                    each, and each then opens the driver if it is not open (for listen_start()
 *                    rrdk-aside does that). ~Runtime() waits for a driver that is being opened, but
 *                    not for the system's resolver: such a thread is left behind, with nothing that
 *                    is the Runtime's, and ends when the answer comes
 *   rrdk-capture     one while a capture goes on (rrdk/capture.h)
 *   rrdk-rcu         one of the process, from the first create() on: it frees what cores no longer
 *                    read, and sleeps otherwise
 *   rrdk-shm-close   where the driver for `shm:` is in use, up to 35 of the process, which
 *                    live on: they close descriptors that peers have sent, which may block.
 *                    The drivers for `iwarp:` and `verbs:` have no threads
 *   rrdk-rpcbind     one for each RpcbindListing (rrdk/rpcbind.h), as long as that lives
 *
 * and DPDK's, from ensure_eal() on. So an embedded Runtime without workers keeps two threads at
 * most: rrdk-rcu, and rrdk-aside once that was used.
 *
 * Programs that use liburcu: a pass of a core is a read section of its flavour urcu-bp. A program
 * that uses the same flavour must not wait for a grace period (synchronize_rcu(), rcu_barrier()) in
 * a callback or in a handler on a poll core, which would wait for itself; and its own read sections
 * hold up what waits for cores here: remove_service(), stop_capture(). A thread in a read section
 * of its own counts as a handler: remove_service() is refused there (kInvalidArgument),
 * stop_capture() waits for 5 seconds in vain, and ~Runtime() does not wait for passes. Handlers in
 * workers are no read sections. Other flavours have nothing to do with RRDK. librrdk is never
 * unloaded (it is linked with -z nodelete): dlclose() has no effect.
 *
 * What may take long comes in two forms. One does not wait: it returns at once, takes less than a
 * millisecond, and a callback tells of the end, on a poll core, in a pass of it. It may be used
 * anywhere, in callbacks and handlers too. The other is built on it, and waits:
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
 * Set-up waits only: ensure_eal(), Memory::create(), allocate() and adopt(), Runtime::create() and
 * its destructor, and Telemetry's.
 *
 * Waiting: the thread that last polled a core polls it while it waits; so does any thread if that
 * one has ended, or nobody has polled the core yet. Other threads only wait: for ever if nobody
 * polls, but in destructors for 5 seconds at most. Then an error in the log says what was waited
 * for, and what is destroyed lives on, out of sight, until it can go; so must the Runtime, and be
 * polled. Never call what waits from a handler or callback. Any wait of 5 s for a core is logged as
 * an error.
 *
 * Lifetime: Memory > Runtime > Server > ServerCall; Runtime > Client; Runtime > ClientConnection;
 * Runtime > Timer; Memory > Call; Runtime, Server and ClientConnection > Telemetry. The left of
 * each outlives the right: destroy in the opposite order, after answering every ServerCall that was
 * kept. A Client may go before its connections, and a Call that is not in flight after its
 * connection. Buffers and RegisteredMemory are gone before their Memory. The other order is a
 * mistake, which an error in the log names, and what is destroyed too early lives on until what
 * uses it is gone: a Runtime's threads, for instance, until its last Server is. Timers and
 * Telemetry are the exceptions: nothing catches one that lives too long.
 *
 * fork(): see rrdk/eal.h. Signals: RRDK's threads block them all but for those that a thread's own
 * fault raises (SIGSEGV and the like), so that they reach the application's threads.
 *
 *   rrdk::must(rrdk::ensure_eal());
 *   auto memory = rrdk::must(rrdk::Memory::create({}));
 *   auto runtime = rrdk::must(rrdk::Runtime::create(*memory, {.poll_cpus = {1}}));
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
 * What a poll or worker thread of the Runtime does when it finds nothing to do. What an embedded
 * core does is the application's own business: a loop of bare poll() takes a whole CPU and is right
 * only on a CPU of its own. An application that shares CPUs sleeps on wake_fd():
 *
 *   while (!stop)
 *     if (runtime->poll() == 0 && runtime->arm_wake())
 *       epoll_wait(...);  // of a set that wake_fd() is in
 *
 * or, like kAdaptive, does so after some number of empty polls.
 */
enum class IdlePolicy {
  kBusy,      ///< polls on; lowest latency; needs a core of its own
  kYield,     ///< polls on, gives the core away (sched_yield) between empty polls
  kAdaptive,  ///< after adaptive_us without work sleeps in epoll; the first event wakes it
};

struct RuntimeOptions {
  std::vector<int> poll_cpus = {};    ///< CPUs of dedicated poll threads; -1: a thread, not pinned
  std::vector<int> worker_cpus = {};  ///< CPUs of worker threads; -1: not pinned
  uint32_t embedded_cores = 1;        ///< poll cores that the application polls (poll_cpus empty)
  /**
   * Of poll and worker threads. On an embedded Runtime without workers it only says whether a
   * function that waits, such as submit_and_wait(), yields between empty polls (all but kBusy):
   * kAdaptive there does not make the application sleep, which it does itself (arm_wake()).
   */
  IdlePolicy idle = IdlePolicy::kYield;
  uint32_t adaptive_us = 50;  ///< kAdaptive: microseconds of idleness before sleeping
  /** Entries of each ring between cores, a power of two. A full ring makes its producer keep the
      item and retry on its next pass; it never blocks and never drops. */
  uint32_t ring_size = 4096;
  uint32_t stamp_every = 16;  ///< Runtime::stamp_every(), from the beginning
  Reserved<8> reserved = {};  ///< for what later releases add
};

class Runtime {
 public:
  /**
   * Starts the threads. Needs EAL. `memory` outlives the Runtime.
   * Errors: kInvalidArgument (a CPU below -1, or that does not exist or is not ours to use; no
   * cores or more than 128; a ring_size that is no power of two; no EAL), kNoMemory, kSystem.
   */
  [[nodiscard]] static Result<std::unique_ptr<Runtime>> create(Memory& memory,
                                                               const RuntimeOptions& options = {});
  /** Stops the threads, and waits for that. Servers and clients are gone by now. */
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /**
   * Embedded: one pass of core `core`; returns how many things it did (0: idle). Never blocks. 0
   * also from within a handler or callback, if there is no such core, and on a Runtime that is not
   * embedded: its cores are their own threads'.
   *
   * A peer that falls asleep while a pass sends to it is woken by the next pass. So poll once more
   * before the thread does anything long. Before it sleeps, arm_wake() sees to that.
   */
  uint32_t poll(uint32_t core = 0);
  /**
   * Embedded, for an event-driven reactor: readable when poll(core) has work, once arm_wake(core)
   * returned true: messages, or a Timer of the application's that is due (rrdk/timer.h). The
   * descriptor is the Runtime's. -1 if there is no such core, or it is not embedded.
   */
  int wake_fd(uint32_t core = 0) const;
  /** False: there is work now; poll instead of sleeping. Or there is no such embedded core. */
  [[nodiscard]] bool arm_wake(uint32_t core = 0);

  bool embedded() const noexcept;
  uint32_t num_cores() const noexcept;
  uint32_t num_workers() const noexcept;
  Memory& memory() noexcept;
  /**
   * What a poll core has done since it started, and its connections (rrdk/counters.h). All zeros if
   * there is no such core. Any thread.
   */
  Stats stats(uint32_t core) const;
  /**
   * Makes things fail (rrdk/faults.h), on this Runtime's connections and in its Memory, for whoever
   * uses that; replaces the plan before it. Any thread, while calls run; each core takes it up at
   * its next batch. Errors: kInvalidArgument (a rate that is none, a delay that is too long, a
   * SlowStage that does not exist).
   */
  [[nodiscard]] Result<void> set_faults(const FaultPlan& plan);
  /** Ends it. It mends nothing: clients connect again if they do (rrdk/client.h). Any thread. */
  void clear_faults();
  /** What was made to fail so far. Any thread. */
  FaultCounts fault_counts() const;
  /**
   * Writes what this Runtime's connections send and receive into `file` (rrdk/capture.h), which is
   * emptied if it is there; a FIFO needs a reader already (else kSystem). One capture at a time.
   * Any thread, while calls run, but not in a handler or a callback, which the file would hold up.
   * Errors: kInvalidArgument (options; a capture is going on), kNoMemory, kSystem (the file),
   * kPermission (it is another user's, or open to others).
   */
  [[nodiscard]] Result<void> start_capture(const std::string& file,
                                           const CaptureOptions& options = {});
  using CaptureStarted = void (*)(Result<void>&& started, void* argument);
  /** The same without waiting, from anywhere; `started` is called once, on poll core 0. */
  void start_capture(const std::string& file, const CaptureOptions& options, CaptureStarted started,
                     void* argument);
  /**
   * Ends the capture. Waits for the passes that are running, and then until all is in the file: for
   * 5 seconds at most each, unless the file makes progress. After that an error in the log says so,
   * and the rest is not waited for. Any thread, but not in a handler or a callback. What became of
   * it; zeros if there was none.
   */
  CaptureCounts stop_capture();
  using CaptureStopped = void (*)(const CaptureCounts& counts, void* argument);
  /** The same without waiting, from anywhere; `stopped` is called once, on poll core 0. */
  void stop_capture(CaptureStopped stopped, void* argument);
  /** Of the capture that is going on, so far; zeros if there is none. Any thread. */
  CaptureCounts capture_counts() const;
  /**
   * Of the calls that are made and served from now on, one in so many is sampled: when it passed
   * which stage is kept (rrdk/stages.h). 0: none. Any thread, while calls run.
   */
  void stamp_every(uint32_t calls);
  /**
   * Of each core, the last kStampedCalls that were sampled and have ended, those of one core oldest
   * first. Any thread.
   */
  std::vector<StampedCall> stamped_calls() const;
  /**
   * Of each core, up to kSlowCalls: the slowest of the last minute that stamped_calls() has no
   * more, in no order. How long a call took is from its first stage to its last; what never came to
   * that (its connection was lost, say) is not among them. A call can go from stamped_calls() to
   * here between the two: ask that first. Any thread.
   */
  std::vector<StampedCall> slow_calls() const;
  using Task = void (*)(void* argument);
  /**
   * Runs `task(argument)` on the helper thread, where it may block: for what has no other form,
   * such as rpcbind_lookup(). Tasks run one after the other, in one queue with listen_start() and
   * with start_capture() and stop_capture() with a callback; a long one holds these up. Name
   * look-ups do not wait for it. It may use everything that any thread may use, and nothing that
   * waits for a core, unless other threads poll. Those that have not begun when the Runtime is
   * destroyed are not run. Any thread; does not wait. Errors: kInvalidArgument (no task), kSystem
   * (no thread can be started).
   *
   *   void find(void* argument) {                                     // on rrdk-aside
   *     auto& site = *static_cast<Site*>(argument);
   *     auto port = rrdk::rpcbind_lookup(kService, {.host = site.host});
   *     site.found(port);                                             // calls connect_start()
   *   }
   *   rrdk::must(runtime->run_aside(find, &site));
   */
  [[nodiscard]] Result<void> run_aside(Task task, void* argument);
  /** Monotonic nanoseconds as the cores see them: the clock of every time in this API. */
  static uint64_t now_ns() noexcept;

  struct Impl;

 private:
  friend struct Internals;
  explicit Runtime(std::unique_ptr<Impl> impl);
  Impl& impl() noexcept { return *impl_; }
  std::unique_ptr<Impl> impl_;
};

}  // namespace rrdk
