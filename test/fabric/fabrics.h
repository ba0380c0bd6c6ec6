// The drivers on which the conformance suite runs.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace rrdk::fabric::test {

struct FabricUnderTest {
  const char* name;
  std::string (*new_uri)();  // an unused address to listen at
  bool acknowledges;         // as in Capabilities
};

inline void PrintTo(const FabricUnderTest& fabric, std::ostream* out) {
  *out << fabric.name;
}

// verbs is among them if RRDK_VERBS_ADDRESS is set to an address of this host on an RDMA device,
// such as 10.6.0.1 or 10.6.0.1?device=siw0 or [fd00::1].
std::vector<FabricUnderTest> fabrics();

inline auto all_fabrics() {
  return testing::ValuesIn(fabrics());
}
inline std::string fabric_name(const testing::TestParamInfo<FabricUnderTest>& info) {
  return info.param.name;
}

}  // namespace rrdk::fabric::test
