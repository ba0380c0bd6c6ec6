// The RPC program: a counter, which is not idempotent, and data, which is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rrdk/binding.h"

namespace rrdk::survival {

constexpr uint32_t kAdd = 1;    // connection, serial -> the counter after it
constexpr uint32_t kRead = 2;   // offset, bytes -> eligible opaque<>: the pattern
constexpr uint32_t kWrite = 3;  // offset, eligible opaque<> -> how many bytes are not the pattern

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = 0, .name = "NULL"},
    {.procedure = kAdd, .name = "ADD", .fixed_results = 8},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1, .fixed_results = 4},
};
constexpr Binding kBinding = {
    .program = 0x20005700, .version = 1, .name = "survival", .procedures = kProcedures};

constexpr uint32_t kMostBytes = 32768;

// Each byte differs from its neighbours and from those a page or a buffer away.
inline std::byte pattern(uint64_t at) {
  return static_cast<std::byte>((at * 0x9e3779b97f4a7c15u) >> 56);
}

inline uint32_t count_wrong(uint64_t offset, const std::byte* bytes, size_t length) {
  uint32_t wrong = 0;
  for (size_t i = 0; i < length; ++i)
    wrong += bytes[i] != pattern(offset + i);
  return wrong;
}

// xorshift64*: the same numbers for the same seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  uint64_t between(uint64_t low, uint64_t high) { return low + next() % (high - low + 1); }

 private:
  uint64_t state_;
};

}  // namespace rrdk::survival
