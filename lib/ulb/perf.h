// The upper-layer binding of the perf program, version 1 (apps/testrpc serves and calls it).
#pragma once

#include "rrdk/binding.h"

namespace rrdk::perf {

constexpr uint32_t kProgram = 0x20005666;
constexpr uint32_t kVersion = 1;

enum Procedure : uint32_t {
  kNull = 0,
  kEcho = 1,
  kRead = 2,
  kWrite = 3,
  kSandwich = 4,
  kRead2 = 5,
  kCallback = 6,
};

// PERF_ECHO is never eligible, so that long calls and long replies can be measured with it.
inline constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kNull, .name = "NULL"},
    {.procedure = kEcho, .name = "ECHO", .fixed_results = 4},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 12},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1, .fixed_results = 12},
    {.procedure = kSandwich, .name = "SANDWICH", .eligible_args = 1, .fixed_results = 20},
    {.procedure = kRead2, .name = "READ2", .eligible_results = 2, .fixed_results = 20},
    {.procedure = kCallback, .name = "CALLBACK", .fixed_results = 4},
};

inline constexpr Binding kBinding = {
    .program = kProgram, .version = kVersion, .name = "perf", .procedures = kProcedures};

}  // namespace rrdk::perf
