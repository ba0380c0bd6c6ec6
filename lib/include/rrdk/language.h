/**
 * What RRDK's C++ headers need of the compiler: C++20. Each of them includes this one, directly or
 * through another, so that an older standard is reported in one line, and not by errors about what
 * it lacks. Also what the headers have in common. Only for C++; rrdk/release.h and rrdk/rrdk.h are
 * for C, too.
 *
 * Units, in all of them: sizes are in bytes. Options that are times are in milliseconds, `_ms`, or,
 * where those are too long, in microseconds, `_us`. What was measured, points in time (on the clock
 * of Runtime::now_ns()) and ServerCall::reply_after() are in nanoseconds, `_ns`.
 *
 *   rrdk::ServerOptions options;               // of the release that this is compiled with
 *   static_assert(sizeof(options.reserved) == 64);
 */
#pragma once

#if __cplusplus < 202002L
#error "RRDK's headers need C++20: compile with -std=c++20 or later"
#endif

#include <cstdint>

namespace rrdk {

/**
 * The end of a structure that later releases may add to. A member that is added takes the place of
 * some of these bytes, where zero means what was done before: so the structure keeps the size that
 * programs were compiled with, and they run on with a newer library. Leave it as it is.
 */
template <unsigned kWords>
struct Reserved {
  uint64_t words[kWords] = {};
};

}  // namespace rrdk
