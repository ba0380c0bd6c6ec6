// A run's latencies over time: a histogram for each interval.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "histogram.h"

namespace rrdk::testrpc {

// Calls that came back right in this part of a run's time.
struct TimeSlice {
  double start_s = 0;  // from when calls were measured; probes in between are not counted
  double seconds = 0;
  uint64_t calls = 0;
  std::vector<std::pair<uint64_t, uint64_t>> histogram = {};  // upper end of a bucket, and calls
};

class Series {
 public:
  // Of a run that begins; 0: none is wanted.
  void begin(double interval_s);
  void add(const Histogram& calls) noexcept {
    if (interval_s_ != 0)
      slice_.add(calls);
  }
  // Whether an interval is over at that time. What was added belongs to it, so add everything
  // first.
  bool due(double now_s) const noexcept { return interval_s_ != 0 && now_s >= end_s_; }
  // Ends a slice there, however late it is; allocates.
  void end_slice(double now_s);
  // The run is over.
  std::vector<TimeSlice> end(double now_s);

 private:
  double interval_s_ = 0;
  double start_s_ = 0;
  double end_s_ = 0;
  Histogram slice_;
  std::vector<TimeSlice> slices_;
};

}  // namespace rrdk::testrpc
