// The text of a snapshot, and who may tell under which name. The commands of DPDK's telemetry are
// tested with a process of their own (test/apps).
#include "rrdk/telemetry.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "rrdk/client.h"
#include "rrdk/counters.h"
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

// Gives each field a number of its own.
template <typename... Fields>
void number(Fields&... fields) {
  uint32_t last = 1000;
  ((fields = ++last), ...);
}

using Values = std::map<std::string, uint64_t>;

Values values_of(const std::vector<Family>& families) {
  Values values;
  for (const Family& family : families) {
    for (const telemetry::Sample& sample : family.samples) {
      std::string name(family.name);
      for (const auto& [label, value] : sample.labels)
        name += "/" + value;
      const bool is_new =
          values
              .emplace(name, family.kind == Kind::kHistogram ? sample.times.total_ns : sample.value)
              .second;
      EXPECT_TRUE(is_new) << name;
    }
  }
  return values;
}

DurationHistogram times_of(uint64_t ns) {
  DurationHistogram times;
  times.buckets[DurationHistogram::bucket_of(ns)] = 1;
  times.total_ns = ns;
  return times;
}

// The name under which an owner's counter is a metric; refusals are one, with their reasons.
std::string metric_of(const std::string& owner, const std::string& name) {
  const std::string refusal = "refusal_";
  return name.starts_with(refusal) ? owner + "_refusals/" + name.substr(refusal.size())
                                   : owner + "_" + name;
}

// Each counter has a number of its own, and is a metric of each of its owners, and of no other.
TEST(Metrics, HaveEachCounterUnderItsName) {
  const std::map<CounterOwner, std::string> owners = {{CounterOwner::kServer, "server"},
                                                      {CounterOwner::kClient, "client"},
                                                      {CounterOwner::kCore, "core"},
                                                      {CounterOwner::kPool, "pool"},
                                                      {CounterOwner::kProcedure, "procedure"}};
  for (const auto& [owner, name] : owners) {
    Stats stats(owner);
    Values expected;
    for (size_t id = 0; id < counter_count(); ++id) {
      const CounterInfo& info = *counter_info(static_cast<Counter>(id));
      stats.add(static_cast<Counter>(id), 1000 + id);
      if ((info.owners >> static_cast<unsigned>(owner) & 1) != 0)
        expected[metric_of(name, info.name)] = 1000 + id;
    }
    EXPECT_EQ(values_of(telemetry::families_of(stats)), expected);
  }
}

TEST(Metrics, SayWhatTheTableSays) {
  const std::vector<Family> families = telemetry::families_of(Stats(CounterOwner::kServer));
  const auto of = [&](const char* name) {
    return *std::ranges::find(families, name, &Family::name);
  };
  EXPECT_EQ(of("server_connections").kind, Kind::kGauge);
  EXPECT_EQ(of("server_closed_idle").kind, Kind::kCounter);
  EXPECT_EQ(of("server_rdma_read_bytes").unit, "bytes");
  EXPECT_EQ(of("server_closed_idle").unit, "");
  EXPECT_EQ(of("server_closed_idle").help, counter_info(Counter::kClosedIdle)->text);
  EXPECT_EQ(of("server_refusals").samples.size(), kRefusals);
}

TEST(Numbers, OfASizeClassAreThoseOfTheirNames) {
  PoolAudit pool;
  number(pool.buffer_size, pool.count, pool.available, pool.more, pool.least_available,
         pool.missing);
  EXPECT_EQ(values_of(telemetry::families_of(pool)),
            (Values{{"pool_buffers", pool.count},
                    {"pool_buffers_free", pool.available},
                    {"pool_buffers_more", pool.more},
                    {"pool_buffers_least", pool.least_available},
                    {"pool_buffers_missing", pool.missing}}));
}

TEST(Numbers, OfAProcedureAreThoseOfTheirNames) {
  ProcedureStats p;
  number(p.program, p.version, p.procedure, p.calls, p.errors, p.calls_in_progress,
         p.received_bytes, p.sent_bytes);
  p.fetch = times_of(100);
  p.decode = times_of(1'000);
  p.queue = times_of(10'000);
  p.handler = times_of(100'000);
  p.reply = times_of(1'000'000);
  EXPECT_EQ(values_of(telemetry::families_of(p)),
            (Values{{"procedure_calls", p.calls},
                    {"procedure_errors", p.errors},
                    {"procedure_calls_in_progress", p.calls_in_progress},
                    {"procedure_received_bytes", p.received_bytes},
                    {"procedure_sent_bytes", p.sent_bytes},
                    {"procedure_handler_seconds", 100'000},
                    {"procedure_stage_seconds/fetch", 100},
                    {"procedure_stage_seconds/decode", 1'000},
                    {"procedure_stage_seconds/queue", 10'000},
                    {"procedure_stage_seconds/reply", 1'000'000}}));

  Values expected = {{"program", p.program},
                     {"version", p.version},
                     {"calls", p.calls},
                     {"errors", p.errors},
                     {"received_bytes", p.received_bytes},
                     {"sent_bytes", p.sent_bytes},
                     {"timed_calls", 1},
                     {"calls_in_progress", p.calls_in_progress}};
  for (const auto& [stage, times] :
       {std::pair("fetch", &p.fetch), std::pair("decode", &p.decode), std::pair("queue", &p.queue),
        std::pair("reply", &p.reply), std::pair("handler", &p.handler)}) {
    for (const char* end : {"_p50_ns", "_p99_ns", "_max_ns"})
      expected[stage + std::string(end)] = times->percentile_ns(100);
  }
  const telemetry::Numbers numbers = telemetry::numbers_of(p);
  EXPECT_EQ(Values(numbers.begin(), numbers.end()), expected);
}

TEST(Numbers, OfAConnectionAreThoseOfTheirNames) {
  ConnectionInfo i;
  number(i.id, i.core, i.version, i.send_size, i.receive_size, i.credits, i.in_progress, i.calls,
         i.replies, i.calls_rejected, i.transport_errors, i.rdma_read_bytes, i.rdma_written_bytes,
         i.protocol_breaches);
  i.age_ns = 3'000'000;
  i.idle_ns = 2'000'000;
  const telemetry::Numbers numbers = telemetry::numbers_of(i);
  EXPECT_EQ(Values(numbers.begin(), numbers.end()),
            (Values{{"id", i.id},
                    {"core", i.core},
                    {"version", i.version},
                    {"send_size", i.send_size},
                    {"receive_size", i.receive_size},
                    {"credits", i.credits},
                    {"in_progress", i.in_progress},
                    {"calls", i.calls},
                    {"replies", i.replies},
                    {"calls_rejected", i.calls_rejected},
                    {"transport_errors", i.transport_errors},
                    {"rdma_read_bytes", i.rdma_read_bytes},
                    {"rdma_written_bytes", i.rdma_written_bytes},
                    {"protocol_breaches", i.protocol_breaches},
                    {"age_us", 3'000},
                    {"idle_us", 2'000}}));
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

TEST(Tellers, HaveSourcesThatAreThere) {
  must(ensure_eal());
  for (const TelemetrySources& sources :
       {TelemetrySources{.servers = {nullptr}}, TelemetrySources{.clients = {nullptr}}}) {
    auto none = Telemetry::create("half", sources);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, Errc::kInvalidArgument);
  }
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
  EXPECT_THAT(text, HasSubstr("rrdk_server_calls_received_total{server=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_server_refusals_total{server=\"0\",reason=\"too_short\"} 0\n"));
}

}  // namespace
}  // namespace rrdk
