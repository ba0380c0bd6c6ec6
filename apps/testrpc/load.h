// Generates load from one thread that polls an embedded Runtime: a fixed number of calls in flight
// (closed loop), or calls that start on a schedule (open loop).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arrivals.h"
#include "engines.h"
#include "gaps.h"
#include "histogram.h"
#include "nfs3_site.h"
#include "nfs3_work.h"
#include "noise.h"
#include "options.h"
#include "outliers.h"
#include "poll_loop.h"
#include "rrdk/client.h"
#include "schedule.h"
#include "series.h"
#include "session.h"
#include "size_changer.h"
#include "stages.h"

namespace rrdk::testrpc {

// One run: an engine at a size and a window. With several sizes each call draws a size.
struct RunSpec {
  const Engine* engine;
  std::vector<uint32_t> sizes;
  uint32_t window;
  uint32_t active = 1;                 // connections that call
  uint32_t idle = 0;                   // open connections that do not call
  std::vector<uint32_t> weights = {};  // of the sizes, of which each call draws one; empty: equal

  uint32_t largest_size() const;
};

// Counts calls that failed, by the reason.
class Failures {
 public:
  void add(CallStatus status) { ++by_status_[static_cast<size_t>(status) % kStatuses]; }
  void add_perf_status() { ++perf_status_; }
  void add_undecodable() { ++undecodable_; }
  void add_nfs_status(uint32_t status, uint64_t count = 1);
  uint64_t total() const;
  // Calls fn(count, reason) for each reason that occurred.
  void for_each(const std::function<void(uint64_t count, const char* reason)>& fn) const;
  uint64_t of(CallStatus status) const { return by_status_[static_cast<size_t>(status)]; }
  void add(const Failures& more);
  // "3 timeout, 1 connection lost"
  std::string text() const;

 private:
  static constexpr size_t kStatuses = 32;
  std::array<uint64_t, kStatuses> by_status_ = {};
  uint64_t perf_status_ = 0;
  uint64_t undecodable_ = 0;
  struct NfsStatusCount {
    uint32_t status;
    uint64_t count;
  };
  // Servers return few different values; those that do not fit count with the last.
  std::array<NfsStatusCount, 16> by_nfs_status_ = {};
};

// A summary of the latencies of many calls, in nanoseconds; percentiles are empty if there are too
// few calls.
struct Latencies {
  uint64_t min = 0;
  double mean = 0;
  uint64_t p50 = 0;
  std::optional<uint64_t> p90 = {}, p99 = {}, p999 = {};
  uint64_t max = 0;

  static Latencies of(const Histogram& all);
};

// A part of the calls of a run.
struct Share {
  uint64_t right = 0;
  uint64_t wrong = 0;
  uint64_t bytes = 0;  // of data, in successful calls
  Histogram latency;   // of successful calls

  // Counts a call that has ended.
  void count(bool came_right, uint64_t data, uint64_t latency_ns);
  void add(const Share& more);
};

// The figures of a run.
struct Figures {
  double seconds = 0;
  uint64_t calls = 0, right = 0, errors = 0;
  double calls_per_s = 0, bytes_per_s = 0;
  Latencies latency;
  double line_ns = 0, p50_per_line = 0, memcpy_bytes_per_s = 0;
};

// The result of one run, or, from by_row() (repetitions.h), of a run that was made several times.
struct RunResult {
  RunSpec spec;
  std::string began;      // in UTC, as ISO 8601 writes it
  double duration_s = 0;  // as requested; 0: none
  uint64_t count = 0;     // likewise
  size_t row = 0;         // of the sweep; all repetitions of a run have the same
  bool repeated = false;  // by --repeat
  // Set by by_row() only: the figures of each repetition. The members below are then sums, and the
  // functions return medians.
  std::vector<Figures> repetitions;
  double rate = 0;  // as requested, of an open loop; 0: a closed loop
  ArrivalPattern arrivals;
  uint64_t seed = 0;
  double think_us = 0;
  // The time of calls made before the measurement. The figures leave them out, except for failures.
  double warmup_seconds = 0;
  uint64_t warmup_calls = 0;
  bool measuring = false;  // the warm-up is over
  double seconds = 0;      // in which the calls were made, without probes in between
  uint64_t calls = 0;      // that ended, right or wrong
  uint64_t right = 0;      // that succeeded; throughput and latency are those of these calls
  // Open loop: calls that were due in the run, and due calls that were never made, because the run
  // ended before the window allowed them.
  uint64_t due = 0;
  uint64_t not_made = 0;
  uint64_t bytes = 0;  // of data, in calls that succeeded
  uint64_t wrong_bytes = 0;
  uint64_t tried_later =
      0;  // calls that an NFS server deferred (NFS3ERR_JUKEBOX), and that were repeated
  uint64_t allocations = 0;  // in the steady state, on both sides if both are visible
  uint64_t registrations = 0;
  // How many times the kernel took a CPU away from a polling side. Empty if cores yield or sleep,
  // because the kernel counts giving the CPU away like losing it.
  std::optional<uint64_t> preemptions;
  bool connection_lost = false;  // permanently
  bool stopped = false;
  bool verify = false;
  Survival survival;
  SizeChanges size_changes;
  Failures failures;
  Histogram latency;              // nanoseconds, of successful calls
  std::vector<TimeSlice> series;  // the same over time, if requested
  std::vector<ProcedureStages> stages;
  // The numbers of successful calls of the connections that called.
  uint64_t slowest_connection = 0;
  uint64_t fastest_connection = 0;
  // With several servers: their URIs, how many connections called each, and these calls; else
  // empty.
  std::vector<std::string> targets;
  std::vector<uint32_t> connections_of_target;
  std::vector<Share> by_target;
  std::vector<Share> by_size;  // of a mix, in the order of the sizes in `spec`; else empty
  // The successful calls of each procedure, in nfs3's runs.
  std::array<uint64_t, 22> nfs3_calls = {};
  Noise noise;
  std::vector<Outlier> outliers;  // the slowest first; starts are relative to the run's
  bool list_outliers = false;     // on the screen, too

