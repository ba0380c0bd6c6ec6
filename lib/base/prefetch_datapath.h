// Memory that is about to be used, on its way into the caches meanwhile.
#pragma once

#include <cstddef>

namespace rrdk::base {

// All cache lines from `first` on, up to and without `end`: members of one object.
inline void prefetch_lines(const void* first, const void* end) noexcept {
  constexpr size_t kCacheLine = 64;
  for (const auto* at = static_cast<const std::byte*>(first); at < end; at += kCacheLine)
    __builtin_prefetch(at);
}

}  // namespace rrdk::base
