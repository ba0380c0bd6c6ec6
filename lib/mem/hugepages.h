// What the system says about its hugepages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rrdk::mem {

// Of the default hugepage size, the one that vm.nr_hugepages counts. All zero: no hugepage support.
struct Hugepages {
  size_t page_size = 0;
  uint64_t total = 0;      // what vm.nr_hugepages is now
  uint64_t available = 0;  // free and not promised to anybody
};

// Parses the text of /proc/meminfo.
Hugepages parse_hugepages(const std::string& meminfo);
Hugepages system_hugepages();

// In words: how many pages are missing for `bytes`, and the command that makes them.
std::string hugepage_shortfall(const Hugepages& hugepages, size_t bytes);

}  // namespace rrdk::mem
