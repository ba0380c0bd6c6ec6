#include "series.h"

#include <cmath>
#include <limits>
#include <utility>

namespace rrdk::testrpc {
namespace {

// Limits the memory of a run without an end. The last slice continues until the run's end.
constexpr size_t kMostSlices = 100'000;

}  // namespace

void Series::begin(double interval_s) {
  interval_s_ = interval_s;
  start_s_ = 0;
  end_s_ = interval_s;
  slice_.clear();
  slices_.clear();
}

void Series::end_slice(double now_s) {
  TimeSlice& slice = slices_.emplace_back();
  slice.start_s = start_s_;
  slice.seconds = now_s - start_s_;
  slice.calls = slice_.count();
  slice_.for_each_bucket(
      [&slice](uint64_t upper, uint64_t calls) { slice.histogram.emplace_back(upper, calls); });
  slice_.clear();
  start_s_ = now_s;
  // A stall makes one long slice, not many empty ones.
  end_s_ = (std::floor(now_s / interval_s_) + 1) * interval_s_;
  if (slices_.size() + 1 >= kMostSlices)
    end_s_ = std::numeric_limits<double>::infinity();
}

std::vector<TimeSlice> Series::end(double now_s) {
  if (interval_s_ != 0 && (slice_.count() != 0 || now_s > start_s_))
    end_slice(now_s);
  return std::exchange(slices_, {});
}

}  // namespace rrdk::testrpc
