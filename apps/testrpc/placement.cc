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

// Returns the CPUs that a thread may use in the kernel's format: "0-3", or "2" if it is pinned.
std::string cpu_list(const fs::path& thread) {
  constexpr std::string_view kName = "Cpus_allowed_list:\t";
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kName))
      return line.substr(kName.size());
  }
  return {};
}

// Returns the entries of a folder in /proc; none or only some if its process ends meanwhile.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code gone;
  for (fs::directory_iterator entry(folder, gone), end; !gone && entry != end;
       entry.increment(gone))
    entries.push_back(entry->path());
  return entries;
}

bool has_thread_on(const fs::path& process, const std::string& cpu) {
  for (const fs::path& thread : entries_of(process / "task")) {
    if (cpu_list(thread) == cpu)
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
  if (neighbours_on(here).empty())
    return here;
  auto free = std::ranges::find_if(allowed, [](int cpu) { return neighbours_on(cpu).empty(); });
  return free != allowed.end() ? *free : here;
}

std::vector<int> neighbours_on(int cpu) {
  std::vector<int> found;
  for (const fs::path& process : entries_of("/proc")) {
    std::string name = process.filename();
    int id = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), id).ec != std::errc() ||
        id == getpid() || first_line(process / "comm") != "testrpc")
      continue;
    if (has_thread_on(process, std::to_string(cpu)))
      found.push_back(id);
  }
  return found;
}

void warn_of_neighbours(int cpu, IdlePolicy idle) {
  if (cpu < 0 || idle == IdlePolicy::kAdaptive)
    return;
  for (int id : neighbours_on(cpu))
    std::printf(
        "CPU %d is shared with process %d, a testrpc that is pinned to it, too: both poll, and "
        "each takes it from the other; give one process another --cpu\n",
        cpu, id);
}

void warn_of_crowd(size_t threads, size_t cpus, IdlePolicy idle) {
  if (threads > cpus && idle != IdlePolicy::kAdaptive)
    std::printf("%zu threads poll on %zu CPU%s: calls wait for the scheduler\n", threads, cpus,
                cpus == 1 ? "" : "s");
}

}  // namespace rrdk::testrpc
