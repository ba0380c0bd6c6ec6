#include "options.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

namespace rrdk::survival {

namespace {

constexpr const char* kModes[] = {"kill", "break", "all"};
constexpr uint32_t kMostConnections = 10'000;  // in all
constexpr uint64_t kMostCalls = 40'000;        // on all connections: a journal has 65536 records

// Returns false if it is not a number from 1 on.
bool take(const std::string& value, uint32_t& number) {
  number = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
  return number >= 1 && number <= kMostConnections;
}

Result<void> check(const Options& options) {
  if (options.mode == Mode::kKill && (options.server_cache || options.transport != "shm"))
    return fail(Errc::kInvalidArgument,
                "--server-cache and --transport iwarp are for servers that live, of --mode break "
                "or all: one that is killed takes its cache and its port along");
  const Options defaults;
  if (options.mode != Mode::kAll &&
      (options.processes != defaults.processes || options.connections != defaults.connections ||
       options.calls != defaults.calls))
    return fail(Errc::kInvalidArgument,
                "--connections, --processes and --calls are for --mode all");
  const uint64_t connections = uint64_t{options.connections} * options.processes;
  if (connections > kMostConnections || connections * options.calls > kMostCalls)
    return fail(Errc::kInvalidArgument,
                "at most 10000 connections, with 40000 calls in flight, are possible: " +
                    std::to_string(connections) + " with --calls " + std::to_string(options.calls) +
                    " are more");
  return {};
}

}  // namespace

const char* to_string(Mode mode) {
  return kModes[static_cast<size_t>(mode)];
}

const char* usage() {
  return "survival [--mode kill|break|all] [--seconds N] [--seed N] [--json FILE] "
         "[--server-cache]\n"
         "         [--transport shm|iwarp] [--connections N] [--processes N] [--calls N]\n";
}

Result<Options> parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    if (name == "--server-cache") {
      options.server_cache = true;
      continue;
    }
    if (i + 1 == argc)
      return fail(Errc::kInvalidArgument, std::string(name) + ": no such option, or no value");
    std::string value = argv[++i];
    auto mode = std::ranges::find(kModes, value);
    if (name == "--mode" && mode != std::end(kModes))
      options.mode = static_cast<Mode>(mode - std::begin(kModes));
    else if (name == "--seconds" && std::atof(value.c_str()) >= 1)
      options.seconds = std::atof(value.c_str());
    else if (name == "--seed")
      options.seed = std::strtoull(value.c_str(), nullptr, 0);
    else if (name == "--json")
      options.json = value;
    else if (name == "--transport" && (value == "shm" || value == "iwarp"))
      options.transport = value;
    else if (name == "--connections" && take(value, options.connections))
      continue;
    else if (name == "--processes" && take(value, options.processes))
      continue;
    else if (name == "--calls" && take(value, options.calls))
      continue;
    else if (name == "--role" && (value == "server" || value == "client"))
      options.role = value == "server" ? Role::kServer : Role::kClient;
    else if (name == "--uri")
      options.uri = value;
    else if (name == "--announce")
      options.announce = value;
    else if (name == "--journal")
      options.journal = value;
    else if (name == "--report-fd")
      options.report_fd = std::atoi(value.c_str());
    else
      return fail(Errc::kInvalidArgument,
                  std::string(name) + ": not an option, or not with " + value);
  }
  if (options.role == Role::kSupervisor) {
    if (auto checked = check(options); !checked)
      return tl::unexpected(checked.error());
  }
  return options;
}

}  // namespace rrdk::survival
