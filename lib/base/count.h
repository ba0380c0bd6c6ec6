// Counts, which any thread may read while they are written.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/sanitizer.h"

namespace rrdk::base {

// One thread writes it at a time. Counting is one plain instruction, unlike with a relaxed atomic:
// compilers read, add and write in three.
class Count {
 public:
  Count() = default;
  Count(const Count& other) noexcept : value_(other.get()) {}
  Count& operator=(const Count& other) noexcept {
    set(other.get());
    return *this;
  }

  void operator++() noexcept { *this += 1; }
  void operator+=(uint64_t more) noexcept {
#if RRDK_TSAN
    set(value_ + more);
#else
    value_ += more;
#endif
  }
  // A reader that sees the new value sees what its writer did before.
  void take_one() noexcept { __atomic_store_n(&value_, value_ - 1, __ATOMIC_RELEASE); }

  uint64_t get() const noexcept { return __atomic_load_n(&value_, __ATOMIC_ACQUIRE); }
  operator uint64_t() const noexcept { return get(); }

 private:
  void set(uint64_t value) noexcept { __atomic_store_n(&value_, value, __ATOMIC_RELAXED); }

  uint64_t value_ = 0;
};
static_assert(sizeof(Count) == sizeof(uint64_t));

// Several threads write it, but rarely.
class SharedCount {
 public:
  void operator++() noexcept { *this += 1; }
  void operator+=(uint64_t more) noexcept { value_.fetch_add(more, std::memory_order_relaxed); }
  uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }
  operator uint64_t() const noexcept { return get(); }

 private:
  std::atomic<uint64_t> value_ = 0;
};

}  // namespace rrdk::base
