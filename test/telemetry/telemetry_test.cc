// The text of a snapshot, and who may tell under which name. The commands of DPDK's telemetry are
// tested with a process of their own (test/apps).
#include "rrdk/telemetry.h"

#include <gmock/gmock.h>

#include <map>

#include "rrdk/client.h"
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

// Refusals have their reasons from the same place as the counters: here each has its number.
void number_refusals(Refusals& refusals, Values& expected, const std::string& family) {
  for (const Refusal reason : all_refusals()) {
    refusals[reason] = 5000 + static_cast<uint64_t>(reason);
    expected[family + "/" + to_string(reason)] = refusals[reason];
  }
}

DurationHistogram times_of(uint64_t ns) {
  DurationHistogram times;
  times.buckets[DurationHistogram::bucket_of(ns)] = 1;
  times.total_ns = ns;
  return times;
}

// By their names, which is what dashboards go by.
TEST(Numbers, OfAServerAreThoseOfTheirNames) {
  ServerStats s;
  number(s.connections, s.connections_accepted, s.connections_refused, s.refused_per_client,
         s.connections_ended, s.closed_idle, s.closed_silent, s.closed_for_room, s.closed_stalled,
         s.calls, s.replies, s.rejected, s.calls_not_run, s.transport_errors, s.protocol_breaches,
         s.bytes_read, s.bytes_written, s.turn_waits, s.chunk_waits, s.share_waits, s.replay.hits,
         s.replay.waits, s.replay.stored, s.replay.evicted, s.replay.not_kept, s.replay.lost,
         s.replay.unprotected, s.replay.refused, s.replay.failed_again, s.replay.clients,
         s.replay.places, s.replay.made_way, s.backward.calls, s.backward.ended_ok,
         s.backward.ended_error, s.backward.timeouts, s.backward.given_up,
         s.mistakes.invalid_memory, s.mistakes.unusable_memory, s.mistakes.too_large,
         s.mistakes.no_buffers, s.mistakes.failed, s.mistakes.unanswered);
  const HandlerMistakes& m = s.mistakes;
  Values expected = {
      {"server_connections", s.connections},
      {"server_connections_accepted", s.connections_accepted},
      {"server_connections_refused", s.connections_refused},
      {"server_connections_refused_per_client", s.refused_per_client},
      {"server_connections_ended", s.connections_ended},
      {"server_closed_idle", s.closed_idle},
      {"server_closed_silent", s.closed_silent},
      {"server_closed_for_room", s.closed_for_room},
      {"server_closed_stalled", s.closed_stalled},
      {"server_calls", s.calls},
      {"server_replies", s.replies},
      {"server_calls_rejected", s.rejected},
      {"server_calls_not_run", s.calls_not_run},
      {"server_transport_errors", s.transport_errors},
      {"server_protocol_breaches", s.protocol_breaches},
      {"server_rdma_read_bytes", s.bytes_read},
      {"server_rdma_written_bytes", s.bytes_written},
      {"server_waits_turn", s.turn_waits},
      {"server_waits_chunk_bytes", s.chunk_waits},
      {"server_waits_share", s.share_waits},
      {"server_replay_answered", s.replay.hits},
      {"server_replay_kept", s.replay.stored},
      {"server_replay_refused", s.replay.refused},
      {"server_replay_clients", s.replay.clients},
      {"server_replay_places", s.replay.places},
      {"server_replay_made_way", s.replay.made_way},
      {"server_replay_lost", s.replay.lost},
      {"server_handler_mistakes",
       m.invalid_memory + m.unusable_memory + m.too_large + m.no_buffers + m.failed + m.unanswered},
      {"server_backward_calls", s.backward.calls},
      {"server_backward_errors", s.backward.ended_error}};
  number_refusals(s.refusals, expected, "server_refusals");
  EXPECT_EQ(values_of(telemetry::families_of(s)), expected);
}

