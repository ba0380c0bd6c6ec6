// Runs simulations: one with its trace, or many. scripts/sim.sh builds and starts it.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runner.h"

namespace {

using namespace rrdk::sim;

constexpr const char* kUsage =
    "usage: sim SEED                      one simulation, a line per event\n"
    "       sim --seeds N [--from S]      many; exit status 1 if one breaks an invariant\n"
    "       sim --hours H [--from S]      as many as there is time for\n"
    "       with many: --processes P (2), --failures F (stops there: 5), --json FILE\n";

int many(const RunOptions& options, const std::string& json) {
  Summary summary = run_many(options);
  for (const Failure& failure : summary.failures)
    std::printf("FAILED seed %llu: %s\n  replay: %s\n",
                static_cast<unsigned long long>(failure.seed), failure.text.c_str(),
                replay_command(failure.seed).c_str());
  std::printf("%llu seeds from %llu, %zu failures, %llu calls, %.1f s, %.0f seeds/s\n",
              static_cast<unsigned long long>(summary.count),
              static_cast<unsigned long long>(options.first), summary.failures.size(),
              static_cast<unsigned long long>(summary.calls), summary.seconds,
              static_cast<double>(summary.count) / (summary.seconds > 0 ? summary.seconds : 1));
  if (!json.empty() && !write_json(summary, json)) {
    std::fprintf(stderr, "sim: %s cannot be written\n", json.c_str());
    return 2;
  }
  return summary.failures.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  RunOptions options;
  options.progress = true;
  std::string json;
  bool is_many = false;
  const char* seed = nullptr;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name.rfind("--", 0) != 0 && seed == nullptr) {
      seed = argv[i];
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    if (name == "--seeds") {
      options.count = std::strtoull(value, nullptr, 0);
      is_many = true;
    } else if (name == "--hours") {
      options.seconds = std::strtod(value, nullptr) * 3600;
      is_many = true;
    } else if (name == "--from") {
      options.first = std::strtoull(value, nullptr, 0);
    } else if (name == "--processes") {
      options.processes = static_cast<unsigned>(std::strtoul(value, nullptr, 0));
    } else if (name == "--failures") {
      options.most_failures = static_cast<unsigned>(std::strtoul(value, nullptr, 0));
    } else if (name == "--json") {
      json = value;
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  }
  if (is_many == (seed != nullptr)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  if (is_many)
    return many(options, json);
  if (!replay(std::strtoull(seed, nullptr, 0)).empty())
    return 1;
  std::puts("all invariants held");
  return 0;
}
