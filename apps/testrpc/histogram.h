// Latencies in a fixed array. Counting a latency neither allocates nor loops.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>

namespace rrdk::testrpc {

// Log-linear: every power of two is cut into 128 equal buckets, so that a value is known to better
// than 0.8 %. Nanoseconds up to 2^37 (137 s); longer latencies count as that.
class Histogram {
 public:
  static constexpr uint32_t kSubBits = 7;
  static constexpr uint32_t kMaxBits = 37;
  static constexpr uint64_t kLargest = (uint64_t{1} << kMaxBits) - 1;
  static constexpr uint32_t kBuckets = (kMaxBits - kSubBits + 1) << kSubBits;

  void record(uint64_t value) noexcept {
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    sum_ += value;
    ++count_;
    ++buckets_[index(std::min(value, kLargest))];
  }
  void add(const Histogram& other) noexcept {
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
    sum_ += other.sum_;
    count_ += other.count_;
    for (uint32_t i = 0; i < kBuckets; ++i)
      buckets_[i] += other.buckets_[i];
  }
  void clear() noexcept { *this = Histogram(); }

  uint64_t count() const noexcept { return count_; }
  uint64_t min() const noexcept { return count_ == 0 ? 0 : min_; }
  uint64_t max() const noexcept { return max_; }
  double mean() const noexcept {
    return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }

  // Returns the value that `percent` of all values do not exceed, rounded up to the end of its
  // bucket.
  uint64_t percentile(double percent) const noexcept {
    if (count_ == 0)
      return 0;
    auto rank = static_cast<uint64_t>(std::llround(percent / 100 * static_cast<double>(count_)));
    rank = std::clamp<uint64_t>(rank, 1, count_);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (seen >= rank)
        return std::clamp(upper_end(i), min_, max_);
    }
    return max_;
  }

  // The same, or nothing if there are too few values, that is, no value beyond it: p99 of 10 values
  // is just their maximum.
  std::optional<uint64_t> told(double percent) const noexcept {
    const double needed = percent <= 50 ? 1 : std::round(100 / (100 - percent));
    if (static_cast<double>(count_) < needed)
      return std::nullopt;
    return percentile(percent);
  }

  // Calls fn(largest value of the bucket, values in it) for each bucket that has any, in order.
  template <typename Fn>
  void for_each_bucket(Fn&& fn) const {
    for (uint32_t i = 0; i < kBuckets; ++i) {
      if (buckets_[i] != 0)
        fn(std::min(upper_end(i), max_), buckets_[i]);
    }
  }

 private:
  // Values below 2^(kSubBits + 1) have a bucket each; above, the top kSubBits + 1 bits select it.
  static constexpr uint32_t index(uint64_t value) noexcept {
    auto bits = static_cast<uint32_t>(std::bit_width(value));
    if (bits <= kSubBits + 1)
      return static_cast<uint32_t>(value);
    uint32_t shift = bits - kSubBits - 1;
    return (shift << kSubBits) + static_cast<uint32_t>(value >> shift);
  }
  static constexpr uint64_t upper_end(uint32_t index) noexcept {
    uint32_t shift = index < (2u << kSubBits) ? 0 : (index >> kSubBits) - 1;
    uint64_t top = index - (shift << kSubBits);
    return ((top + 1) << shift) - 1;
  }

  uint64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  std::array<uint64_t, kBuckets> buckets_ = {};
};

}  // namespace rrdk::testrpc
