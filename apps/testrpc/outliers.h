// The slowest calls of a run, whole, and what delayed them.
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

// Gaps of one kind on one CPU, as far as they fall into a call.
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
  // Open loop: since when calls were made behind the schedule, if this one was too. Otherwise its
  // start.
  uint64_t behind_since_ns;
  const Engine* engine;
  uint32_t size;
  uint32_t connection;
  std::optional<StampedCall> stamps = {};  // where it was sampled, and passed each stage
  bool explained = false;                  // or given up
  uint32_t num_causes = 0;
  std::array<Cause, kMostCauses> causes = {};  // what took longest first
  Steps steps = {};                            // of the stamps; in the end

  uint64_t end_ns() const { return start_ns + total_ns; }
  // Whether the causes took more than half of it.
  bool has_causes() const;
};

// Whose gaps may have delayed calls.
struct GapLogs {
  const GapLog* client = nullptr;
  const GapLog* server = nullptr;  // null: not to be seen from here
};

class Outliers {
 public:
  // Allocates room for so many.
  void begin(uint32_t keep);
  // Only calls that took longer are among the slowest.
  uint64_t bar_ns() const noexcept { return bar_ns_; }
  void offer(const Outlier& call) noexcept;
  // Looks for what delayed the calls kept here. To be called about every 10 ms, and at the end of
  // the run with UINT64_MAX. Calls that ended just now have to wait: the server's gaps become known
  // a moment after a call's end, or later still if the server is switched out again. Allocates
  // nothing.
  void explain(const GapLogs& logs, uint64_t now) noexcept;
  // The slowest first.
  std::vector<Outlier> sorted() const;

 private:
  uint32_t keep_ = 0;
  uint64_t bar_ns_ = UINT64_MAX;
  std::vector<Outlier> calls_;  // a heap, the fastest on top
};

// Of a call that has ended, in its callback; none if it was not sampled, or not at each stage.
std::optional<StampedCall> stamps_of(const Call& call) noexcept;

// What a part of a call's time went to: a cause, or what no cause explains, by its stage.
struct OutlierPart {
  std::string name;
  const char* side;
  std::optional<uint64_t> took_ns;  // none: it happened, and how long it took is not known
};

// All that took a tenth of a call or more, the largest first. Causes are taken off the stages that
// they may have delayed, the longest first, so that no time counts twice.
std::vector<OutlierPart> parts_of(const Outlier& call);

// The causes of one call. `to_monotonic` leads from Runtime's clock to that of the gaps.
void explain(Outlier& call, const GapLogs& logs, uint64_t to_monotonic) noexcept;

}  // namespace rrdk::testrpc
