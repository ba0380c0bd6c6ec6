#include "plan.h"

#include <algorithm>

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kDefaultSize = 4096;
// nfs3 draws between the smallest and the largest size.
constexpr uint32_t kNfs3Sizes[] = {1, 1 << 20};
// Listings and paths need this memory even if files are small.
constexpr uint32_t kNfs3Least = 64 << 10;
constexpr uint32_t kPage = 4096;
constexpr uint32_t kMostCredits = 4096;
constexpr double kDefaultSeconds = 2;
constexpr double kStandardSeconds = 1.3;  // of each of the standard benchmark's runs: 20 s in all

struct StandardRun {
  const char* engine;
  uint32_t size;
  uint32_t window;
};

constexpr StandardRun kStandard[] = {
    {"null", 0, 1},         {"echo", 1 << 10, 1},  {"read", 4 << 10, 1},
    {"read", 64 << 10, 1},  {"read", 1 << 20, 1},  {"write", 4 << 10, 1},
    {"write", 64 << 10, 1}, {"write", 1 << 20, 1}, {"sandwich", 64 << 10, 1},
    {"read2", 64 << 10, 1}, {"null", 0, 32},       {"read", 4 << 10, 32},
    {"read", 1 << 20, 8},   {"write", 1 << 20, 8},
};

// Returns the window of a run. With many connections it is smaller, so that the calls in flight fit
// into memory and are answered in time. 0: even one call on each is too much.
uint32_t window_of(const StandardRun& run, uint64_t connections) {
  constexpr uint64_t kCalls = 16384;
  constexpr uint64_t kBytes = 256 << 20;
  const uint64_t by_calls = std::max<uint64_t>(kCalls / connections, 1);
  const uint64_t by_bytes = run.size == 0 ? run.window : kBytes / (connections * run.size);
  return static_cast<uint32_t>(std::min({uint64_t{run.window}, by_calls, by_bytes}));
}

std::vector<RunSpec> standard_plan(const Options& options) {
  std::vector<RunSpec> plan;
  for (const StandardRun& run : kStandard) {
    const Engine* engine = find_engine(run.engine);
    std::vector<uint32_t> sizes;
    if (engine->sized)
      sizes = {run.size};
    std::vector<uint32_t> windows = options.windows;
    if (windows.empty())
      windows = {window_of(run, options.connections)};
    for (uint32_t window : windows) {
      const bool planned = std::ranges::any_of(plan, [&](const RunSpec& r) {
        return r.engine == engine && r.sizes == sizes && r.window == window;
      });
      if (window != 0 && !planned)
        plan.push_back({engine, sizes, window});
    }
  }
  return plan;
}

// The data of callbacks travels inline, in a message of at most 4096 bytes in version 2.
uint32_t largest_callback(const Options& options) {
  constexpr uint32_t kHeaders = 128;  // of transport and RPC, with a reserve
  constexpr uint32_t kVersion2 = 4096;
  bool one = options.version.value_or(RpcRdmaVersion::kOne) == RpcRdmaVersion::kOne;
  return (one ? options.inline_size : std::min(options.inline_size, kVersion2)) - kHeaders;
}

std::vector<std::vector<uint32_t>> callback_choices(const Options& options,
                                                    const std::vector<uint32_t>& sizes) {
  std::vector<std::vector<uint32_t>> choices;
  if (!options.weights.empty()) {  // one choice of all sizes
    choices = {sizes};
    for (uint32_t& size : choices[0])
      size = std::min(size, largest_callback(options));
    return choices;
  }
  for (uint32_t size : sizes) {
    std::vector<uint32_t> choice = {std::min(size, largest_callback(options))};
    if (std::ranges::find(choices, choice) == choices.end())
      choices.push_back(choice);
  }
  return choices;
}

std::vector<RunSpec> plan_of_all(const Options& options) {
  std::vector<const Engine*> engines;
  engines.reserve(options.engines.size());
  for (const std::string& name : options.engines)
    engines.push_back(find_engine(name));
  if (engines.empty()) {
    for (const Engine& engine : plain_engines())
      engines.push_back(&engine);
  }
  std::vector<uint32_t> sizes = options.sizes;
  if (sizes.empty())
    sizes = {kDefaultSize};
  std::vector<uint32_t> windows = options.windows;
  if (windows.empty())
    windows = {options.rate == 0 && !options.find_knee ? 1u : 64u};
  std::vector<RunSpec> plan;
  const bool mix = !options.weights.empty();
  for (const Engine* engine : engines) {
    std::vector<std::vector<uint32_t>> choices;
    if (!engine->sized)
      choices = {{}};
    else if (is_callback(*engine))
      choices = callback_choices(options, sizes);
    else if (is_nfs3(*engine) && options.sizes.empty())
      choices = {{std::begin(kNfs3Sizes), std::end(kNfs3Sizes)}};
    else if (engine->prepare == nullptr || is_nfs3(*engine) || mix)
      choices = {sizes};
    else
      for (uint32_t size : sizes)
        choices.push_back({size});
    for (const std::vector<uint32_t>& choice : choices) {
      for (uint32_t window : windows) {
        plan.push_back({engine, choice, window});
        if (mix && engine->sized)
          plan.back().weights = options.weights;
      }
    }
  }
  return plan;
}

}  // namespace

std::vector<RunSpec> make_plan(Options& options) {
  bool standard = options.engines.empty() && options.sizes.empty();
  if (options.duration_s == 0 && options.count == 0)
    options.duration_s = standard ? kStandardSeconds : kDefaultSeconds;
  std::vector<uint32_t> active = options.active;
  if (active.empty())
    active = {options.connections};
  std::vector<RunSpec> plan;
  for (RunSpec run : standard ? standard_plan(options) : plan_of_all(options)) {
    for (uint32_t connections : active) {
      run.active = connections;
      run.idle = options.connections - connections;
      plan.push_back(run);
    }
  }
  if (std::ranges::find(options.given, "credits") == options.given.end())
    options.credits = std::clamp(largest_window(plan), options.credits, kMostCredits);
  return plan;
}

bool has_nfs3(const std::vector<RunSpec>& plan) {
  return std::ranges::any_of(plan, [](const RunSpec& run) { return is_nfs3(*run.engine); });
}

uint32_t largest_size(const std::vector<RunSpec>& plan) {
  uint32_t size = has_nfs3(plan) ? kNfs3Least : 0;
  for (const RunSpec& run : plan)
    size = std::max(size, run.largest_size());
  return size;
}

uint32_t bytes_of_call(const RunSpec& run) {
  const uint32_t least = is_nfs3(*run.engine) ? kNfs3Least : 1;
  return (std::max(run.largest_size(), least) + kPage - 1) & ~(kPage - 1);
}

uint64_t most_in_flight(const std::vector<RunSpec>& plan) {
  uint64_t bytes = 0;
  for (const RunSpec& run : plan)
    bytes = std::max(bytes, uint64_t{run.window} * run.active * bytes_of_call(run));
  return bytes;
}

uint32_t largest_window(const std::vector<RunSpec>& plan) {
  uint32_t window = 1;
  for (const RunSpec& run : plan)
    window = std::max(window, run.window);
  return window;
}

}  // namespace rrdk::testrpc
