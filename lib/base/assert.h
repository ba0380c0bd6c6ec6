// What the code takes for granted, written so that it is checked. Builds with b_ndebug (release
// builds) leave all of this out; debug builds, the simulation and sanitizers have it.
//
//   RRDK_ASSERT(unanswered_ != 0);
//   RRDK_ASSERT(in_flight_ < limit_, in_flight_, limit_);   // says what the two were
//   RRDK_ON_CORE(core_);
//
// An assertion says what a reader must know and only a mistake of ours can break. What peers send,
// what the system lacks and what programs do wrong has an Error or a counter instead.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace rrdk::base {

// What belongs to one thread at a time, such as a poll core and all that it has. Which thread that
// is may change between two uses.
class OwnedByThread {
 public:
  virtual bool here() const noexcept = 0;  // it is the calling thread's

 protected:
  ~OwnedByThread() = default;
};

// Prints all of it and aborts. `names` and `values` may be empty.
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

// Never called: what release builds do not check still counts as used there.
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

// The calling thread may use what belongs to `owner`: an OwnedByThread, or what says here() for
// one.
#define RRDK_ON_CORE(owner) RRDK_ASSERT((owner).here())
