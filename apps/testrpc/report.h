// Output for people: a line per second during a run, and the table at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "load.h"
#include "rrdk/faults.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {

// What the steady state must not do, and what must be complete at the end.
struct Audit {
  bool pools_whole = false;
  uint64_t calls = 0;
  uint64_t allocations = 0;
  uint64_t registrations = 0;
  // Why some are permissible, for example because connections were lost or made. Empty: none are.
  std::string reason;

  double per_call(uint64_t count) const {
    return calls == 0 ? 0 : static_cast<double>(count) / static_cast<double>(calls);
  }
};

Audit make_audit(Results results, bool pools_whole);

// The place of a run among those of a plan.
struct RunPlace {
  size_t before = 0;
  size_t of = 1;
  double seconds_each = 0;  // 0: not bounded by time
  size_t row = 0;           // that it is one repetition of
};

// Prints a line when a second has passed since the last one. Allocates nothing, because it runs
// inside the audited steady state.
class LiveLine {
 public:
  void begin(const RunSpec& spec, double rate, const RunPlace& place);
  bool due() const;
  void print(const RunResult& so_far, Histogram& recent);

 private:
  uint64_t start_ns_ = 0;
  uint64_t last_ns_ = 0;
  uint64_t last_bytes_ = 0;
};

// Returns "read 64K w=8", or for an open loop "read 64K w=64 at 1000/s".
std::string run_name(const RunSpec& spec, double rate = 0);
// Formats calls per second in at most nine columns.
std::string rate_text(double per_s);
// Formats a time with three digits and a suitable unit: at most six columns for any value.
std::string time_text(uint64_t ns);

// Prints rows of at most 80 columns below a heading, and another heading when open-loop runs follow
// closed-loop ones or the other way round.
void print_table(Results results);
// Prints what has no column: errors, saturation, lost connections, and what disturbed the run.
void print_remarks(Results results);
void print_audit(const Audit& audit);
// Prints what the two ends have negotiated, as perftest does before its results.
void print_negotiated(const ConnectionInfo& info);
void print_faults(const FaultCounts& counts);
// Begins a capture into `file`, unless that is empty.
Result<void> begin_capture(Runtime& runtime, const std::string& file);
// Ends the current capture, if any, and reports its result. Returns false if a part of the capture
// is lost.
bool end_capture(Runtime& runtime);

}  // namespace rrdk::testrpc