  // This machine's limits during this run. 0: not measured.
  double line_ns = 0;       // median cache-line round trip, probed in between
  double p50_per_line = 0;  // median of p50 / round trip over the run's pieces
  double memcpy_bytes_per_s = 0;

  // Returns the successful calls per second, and bytes of data in them.
  double calls_per_s() const;
  double bytes_per_s() const;
  Latencies latencies() const;
  Figures figures() const;
  // Returns the ratio of the data to what memcpy would have moved in that time; 0: not measured.
  double of_memcpy() const;
  bool flawless() const;
  double mean_connection() const;
  // Returns whether the open loop failed to keep its schedule.
  bool saturated() const;
};

using Results = std::span<const std::unique_ptr<RunResult>>;

// An open-loop run of a given duration makes no more calls this long after it, and then waits for
// the calls in flight.
constexpr double kOpenLoopGraceSeconds = 1;

// What a run needs from its environment.
struct RunHooks {
  // Called about every 10 ms; returns false to stop the run. `recent` has the latencies since it
  // was last cleared; new ones are added only every quarter of a second.
  std::function<bool(const RunResult& so_far, Histogram& recent)> tick;
  // Called before the warm-up, and before the measurement.
  std::function<void()> begin = [] {};
  // Measures the cache-line round trip, between two pieces of a run; may be empty.
  std::function<double()> probe_line;
  // Counters of the steady state, of both sides.
  std::function<uint64_t()> allocations, registrations;
  std::function<uint64_t()> preemptions;  // null: not counted
  StageCollector* stages = nullptr;       // of successful calls; null: not wanted
  // Called when no call is in flight and another piece of the run follows.
  std::function<void()> between = [] {};
  // The server's thread, as of the last probe_line(), and its gaps. Null: not visible from here.
  const ThreadState* server = nullptr;
  const GapLog* server_gaps = nullptr;
};

class Load {
 public:
  // For runs of up to `max_window` calls per connection, which have up to `in_flight` bytes in
  // flight in each direction (most_in_flight()). `targets`: the servers among which the session's
  // connections were distributed.
  static Result<std::unique_ptr<Load>> create(Session& session,
                                              std::span<const std::string> targets,
                                              uint32_t max_window, uint64_t in_flight);
  // Sets the site of nfs3's runs, which outlives the Load and has a file for each of slots().
  void use(const Nfs3Site& site);
  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  ~Load();

  // Makes the calls of one run; returns when all have ended.
  void run(const RunSpec& spec, const Options& options, const RunHooks& hooks, RunResult& result);

  // Returns memcpy's bandwidth over the memory that a run of this kind uses. `touched`: every byte
  // of a copy is read, as with --touch.
  double memcpy_limit(const RunSpec& spec, bool touched);

