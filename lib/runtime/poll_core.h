// A poll core: it owns connections for their whole life and does everything for them.
//
// One pass (poll_core_datapath.cc) first posts what was submitted since the last pass. Then it
// handles completions, the turns of clients whose connections have a backlog of calls
// (fair_share.h), control tasks, and the inbox. It posts the work requests that result and that
// were not sent at once, connection by connection. Then comes what can wait: deferred items,
// timers, and at intervals ticks and the fabric's control events; the work requests that result are
// posted too. Nothing is freed within a stage that iterates.
//
// Each stage is bounded: messages, calls and deferred items by their number, and what may take long
// (control tasks, which make and end connections; timers; control events; large copies) by the
// pass's budget (base/budget.h).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/budget.h"
#include "base/clock.h"
#include "base/count.h"
#include "base/list.h"
#include "engine/receive_queue.h"
#include "engine/served_call.h"
#include "fabric/device.h"
#include "fabric/tap.h"
#include "observe/capture.h"
#include "rrdk/runtime.h"
#include "runtime/fair_share.h"
#include "runtime/faults.h"
#include "runtime/inbox.h"
#include "runtime/link.h"
#include "runtime/thread.h"
#include "runtime/timers.h"
#include "runtime/work.h"
#include "runtime/worker_pool.h"

namespace rrdk::runtime {

class OpenDevice;

// A periodic task on the core's thread: about every millisecond while the core is awake, every
// second while it sleeps.
class PeriodicTask {
 public:
  virtual void look(uint64_t now_ns) = 0;

 protected:
  ~PeriodicTask() = default;
};

// The users of a core's tap: fault injection and a capture.
class CoreTap final : public fabric::Tap {
 public:
  CoreFaults& faults() noexcept { return faults_; }
  const CoreFaults& faults() const noexcept { return faults_; }
  // Null while no capture is active. The thread that removes it waits until the running pass has
  // ended.
  observe::CoreCapture* capture() const noexcept {
    return capture_.load(std::memory_order_acquire);
  }
  void set_capture(observe::CoreCapture* capture) noexcept { capture_.store(capture); }
  // The core's thread: whether there is neither. A capture or a plan that is set meanwhile places
  // the tap again.
  bool idle() const noexcept { return capture() == nullptr && !faults_.engaged(); }

 private:
  uint32_t post(void* owner, fabric::QueuePair& queue_pair,
                std::span<const fabric::SendWr> wrs) override;
  uint32_t filter(std::span<fabric::Completion> out, uint32_t count) override;

  CoreFaults faults_;
  std::atomic<observe::CoreCapture*> capture_ = nullptr;
};

// Receives of one size that the core's connections over one device share. The device's part is
// destroyed first.
struct SharedReceives {
  OpenDevice* device;
  uint32_t bytes;
  engine::ReceiveQueue queue;
  std::unique_ptr<fabric::SharedReceiveQueue> posted;
};

// What a core counts in its passes.
struct CoreCounters {
#define RRDK_CORE_COUNTER(id, enumerator, name, text) base::Count name;
#include "rrdk/counter_table.h"
};

class PollCore final : public base::OwnedByThread {
 public:
  // Errors: kInvalidArgument, kSystem, kNoMemory. `workers` may be null.
  static Result<std::unique_ptr<PollCore>> create(uint32_t index, Memory& memory,
                                                  const RuntimeOptions& options,
                                                  WorkerPool* workers);
  ~PollCore();
  PollCore(const PollCore&) = delete;
  PollCore& operator=(const PollCore&) = delete;

  // The core's thread: runs one pass; returns how many things it did.
  uint32_t poll();
  // Until stop(): polls, and idles by policy.
  void run();
  void stop();  // any thread

  // Prepares to sleep; the core's thread. If true, wake_fd() becomes readable at the next work, and
  // the next poll() undoes that. If false, there is work now.
  bool arm();
  int wake_fd() const noexcept { return epoll_fd_; }

  // Any thread.
  void submit(WorkItem& item) noexcept { inbox_.push(item); }
  void post(ControlQueue::Task task) { control_.post(std::move(task)); }
  // Before what waits: only for a quick task that must precede what is submitted later.
  void post_first(ControlQueue::Task task) { control_.post_first(std::move(task)); }
  // Whether the calling thread is the one that polls. In a pass it is, even while another thread
  // tries in vain to take over (begin_first_pass()) and is recorded as the owner.
  bool here() const noexcept override {
    return owner_.load(std::memory_order_relaxed) == this_thread ||
           (this_thread != nullptr && this_thread->pass.load(std::memory_order_relaxed) == this);
  }
  // Whether the caller is inside a pass of this core: in a callback or a handler. A thread that
  // waited for the core there would wait for ever.
  bool passing() const noexcept { return here() && in_pass_.load(std::memory_order_relaxed); }
  uint64_t passes() const noexcept { return counters_.passes; }  // so far
  // Whether no thread polls: the core was never polled, or the thread that polled has ended.
  bool abandoned();
  Stats stats() const;
  uint64_t completions() const noexcept { return counters_.completions; }  // handled so far
  uint32_t index() const noexcept { return index_; }
  std::atomic<uint32_t>& assigned() noexcept { return assigned_; }  // connections, by pick_core()
  // For tests, in which a lost wake-up must not be hidden. Must be called before the core sleeps.
  void set_longest_sleep_ns(uint64_t limit) noexcept { longest_sleep_ns_ = limit; }

