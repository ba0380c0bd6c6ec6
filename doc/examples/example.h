// What the examples share: the program that they speak, and how they end when something fails.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "rrdk/binding.h"

constexpr char kDefaultUri[] = "shm:/tmp/rrdk-example.sock";
constexpr uint32_t kEcho = 1;  // opaque<kMaxText> -> the same
constexpr uint32_t kRead = 2;  // count -> opaque<>, DDP-eligible: lands where the caller wants it
constexpr uint32_t kMaxText = 1000;

constexpr rrdk::ProcedureBinding kProcedures[] = {
    {.procedure = kEcho, .name = "ECHO", .fixed_results = 4},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
};
constexpr rrdk::Binding kBinding = {
    .program = 0x20004563, .version = 1, .name = "example", .procedures = kProcedures};

// For checks of other values than a rrdk::Result, for which there is rrdk::must().
[[noreturn]] inline void give_up(const char* why) {
  std::fprintf(stderr, "%s\n", why);
  std::exit(1);
}
