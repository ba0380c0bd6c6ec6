// Many simulations, in several processes, so that a crash costs one seed and names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rrdk::sim {

struct RunOptions {
  uint64_t first = 1;
  uint64_t count = 1000;
  double seconds = 0;  // if not 0: runs until then, whatever `count` is
  unsigned processes = 2;
  unsigned most_failures = 5;  // stops there
  bool progress = false;       // a line on standard error every ten seconds
};

struct Failure {
  uint64_t seed;
  std::string text;
};

struct Summary {
  uint64_t count = 0;  // seeds that were run
  uint64_t steps = 0;
  uint64_t calls = 0;
  double seconds = 0;
  std::vector<Failure> failures;
};

Summary run_many(const RunOptions& options);
// One simulation in this process, with its trace on standard output. Returns what was broken.
std::string replay(uint64_t seed);

// "scripts/sim.sh 17"
std::string replay_command(uint64_t seed);
bool write_json(const Summary& summary, const std::string& file);

}  // namespace rrdk::sim
