#include "mem/system_memory.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/system_message.h"

namespace rrdk::mem {

namespace {

constexpr int kMaxNodes = 1024;

// The number after "name:" at a line's start, or 0.
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
    // They are there, and yet we got none: a cgroup's limit, or somebody else was quicker.
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
    return true;  // also where the kernel knows nothing of NUMA
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
    // Containers often forbid mbind; the memory is as good, only perhaps further away.
    base::log_debug("memory may not be on NUMA node %d: mbind: %s", node,
                    base::system_message(errno).c_str());
  }
}

}  // namespace rrdk::mem
