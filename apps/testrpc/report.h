// What people read: a line a second while a run lasts, and the table at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "load.h"
#include "rrdk/faults.h"

namespace rrdk::testrpc {

// What the steady state must not cost, and what must be back at the end.
struct Audit {
  bool pools_whole = false;
  double allocations_per_call = 0;
  double registrations_per_call = 0;
};

using Results = std::span<const std::unique_ptr<RunResult>>;

Audit make_audit(Results results, bool pools_whole);

// Prints a line when a second has passed since the last one. Allocates nothing: it runs inside the
// steady state that is audited.
class LiveLine {
 public:
  void begin(const RunSpec& spec);
  void tick(const RunResult& so_far, Histogram& recent);

 private:
  uint64_t start_ns_ = 0;
  uint64_t last_ns_ = 0;
  uint64_t last_bytes_ = 0;
};

// "read 64K w=8"
std::string run_name(const RunSpec& spec);

void print_table(Results results);
void print_failures(Results results);
// How many of which procedure nfs3 has made.
void print_nfs3_calls(Results results);
void print_survival(Results results);
void print_audit(const Audit& audit);
void print_faults(const FaultCounts& counts);

}  // namespace rrdk::testrpc
