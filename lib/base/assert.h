// Assumptions of the code, written so that they are checked. Builds with b_ndebug (release builds)
// leave all of this out; debug builds, the simulation and sanitizers have it.
//
//   RRDK_ASSERT(unanswered_ != 0);
//   RRDK_ASSERT(in_flight_ < limit_, in_flight_, limit_);   // reports both values
//   RRDK_ON_CORE(core_);
//
// An assertion states what a reader must know and only a bug of ours can break. What peers send,
// what the system lacks and what programs do wrong has an Error or a counter instead.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace rrdk::base {

// An object that belongs to one thread at a time, such as a poll core and everything on it. The
// thread may change between two uses.
class OwnedByThread {
 public:
  virtual bool here() const noexcept = 0;  // whether it belongs to the calling thread

 protected:
  ~OwnedByThread() = default;
};

// Prints everything and aborts. `names` and `values` may be empty.
[[noreturn, gnu::cold]] void report_assertion(const char* file, int line, const char* condition,
                                              const char* names, const int64_t* values,
                                              int count) noexcept;

template <typename Value>
int64_t printed(const Value& value) noexcept {
  if constexpr (std::is_pointer_v<Value>)
    return static_cast<int64_t>(reinterpret_cast<intptr_t>(value));
  else
    return static_cast<int64_t>(value);
}

template <typename... Values>
[[noreturn, gnu::cold, gnu::noinline]] void assertion_failed(const char* file, int line,
                                                             const char* condition,
                                                             const char* names,
                                                             const Values&... values) noexcept {
  const std::array<int64_t, sizeof...(values)> all = {printed(values)...};
  report_assertion(file, line, condition, names, all.data(), static_cast<int>(all.size()));
}

// Never called: it makes what release builds do not check count as used.
template <typename... Values>
char not_checked(const Values&...);

}  // namespace rrdk::base

#ifdef NDEBUG
#define RRDK_ASSERT(condition, ...) \
  static_cast<void>(sizeof(::rrdk::base::not_checked((condition)__VA_OPT__(, ) __VA_ARGS__)))
#else
#define RRDK_ASSERT(condition, ...)                                             \
  ((condition) ? static_cast<void>(0)                                           \
               : ::rrdk::base::assertion_failed(__FILE__, __LINE__, #condition, \
                                                #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__))
#endif

// Asserts that the calling thread may use what belongs to `owner`: an OwnedByThread, or an object
// that has a here() like it.
#define RRDK_ON_CORE(owner) RRDK_ASSERT((owner).here())
