// What a fuzz target demands. If it does not hold, the process ends, which the fuzzer reports.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace rrdk::fuzz {

inline void require(bool holds, const char* what) {
  if (holds)
    return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

}  // namespace rrdk::fuzz
