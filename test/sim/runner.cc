#include "runner.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "rig.h"
#include "rrdk/log.h"
#include "world.h"

namespace rrdk::sim {

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kSecondsPerSeed = 60;  // more is a simulation that does not end
constexpr int kBrokenExit = 3;
constexpr unsigned kMostProcesses = 64;

// The report of one process, in memory that all share.
struct Progress {
  uint64_t seed;
  std::atomic<uint64_t> count, steps, calls;
  char text[1024];
};

struct Board {
  std::atomic<uint64_t> next;
  std::atomic<bool> stop;
  Progress reports[kMostProcesses];
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Log lines about injected faults are not wanted.
void be_silent() {
  set_log_sink([](LogLevel, const char*, void*) {}, nullptr);
}

[[noreturn]] void work(Board& board, Progress& report, uint64_t end) {
  be_silent();
  Rig rig;
  if (!rig.create()) {
    std::snprintf(report.text, sizeof report.text, "no memory to simulate with");
    _exit(kBrokenExit);
  }
  while (!board.stop) {
    uint64_t seed = board.next++;
    if (seed >= end)
      break;
    report.seed = seed;
    alarm(kSecondsPerSeed);
    auto world = std::make_unique<World>(rig, seed, false);
    std::string broken = world->run();
    report.steps += world->steps();
    report.calls += world->calls();
    ++report.count;
    if (!broken.empty()) {
      std::snprintf(report.text, sizeof report.text, "%s", broken.c_str());
      _exit(kBrokenExit);
    }
  }
  _exit(0);
}

pid_t start(Board& board, Progress& report, uint64_t end) {
  report.text[0] = 0;
  pid_t child = fork();
  if (child == 0)
    work(board, report, end);
  return child;
}

std::string cause_of_death(const Progress& report, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == kBrokenExit)
    return report.text;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
    return "did not end within " + std::to_string(kSecondsPerSeed) + " s";
  if (WIFSIGNALED(status))
    return std::string("the process died: ") + strsignal(WTERMSIG(status));
  return "the process exited with status " + std::to_string(WEXITSTATUS(status));
}

void add_up(const Board& board, unsigned processes, Summary& summary) {
  summary.count = summary.steps = summary.calls = 0;
  for (unsigned i = 0; i < processes; ++i) {
    summary.count += board.reports[i].count;
    summary.steps += board.reports[i].steps;
    summary.calls += board.reports[i].calls;
  }
}

void say_progress(const Summary& summary) {
  std::fprintf(stderr, "%8.0f s  %10llu seeds  %12llu calls  %zu failures\n", summary.seconds,
               static_cast<unsigned long long>(summary.count),
               static_cast<unsigned long long>(summary.calls), summary.failures.size());
}

}  // namespace

Summary run_many(const RunOptions& options) {
  Summary summary;
  void* shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    summary.failures.push_back({options.first, "no memory to simulate with"});
    return summary;
  }
  Board& board = *::new (shared) Board{};
  board.next = options.first;
  bool timed = options.seconds != 0;
  uint64_t end = timed ? UINT64_MAX : options.first + options.count;
  unsigned processes = std::clamp(options.processes, 1u, kMostProcesses);
  std::fflush(nullptr);
  Clock::time_point began = Clock::now();
  double said = 0;
  std::vector<pid_t> children;
  for (unsigned i = 0; i < processes; ++i)
    children.push_back(start(board, board.reports[i], end));

  for (unsigned running = processes; running != 0;) {
    int status = 0;
    pid_t gone = waitpid(-1, &status, WNOHANG);
    summary.seconds = since(began);
    if (timed && summary.seconds >= options.seconds)
      board.stop = true;
    if (gone <= 0) {
      poll(nullptr, 0, 20);
      if (options.progress && summary.seconds - said >= 10) {
        said = summary.seconds;
        add_up(board, processes, summary);
        say_progress(summary);
      }
      continue;
    }
    auto i =
        static_cast<size_t>(std::find(children.begin(), children.end(), gone) - children.begin());
    if (i == children.size())
      continue;
    --running;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
      continue;
    Progress& report = board.reports[i];
    summary.failures.push_back({report.seed, cause_of_death(report, status)});
    if (options.progress)
      std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(report.seed),
                   summary.failures.back().text.c_str());
    if (summary.failures.size() >= options.most_failures) {
      board.stop = true;
    } else {
      children[i] = start(board, report, end);
      ++running;
    }
  }
  add_up(board, processes, summary);
  munmap(shared, sizeof(Board));
  return summary;
}

std::string replay(uint64_t seed) {
  be_silent();
  Rig rig;
  if (!rig.create())
    return "no memory to simulate with";
  auto world = std::make_unique<World>(rig, seed, true);
  std::string broken = world->run();
  if (!broken.empty()) {
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), broken.c_str());
    std::fflush(nullptr);
    _exit(kBrokenExit);  // engines that are not idle cannot be destroyed
  }
  return broken;
}

std::string replay_command(uint64_t seed) {
  return "scripts/sim.sh " + std::to_string(seed);
}

bool write_json(const Summary& summary, const std::string& file) {
  FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr)
    return false;
  double rate = summary.seconds > 0 ? static_cast<double>(summary.count) / summary.seconds : 0;
  std::fprintf(out, "{\"count\": %llu, \"failures\": [",
               static_cast<unsigned long long>(summary.count));
  const char* separator = "";
  for (const Failure& failure : summary.failures) {
    std::string text = failure.text;
    for (char& c : text) {
      if (c == '"' || c == '\\')
        c = '\'';
    }
    std::fprintf(out, "%s{\"seed\": %llu, \"text\": \"%s\"}", separator,
                 static_cast<unsigned long long>(failure.seed), text.c_str());
    separator = ", ";
  }
  std::fprintf(out,
               "], \"seconds\": %.3f, \"seeds_per_second\": %.1f, \"calls\": %llu, "
               "\"steps\": %llu}\n",
               summary.seconds, rate, static_cast<unsigned long long>(summary.calls),
               static_cast<unsigned long long>(summary.steps));
  return std::fclose(out) == 0;
}

}  // namespace rrdk::sim