TEST(Numbers, OfAClientAreThoseOfTheirNames) {
  ClientStats s;
  number(s.calls, s.ended_ok, s.ended_error, s.timeouts, s.given_up, s.in_flight, s.granted,
         s.credit_waits, s.reconnects, s.retransmissions, s.keepalives, s.failed_attempts,
         s.protocol_breaches, s.carried_over, s.keepalive_ends, s.fallbacks, s.lent);
  Values expected = {{"client_calls", s.calls},
                     {"client_calls_ok", s.ended_ok},
                     {"client_calls_failed", s.ended_error},
                     {"client_calls_timed_out", s.timeouts},
                     {"client_calls_in_flight", s.in_flight},
                     {"client_credits", s.granted},
                     {"client_waits_credit", s.credit_waits},
                     {"client_reconnections", s.reconnects},
                     {"client_retransmissions", s.retransmissions},
                     {"client_keepalives", s.keepalives},
                     {"client_connections", 1},
                     {"client_attempts_failed", s.failed_attempts},
                     {"client_protocol_breaches", s.protocol_breaches}};
  number_refusals(s.refusals, expected, "client_refusals");
  EXPECT_EQ(values_of(telemetry::families_of(s)), expected);
}

TEST(Numbers, OfACoreAndOfASizeClassAreThoseOfTheirNames) {
  CoreStats core;
  number(core.polls, core.busy_polls, core.completions, core.sleeps, core.connections);
  EXPECT_EQ(values_of(telemetry::families_of(core)), (Values{{"core_connections", core.connections},
                                                             {"core_passes", core.polls},
                                                             {"core_busy_passes", core.busy_polls},
                                                             {"core_completions", core.completions},
                                                             {"core_sleeps", core.sleeps}}));
  PoolAudit pool;
  number(pool.buffer_size, pool.count, pool.available, pool.more, pool.least_available,
         pool.refusals);
  EXPECT_EQ(values_of(telemetry::families_of(pool)),
            (Values{{"pool_buffers", pool.count},
                    {"pool_buffers_free", pool.available},
                    {"pool_buffers_more", pool.more},
                    {"pool_buffers_least", pool.least_available},
                    {"pool_buffers_missing", pool.refusals}}));
}

TEST(Numbers, OfAProcedureAreThoseOfTheirNames) {
  ProcedureStats p;
  number(p.program, p.version, p.procedure, p.calls, p.errors, p.in_progress, p.bytes_in,
         p.bytes_out);
  p.fetch = times_of(100);
  p.decode = times_of(1'000);
  p.queue = times_of(10'000);
  p.handler = times_of(100'000);
  p.reply = times_of(1'000'000);
  EXPECT_EQ(values_of(telemetry::families_of(p)),
            (Values{{"procedure_calls", p.calls},
                    {"procedure_errors", p.errors},
                    {"procedure_calls_in_progress", p.in_progress},
                    {"procedure_received_bytes", p.bytes_in},
                    {"procedure_sent_bytes", p.bytes_out},
                    {"procedure_handler_seconds", 100'000},
                    {"procedure_stage_seconds/fetch", 100},
                    {"procedure_stage_seconds/decode", 1'000},
                    {"procedure_stage_seconds/queue", 10'000},
                    {"procedure_stage_seconds/reply", 1'000'000}}));

  Values expected = {{"program", p.program},   {"version", p.version},
                     {"calls", p.calls},       {"errors", p.errors},
                     {"bytes_in", p.bytes_in}, {"bytes_out", p.bytes_out},
                     {"timed_calls", 1},       {"in_progress", p.in_progress}};
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
         i.replies, i.rejected, i.transport_errors, i.bytes_read, i.bytes_written,
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
                    {"rejected", i.rejected},
                    {"transport_errors", i.transport_errors},
                    {"bytes_read", i.bytes_read},
                    {"bytes_written", i.bytes_written},
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
  EXPECT_THAT(text, HasSubstr("rrdk_server_calls_total{server=\"0\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("rrdk_server_refusals_total{server=\"0\",reason=\""));
}

}  // namespace
}  // namespace rrdk
