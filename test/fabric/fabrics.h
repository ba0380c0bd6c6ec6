// The drivers that the conformance suite runs on.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

namespace rrdk::fabric::test {

struct FabricUnderTest {
  const char* name;
  std::string (*new_uri)();  // an address to listen at that nobody uses
};

inline void PrintTo(const FabricUnderTest& fabric, std::ostream* out) {
  *out << fabric.name;
}

extern const FabricUnderTest kFabrics[];
extern const size_t kFabricCount;

inline auto all_fabrics() {
  return testing::ValuesIn(kFabrics, kFabrics + kFabricCount);
}
inline std::string fabric_name(const testing::TestParamInfo<FabricUnderTest>& info) {
  return info.param.name;
}

}  // namespace rrdk::fabric::test
