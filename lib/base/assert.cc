#include "base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace rrdk::base {

// Not through the log, which is the program's and may itself be broken.
void report_assertion(const char* file, int line, const char* condition, const char* names,
                      const int64_t* values, int count) noexcept {
  std::fprintf(stderr, "%s:%d: assertion failed: %s", file, line, condition);
  for (int i = 0; i < count; ++i)
    std::fprintf(stderr, "%s%lld", i == 0 ? "; " : ", ", static_cast<long long>(values[i]));
  std::fprintf(stderr, count == 0 ? "\n" : " (%s)\n", names);
  std::abort();
}

}  // namespace rrdk::base
