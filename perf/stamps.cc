// The cost of recording when calls pass their stages (rrdk/stages.h): null calls over one
// connection, with one call in N sampled at both ends, and with none, in turns of a millisecond.
//
//   stamps [--slices N] [--every N] [--json] [URI]
//
// A server on its own poll core, and a client that is polled here. The numbers of calls in flight:
// 1, and 32. Telemetry is off.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "machine_limits.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "turns.h"

namespace {

using namespace rrdk;
using namespace rrdk::perf;

struct Options {
  uint32_t slices = 4000;
  uint32_t every = 16;
  bool json = false;
  std::string uri = "shm:@stamps-" + std::to_string(getpid());
};

struct Cost {
  const Load& load;
  InTurns of;  // none sampled, and some
};

Cost measure(const Load& load, const Options& options, int server_cpu) {
  std::unique_ptr<Memory> memory = must(Memory::create({.classes = {{4096, 2048}}}));
  std::unique_ptr<Runtime> runtime =
      must(Runtime::create(*memory, {.poll_cpus = {server_cpu}, .idle = IdlePolicy::kBusy}));
  std::unique_ptr<Server> server = serve(*runtime);
  Requester client(must(server->listen(options.uri)), load);
  const auto slice = [&](uint32_t every) {
    runtime->stamp_every(every);
    client.runtime().stamp_every(every);
    return client.slice();
  };
  return {load,
          in_turns(options.slices, [&] { return slice(0); }, [&] { return slice(options.every); })};
}

void print(const Cost& c, const Options& options) {
  if (options.json)
    std::printf(
        "{\"window\": %u, \"every\": %u, \"none_ns\": %.1f, \"stamped_ns\": %.1f, \"ratio\": %.4f, "
        "\"quartiles\": [%.4f, %.4f]}\n",
        c.load.window, options.every, c.of.first, c.of.second, c.of.median, c.of.lower, c.of.upper);
  else
    std::printf("%-20s none %7.0f ns  one in %u %7.0f ns  rate %.3f of it (%.3f to %.3f)\n",
                c.load.name, c.of.first, options.every, c.of.second, c.of.median, c.of.lower,
                c.of.upper);
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const int number = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (word == "--json") {
      options.json = true;
    } else if (word == "--slices" && number > 0) {
      options.slices = static_cast<uint32_t>(number), ++i;
    } else if (word == "--every" && number > 0) {
      options.every = static_cast<uint32_t>(number), ++i;
    } else if (!word.starts_with("-")) {
      options.uri = word;
    } else {
      std::fprintf(stderr, "usage: stamps [--slices N] [--every N] [--json] [URI]\n");
      std::exit(2);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const std::vector<int> cpus = apps::allowed_cpus();
  if (cpus.size() < 2)
    die("two CPUs are needed");
  must(ensure_eal());
  apps::pin_to_cpu(cpus.front());
  for (const Load& load :
       {Load{"null, 1 at a time", kNull, 1}, Load{"null, 32 at a time", kNull, 32}})
    print(measure(load, options, cpus.back()), options);
}
