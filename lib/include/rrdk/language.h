/**
 * What RRDK's C++ headers have in common: they need C++20, and structures of options end in
 * Reserved bytes. Each C++ header includes this one, directly or through another, so that an older
 * standard is reported in one line instead of by many errors.
 *
 *   rrdk::ServerOptions options;               // with the members of the release compiled with
 *
 * Units, in all headers: sizes are in bytes. Options that are times are in milliseconds, `_ms`, or,
 * where those are too long, in microseconds, `_us`. Measured times, points in time (on the clock of
 * Runtime::now_ns()) and ServerCall::reply_after() are in nanoseconds, `_ns`.
 *
 * Only for C++; rrdk/release.h and rrdk/rrdk.h are for C, too.
 */
#pragma once

#if __cplusplus < 202002L
#error "RRDK's headers need C++20: compile with -std=c++20 or later"
#endif

#include <cstdint>

namespace rrdk {

/**
 * The end of a structure that later releases may add to. A new member takes the place of some of
 * these bytes, where zero means the earlier behaviour: so the structure keeps the size that
 * programs were compiled with, and they work with a newer library. Do not set it.
 */
template <unsigned kWords>
struct Reserved {
  uint64_t words[kWords] = {};
};

}  // namespace rrdk
