// Tells the sanitizers what they cannot see themselves; does nothing in other builds.
#pragma once

#include <cstddef>

#if defined(__has_feature)
#define RRDK_HAS_FEATURE(x) __has_feature(x)
#else
#define RRDK_HAS_FEATURE(x) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || RRDK_HAS_FEATURE(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define RRDK_ASAN 1
#else
#define RRDK_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || RRDK_HAS_FEATURE(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
extern "C" {  // defined in the runtime, but declared in none of its headers
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#define RRDK_TSAN 1
#else
#define RRDK_TSAN 0
#endif

namespace rrdk::base {

// Makes any access to the range an ASan error until it is unpoisoned.
inline void poison([[maybe_unused]] const void* address, [[maybe_unused]] size_t length) noexcept {
#if RRDK_ASAN
  __asan_poison_memory_region(address, length);
#endif
}

inline void unpoison([[maybe_unused]] const void* address,
                     [[maybe_unused]] size_t length) noexcept {
#if RRDK_ASAN
  __asan_unpoison_memory_region(address, length);
#endif
}

// A happens-before edge made by code that is not instrumented, such as DPDK's: what was done before
// tsan_release(x) is seen after tsan_acquire(x).
inline void tsan_release([[maybe_unused]] void* address) noexcept {
#if RRDK_TSAN
  __tsan_release(address);
#endif
}

inline void tsan_acquire([[maybe_unused]] void* address) noexcept {
#if RRDK_TSAN
  __tsan_acquire(address);
#endif
}

// Plain accesses within its scope are not reported as races, for code whose synchronisation TSan
// cannot follow. Atomic ones still count.
class TsanIgnore {
 public:
  TsanIgnore() noexcept {
#if RRDK_TSAN
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~TsanIgnore() {
#if RRDK_TSAN
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

}  // namespace rrdk::base
