// Brings memory that is about to be used into the caches meanwhile. Always in line: GCC considers a
// function that only prefetches to have no effects, and drops calls to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/assert.h"

namespace rrdk::base {

enum class Use { kRead, kWrite };

// Prefetches all cache lines from that of `first` up to, but not including, `end`: members of one
// object. For writing, other cores lose their copies.
template <Use use = Use::kRead, typename First, typename End>
[[gnu::always_inline]] inline void prefetch_lines(const First* first, const End* end) noexcept {
  constexpr uintptr_t kCacheLine = 64;
  [[maybe_unused]] constexpr ptrdiff_t kLargest = 64 << 10;
  const auto* const behind = reinterpret_cast<const std::byte*>(end);
  const auto* at = reinterpret_cast<const std::byte*>(first);
  RRDK_ASSERT(at <= behind && behind - at < kLargest);
  at -= reinterpret_cast<uintptr_t>(at) % kCacheLine;
  for (; at < behind; at += kCacheLine)
    __builtin_prefetch(at, use == Use::kWrite);
}

}  // namespace rrdk::base
