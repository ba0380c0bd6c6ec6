// This machine's limits, as testrpc puts them beside its results: the cache-line round trip between
// each two CPUs, and memcpy's bandwidth by size and number of buffers; and what TCP on loopback can
// do, beside which scripts/compare-iwarp.py puts testrpc over iWARP.
//
//   limits              all of it
//   limits tcp [CPU CPU]   TCP alone, between these two CPUs
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
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
  std::printf("\nmemcpy of one thread, GB/s, into so many buffers in turn\n%9s", "bytes");
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

constexpr size_t kBulk = 1u << 20;
constexpr uint64_t kTcpNs = 500'000'000;

void print_tcp(TcpEnds ends) {
  std::printf("\nTCP on loopback, both ends polling, CPU %d and CPU %d\n", ends.near_cpu,
              ends.far_cpu);
  std::printf("ping-pong of a null call's %zu and %zu bytes, us %8.2f\n", kNullCallBytes,
              kNullReplyBytes,
              tcp_round_trip_ns(ends, kNullCallBytes, kNullReplyBytes, kTcpNs) / 1e3);
  std::printf("stream of 1 MiB pieces, GB/s %8.3f\n",
              tcp_stream_bytes_per_s(ends, kBulk, kTcpNs) / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> cpus = allowed_cpus();
  if (cpus.size() > 8)
    cpus.resize(8);  // a table that fits a screen
  TcpEnds ends{cpus.front(), cpus.back()};
  if (argc == 4)
    ends = {std::atoi(argv[2]), std::atoi(argv[3])};
  if (argc > 1 && std::string_view(argv[1]) == "tcp") {
    print_tcp(ends);
    return 0;
  }
  print_round_trips(cpus);
  pin_to_cpu(cpus.front());
  print_copies();
  print_tcp(ends);
}