  // The functions below: the core's thread.
  //
  // The time as read some passes ago, or after the last pass while timers run: never in the future.
  uint64_t now() const noexcept { return now_; }
  Timers& timers() noexcept {
    RRDK_ON_CORE(*this);
    return timers_;
  }
  // May be called outside of a pass: a sleep that is already armed then ends in time for the timer.
  void start_timer(Timer& timer, uint64_t due_ns);
  // As post(), without a lock: for what goes on in steps.
  void post_here(ControlQueue::Task task) {
    RRDK_ON_CORE(*this);
    control_.post_here(std::move(task));
  }
  base::Budget& budget() noexcept { return budget_; }
  WorkerPool* workers() noexcept { return workers_; }
  engine::CallPool& call_pool() noexcept { return call_pool_; }
  void defer(WorkItem& item) noexcept {  // to the next pass
    RRDK_ON_CORE(*this);
    deferred_.push(item);
  }
  void to_worker(WorkerQueue& queue, WorkItem& item) noexcept;
  Turns& turns() noexcept {
    RRDK_ON_CORE(*this);
    return turns_;
  }
  CoreClient& outgoing() noexcept { return outgoing_; }  // of connections that we made
  CoreTap& tap() noexcept { return tap_; }
  // Puts the tap in front of all queue pairs and completion queues. A tick removes it when it is
  // idle().
  void place_tap();
  void mark_dirty(Link& link) noexcept;
  // Notes a burst in the lane of a connection. Returns true if the burst before it was of the same
  // connection, and no other connection was busy in between. A heuristic, as in
  // Completions::exclusive().
  bool note_lane_burst(const Link& link) noexcept {
    for (Completions& source : completions_) {
      if (source.last_link != &link) {
        source.last_link = nullptr;
        source.last_client = nullptr;
      }
    }
    return std::exchange(last_in_lane_, &link) == &link;
  }
  Result<fabric::CompletionQueue*> completion_queue(OpenDevice& device);
  // Receives of that size that connections of this core share. Errors: the device's.
  Result<SharedReceives*> shared_receives(OpenDevice& device, uint32_t bytes, Memory& memory);
  void watch(OpenDevice& device);  // for its control events
  void add(Link& link);
  void remove(Link& link);
  void add(PeriodicTask& task) {
    RRDK_ON_CORE(*this);
    periodic_tasks_.push_back(&task);
  }
  void remove(PeriodicTask& task) {  // not from within look()
    RRDK_ON_CORE(*this);
    std::erase(periodic_tasks_, &task);
  }
  // Delivers the event to the link with that id, unless it is gone: an event may be on its way when
  // a link ends.
  void deliver(uint64_t link_id, const fabric::Event& event);
  Link* find(uint64_t link_id) const;  // null: it is gone

 private:
  static constexpr uint32_t kCompletionBurst = 32;
  static constexpr uint32_t kBatchesPerPass = 4;  // when connections wait for their turns
  static constexpr uint32_t kDeferredBurst = 32;
  static constexpr uint32_t kClockPasses = 16;  // between readings of the clock
  static constexpr uint64_t kTickNs = 1'000'000;
  static constexpr uint64_t kEventsNs = 200'000;

  // A device's completions, as a source of work.
  struct Completions {
    PollCore* core;
    OpenDevice* device;
    std::unique_ptr<fabric::CompletionQueue> queue;
    std::unique_ptr<fabric::TappedCompletionQueue> tapped;
    fabric::CompletionQueue* polled;  // queue or tapped queue
    // The client of the whole last batch; null: it had several.
    const CoreClient* last_client = nullptr;
    const Link* last_link = nullptr;  // link of the whole last batch; null: it had several

    uint32_t poll(uint64_t now_ns);
    Exclusive exclusive(std::span<const fabric::Completion> batch) noexcept;
    bool peek(uint64_t) const { return false; }  // only a fabric's arm() can tell
    bool try_sleep(uint64_t) { return queue->wake_fd() >= 0 && queue->arm(); }
    void wake() { queue->disarm(); }
  };
  // Periodic work at a low rate: ticks of links with calls in flight, control events of devices.
  // The devices' descriptors stay readable until their events are taken, so they need no arming.
  struct Housekeeping {
    PollCore* core;
    uint64_t next_tick = 0;
    uint64_t next_events = 0;
    bool events_left = false;  // perhaps: the budget was, or is, spent

