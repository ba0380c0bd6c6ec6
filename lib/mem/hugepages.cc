#include "mem/hugepages.h"

#include <fstream>
#include <sstream>
#include <string_view>

namespace rrdk::mem {

namespace {

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

}  // namespace rrdk::mem
