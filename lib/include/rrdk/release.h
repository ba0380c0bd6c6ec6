/**
 * Which release of the library this is. Valid in C (C11) and in C++.
 *
 * What a program was compiled with is a macro, and what it runs with a function. Within one soname
 * (librrdk.so.0) a program runs with the release that it was compiled with and with later ones, as
 * the ABI check of the test run holds us to (CONTRIBUTING.md).
 *
 *   #if RRDK_VERSION < RRDK_VERSION_NUM(0, 1, 0)
 *   #error "needs RRDK 0.1"
 *   #endif
 *   std::printf("RRDK %s\n", rrdk_version_string());
 *
 * The version of RPC-over-RDMA that a connection speaks is another thing: rrdk/version.h.
 */
#pragma once

#include <stdint.h>

/* Major, minor, patch: the first one changes when programs must be changed. */
#define RRDK_VERSION_MAJOR 0
#define RRDK_VERSION_MINOR 1
#define RRDK_VERSION_PATCH 0

/** A release as one number, to compare: each part is below 256. */
#define RRDK_VERSION_NUM(major, minor, patch) ((major) * 65536 + (minor) * 256 + (patch))
/** The release whose headers these are. */
#define RRDK_VERSION RRDK_VERSION_NUM(RRDK_VERSION_MAJOR, RRDK_VERSION_MINOR, RRDK_VERSION_PATCH)
/** The same as text. */
#define RRDK_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/** RRDK_VERSION of the library that runs. Any thread, at any time. */
uint32_t rrdk_version(void);
/** Its RRDK_VERSION_STRING. Never null. */
const char* rrdk_version_string(void);

#ifdef __cplusplus
}
#endif
