#include "machine_limits.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <thread>

namespace rrdk::apps {
namespace {

constexpr uint64_t kLastPing = 1ull << 63;  // marks the ping after which the other side may leave
constexpr uint32_t kRoundsPerBatch = 50;
// The first ping waits for the other side to arrive, and lets other threads run meanwhile; later
// ones are answered at once by a side that is running.
constexpr uint32_t kSpinsOfFirst = 1;
constexpr uint32_t kSpins = 65536;

// Returns false if the other side does not answer in time; its process may have died.
bool round_trip(PingLine& line, uint64_t value, uint32_t spins_per_look, uint64_t patience_ns) {
  uint64_t give_up = 0;
  line.asked.store(value, std::memory_order_release);
  for (uint32_t spins = 1; line.answered.load(std::memory_order_acquire) != value; ++spins) {
    _mm_pause();
    if (spins % spins_per_look != 0)
      continue;
    uint64_t now = clock_ns();
    give_up = give_up == 0 ? now + patience_ns : give_up;
    if (now > give_up)
      return false;
    std::this_thread::yield();
  }
  return true;
}

// Returns the nanoseconds of a round trip in each batch, or nothing if the other side did not
// answer in time.
std::vector<double> time_batches(PingLine& line, uint64_t first, uint32_t batches,
                                 uint64_t patience_ns) {
  std::vector<double> results;
  results.reserve(batches);
  if (!round_trip(line, first, kSpinsOfFirst, patience_ns))
    return {};
  for (uint32_t b = 0; b < batches; ++b) {
    uint64_t start = clock_ns();
    for (uint32_t i = 0; i < kRoundsPerBatch; ++i) {
      if (!round_trip(line, ++first, kSpins, patience_ns))
        return {};
    }
    results.push_back(static_cast<double>(clock_ns() - start) / kRoundsPerBatch);
  }
  return results;
}

}  // namespace

uint64_t clock_ns() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

double ping(PingLine& line, uint32_t batches, uint64_t patience_ns) {
  uint64_t first = (line.asked.load(std::memory_order_relaxed) & ~kLastPing) + 1;
  std::vector<double> results = time_batches(line, first, batches, patience_ns);
  uint64_t last = (line.asked.load(std::memory_order_relaxed) + 1) | kLastPing;
  if (results.empty()) {
    line.asked.store(last, std::memory_order_release);  // lets the other side leave when it arrives
    return 0;
  }
  if (!round_trip(line, last, kSpins, patience_ns))
    return 0;
  auto middle = results.begin() + static_cast<ptrdiff_t>(results.size() / 2);
  std::nth_element(results.begin(), middle, results.end());
  return *middle;
}

void answer(PingLine& line) noexcept {
  uint64_t answered = line.answered.load(std::memory_order_relaxed);
  while (true) {
    uint64_t asked = line.asked.load(std::memory_order_acquire);
    if (asked == answered) {
      _mm_pause();
      continue;
    }
    line.answered.store(answered = asked, std::memory_order_release);
    if ((asked & kLastPing) != 0)
      return;
  }
}

double cache_line_round_trip_ns(int other_cpu, uint32_t batches) {
  PingLine line;
  std::atomic<int> pinned{-1};
  std::thread other([&] {
    pinned = pin_to_cpu(other_cpu) ? 1 : 0;
    if (pinned == 1)
      answer(line);
  });
  while (pinned == -1)
    std::this_thread::yield();
  double result = 0;
  if (pinned == 1)
    result = ping(line, batches);
  other.join();
  return result;
}

double memcpy_bytes_per_s(const std::byte* from, std::byte* to, size_t size, size_t stride,
                          size_t buffers, uint64_t duration_ns,
                          void (*reader)(std::span<const std::byte> copy)) {
  if (size == 0 || buffers == 0)
    return 0;
  for (size_t b = 0; b < buffers; ++b)
    std::memcpy(to + b * stride, from, size);
  // Read the clock only every few copies, and keep the compiler from removing copies.
  size_t per_look = std::max<size_t>(1, 65536 / size);
  uint64_t start = clock_ns();
  uint64_t elapsed;
  uint64_t copies = 0;
  do {
    for (size_t i = 0; i < per_look; ++i, ++copies) {
      std::byte* target = to + (copies % buffers) * stride;
      std::memcpy(target, from, size);
      if (reader != nullptr)
        reader({target, size});
      asm volatile("" : : "r"(target), "r"(from) : "memory");
    }
    elapsed = clock_ns() - start;
  } while (elapsed < duration_ns);
  return static_cast<double>(copies) * static_cast<double>(size) * 1e9 /
         static_cast<double>(elapsed);
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set))
      cpus.push_back(cpu);
  }
  return cpus;
}

bool pin_to_cpu(int cpu) noexcept {
  if (cpu < 0 || cpu >= CPU_SETSIZE)
    return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace rrdk::apps
