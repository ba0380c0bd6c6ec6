// What people read: a line a second while a run lasts, and the table at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "load.h"
#include "rrdk/faults.h"
#include "rrdk/runtime.h"

namespace rrdk::testrpc {

// What the steady state must not do, and what must be back at the end.
struct Audit {
  bool pools_whole = false;
  uint64_t calls = 0;
  uint64_t allocations = 0;
  uint64_t registrations = 0;
  // Why there may be some: connections were lost or made, say. Empty: there should be none.
  std::string reason;

  double per_call(uint64_t count) const {
    return calls == 0 ? 0 : static_cast<double>(count) / static_cast<double>(calls);
  }
};

Audit make_audit(Results results, bool pools_whole);

// Where a run stands among those of a plan.
struct RunPlace {
  size_t before = 0;
  size_t of = 1;
  double seconds_each = 0;  // 0: not bounded by time
  size_t row = 0;           // that it is one repetition of
};

// A line when a second has passed since the last one. Allocates nothing: it runs inside the steady
// state that is audited.
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

// "read 64K w=8"; of an open loop "read 64K w=64 at 1000/s"
std::string run_name(const RunSpec& spec, double rate = 0);
// Calls per second, in at most nine columns.
std::string rate_text(double per_s);
// Three digits and the unit that they need: at most six columns, whatever it is.
std::string time_text(uint64_t ns);

// Rows of at most 80 columns below a heading, and another heading where open-loop runs follow
// closed-loop ones or the other way round.
void print_table(Results results);
// All that a row has no column for: errors, saturation, what was survived, what disturbed it.
void print_remarks(Results results);
void print_audit(const Audit& audit);
// What the two ends have agreed on, as perftest prints it in front.
void print_negotiated(const ConnectionInfo& info);
void print_faults(const FaultCounts& counts);
// Begins one into `file`, unless that is empty.
Result<void> begin_capture(Runtime& runtime, const std::string& file);
// Ends the capture that is going on, if there is one, and says what became of it. False: a part of
// it is lost.
bool end_capture(Runtime& runtime);

}  // namespace rrdk::testrpc
