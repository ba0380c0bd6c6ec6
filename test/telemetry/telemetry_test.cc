// The text of a snapshot, and who may tell under which name. The commands of DPDK's telemetry are
// tested with a process of their own (test/apps).
#include "rrdk/telemetry.h"

#include <gmock/gmock.h>

#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "telemetry/metrics.h"

namespace rrdk {
namespace {

using telemetry::Family;
using telemetry::Kind;
using testing::HasSubstr;

std::string text_of(Family family) {
  return telemetry::to_openmetrics({std::move(family)});
}

TEST(OpenMetrics, CountersAndGauges) {
  Family calls{{"calls", Kind::kCounter, "", "How many."}, {}};
  calls.samples.push_back({{{"server", "0"}, {"procedure", "a \"b\"\\c\nd"}}, 17, {}});
  EXPECT_EQ(text_of(calls),
            "# TYPE rrdk_calls counter\n# HELP rrdk_calls How many.\n"
            "rrdk_calls_total{server=\"0\",procedure=\"a \\\"b\\\"\\\\c\\nd\"} 17\n# EOF\n");
  Family free{{"free_bytes", Kind::kGauge, "bytes", "Left."}, {}};
  free.samples.push_back({{}, 5, {}});
  EXPECT_EQ(text_of(free),
            "# TYPE rrdk_free_bytes gauge\n# UNIT rrdk_free_bytes bytes\n"
            "# HELP rrdk_free_bytes Left.\nrrdk_free_bytes 5\n# EOF\n");
}

TEST(OpenMetrics, HistogramsAddUp) {
  Family times{{"handler_seconds", Kind::kHistogram, "seconds", "Time."}, {}};
  DurationHistogram histogram;
  for (uint64_t ns : {100u, 300u, 5000u})
    ++histogram.buckets[DurationHistogram::bucket_of(ns)];
  ++histogram.buckets[DurationHistogram::kBuckets - 1];  // longer than the last bound
  histogram.total_ns = 5400;
  times.samples.push_back({{{"procedure", "NULL"}}, 0, histogram});
  const std::string text = text_of(times);
  const std::string bucket = "rrdk_handler_seconds_bucket{procedure=\"NULL\",le=\"";
  EXPECT_THAT(text, HasSubstr(bucket + "0.000000256\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "0.000000512\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "0.000004096\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "0.000008192\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "17.179869184\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_handler_seconds_sum{procedure=\"NULL\"} 0.000005400\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_handler_seconds_count{procedure=\"NULL\"} 4\n"));
}

TEST(Tellers, HaveNamesOfTheirOwn) {
  must(ensure_eal());
  for (const char* bad : {"", "a b", "a,b", "a/b"}) {
    auto none = Telemetry::create(bad, {});
    ASSERT_FALSE(none) << bad;
    EXPECT_EQ(none.error().code, Errc::kInvalidArgument);
  }
  auto first = must(Telemetry::create("blk-1", {}));
  EXPECT_FALSE(Telemetry::create("blk-1", {}));
  auto second = must(Telemetry::create("blk_2", {}));
  first.reset();
  first = must(Telemetry::create("blk-1", {}));
  EXPECT_EQ(first->openmetrics(), "# EOF\n");
}

TEST(Tellers, TellOfServersCoresAndBuffers) {
  must(ensure_eal());
  auto memory = must(Memory::create({.classes = {{4096, 256}, {65536, 16}}}));
  auto runtime = must(Runtime::create(*memory, {.embedded_cores = 2}));
  auto server = must(Server::create(*runtime));
  auto telemetry =
      must(Telemetry::create("all", {.runtime = runtime.get(), .servers = {server.get()}}));
  const std::string text = telemetry->openmetrics();
  EXPECT_THAT(text, HasSubstr("rrdk_core_passes_total{core=\"1\"} "));
  EXPECT_THAT(text, HasSubstr("rrdk_pool_buffers{size=\"4096\","));
  EXPECT_THAT(text, HasSubstr("rrdk_server_calls_total{server=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_server_refusals_total{server=\"0\",reason=\""));
}

}  // namespace
}  // namespace rrdk