 private:
  struct Slot {
    Slot(Load& owner, ClientConnection& to, uint32_t number)
        : load(owner), connection(number), call(to) {}
    Load& load;
    const uint32_t connection;  // its number
    Call call;
    const Engine* engine = nullptr;
    Draw draw = {};
    size_t target = 0;      // index of its connection's server among the targets
    size_t size_index = 0;  // index of the draw's size among the run's
    std::unique_ptr<Nfs3Work> nfs3;
    uint64_t intended_ns = 0;
    uint64_t behind_since_ns = 0;  // open loop: see Outlier
    Slot* next_free = nullptr;     // open loop: on its connection
    uint64_t right = 0;            // of the run: successful calls
    bool put_off = false;          // its call is repeated at resumes_ns
    Slot* next_thinking = nullptr;
    uint64_t resumes_ns = 0;  // when that call, or the next one after the think time, is made
  };

  Load(Session& session, std::span<const std::string> targets)
      : session_(session),
        targets_(targets.begin(), targets.end()),
        loop_(session.runtime(), session.idle()),
        watch_(gaps_, [this] { return wait_counters(); }) {}

  void choose_slots();
  void tell_targets_apart();
  void warm_up();
  void measure();
  uint64_t phase(bool open, uint64_t calls, uint64_t duration_ns, uint64_t grace_ns);
  void start_idle_calls(uint64_t now);
  void start_due_calls(uint64_t now);
  void free(Slot& slot);
  void make_idle(Slot& slot);
  bool has_idle() const;
  void submit(Slot& slot, uint64_t intended_ns);
  void draw(Slot& slot);
  size_t draw_size();
  void on_ended(Slot& slot);
  bool judge(Slot& slot);
  void think(Slot& slot, uint64_t now);
  void end_thinking(uint64_t now);
  void rest(Slot& slot, uint64_t now);
  void end_rests(uint64_t now);
  void count_right(Slot& slot);
  void count_share(const Slot& slot, bool right, uint64_t latency);
  void compare_connections();
  void begin_watch(const ThreadState* server);
  void end_watch(const ThreadState* server);
  GapLogs gap_logs() const { return {&gaps_, hooks_->server_gaps}; }
  WaitCounters wait_counters();
  void keep_outlier(const Slot& slot, uint64_t latency);
  bool may_submit(uint64_t now) const;
  bool may_resume(uint64_t now) const;
  bool over(uint64_t now) const;
  void housekeeping(uint64_t now);
  uint64_t wake_ns(uint64_t now) const;
  void collect();
  double measured_s(uint64_t now) const;
  void cancel_all();
  uint64_t random();

  Session& session_;
  std::vector<std::string> targets_;
  PollLoop loop_;
  SizeChanger changer_;
  GapLog gaps_;
  GapWatch watch_;
  uint64_t allocated_reading_ = 0;  // allocations by wait_counters()
  NoiseMeter noise_;
  Outliers outliers_;
  RegisteredMemory area_;
  uint32_t stride_ = 0;                       // bytes from one slot's memory to the next one's
  std::vector<std::unique_ptr<Slot>> slots_;  // slots of one connection are `connections` apart

  // The current run.
  const RunSpec* spec_ = nullptr;
  const Options* options_ = nullptr;
  const RunHooks* hooks_ = nullptr;
  RunResult* result_ = nullptr;
  std::vector<Slot*> active_;
  Histogram
      fresh_;  // of the calls since the last collect(), so that a call records its latency once
  Histogram recent_;
  Histogram piece_;
  Series series_;
  uint32_t ticks_ = 0;
  uint64_t random_state_ = 1;
  uint64_t sum_of_weights_ = 0;
  uint64_t began_ns_ = 0;  // start of the measurement
  bool recording_ = false;
  bool stopping_ = false;

  // The current phase.
  // Closed loop: slots to be submitted from the loop, not from a callback.
  std::vector<Slot*> idle_;
  std::vector<Slot*> resting_;  // slots whose calls were deferred
  // The list of thinking slots. All think equally long, so the first one is the next to continue.
  Slot* first_thinking_ = nullptr;
  Slot* last_thinking_ = nullptr;
  uint64_t think_ns_ = 0;
  bool open_ = false;  // an open loop, whose schedule is:
  Schedule schedule_;
  std::vector<Slot*> free_;  // for each connection, the list of slots without a call
  uint64_t submitted_ = 0;
  uint64_t budget_ = 0;
  uint64_t start_ns_ = 0;
  uint64_t deadline_ns_ = 0;
  uint64_t last_start_ns_ = 0;  // open loop: no call is made after this
  uint64_t next_tick_ns_ = 0;
  uint64_t stopped_ns_ = 0;
  uint32_t in_flight_ = 0;
};

}  // namespace rrdk::testrpc
