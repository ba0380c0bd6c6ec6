#include "mem/system_memory.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/system.h"

namespace rrdk::mem {

namespace {

constexpr int kMaxNodes = 1024;

// Returns the number after "name:" at the start of a line, or 0.
uint64_t field(const std::string& meminfo, std::string_view name) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') {
      std::istringstream value(line.substr(name.size() + 1));
      uint64_t number = 0;
      value >> number;
      return number;
    }
  }
  return 0;
}

}  // namespace

Hugepages parse_hugepages(const std::string& meminfo) {
  const uint64_t surplus = field(meminfo, "HugePages_Surp");
  const uint64_t total = field(meminfo, "HugePages_Total");
  const uint64_t free = field(meminfo, "HugePages_Free");
  const uint64_t reserved = field(meminfo, "HugePages_Rsvd");
  return {.page_size = field(meminfo, "Hugepagesize") * 1024,
          .total = total > surplus ? total - surplus : 0,
          .available = free > reserved ? free - reserved : 0};
}

Hugepages system_hugepages() {
  std::ifstream file("/proc/meminfo");
  std::stringstream text;
  text << file.rdbuf();
  return parse_hugepages(text.str());
}

std::string hugepage_shortfall(const Hugepages& hugepages, size_t bytes) {
  if (hugepages.page_size == 0)
    return "this system has no hugepages";
  const uint64_t needed = (bytes + hugepages.page_size - 1) / hugepages.page_size;
  const std::string size = std::to_string(hugepages.page_size >> 10) + " kB";
  if (needed <= hugepages.available) {
    // They are there, and yet we got none: because of a cgroup's limit, or another process was
    // faster.
    return std::to_string(needed) + " hugepages of " + size +
           " are free but could not be had (a hugetlb limit of this cgroup?)";
  }
  const uint64_t missing = needed - hugepages.available;
  return std::to_string(missing) + " hugepages of " + size + " are missing (" +
         std::to_string(needed) + " needed, " + std::to_string(hugepages.available) +
         " available): run sysctl vm.nr_hugepages=" + std::to_string(hugepages.total + missing);
}

bool node_exists(int node) {
  if (node == 0)
    return true;  // also if the kernel does not support NUMA
  if (node < 0 || node >= kMaxNodes)
    return false;
  const std::string path = "/sys/devices/system/node/node" + std::to_string(node);
  return access(path.c_str(), F_OK) == 0;
}

int node_count() {
  static const int count = [] {
    int nodes = 0;
    for (int node = 0; node < kMaxNodes; ++node)
      nodes += node_exists(node) ? 1 : 0;
    return nodes;
  }();
  return count;
}

int current_node() noexcept {
  unsigned node = 0;
  return getcpu(nullptr, &node) == 0 ? static_cast<int>(node) : 0;
}

void prefer_node(void* address, size_t length, int node) {
  if (node_count() < 2)
    return;
  constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kMaxNodes / kBits> mask{};
  mask[static_cast<size_t>(node) / kBits] = 1ul << (static_cast<size_t>(node) % kBits);
  if (syscall(SYS_mbind, address, length, MPOL_PREFERRED, mask.data(), kMaxNodes + 1, 0) != 0) {
    // Containers often forbid mbind. The memory is just as good, but may be further away.
    base::log_debug("memory may not be on NUMA node %d: mbind: %s", node,
                    base::system_message(errno).c_str());
  }
}

namespace {

// MemAvailable is an estimate, and a cgroup also pays for page tables, so this part of what is left
// is not taken.
constexpr uint64_t kSpared = 32;

// Reads a file with one number; empty if the file does not exist or says "max".
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number)
    return number;
  return std::nullopt;
}

// Reads a file with a name and a number on each line. Names in /proc/meminfo end in a colon.
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

// The names of one cgroup's files.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive_file;  // in memory.stat: page cache that is dropped first
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// A cgroup's limit also holds for those below it. In a container the path may begin above what is
// visible here; then only the visible root counts.
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

  // For example "4:memory:/a/b" of version 1, "0::/a/b" of version 2.
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

namespace {

struct ProcessLimit {
  decltype(RLIMIT_AS) resource;
  const char* name;
  const char* command;

  uint64_t bytes() const {
    rlimit now = {};
    return getrlimit(resource, &now) == 0 && now.rlim_cur != RLIM_INFINITY ? now.rlim_cur
                                                                           : UINT64_MAX;
  }
};
constexpr ProcessLimit kProcessLimits[] = {{RLIMIT_FSIZE, "RLIMIT_FSIZE", "ulimit -f"},
                                           {RLIMIT_AS, "RLIMIT_AS", "ulimit -v"}};

}  // namespace

Result<void> check_process_limits(uint64_t bytes) {
  for (const ProcessLimit& limit : kProcessLimits) {
    if (bytes > limit.bytes())
      return fail(Errc::kNoMemory, std::to_string(bytes) + " bytes are wanted, and " + limit.name +
                                       " is " + std::to_string(limit.bytes()) + ": raise it (" +
                                       limit.command + ")");
  }
  return {};
}

namespace {

constexpr uint64_t kUnknown = uint64_t{4} << 30;  // assumed free if /proc cannot be read

}  // namespace

Share share_of_free(HugepagePolicy policy) {
  const Hugepages hugepages = policy == HugepagePolicy::kNever ? Hugepages{} : system_hugepages();
  const uint64_t huge = hugepages.available * hugepages.page_size;
  if (policy == HugepagePolicy::kRequire && huge != 0)
    return {huge / 2, "half of the free hugepages"};
  return share_of(huge, memory_headroom());
}

// Free hugepages would be ordinary pages if they had not been set aside, so they count as such. If
// a quarter of all is more than half of the hugepages, ordinary pages alone can provide it.
Share share_of(uint64_t huge, const Headroom& headroom) {
  Share share = {std::min(headroom.bytes, kUnknown) / 4, "a quarter of what is free"};
  if (headroom.bytes != UINT64_MAX)
    share = {(headroom.bytes + huge) / 4, "a quarter of what is free (" + headroom.source + ")"};
  if (huge / 2 > share.bytes)
    share = {huge / 2, "half of the free hugepages"};
  for (const ProcessLimit& limit : kProcessLimits) {
    if (limit.bytes() / 4 < share.bytes)
      share = {limit.bytes() / 4, std::string("a quarter of ") + limit.name};
  }
  return share;
}

Result<void> check_budget(uint64_t bytes, HugepagePolicy policy) {
  if (Result<void> allowed = check_process_limits(bytes); !allowed)
    return allowed;
  if (policy != HugepagePolicy::kNever) {
    const Hugepages hugepages = system_hugepages();
    if (bytes <= hugepages.available * hugepages.page_size)
      return {};
    if (policy == HugepagePolicy::kRequire)
      return fail(Errc::kNoMemory, hugepage_shortfall(hugepages, bytes));
  }
  return check_headroom(bytes, memory_headroom());
}

}  // namespace rrdk::mem
