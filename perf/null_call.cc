// A null call over the iwarp driver beside bare TCP's round trip of as many bytes, both polled, on
// loopback between the same two threads.
//
//   null_call [--slices N] [--json]
//
// They take turns of a millisecond, for the reason in versions.cc. The ratio that counts is the
// median of those of neighbours.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "machine_limits.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "tcp_limits.h"
#include "turns.h"

namespace {

using namespace rrdk;
using namespace rrdk::perf;

constexpr Load kNullCalls = {"null", kNull, 1};

enum class Turn : uint8_t { kCalls, kTcp, kOver };

// The thread at the far end: it polls the server, or answers over TCP, as the turn says.
class FarEnd {
 public:
  FarEnd(int cpu, Runtime& server, apps::TcpPingPong& tcp)
      : thread_([this, cpu, &server, &tcp] {
          apps::pin_to_cpu(cpu);
          for (Turn turn; (turn = turn_.load(std::memory_order_relaxed)) != Turn::kOver;) {
            if (turn == Turn::kCalls)
              server.poll();
            else if (!tcp.answer())
              die("TCP on loopback does not work");
          }
        }) {}
  ~FarEnd() {
    set(Turn::kOver);
    thread_.join();
  }
  FarEnd(const FarEnd&) = delete;
  FarEnd& operator=(const FarEnd&) = delete;

  void set(Turn turn) { turn_.store(turn, std::memory_order_relaxed); }

 private:
  std::atomic<Turn> turn_ = Turn::kCalls;
  std::thread thread_;
};

// Nanoseconds per round trip in a slice.
double tcp_slice(apps::TcpPingPong& tcp) {
  const uint64_t start = apps::clock_ns();
  uint64_t count = 0;
  uint64_t now = start;
  for (; now - start < kSliceNs; now = apps::clock_ns(), ++count) {
    if (!tcp.round_trip())
      die("TCP on loopback does not work");
  }
  return static_cast<double>(now - start) / static_cast<double>(count);
}

struct Figures {
  std::vector<double> calls, round_trips, ratios;
};

Figures measure(int near_cpu, int far_cpu, uint32_t slices) {
  std::unique_ptr<Memory> memory = must(Memory::create({.classes = {{4096, 2048}}}));
  std::unique_ptr<Runtime> runtime = must(Runtime::create(*memory, {.idle = IdlePolicy::kBusy}));
  std::unique_ptr<Server> server = serve(*runtime);
  const std::string uri = must(server->listen("iwarp://127.0.0.1:0"));
  apps::TcpPingPong tcp(apps::kNullCallBytes, apps::kNullReplyBytes);
  FarEnd far_end(far_cpu, *runtime, tcp);
  apps::pin_to_cpu(near_cpu);
  Requester requester(uri, kNullCalls);

  Figures figures;
  for (uint32_t i = 0; i < slices; ++i) {
    const double before = requester.slice();
    far_end.set(Turn::kTcp);
    const double round_trip = tcp_slice(tcp);
    far_end.set(Turn::kCalls);
    const double after = requester.slice();
    figures.calls.push_back(after);
    figures.round_trips.push_back(round_trip);
    figures.ratios.push_back((before + after) / 2 / round_trip);
  }
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t slices = 1000;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      json = true;
    } else if (word == "--slices" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      slices = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: null_call [--slices N] [--json]\n");
      return 2;
    }
  }
  const std::vector<int> cpus = apps::allowed_cpus();
  if (cpus.size() < 2)
    die("two CPUs are needed");
  must(ensure_eal());
  const Figures figures = measure(cpus.front(), cpus.back(), slices);
  std::printf(json ? "{\"call_ns\": %.1f, \"tcp_ns\": %.1f, \"ratio\": %.4f, "
                     "\"quartiles\": [%.4f, %.4f]}\n"
                   : "null call %.0f ns, TCP round trip %.0f ns, ratio %.3f (%.3f to %.3f)\n",
              quantile(figures.calls, 0.5), quantile(figures.round_trips, 0.5),
              quantile(figures.ratios, 0.5), quantile(figures.ratios, 0.25),
              quantile(figures.ratios, 0.75));
}
