#include "allocation_hook.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__has_feature)
#define RRDK_HAS_FEATURE(x) __has_feature(x)
#else
#define RRDK_HAS_FEATURE(x) 0
#endif

namespace rrdk::apps {
namespace {

constinit std::atomic<AllocationHook> current{nullptr};

void allocated() noexcept {
  if (AllocationHook hook = current.load(std::memory_order_relaxed))
    hook();
}

}  // namespace
}  // namespace rrdk::apps

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    RRDK_HAS_FEATURE(address_sanitizer) || RRDK_HAS_FEATURE(thread_sanitizer)

// The sanitizer owns malloc and offers hooks. Declared here because not every compiler has its
// header. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             size_t),
                                                         void (*free_hook)(const volatile void*));

void rrdk::apps::set_allocation_hook(AllocationHook hook) noexcept {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t) { allocated(); }, [](const volatile void*) {});
  static_cast<void>(installed);
  current = hook;
}

#else

void rrdk::apps::set_allocation_hook(AllocationHook hook) noexcept {
  current = hook;
}

// glibc lets a program replace malloc; its own stays reachable under these names.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  rrdk::apps::allocated();
  return __libc_malloc(size);
}

void* calloc(size_t number, size_t size) {
  rrdk::apps::allocated();
  return __libc_calloc(number, size);
}

void* realloc(void* old, size_t size) {
  rrdk::apps::allocated();
  return __libc_realloc(old, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  rrdk::apps::allocated();
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  rrdk::apps::allocated();
  void* memory = __libc_memalign(alignment, size);
  if (memory == nullptr)
    return ENOMEM;
  *result = memory;
  return 0;
}
}

#endif
