// What ProcedureStats has of one procedure at one core.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "rrdk/procedure_stats.h"

namespace rrdk::service {

// Written by one core, read by anybody.
class Count {
 public:
  void add(uint64_t n) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  // Who reads the number sees what its writer did before.
  void take_one() noexcept {
    value_.store(value_.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  uint64_t get() const noexcept { return value_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

class Durations {
 public:
  void record(uint64_t ns) noexcept {
    buckets_[DurationHistogram::bucket_of(ns)].add(1);
    total_ns_.add(ns);
  }
  void add_to(DurationHistogram& sum) const noexcept {
    for (size_t i = 0; i < buckets_.size(); ++i)
      sum.buckets[i] += buckets_[i].get();
    sum.total_ns += total_ns_.get();
  }

 private:
  std::array<Count, DurationHistogram::kBuckets> buckets_;
  Count total_ns_;
};

struct alignas(64) ProcedureCounters {
  Count open;  // calls that have come, and not ended
  Count calls;
  Count errors;
  Count bytes_in;
  Count bytes_out;
  Durations fetch;
  Durations decode;
  Durations queue;
  Durations handler;
  Durations reply;

  void add_to(ProcedureStats& sum) const noexcept {
    sum.in_progress += open.get();
    sum.calls += calls.get();
    sum.errors += errors.get();
    sum.bytes_in += bytes_in.get();
    sum.bytes_out += bytes_out.get();
    fetch.add_to(sum.fetch);
    decode.add_to(sum.decode);
    queue.add_to(sum.queue);
    handler.add_to(sum.handler);
    reply.add_to(sum.reply);
  }
};
static_assert(offsetof(ProcedureCounters, fetch) <= 64, "a call that is not timed touches a line");

}  // namespace rrdk::service