    uint32_t poll(uint64_t now_ns);
    bool peek(uint64_t) const { return events_left; }
    bool try_sleep(uint64_t) { return !events_left; }
    void wake() { next_events = 0; }
  };
  static_assert(WorkSource<Completions> && WorkSource<Housekeeping> && WorkSource<Inbox> &&
                WorkSource<ControlQueue> && WorkSource<Timers>);

  PollCore(uint32_t index, Memory& memory, const RuntimeOptions& options, WorkerPool* workers,
           std::unique_ptr<Ring> ring);
  Result<void> open();
  Result<void> watch_fd(int fd);
  bool begin_pass() noexcept;  // false: this pass is refused
  void end_pass() noexcept;
  bool begin_first_pass();  // for a thread that did not poll last
  void disarm();
  void idle(uint64_t idle_since);
  bool sleep();  // false: there was work
  void set_sleep_limit();
  static constexpr size_t kTickedAtOnce = 256;  // until the budget is spent
  static constexpr size_t kBetweenClocks = 32;  // links
  uint32_t tick(uint64_t now_ns);
  uint32_t route_events();
  // Returns false if something is left to post.
  bool flush() { return (dirty_.empty() && !for_workers_) || post_dirty(); }
  uint32_t serve_turns();
  uint32_t run_deferred();
  void begin_ending(Link& link);
  void go_on_ending(Link& link);
  void take_tap_away();
  bool push_workers();
  bool post_dirty();

  const uint32_t index_;
  const IdlePolicy idle_;
  const uint64_t adaptive_ns_;
  const bool dedicated_;
  WorkerPool* const workers_;
  engine::CallPool call_pool_;  // outlives the links

  // The state of a pass.
  base::Budget budget_;
  uint64_t now_ = base::Tsc::now_ns();
  uint32_t clock_age_ = 0;
  std::vector<Completions> completions_;
  std::vector<std::unique_ptr<SharedReceives>> shared_receives_;
  Inbox inbox_;
  ControlQueue control_;
  ItemList deferred_;
  Timers timers_{budget_};
  Housekeeping housekeeping_{this};
  Turns turns_;
  CoreClient outgoing_;
  CoreTap tap_;
  bool tapped_ = false;
  const Link* last_in_lane_ = nullptr;
  WorkerTurns worker_turns_;
  ItemList to_workers_;                          // next into their ring
  bool for_workers_ = false;                     // one of the workers' queues has items
  base::Queue<Link, &Link::next_dirty_> dirty_;  // links to post for
  std::vector<Link*> ticking_;                   // links with calls in flight
  size_t next_ticked_ = 0;                       // index into ticking_
  std::vector<PeriodicTask*> periodic_tasks_;
  std::vector<OpenDevice*> devices_;
  size_t next_device_ = 0;  // index into devices_: the one whose events were taken last
  std::unordered_map<uint64_t, Link*> links_;  // by id; ids are never reused
  std::atomic<bool> in_pass_ = false;          // written by the thread that is in it
  const void* outer_pass_ = nullptr;  // the pass in which this one is nested: another core's

  // Sleeping.
  uint64_t longest_sleep_ns_ = 1'000'000'000;
  bool armed_ = false;
  bool flushed_ = true;  // nothing was left to post
  int epoll_fd_ = -1;
  int timer_fd_ = -1;
  Alarm alarm_;
  std::atomic<bool> stop_ = false;

  // The thread that polls; at first kNobody. It is not null, which is what a thread without a token
  // has.
  static inline const ThreadToken kNobody;
  std::atomic<const ThreadToken*> owner_ = &kNobody;
  bool two_said_ = false;  // it was logged that two threads polled at once
  std::mutex owner_mutex_;
  std::shared_ptr<ThreadToken> owner_token_;

  std::atomic<uint32_t> assigned_ = 0;
  alignas(64) CoreCounters counters_;
  std::atomic<uint32_t> connections_ = 0;
};

// For a thread that waits for a poll core: logs, once, that no thread polls the core.
class StallWatch {
 public:
  // "`what` `whom`" names what waits; both must outlive the watch.
  StallWatch(const PollCore& core, const char* what, const std::string& whom) noexcept
      : core_(core), what_(what), whom_(whom) {}

  // To be called at intervals while waiting.
  void look() noexcept;

 private:
  static constexpr uint64_t kStallNs = 5'000'000'000;

  const PollCore& core_;
  const char* const what_;
  const std::string& whom_;
  uint64_t polls_ = 0;
  uint64_t due_ns_ = 0;  // when `polls_` should have increased; 0: not checked yet
  bool said_ = false;
};

}  // namespace rrdk::runtime
