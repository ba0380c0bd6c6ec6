/**
 * What RRDK's C++ headers need of the compiler: C++20. Each of them includes this, by itself or by
 * others of them, so that an older standard is told in one line, instead of by what it does not
 * know. Only for C++; rrdk/release.h and rrdk/rrdk.h are for C, too.
 */
#pragma once

#if __cplusplus < 202002L
#error "RRDK's headers need C++20: compile with -std=c++20 or later"
#endif
