// A run's latencies over time: a histogram for each interval.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "histogram.h"

namespace rrdk::testrpc {

// The successful calls of this part of a run's time.
struct TimeSlice {
  double start_s = 0;  // since the measurement began, without probes in between
  double seconds = 0;
  uint64_t calls = 0;
  std::vector<std::pair<uint64_t, uint64_t>> histogram =
      {};  // upper end of a bucket, and number of calls
};

class Series {
 public:
  // Begins the series of a run; interval 0: no series.
  void begin(double interval_s);
  void add(const Histogram& calls) noexcept {
    if (interval_s_ != 0)
      slice_.add(calls);
  }
  // Returns whether an interval has ended at that time. Everything added so far belongs to it, so
  // add all calls first.
  bool due(double now_s) const noexcept { return interval_s_ != 0 && now_s >= end_s_; }
  // Ends a slice at that time, however late it is; allocates.
  void end_slice(double now_s);
  // Ends the series of the run and returns it.
  std::vector<TimeSlice> end(double now_s);

 private:
  double interval_s_ = 0;
  double start_s_ = 0;
  double end_s_ = 0;
  Histogram slice_;
  std::vector<TimeSlice> slices_;
};

}  // namespace rrdk::testrpc
