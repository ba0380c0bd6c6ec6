// How a connection adapts to the device on which it runs.
#include "runtime/link.h"

#include <gtest/gtest.h>

namespace rrdk::runtime {
namespace {

// Shows: PD-32, V2D4-RINV-02, V2D4-RINV-05, V2D4-RINV-06
TEST(Fitted, RemoteInvalidationIsWhatTheDeviceCanDo) {
  for (const bool sends : {false, true}) {
    for (const bool takes : {false, true}) {
      fabric::Capabilities can{};
      can.sends_invalidations = sends;
      can.takes_invalidations = takes;
      const engine::ConnectionOptions fitted = fitted_to(can, {});
      EXPECT_EQ(fitted.sends_invalidations, sends);
      EXPECT_EQ(fitted.takes_invalidations, takes);
      const engine::ConnectionOptions declined =
          fitted_to(can, {.sends_invalidations = false, .takes_invalidations = false});
      EXPECT_FALSE(declined.sends_invalidations);
      EXPECT_FALSE(declined.takes_invalidations);
    }
  }
}

TEST(Fitted, DepthsAndPiecesAreNoMoreThanTheDeviceHas) {
  fabric::Capabilities can{};
  can.max_sges = 3;
  can.max_read_sges = 1;
  can.max_read_bytes = 1000;
  can.max_send_wrs = 64;
  can.max_reads = 2;
  engine::ConnectionOptions wanted;
  wanted.rfc5666.max_reads = 16;
  const engine::ConnectionOptions fitted = fitted_to(can, wanted);
  EXPECT_EQ(fitted.max_sges, 3u);
  EXPECT_EQ(fitted.max_read_sges, 1u);
  EXPECT_EQ(fitted.max_read_bytes, 1000u);
  EXPECT_EQ(fitted.send_wrs, 64u);
  EXPECT_EQ(fitted.rfc5666.max_reads, 2u);
}

}  // namespace
}  // namespace rrdk::runtime
