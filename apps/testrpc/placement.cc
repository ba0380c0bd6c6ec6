#include "placement.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "rrdk/eal.h"
#include "session.h"

namespace rrdk::testrpc {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The list of CPUs that a thread may use, as the kernel writes it: "0-3", or "2" when it is pinned.
std::string cpu_list(const fs::path& thread) {
  constexpr std::string_view kName = "Cpus_allowed_list:\t";
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName))
      return line.substr(kName.size());
  }
  return {};
}

bool has_thread_on(const fs::path& process, const std::string& cpu) {
  std::error_code error;
  for (const fs::directory_entry& thread : fs::directory_iterator(process / "task", error)) {
    if (cpu_list(thread.path()) == cpu)
      return true;
  }
  return false;
}

}  // namespace

Placement place_both(const Options& options, const std::vector<int>& allowed) {
  std::vector<int> cpus = names_cores(options) ? eal_cpus() : allowed;
  Placement p;
  size_t workers = options.dispatch == Dispatch::kWorker ? options.workers : 0;
  if (cpus.size() >= 2) {
    p.client = cpus[0];
    p.server = cpus[1];
  }
  for (size_t i = 0; i < workers; ++i)
    p.workers.push_back(2 + i < cpus.size() ? cpus[2 + i] : -1);
  bool room_for_all = cpus.size() >= 2 + workers;
  p.idle = options.idle.value_or(room_for_all ? IdlePolicy::kBusy : IdlePolicy::kYield);
  return p;
}

int client_cpu(const Options& options, const std::vector<int>& allowed) {
  if (options.cpu)
    return *options.cpu;
  if (names_cores(options) && !eal_cpus().empty())
    return eal_cpus().front();
  if (allowed.size() < 2)
    return -1;
  int here = sched_getcpu();
  if (neighbour_on(here) == 0)
    return here;
  auto free = std::ranges::find_if(allowed, [](int cpu) { return neighbour_on(cpu) == 0; });
  return free != allowed.end() ? *free : here;
}

int neighbour_on(int cpu) {
  std::error_code error;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", error)) {
    std::string name = process.path().filename();
    int id = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), id).ec != std::errc() ||
        id == getpid() || first_line(process.path() / "comm") != "testrpc")
      continue;
    if (has_thread_on(process.path(), std::to_string(cpu)))
      return id;
  }
  return 0;
}

void warn_of_neighbour(int cpu, IdlePolicy idle) {
  int id = cpu < 0 || idle == IdlePolicy::kAdaptive ? 0 : neighbour_on(cpu);
  if (id != 0)
    std::printf(
        "CPU %d is shared with process %d, a testrpc that is pinned to it, too: both poll, and "
        "each takes it from the other; give one of them another --cpu\n",
        cpu, id);
}

}  // namespace rrdk::testrpc
