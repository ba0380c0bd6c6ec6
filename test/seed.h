// The seed of a run of random tests.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>

namespace rrdk::test {

// RRDK_SEED if it is set, otherwise a new one. It is printed, so that the run can be repeated.
inline uint64_t run_seed() {
  static const uint64_t value = [] {
    const char* given = std::getenv("RRDK_SEED");
    uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::cout << "RRDK_SEED=" << seed << std::endl;
    return seed;
  }();
  return value;
}

}  // namespace rrdk::test
