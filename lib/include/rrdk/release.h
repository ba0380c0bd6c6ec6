/**
 * The release of the library. A macro has the release that a program was compiled with, and a
 * function the one that it runs with. Valid in C (C11) and in C++.
 *
 *   #if RRDK_VERSION < RRDK_VERSION_NUM(0, 1, 0)
 *   #error "needs RRDK 0.1"
 *   #endif
 *   std::printf("RRDK %s\n", rrdk_version_string());
 *
 * Compatibility: within one soname (librrdk.so.0) a program runs with the release that it was
 * compiled with and with later ones, which the ABI check of the test run verifies
 * (CONTRIBUTING.md).
 *
 * The version of RPC-over-RDMA that a connection uses is in rrdk/version.h.
 */
#pragma once

#include <stdint.h>

/* Major, minor, patch: the first one changes when programs must be changed. */
#define RRDK_VERSION_MAJOR 0
#define RRDK_VERSION_MINOR 1
#define RRDK_VERSION_PATCH 0

/** A release as one number, for comparisons; each part is below 256. */
#define RRDK_VERSION_NUM(major, minor, patch) ((major) * 65536 + (minor) * 256 + (patch))
/** The release of these headers. */
#define RRDK_VERSION RRDK_VERSION_NUM(RRDK_VERSION_MAJOR, RRDK_VERSION_MINOR, RRDK_VERSION_PATCH)
/** As above, as text. */
#define RRDK_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/** RRDK_VERSION of the library that runs. Any thread, at any time. */
uint32_t rrdk_version(void);
/** RRDK_VERSION_STRING of the library that runs. Never null. */
const char* rrdk_version_string(void);

#ifdef __cplusplus
}
#endif
