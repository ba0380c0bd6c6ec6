// The slowest calls of a run in full detail, and what delayed them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gaps.h"
#include "rrdk/call.h"
#include "stages.h"

namespace rrdk::testrpc {

struct Engine;

// The parts of gaps of one kind on one CPU that overlap a call.
struct Cause {
  GapKind kind;
  bool at_server;
  int cpu;
  uint64_t took_ns;
  uint32_t times;
};

struct Outlier {
  static constexpr size_t kMostCauses = 4;

  uint64_t start_ns;  // on Runtime's clock; open loop: when it was due
  uint64_t total_ns;
  // Open loop: since when calls were made behind the schedule, if this one was too. Otherwise the
  // call's start.
  uint64_t behind_since_ns;
  const Engine* engine;
  uint32_t size;
  uint32_t connection;
  std::optional<StampedCall> stamps = {};  // if it was sampled and passed each stage
  bool explained = false;                  // or cannot be explained
  uint32_t num_causes = 0;
  std::array<Cause, kMostCauses> causes = {};  // the longest first
  Steps steps = {};                            // of the stamps; set at the end

  uint64_t end_ns() const { return start_ns + total_ns; }
  // Returns whether the causes took more than half of the call's time.
  bool has_causes() const;
};

// The gaps that may have delayed calls.
struct GapLogs {
  const GapLog* client = nullptr;
  const GapLog* server = nullptr;  // null: not visible from here
};

class Outliers {
 public:
  // Allocates memory for `keep` calls.
  void begin(uint32_t keep);
  // A call must take longer than this to be among the slowest.
  uint64_t bar_ns() const noexcept { return bar_ns_; }
  void offer(const Outlier& call) noexcept;
  // Looks for what delayed the calls kept here. Must be called about every 10 ms, and at the end of
  // the run with UINT64_MAX. Calls that have just ended are examined later: the server's gaps
  // become known a moment after a call's end, or later if the server is switched out again.
  // Allocates nothing.
  void explain(const GapLogs& logs, uint64_t now) noexcept;
  // The slowest first.
  std::vector<Outlier> sorted() const;

 private:
  uint32_t keep_ = 0;
  uint64_t bar_ns_ = UINT64_MAX;
  std::vector<Outlier> calls_;  // a heap, the fastest on top
};

// Returns the stamps of a call that has ended, in its callback. Empty if the call was not sampled,
// or not at each stage.
std::optional<StampedCall> stamps_of(const Call& call) noexcept;

// A part of a call's time: a cause, or the time of a stage that no cause explains.
struct OutlierPart {
  std::string name;
  const char* side;
  std::optional<uint64_t> took_ns;  // empty: an event of unknown duration
};

// Returns all parts of at least a tenth of the call, the largest first. Causes are subtracted from
// the stages that they may have delayed, the longest first, so that no time counts twice.
std::vector<OutlierPart> parts_of(const Outlier& call);

// Finds the causes of one call. `to_monotonic` converts Runtime's clock to that of the gaps.
void explain(Outlier& call, const GapLogs& logs, uint64_t to_monotonic) noexcept;

}  // namespace rrdk::testrpc
