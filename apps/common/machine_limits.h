// Measures the limits of this machine: the round trip of a cache line between two cores, and the
// bandwidth of memcpy. testrpc compares its results with these, and perf/limits prints them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rrdk::apps {

// One cache line that two cores pass to each other: one side asks with a number, and the other
// answers with the same number. Each side writes only its own word: the scheduler may stop a side
// for seconds just before its store, and that late store must not undo what the other side has
// written since. The line may lie in memory that two processes share.
struct alignas(64) PingLine {
  std::atomic<uint64_t> asked{0};
  std::atomic<uint64_t> answered{0};

  // True when the other side wants answer() to be called.
  bool wanted() const noexcept {
    return asked.load(std::memory_order_acquire) != answered.load(std::memory_order_relaxed);
  }
};

// Passes the line back and forth in batches; returns the median batch's nanoseconds per round trip.
// The median, because a batch in which the scheduler takes one of the cores away is meaningless.
// The other side must be in answer(), or get there soon. Returns 0 if a ping is not answered within
// `patience_ns`; answer() then returns as soon as the other side runs again.
double ping(PingLine& line, uint32_t batches, uint64_t patience_ns = 1'000'000'000);

// Answers pings until the other side's last one.
void answer(PingLine& line) noexcept;

// The same between two CPUs, with a thread of its own on `other_cpu`. The caller runs on another
// CPU. Returns 0 if `other_cpu` does not exist.
double cache_line_round_trip_ns(int other_cpu, uint32_t batches);

// Bytes per second of one thread's memcpy of `size` bytes from one place to `buffers` places in
// turn, which are `stride` bytes apart, beginning at `to`. All are touched before the clock starts.
// `reader`, if not null, is called with each copy.
double memcpy_bytes_per_s(const std::byte* from, std::byte* to, size_t size, size_t stride,
                          size_t buffers, uint64_t duration_ns,
                          void (*reader)(std::span<const std::byte> copy) = nullptr);

// The CPUs that this process may run on, ascending.
std::vector<int> allowed_cpus();

// Pins the calling thread. Returns false if the CPU does not exist or is forbidden.
bool pin_to_cpu(int cpu) noexcept;

uint64_t clock_ns() noexcept;

}  // namespace rrdk::apps
