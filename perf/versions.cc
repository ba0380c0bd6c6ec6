// Version 2 of RPC-over-RDMA beside version 1: what its headers cost (null calls over shared
// memory, many at a time), and what its larger inline threshold is worth (echoes of 2,000 bytes,
// which under the 1024 bytes of version 1 go through a Position-Zero chunk and a Reply chunk).
//
//   versions [--slices N] [--json] [URI OF NULL CALLS] [URI OF ECHOES]
//
// A server on a poll core of its own, and one client per version, polled here. They take turns of a
// millisecond or so: a virtual machine's CPUs are at times near to each other and at times far,
// which changes all rates threefold, but lasts longer than that. The ratio that counts is the
// median of those of neighbours.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "machine_limits.h"
#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "tcp_limits.h"
#include "turns.h"

namespace {

using namespace rrdk;
using namespace rrdk::perf;

constexpr uint32_t kOldThreshold = 1024;
constexpr uint64_t kTcpSliceNs = 20'000'000;
constexpr uint32_t kTcpSlices = 50;
// FPDUs of an echo: its call and reply inline, in version 2; the call in chunks, in version 1; and
// the Read request.
constexpr size_t kFraming = 2 + 18 + 4;  // length, DDP header, CRC
constexpr size_t kInlineCall = kFraming + 36 + 40 + 4 + kEchoBytes;
constexpr size_t kInlineReply = kFraming + 36 + 24 + 4 + kEchoBytes;
constexpr size_t kLongCall = kFraming + 28 + 24 + 4 + 16;  // a read segment, a Reply chunk of one
constexpr size_t kReadRequest = kFraming + 28;

constexpr Load kNullCalls = {"null, 16 at a time", kNull, 16};
constexpr Load kEchoes = {"echo of 2000 bytes", kEcho, 1};

ClientOptions of_version(const Load& load, RpcRdmaVersion version) {
  ClientOptions options = {.version = version};
  if (version == RpcRdmaVersion::kOne && load.procedure == kEcho)
    options.inline_size = kOldThreshold;
  return options;
}

struct Comparison {
  const Load& load;
  InTurns of;  // version 1, and version 2
};

Comparison compare(const Load& load, const std::string& listen, int server_cpu, uint32_t slices) {
  std::unique_ptr<Memory> memory = must(Memory::create({.classes = {{4096, 2048}}}));
  std::unique_ptr<Runtime> runtime =
      must(Runtime::create(*memory, {.poll_cpus = {server_cpu}, .idle = IdlePolicy::kBusy}));
  std::unique_ptr<Server> server = serve(*runtime);
  const std::string uri = must(server->listen(listen));
  Requester one(uri, load, of_version(load, RpcRdmaVersion::kOne));
  Requester two(uri, load, of_version(load, RpcRdmaVersion::kTwo));

  return {load, in_turns(slices, [&] { return one.slice(); }, [&] { return two.slice(); })};
}

// What bare TCP on loopback allows for the echoes.
double tcp_ratio(apps::TcpEnds ends) {
  std::vector<double> ratios;
  for (uint32_t i = 0; i < kTcpSlices; ++i) {
    const double small = apps::tcp_round_trip_ns(ends, kLongCall, kReadRequest, kTcpSliceNs);
    const double large = apps::tcp_round_trip_ns(ends, kInlineCall, kInlineReply, kTcpSliceNs);
    if (small == 0 || large == 0)
      die("TCP on loopback does not work");
    ratios.push_back((small + large) / large);
  }
  return quantile(ratios, 0.5);
}

void print(const Comparison& c) {
  std::printf(
      "%-20s version 1 %8.0f ns  version 2 %8.0f ns  rate of 2 over 1 %.3f (%.3f to %.3f)\n",
      c.load.name, c.of.first, c.of.second, c.of.median, c.of.lower, c.of.upper);
}

void print_json(const std::vector<Comparison>& all, double tcp) {
  const char* before = "{\"loads\": [";
  for (const Comparison& c : all) {
    std::printf(
        "%s{\"load\": \"%s\", \"version1_ns\": %.1f, \"version2_ns\": %.1f, "
        "\"ratio\": %.4f, \"quartiles\": [%.4f, %.4f]}",
        before, c.load.name, c.of.first, c.of.second, c.of.median, c.of.lower, c.of.upper);
    before = ",\n ";
  }
  std::printf("],\n \"tcp_ratio\": %.4f}\n", tcp);
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t slices = 2000;
  bool json = false;
  std::vector<std::string> uris;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      json = true;
    } else if (word == "--slices" && i + 1 < argc && std::atoi(argv[i + 1]) > 0) {
      slices = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else if (!word.starts_with("-") && uris.size() < 2) {
      uris.emplace_back(word);
    } else {
      std::fprintf(stderr,
                   "usage: versions [--slices N] [--json] [URI OF NULL CALLS] [URI OF ECHOES]\n");
      return 2;
    }
  }
  if (uris.empty())
    uris.emplace_back("shm:@versions-" + std::to_string(getpid()));
  if (uris.size() == 1)
    uris.emplace_back("iwarp://127.0.0.1:0");
  const std::vector<int> cpus = apps::allowed_cpus();
  if (cpus.size() < 2)
    die("two CPUs are needed");
  must(ensure_eal());
  apps::pin_to_cpu(cpus.front());
  std::vector<Comparison> all;
  for (size_t i = 0; i < 2; ++i) {
    all.push_back(compare(i == 0 ? kNullCalls : kEchoes, uris[i], cpus.back(), slices));
    if (!json)
      print(all.back());
  }
  const double tcp = tcp_ratio({cpus.front(), cpus.back()});
  if (json)
    print_json(all, tcp);
  else
    std::printf("bare TCP on loopback, as many bytes in as many messages as the echoes: %.3f\n",
                tcp);
}
