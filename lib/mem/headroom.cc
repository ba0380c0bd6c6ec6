#include "mem/headroom.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

namespace rrdk::mem {

namespace {

// MemAvailable is an estimate, and a cgroup also pays for page tables: this part of what is left is
// not ours to take.
constexpr uint64_t kSpared = 32;

// A file of one number; none if it is not there or says "max".
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number)
    return number;
  return std::nullopt;
}

// Of a file with a name and a number on each line. Names in /proc/meminfo end in a colon.
uint64_t field_of(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t number = 0;
    if (words >> name >> number && name == wanted)
      return number;
  }
  return 0;
}

void lower(Headroom& headroom, uint64_t bytes, const std::string& source) {
  if (bytes < headroom.bytes)
    headroom = {bytes, source};
}

// One cgroup's files have these names.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_file;  // in memory.stat: page cache that is dropped first
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// A cgroup's limit holds for those below it too. In a container the path may begin above what can
// be seen from here; then only the visible root counts.
void lower_by_cgroups(Headroom& headroom, const std::string& hierarchy, std::string path,
                      const CgroupFiles& files) {
  for (;;) {
    const std::string folder = hierarchy + path + "/";
    const std::optional<uint64_t> limit = number_in(folder + files.limit);
    const std::optional<uint64_t> usage = number_in(folder + files.usage);
    if (limit && usage) {
      const uint64_t cache = field_of(folder + "memory.stat", files.inactive_file);
      const uint64_t used = *usage - std::min(*usage, cache);
      lower(headroom, *limit - std::min(*limit, used),
            folder + files.limit + " is " + std::to_string(*limit) + ", of which " +
                std::to_string(used) + " are in use");
    }
    if (path.empty())
      return;
    path.resize(path.rfind('/'));
  }
}

}  // namespace

Headroom memory_headroom(const std::string& root) {
  Headroom headroom;
  const std::string meminfo = root + "/proc/meminfo";
  if (const uint64_t kilobytes = field_of(meminfo, "MemAvailable:"); kilobytes != 0)
    lower(headroom, kilobytes * 1024, "MemAvailable in " + meminfo);

  // "4:memory:/a/b" of version 1, "0::/a/b" of version 2.
  std::ifstream cgroups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(cgroups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::string path = line.substr(second + 1);
    if (path == "/" || !path.starts_with("/"))
      path.clear();
    if (controllers == ",,")
      lower_by_cgroups(headroom, root + "/sys/fs/cgroup", path, kVersion2);
    else if (controllers.find(",memory,") != std::string::npos)
      lower_by_cgroups(headroom, root + "/sys/fs/cgroup/memory", path, kVersion1);
  }
  return headroom;
}

Result<void> check_headroom(uint64_t bytes, const Headroom& headroom) {
  const uint64_t spared = headroom.source.empty() ? 0 : headroom.bytes / kSpared;
  if (bytes <= headroom.bytes - spared)
    return {};
  return fail(Errc::kNoMemory, std::to_string(bytes) + " bytes are wanted, " +
                                   std::to_string(headroom.bytes - spared) +
                                   " can be had without driving other programs out (" +
                                   headroom.source + ")");
}

Result<void> check_process_limits(uint64_t bytes) {
  struct Named {
    decltype(RLIMIT_AS) resource;
    const char* name;
    const char* command;
  };
  for (const Named& limit : {Named{RLIMIT_FSIZE, "RLIMIT_FSIZE", "ulimit -f"},
                             Named{RLIMIT_AS, "RLIMIT_AS", "ulimit -v"}}) {
    rlimit now = {};
    if (getrlimit(limit.resource, &now) == 0 && now.rlim_cur != RLIM_INFINITY &&
        bytes > now.rlim_cur)
      return fail(Errc::kNoMemory, std::to_string(bytes) + " bytes are wanted, and " + limit.name +
                                       " is " + std::to_string(now.rlim_cur) + ": raise it (" +
                                       limit.command + ")");
  }
  return {};
}

}  // namespace rrdk::mem
