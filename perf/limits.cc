// This machine's limits. Those that testrpc shows beside its results: the cache-line round trip
// between any two CPUs, and memcpy's bandwidth by size and number of buffers. Besides: how many
// calls two CPUs can exchange, how many long messages they can copy from each other, and what TCP
// on loopback can do, with which scripts/compare-iwarp.py compares testrpc over iWARP.
//
//   limits                 everything
//   limits calls           calls and cache lines alone
//   limits tcp [CPU CPU]   TCP alone, between these two CPUs
//   limits tcp-connections CPU CPU N...
//                          a null call's bytes over N connections, one call under way on each
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "machine_limits.h"
#include "tcp_limits.h"

namespace {

using namespace rrdk::apps;

constexpr uint32_t kBatches = 400;
constexpr uint64_t kCopyNs = 100'000'000;
constexpr size_t kLargest = 4u << 20;
constexpr size_t kMostBuffers = 32;

void print_round_trips(const std::vector<int>& cpus) {
  std::printf("cache-line round trip, ns\n     ");
  for (int to : cpus)
    std::printf("%7d", to);
  std::printf("\n");
  for (int from : cpus) {
    std::printf("%5d", from);
    pin_to_cpu(from);
    for (int to : cpus)
      std::printf("%7.0f", to == from ? 0 : cache_line_round_trip_ns(to, kBatches));
    std::printf("\n");
  }
}

void print_copies() {
  std::vector<std::byte> from(kLargest, std::byte{1});
  std::vector<std::byte> to(kLargest * kMostBuffers);
  std::printf("\nmemcpy of one thread, GB/s, into several buffers in turn\n%9s", "bytes");
  constexpr std::array<size_t, 4> buffers = {1, 4, 8, 32};
  for (size_t n : buffers)
    std::printf("%8zu", n);
  std::printf("\n");
  for (size_t size : {1u << 10, 4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20}) {
    std::printf("%9zu", size);
    for (size_t n : buffers) {
      double bandwidth = memcpy_bytes_per_s(from.data(), to.data(), size, kLargest, n, kCopyNs);
      std::printf("%8.1f", bandwidth / 1e9);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

constexpr uint64_t kInFlight = 8;
constexpr uint64_t kHandoverNs = 200'000'000;
constexpr size_t kHandoverBytes = 16u << 20;  // of all buffers together, at most

// The best possible echo of a long message: the far CPU copies what the near one has, and the near
// one copies that copy. The far one writes to its buffers in turn, after the near one has read
// them.
class Handover {
 public:
  Handover(size_t size, size_t buffers) : size_(size), far_(size * buffers), buffers_(buffers) {}

  double per_second(int far_cpu) {
    std::thread far([this, far_cpu] {
      pin_to_cpu(far_cpu);
      serve();
    });
    const uint64_t start = clock_ns();
    uint64_t taken = 0;
    uint64_t elapsed;
    while ((elapsed = clock_ns() - start) < kHandoverNs) {
      asked_.store(taken + kInFlight, std::memory_order_release);
      for (; taken != given_.load(std::memory_order_acquire); ++taken)
        std::memcpy(&near_[(kInFlight + taken % kInFlight) * size_],
                    &far_[taken % buffers_ * size_], size_);
    }
    over_ = true;
    far.join();
    return static_cast<double>(taken) * 1e9 / static_cast<double>(elapsed);
  }

 private:
  void serve() {
    for (uint64_t given = 0; !over_;) {
      if (given == asked_.load(std::memory_order_acquire))
        continue;
      std::memcpy(&far_[given % buffers_ * size_], &near_[given % kInFlight * size_], size_);
      given_.store(++given, std::memory_order_release);
    }
  }

  alignas(64) std::atomic<uint64_t> asked_ = 0;
  alignas(64) std::atomic<uint64_t> given_ = 0;
  std::atomic<bool> over_ = false;
  size_t size_;
  std::vector<std::byte> near_ = std::vector<std::byte>(2 * kInFlight * size_, std::byte{1});
  std::vector<std::byte> far_;
  size_t buffers_;
};

void print_handovers(int far_cpu) {
  constexpr std::array<size_t, 4> buffers = {8, 16, 32, 256};
  std::printf(
      "\nmessages copied there and back, %llu at a time, thousands a second, by the number of "
      "buffers there\n%9s",
      static_cast<unsigned long long>(kInFlight), "bytes");
  for (size_t n : buffers)
    std::printf("%8zu", n);
  std::printf("\n");
  for (size_t size : {4u << 10, 16u << 10, 64u << 10, 1u << 20}) {
    std::printf("%9zu", size);
    for (size_t n : buffers) {
      if (size * n > kHandoverBytes)
        break;
      std::printf("%8.0f", Handover(size, n).per_second(far_cpu) / 1e3);
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

// The best possible small calls: each end copies a message into its ring, in which only it writes,
// and the other end copies it out. A word before each message says that it is there.
class Exchange {
 public:
  Exchange(size_t call, size_t reply) : calls_(call), replies_(reply) {}

  double per_second(int far_cpu) {
    std::thread far([this, far_cpu] {
      pin_to_cpu(far_cpu);
      for (uint64_t n = 0; !over_;) {
        if (calls_.take(n, far_)) {
          replies_.put(n, far_);
          ++n;
        }
      }
    });
    const uint64_t start = clock_ns();
    uint64_t called = 0;
    uint64_t answered = 0;
    uint64_t elapsed;
    while ((elapsed = clock_ns() - start) < kHandoverNs) {
      for (uint32_t tries = 0; tries < kTriesPerLook; ++tries) {
        if (called < answered + kWindow)
          calls_.put(called++, near_);
        if (replies_.take(answered, near_))
          ++answered;
      }
    }
    over_ = true;
    far.join();
    return static_cast<double>(answered) * 1e9 / static_cast<double>(elapsed);
  }

  static constexpr uint64_t kWindow = 32;
  static constexpr size_t kLargestMessage = 1024;

 private:
  static constexpr uint32_t kTriesPerLook = 1000;  // at the clock
  using Private = std::array<std::byte, kLargestMessage>;

  class Ring {
   public:
    explicit Ring(size_t bytes) : bytes_(bytes) {}

    void put(uint64_t number, const Private& from) {
      Slot& slot = slots_[number % kSlots];
      std::memcpy(slot.bytes, from.data(), bytes_);
      slot.number.store(number + 1, std::memory_order_release);
    }
    bool take(uint64_t number, Private& to) {
      Slot& slot = slots_[number % kSlots];
      if (slot.number.load(std::memory_order_acquire) != number + 1)
        return false;
      std::memcpy(to.data(), slot.bytes, bytes_);
      return true;
    }

   private:
    static constexpr size_t kSlots = 256;
    struct alignas(64) Slot {
      std::atomic<uint64_t> number = 0;
      std::byte bytes[kLargestMessage];
    };
    size_t bytes_;
    std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  };

  Ring calls_;
  Ring replies_;
  std::atomic<bool> over_ = false;
  alignas(64) Private near_ = {};
  alignas(64) Private far_ = {};
};

void print_exchanges(int far_cpu) {
  std::printf("\ncalls and replies through two rings, %llu in flight, thousands a second\n",
              static_cast<unsigned long long>(Exchange::kWindow));
  const auto print = [far_cpu](const char* what, size_t call, size_t reply) {
    std::printf("%-28s%9.0f\n", what, Exchange(call, reply).per_second(far_cpu) / 1e3);
    std::fflush(stdout);
  };
  print("null, 68 and 52 bytes", 68, 52);
  print("1000 bytes, there and back", 1000, 1000);
}

constexpr size_t kBulk = 1u << 20;
constexpr uint64_t kTcpNs = 500'000'000;
constexpr uint64_t kManyNs = 2'000'000'000;

void print_tcp(TcpEnds ends) {
  std::printf("\nTCP on loopback, both ends polling, CPU %d and CPU %d\n", ends.near_cpu,
              ends.far_cpu);
  std::printf("ping-pong of a null call's %zu and %zu bytes, us %8.2f\n", kNullCallBytes,
              kNullReplyBytes,
              tcp_round_trip_ns(ends, kNullCallBytes, kNullReplyBytes, kTcpNs) / 1e3);
  // As many as a window of calls has.
  for (size_t buffers : {1, 4, 16})
    std::printf("stream of 1 MiB pieces, each end with %2zu buffers for them, GB/s %8.3f\n",
                buffers, tcp_stream_bytes_per_s(ends, kBulk, buffers, kTcpNs) / 1e9);
}

// How much TCP itself loses with as many sockets.
void print_many_connections(TcpEnds ends, std::span<char*> numbers) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  for (const char* number : numbers) {
    const double rate = tcp_calls_per_s(ends, std::strtoul(number, nullptr, 10), kManyNs);
    std::printf("%9s connections, calls/s %9.0f\n", number, rate);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> cpus = allowed_cpus();
  if (cpus.size() > 8)
    cpus.resize(8);  // a table that fits a screen
  TcpEnds ends{cpus.front(), cpus.back()};
  if (argc >= 4)
    ends = {std::atoi(argv[2]), std::atoi(argv[3])};
  if (argc > 4 && std::string_view(argv[1]) == "tcp-connections") {
    print_many_connections(ends, std::span(argv + 4, static_cast<size_t>(argc - 4)));
    return 0;
  }
  if (argc > 1 && std::string_view(argv[1]) == "tcp") {
    print_tcp(ends);
    return 0;
  }
  print_round_trips(cpus);
  pin_to_cpu(cpus.front());
  if (argc > 1 && std::string_view(argv[1]) == "calls") {
    if (cpus.size() > 1)
      print_exchanges(cpus.back());
    return 0;
  }
  print_copies();
  if (cpus.size() > 1) {
    print_exchanges(cpus.back());
    print_handovers(cpus.back());
  }
  print_tcp(ends);
}
