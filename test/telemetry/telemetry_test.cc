// The text of a snapshot, and the names under which sources report. The commands of DPDK's
// telemetry are tested in their own process (test/apps).
#include "rrdk/telemetry.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/counters.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "runtime/called.h"
#include "telemetry/metrics.h"

namespace rrdk {
namespace {

using telemetry::Family;
using telemetry::Kind;
using testing::HasSubstr;

using telemetry::Format;

std::string text_of(Family family, Format format = Format::kOpenMetrics) {
  return telemetry::to_text({std::move(family)}, format);
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

TEST(OpenMetrics, TimesAndInformation) {
  Family times{{"cpu_seconds", Kind::kCounter, "seconds", "Time."}, {}};
  times.samples.push_back({{}, 1'000'000'002, {}});
  EXPECT_THAT(text_of(times), HasSubstr("\nrrdk_cpu_seconds_total 1.000000002\n"));
  Family build{{"build", Kind::kInfo, "", "What."}, {}};
  build.samples.push_back({{{"version", "1"}}, 1, {}});
  EXPECT_EQ(
      text_of(build),
      "# TYPE rrdk_build info\n# HELP rrdk_build What.\nrrdk_build_info{version=\"1\"} 1\n# EOF\n");
}

// A reader refuses all of a text that is no UTF-8.
TEST(OpenMetrics, BytesThatAreNoUtf8AreReplaced) {
  Family calls{{"calls", Kind::kCounter, "", "How many."}, {}};
  calls.samples.push_back({{{"target", "shm:/a\xff\xc3\xa4\xc3"}}, 1, {}});
  EXPECT_THAT(text_of(calls), HasSubstr("{target=\"shm:/a\uFFFD\u00E4\uFFFD\"} 1\n"));
}

TEST(OlderFormat, DescribesSamplesByTheirFullNames) {
  Family bytes{{"sent_bytes", Kind::kCounter, "bytes", "How \"many\"."}, {}};
  bytes.samples.push_back({{}, 17, {}});
  EXPECT_EQ(text_of(bytes, Format::kPrometheus),
            "# TYPE rrdk_sent_bytes_total counter\n# HELP rrdk_sent_bytes_total How \"many\".\n"
            "rrdk_sent_bytes_total 17\n");
  Family build{{"build", Kind::kInfo, "", "What."}, {}};
  build.samples.push_back({{}, 1, {}});
  EXPECT_THAT(text_of(build, Format::kPrometheus), HasSubstr("# TYPE rrdk_build_info gauge\n"));
}

TEST(OlderFormat, IsForThoseWhoDoNotAskForTheOther) {
  for (const char* accept :
       {"", "*/*", "text/html", "text/plain", "application/openmetrics-text;q=0",
        "application/openmetrics-text; version=1.0.0; q=0.5, text/plain;q=0.75", ",;,=;q", "q=1",
        "application/openmetrics-text;q=0.000"})
    EXPECT_EQ(telemetry::format_for(accept), Format::kPrometheus) << accept;
  for (const char* accept :
       {"application/openmetrics-text", "Application/OpenMetrics-Text ; Q=0.1",
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0."
        "75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
        "text/plain;q=0.3,application/openmetrics-text;q=0.31",
        "application/openmetrics-text;q=junk"})
    EXPECT_EQ(telemetry::format_for(accept), Format::kOpenMetrics) << accept;
}

TEST(OpenMetrics, HistogramsAddUp) {
  Family times{{"handler_seconds", Kind::kHistogram, "seconds", "Time."}, {}};
  DurationHistogram histogram;
  for (uint64_t ns : {100u, 2000u, 5000u})
    ++histogram.buckets[DurationHistogram::bucket_of(ns)];
  ++histogram.buckets[DurationHistogram::kBuckets - 1];  // longer than the last bound
  histogram.total_ns = 7100;
  times.samples.push_back({{{"procedure", "NULL"}}, 0, histogram});
  const std::string text = text_of(times);
  const std::string bucket = "rrdk_handler_seconds_bucket{procedure=\"NULL\",le=\"";
  EXPECT_THAT(text, HasSubstr(bucket + "0.000001024\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "0.000002048\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "0.000004096\"} 2\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "0.000008192\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "17.179869184\"} 3\n"));
  EXPECT_THAT(text, HasSubstr(bucket + "+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_handler_seconds_sum{procedure=\"NULL\"} 0.000007100\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_handler_seconds_count{procedure=\"NULL\"} 4\n"));
  times.buckets = telemetry::Buckets::kFourfold;
  const std::string fewer = text_of(times);
  EXPECT_THAT(fewer, HasSubstr(bucket + "0.000004096\"} 2\n"));
  EXPECT_THAT(fewer, testing::Not(HasSubstr("0.000002048")));
  EXPECT_THAT(fewer, HasSubstr(bucket + "17.179869184\"} 3\n"));
}

// Gives each field its own number.
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

// The name of the metric of an owner's counter; refusals are one metric, with their reasons as
// labels.
std::string metric_of(const std::string& owner, const std::string& name) {
  const std::string refusal = "refusal_";
  return name.starts_with(refusal) ? owner + "_refusals/" + name.substr(refusal.size())
                                   : owner + "_" + name;
}

// Each counter has its own number, and is a metric of each of its owners, and of no other.
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

TEST(Numbers, SizeClassFieldsMatchTheirNames) {
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

TEST(Numbers, ProcedureFieldsMatchTheirNames) {
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
  for (const Family& family : telemetry::families_of(ProcedureStats{}))
    EXPECT_NE(family.kind, Kind::kHistogram) << "of a procedure that was never timed";
}

TEST(Numbers, CalledProcedureFieldsMatchTheirNames) {
  runtime::CalledStats called;
  number(called.program, called.version, called.step_ns[0], called.step_ns[1], called.step_ns[2],
         called.step_ns[3], called.step_ns[4]);
  called.call = times_of(5000);
  EXPECT_EQ(values_of(telemetry::families_of(called)),
            (Values{{"client_call_seconds", 5000},
                    {"client_stage_seconds/wait", called.step_ns[0]},
                    {"client_stage_seconds/post", called.step_ns[1]},
                    {"client_stage_seconds/away", called.step_ns[2]},
                    {"client_stage_seconds/complete", called.step_ns[3]},
                    {"client_stage_seconds/callback", called.step_ns[4]}}));
  const uint64_t end = called.call.percentile_ns(100);
  const telemetry::Numbers numbers = telemetry::numbers_of(called);
  EXPECT_EQ(Values(numbers.begin(), numbers.end()),
            (Values{{"program", called.program},
                    {"version", called.version},
                    {"timed_calls", 1},
                    {"call_p50_ns", end},
                    {"call_p99_ns", end},
                    {"call_max_ns", end},
                    {"wait_total_ns", called.step_ns[0]},
                    {"post_total_ns", called.step_ns[1]},
                    {"away_total_ns", called.step_ns[2]},
                    {"complete_total_ns", called.step_ns[3]},
                    {"callback_total_ns", called.step_ns[4]}}));
}

TEST(Numbers, ProcessNumbersAreNotZero) {
  for (const Family& family : telemetry::families_of_process()) {
    ASSERT_EQ(family.samples.size(), 1u);
    EXPECT_NE(family.samples[0].value, 0u) << family.name;
  }
}

TEST(Numbers, ConnectionFieldsMatchTheirNames) {
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
  EXPECT_THAT(first->openmetrics(), HasSubstr("rrdk_build_info{version=\"0.1.0\"} 1\n"));
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
  EXPECT_THAT(text, HasSubstr("\nrrdk_runtime_stamp_every 16\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_pool_buffers{size=\"4096\","));
  EXPECT_THAT(text, HasSubstr("rrdk_server_calls_received_total{server=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_server_refusals_total{server=\"0\",reason=\"too_short\"} 0\n"));
  constexpr const char* kOpen = "application/openmetrics-text";
  const MetricsAnswer answer = telemetry->answer(kOpen);
  EXPECT_THAT(answer.content_type, HasSubstr("openmetrics"));
  EXPECT_EQ(answer.content_type, Telemetry::content_type(kOpen));
  EXPECT_TRUE(answer.text.ends_with("# EOF\n"));
  EXPECT_THAT(telemetry->answer("").content_type, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_EQ(telemetry->answer("").content_type, Telemetry::content_type(""));
}

TEST(CalledProcedures, AreSummedOverCoresAndBounded) {
  constexpr ProcedureBinding kProcedures[] = {{.procedure = 1, .name = "GET"}};
  const Binding binding = {.program = 1, .version = 1, .name = "blk", .procedures = kProcedures};
  runtime::CalledPrograms all;
  const auto call = [&](runtime::CalledProgram* program, uint32_t procedure, uint64_t ticks) {
    engine::StageRecord record;
    record.name(1, binding.program, binding.version, procedure);
    for (size_t i = 0; i < kStages; ++i)
      record.stamp(static_cast<Stage>(i), 1000 + i * ticks);
    program->note(record);
    record.stamp(Stage::kSeen, 0);  // it had no answer
    program->note(record);
  };
  call(all.of(0, "shm:a", binding), 1, 100);
  call(all.of(1, "shm:a", binding), 1, 1000);
  call(all.of(0, "shm:a", binding), 7, 10);
  call(all.of(0, "shm:b", binding), 1, 10);
  const std::vector<runtime::CalledStats> stats = all.read();
  ASSERT_EQ(stats.size(), 3u);
  EXPECT_EQ(stats[0].target, "shm:a");
  EXPECT_EQ(stats[0].name, "GET of blk");
  EXPECT_EQ(stats[0].call.count(), 2u);
  EXPECT_EQ(stats[0].call.total_ns, ticks_to_ns(400) + ticks_to_ns(4000));
  for (uint64_t ns : stats[0].step_ns)
    EXPECT_EQ(ns, ticks_to_ns(100) + ticks_to_ns(1000));
  EXPECT_EQ(stats[1].name, "other procedures of blk");
  EXPECT_EQ(stats[2].target, "shm:b");
  for (size_t i = 0; i < runtime::CalledPrograms::kMost; ++i)
    all.of(0, std::to_string(i), binding);
  EXPECT_EQ(all.of(0, "one more", binding), nullptr);
  EXPECT_NE(all.of(0, "shm:a", binding), nullptr);
  EXPECT_NE(all.of(1, "one more", binding), nullptr) << "another core";
}

// A program can make a binding where an earlier one was, and use the same Call for both.
TEST(CalledProcedures, AreThoseOfTheBindingOfEachCall) {
  must(ensure_eal());
  auto memory = must(Memory::create({}));
  auto runtime = must(Runtime::create(*memory, {.stamp_every = 1}));
  auto server = must(Server::create(*runtime));
  const std::string uri = must(server->listen("shm:@rrdk-called-" + std::to_string(getpid())));
  auto client = must(Client::create(*runtime));
  auto connection = must(client->connect(uri));
  auto telemetry = must(Telemetry::create("called", {.runtime = runtime.get()}));
  constexpr ProcedureBinding kProcedures[] = {{.procedure = 1, .name = "GET"}};
  std::optional<Binding> binding;
  {
    Call call(*connection);
    for (uint32_t version : {1u, 2u, 1u}) {
      binding.emplace(
          Binding{.program = 9, .version = version, .name = "blk", .procedures = kProcedures});
      call.begin(*binding, 1);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kProgUnavail);
    }
  }
  const std::string text = telemetry->openmetrics();
  const std::string labels = "{target=\"" + uri + "\",program=\"9\",version=\"";
  for (const char* version :
       {"1\",procedure=\"GET of blk\"} 2\n", "2\",procedure=\"GET of blk\"} 1\n"})
    EXPECT_THAT(text, HasSubstr("rrdk_client_call_seconds_count" + labels + version));
}

}  // namespace
}  // namespace rrdk
