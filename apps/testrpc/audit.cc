#include "audit.h"

#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RRDK_MALLOC_IS_TAKEN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RRDK_MALLOC_IS_TAKEN 1
#endif
#endif

namespace rrdk::testrpc {
namespace {

constinit std::atomic<uint64_t> own_counter{0};
constinit std::atomic<std::atomic<uint64_t>*> counter{&own_counter};

[[maybe_unused]] void count() noexcept {
  counter.load(std::memory_order_relaxed)->fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool counts_allocations() {
#ifdef RRDK_MALLOC_IS_TAKEN
  return false;
#else
  return true;
#endif
}

uint64_t allocations() noexcept {
  return counter.load()->load(std::memory_order_relaxed);
}

void count_allocations_in(std::atomic<uint64_t>& place) {
  place = allocations();
  counter = &place;
}

}  // namespace rrdk::testrpc

#ifndef RRDK_MALLOC_IS_TAKEN

// glibc lets a program replace malloc; its own stays reachable under these names.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  rrdk::testrpc::count();
  return __libc_malloc(size);
}

void* calloc(size_t number, size_t size) {
  rrdk::testrpc::count();
  return __libc_calloc(number, size);
}

void* realloc(void* old, size_t size) {
  rrdk::testrpc::count();
  return __libc_realloc(old, size);
}

void* aligned_alloc(size_t alignment, size_t size) {
  rrdk::testrpc::count();
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** result, size_t alignment, size_t size) {
  rrdk::testrpc::count();
  void* memory = __libc_memalign(alignment, size);
  if (memory == nullptr)
    return ENOMEM;
  *result = memory;
  return 0;
}
}

#endif
