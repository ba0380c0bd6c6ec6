#include "results_json.h"

#include <rte_version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "disturbance_json.h"
#include "repetitions.h"
#include "revision.h"
#include "rrdk/release.h"
#include "security.h"
#include "session.h"
#include "values.h"

namespace rrdk::testrpc {
namespace {

// Increased when a reader of the previous schema would be misled. doc/testrpc-json.md describes it.
constexpr int kSchema = 2;

[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...) {
  char room[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(room, sizeof room, format, arguments);
  va_end(arguments);
  text += room;
}

std::string list_of(const auto& items, auto&& text) {
  std::string list = "[";
  for (const auto& item : items)
    list += (list.size() == 1 ? "" : ", ") + text(item);
  return list + "]";
}

void append_histogram(std::string& text, const Histogram& latency) {
  text += ", \"histogram\": [";
  const char* comma = "";
  latency.for_each_bucket([&](uint64_t upper, uint64_t count) {
    append(text, "%s[%" PRIu64 ", %" PRIu64 "]", comma, upper, count);
    comma = ", ";
  });
  text += "]";
}

std::string ns_or_null(const std::optional<uint64_t>& ns) {
  return ns ? std::to_string(*ns) : "null";
}

void append_series(std::string& text, const RunResult& r) {
  text += ", \"series\": " + list_of(r.series, [](const TimeSlice& slice) {
            std::string one;
            append(one, "{\"start\": %.6f, \"seconds\": %.6f, \"calls\": %" PRIu64, slice.start_s,
                   slice.seconds, slice.calls);
            return one + ", \"histogram\": " +
                   list_of(slice.histogram,
                           [](const auto& bucket) {
                             return "[" + std::to_string(bucket.first) + ", " +
                                    std::to_string(bucket.second) + "]";
                           }) +
                   "}";
          });
}

// `after` ends each member's name. Without calls there is no latency, and 0 would look like the
// best.
void append_latencies(std::string& text, uint64_t calls, const Latencies& l, const char* after) {
  const std::pair<const char*, std::optional<uint64_t>> members[] = {
      {"p50", l.p50}, {"p90", l.p90}, {"p99", l.p99}, {"p99.9", l.p999}, {"max", l.max}};
  auto number = [&](const std::string& value) { return calls == 0 ? "null" : value; };
  std::string mean;
  append(mean, "%.1f", l.mean);
  text += "\"min" + std::string(after) + "\": " + number(std::to_string(l.min));
  text += ", \"mean" + std::string(after) + "\": " + number(mean);
  for (const auto& [name, value] : members)
    text += ", \"" + (name + std::string(after)) + "\": " + number(ns_or_null(value));
}

void append_latency_ns(std::string& text, uint64_t calls, const Latencies& l) {
  text += "\"latency_ns\": {";
  append_latencies(text, calls, l, "");
  text += "}";
}

void append_repetitions(std::string& text, const RunResult& r) {
  append(text, ", \"spread\": %.4f, \"repetitions\": ", spread(r));
  text += list_of(r.repetitions, [](const Figures& f) {
    std::string one;
    append(one, "{\"rate\": %.1f, \"bytes_per_s\": %.1f, \"seconds\": %.6f, ", f.calls_per_s,
           f.bytes_per_s, f.seconds);
    append(one, "\"calls\": %" PRIu64 ", \"calls_right\": %" PRIu64 ", \"errors\": %" PRIu64 ", ",
           f.calls, f.right, f.errors);
    append_latencies(one, f.right, f.latency, "_ns");
    return one + "}";
  });
}

// Appends the members to an object that says whose share it is.
void append_share(std::string& text, const Share& share, double seconds) {
  auto per_s = [seconds](uint64_t n) { return seconds > 0 ? static_cast<double>(n) / seconds : 0; };
  append(text,
         ", \"calls_right\": %" PRIu64 ", \"errors\": %" PRIu64
         ", \"rpc_per_s\": %.1f, \"bytes_per_s\": %.1f, ",
         share.right, share.wrong, per_s(share.right), per_s(share.bytes));
  append_latency_ns(text, share.right, Latencies::of(share.latency));
  text += "}";
}

void append_mix(std::string& text, const RunResult& r) {
  text += ", \"mix\": [";
  for (size_t i = 0; i < r.by_size.size(); ++i) {
    append(text, "%s{\"size\": %u, \"weight\": %u", i == 0 ? "" : ", ", r.spec.sizes[i],
           r.spec.weights[i]);
    append_share(text, r.by_size[i], r.seconds);
  }
  text += "]";
}

void append_targets(std::string& text, const RunResult& r) {
  text += ", \"targets\": [";
  for (size_t i = 0; i < r.by_target.size(); ++i) {
    text += (i == 0 ? "{\"uri\": " : ", {\"uri\": ") + quoted(r.targets[i]);
    append(text, ", \"connections\": %u", r.connections_of_target[i]);
    append_share(text, r.by_target[i], r.seconds);
  }
  text += "]";
}

std::string joined(const std::vector<std::string>& uris) {
  std::string text;
  for (const std::string& uri : uris)
    text += (text.empty() ? "" : ",") + uri;
  return text;
}

void append_nfs3_calls(std::string& text, const RunResult& r) {
  text += ", \"procedures\": {";
  for (const ProcedureBinding& procedure : r.spec.engine->binding().procedures)
    append(text, "%s\"%s\": %" PRIu64, procedure.procedure == 0 ? "" : ", ", procedure.name,
           r.nfs3_calls[procedure.procedure]);
  text += "}";
}

const char* truth(bool value) {
  return value ? "true" : "false";
}

std::string number_or_null(double value) {
  return value == 0 ? "null" : number_text(value);
}

void append_outcome(std::string& text, const RunResult& r) {
  append(text,
         "\"seconds\": %.6f, \"calls\": %" PRIu64 ", \"calls_right\": %" PRIu64
         ", \"errors\": %" PRIu64 ", ",
         r.seconds, r.calls, r.right, r.failures.total());
  text += "\"errors_by_reason\": {";
  const char* comma = "";
  r.failures.for_each([&](uint64_t count, const char* reason) {
    text += comma + quoted(reason) + ": " + std::to_string(count);
    comma = ", ";
  });
  append(text, "}, \"wrong_bytes\": %" PRIu64 ", \"connection_lost\": %s, \"stopped\": %s, ",
         r.wrong_bytes, truth(r.connection_lost), truth(r.stopped));
  if (r.rate != 0)
    append(text,
           "\"rate\": %.17g, \"arrivals\": \"%s\", \"calls_due\": %" PRIu64
           ", \"calls_not_made\": %" PRIu64 ", \"saturated\": %s, ",
           r.rate, to_string(r.arrivals).c_str(), r.due, r.not_made, truth(r.saturated()));
  else
    text += "\"rate\": null, ";
  append(text,
         "\"reconnects\": %" PRIu64 ", \"retransmissions\": %" PRIu64 ", \"keepalives\": %" PRIu64
         ", \"tried_later\": %" PRIu64 ", ",
         r.survival.reconnects, r.survival.retransmissions, r.survival.keepalives, r.tried_later);
  text += "\"preemptions\": " + (r.preemptions ? std::to_string(*r.preemptions) : "null") + ", ";
  append(text, "\"rpcrdma_version\": %u, \"fallbacks\": %" PRIu64 ", ", r.survival.version,
         r.survival.fallbacks);
}

std::string step_times(const StepTimes& times) {
  std::string text;
  append(text, "\"calls\": %" PRIu64 ", \"p50_ns\": %" PRIu64, times.calls, times.p50_ns);
  text += ", \"p90_ns\": " + ns_or_null(times.p90_ns) + ", \"p99_ns\": " + ns_or_null(times.p99_ns);
  append(text, ", \"max_ns\": %" PRIu64 ", \"mean_ns\": %.1f}", times.max_ns, times.mean_ns);
  return text;
}

std::string stages_of(const ProcedureStages& procedure) {
  std::string text = "{\"name\": " + quoted(procedure.name);
  append(text, ", \"calls\": %" PRIu64 ", \"round_trip\": {", procedure.calls);
  text += step_times(procedure.round_trip) + ", \"callback\": {" + step_times(procedure.callback);
  text += ", \"stages\": [";
  const char* comma = "";
  for (size_t i = 0; i < procedure.steps.size(); ++i) {
    if (!procedure.steps[i])
      continue;
    const auto step = static_cast<Step>(i);
    append(text, "%s{\"stage\": \"%s\", \"side\": \"%s\", ", comma, to_string(step), side_of(step));
    text += step_times(*procedure.steps[i]);
    comma = ", ";
  }
  return text + "]}";
}

void append_stages(std::string& text, const RunResult& r, uint32_t every) {
  append(text, ", \"stages\": {\"every\": %u, \"procedures\": ", every);
  text += list_of(r.stages, stages_of) + "}";
}

void append_run(std::string& text, const RunResult& r, const Options& options) {
  append(text, "    {\"time\": \"%s\", ", r.began.c_str());
  append(text, "\"engine\": \"%s\", \"size\": %u, \"sizes\": ", r.spec.engine->name,
         r.spec.largest_size());
  text += list_of(r.spec.sizes, [](uint32_t size) { return std::to_string(size); });
  append(text, ", \"window\": %u, \"connections\": %u, \"active\": %u, ", r.spec.window,
         r.spec.active + r.spec.idle, r.spec.active);
  append(text, "\"dispatch\": \"%s\", \"verify\": %s, ", to_string(options.dispatch),
         truth(r.verify));
  text += "\"duration\": " + number_or_null(r.duration_s);
  text += ", \"count\": " + (r.count == 0 ? "null" : std::to_string(r.count));
  append(text, ", \"seed\": %" PRIu64 ", \"think_us\": %.17g, ", r.seed, r.think_us);
  append(text, "\"warmup_seconds\": %.6f, \"warmup_calls\": %" PRIu64 ", ", r.warmup_seconds,
         r.warmup_calls);
  append_outcome(text, r);
  if (options.size_changes != 0)
    append(text,
           "\"receive_size_changes\": %" PRIu64 ", \"own_receive_size_changes\": %" PRIu64 ", ",
           r.size_changes.peer, r.size_changes.own);
  if (options.rfc5666)
    append(text,
           "\"rfc5666\": {\"configured\": %" PRIu64 ", \"padded_calls\": %" PRIu64
           ", \"read_replies\": %" PRIu64 ", \"dones\": %" PRIu64 "}, ",
           r.survival.rfc5666.configured, r.survival.rfc5666.padded_calls,
           r.survival.rfc5666.read_replies, r.survival.rfc5666.dones);
  append(text, "\"rpc_per_s\": %.1f, \"bytes_per_s\": %.1f, ", r.calls_per_s(), r.bytes_per_s());
  append_latency_ns(text, r.right, r.latencies());
  text += ", ";
  append(text,
         "\"calls_per_connection\": {\"min\": %" PRIu64 ", \"mean\": %.1f, \"max\": %" PRIu64 "}, ",
         r.slowest_connection, r.mean_connection(), r.fastest_connection);
  append(text,
         "\"limits\": {\"cache_line_rtt_ns\": %.1f, \"p50_per_cache_line_rtt\": %.2f, "
         "\"memcpy_bytes_per_s\": %.1f, \"of_memcpy\": %.3f}",
         r.line_ns, r.p50_per_line, r.memcpy_bytes_per_s, r.of_memcpy());
  if (is_nfs3(*r.spec.engine))
    append_nfs3_calls(text, r);
  if (!r.by_target.empty())
    append_targets(text, r);
  if (!r.by_size.empty())
    append_mix(text, r);
  if (options.histogram)
    append_histogram(text, r.latency);
  if (options.interval_s != 0)
    append_series(text, r);
  if (options.stages.value_or(0) != 0)
    append_stages(text, r, *options.stages);
  if (r.repeated)
    append_repetitions(text, r);
  text += ", \"outliers\": " + outliers_json(r.outliers) + ", \"noise\": " + noise_json(r.noise);
  text += "}";
}

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name"))
      return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return "unknown";
}

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif
#ifdef __OPTIMIZE__
constexpr bool kOptimized = true;
#else
constexpr bool kOptimized = false;
#endif

uint64_t memory_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Appends what the numbers depend on besides the options.
void append_environment(std::string& text, const JsonInput& input) {
  utsname host = {};
  uname(&host);
  text += "  \"time\": " + quoted(input.began) + ",\n";
  text += "  \"environment\": {\"host\": " + quoted(host.nodename);
  text += ", \"cpu\": " + quoted(cpu_model());
  text += ", \"cpus\": " + std::to_string(std::thread::hardware_concurrency());
  text += ", \"memory_bytes\": " + std::to_string(memory_bytes());
  text += ", \"kernel\": " + quoted(std::string(host.sysname) + " " + host.release);
  text += ", \"dpdk\": " + quoted(rte_version());
  text += ", \"compiler\": " + quoted(kCompiler);
  append(text, ", \"optimized\": %s},\n", truth(kOptimized));
}

void append_negotiated(std::string& text, const ConnectionInfo& info) {
  text += "  \"negotiated\": {\"peer\": " + quoted(info.peer.to_string());
  text += ", \"driver\": " + quoted(std::string(info.peer.driver));
  append(text,
         ", \"rpcrdma_version\": %u, \"send_size\": %u, \"receive_size\": %u, \"credits\": %u},\n",
         info.version, info.send_size, info.receive_size, info.credits);
}

std::string rate_or_null(const std::optional<double>& rate) {
  std::string text = "null";
  if (rate) {
    text.clear();
    append(text, "%.1f", *rate);
  }
  return text;
}

std::string knee_of(const Knee& k) {
  std::string text;
  append(text, "{\"engine\": \"%s\", \"size\": %u, \"window\": %u, \"active\": %u, \"arrivals\": ",
         k.spec.engine->name, k.spec.largest_size(), k.spec.window, k.spec.active);
  text += quoted(to_string(k.arrivals)) + ", \"rate\": " + rate_or_null(k.rate);
  text += ", \"above\": " + rate_or_null(k.above) + ", \"p99_ns\": " + ns_or_null(k.p99_ns);
  append(text, ", \"light_rate\": %.1f, \"light_p99_ns\": ", k.light_rate);
  text += ns_or_null(k.light_p99_ns);
  append(text, ", \"closed_loop_rate\": %.1f, \"steps\": %zu, \"steps_disturbed\": %zu, ",
         k.closed_rate, k.steps, k.disturbed);
  append(text, "\"settled\": %s, \"doubts\": ", truth(k.settled()));
  return text + list_of(k.doubts(), quoted) + "}";
}

void append_knees(std::string& text, const std::vector<Knee>& knees) {
  text += "  \"knees\": " + list_of(knees, knee_of) + ",\n";
}

void append_nfs3_options(std::string& text, const Options& o) {
  const bool used = std::ranges::find(o.engines, "nfs3") != o.engines.end();
  text += ", \"nfs\": ";
  if (!used) {
    text += "null";
    return;
  }
  text += "{\"export\": " + quoted(o.nfs_export) + ", \"calls\": ";
  text += quoted(nfs3_call_names(o.nfs_calls));
  append(text, ", \"names\": %u, \"access\": \"%s\"}", o.nfs_names, to_string(o.access));
}

// Appends the options of the server of --self; those of another server are unknown.
void append_server_options(std::string& text, const Options& o) {
  text += ", \"server\": ";
  if (o.role != Role::kSelf) {
    text += "null";
    return;
  }
  append(text,
         "{\"work_ns\": %u, \"stages\": %s, \"idle_timeout_ms\": %u, \"send_timeout_ms\": %u, ",
         o.server_work_ns, o.stages ? std::to_string(*o.stages).c_str() : "null", o.idle_timeout_ms,
         o.send_timeout_ms);
  text += "\"max_connections_per_client\": " +
          (o.connections_per_client ? std::to_string(*o.connections_per_client) : "null");
  text +=
      ", \"replay_entries\": " + (o.replay_cache ? std::to_string(o.replay_entries) : "null") + "}";
}

// Appends the options that apply to all runs, given or not.
void append_options(std::string& text, const JsonInput& input) {
  const Options& o = input.options;
  text += "  \"command\": " + list_of(o.command, quoted) +
          ",\n  \"uri\": " + quoted(joined(input.targets));
  append(text, ",\n  \"options\": {\"idle\": \"%s\", \"pinned_cpus\": ", to_string(input.idle));
  text += list_of(input.cpus, [](int cpu) { return std::to_string(cpu); });
  append(text,
         ", \"timeout_ms\": %u, \"connect_timeout_ms\": %u, \"credits\": %u, \"backward_credits\": "
         "%u, \"inline\": %u, "
         "\"max_receive_size\": %u, \"chunk_threshold\": %u, ",
         o.timeout_ms, o.connect_timeout_ms, o.credits, backward_credits(o), o.inline_size,
         o.max_receive_size, o.chunk_threshold);
  append(text, "\"auth\": \"%s\", \"touch\": %s, ", kSecNames[static_cast<size_t>(sec_of(o))],
         truth(o.touch));
  append(text,
         "\"segments\": %u, \"pieces\": %u, \"seed\": %" PRIu64 ", \"rpcrdma_version\": \"%s\", ",
         o.segments, o.pieces, o.seed, to_string(o.version.value_or(RpcRdmaVersion::kOne)));
  append(text, "\"rpcrdma_dialect\": \"%s\", \"compat\": %s, \"reconnect\": %s, ",
         to_string(o.draft), o.rfc5666 ? "\"rfc5666\"" : "null", truth(o.reconnect));
  append(text, "\"retransmit\": %s, \"keepalive_ms\": %u, \"faults\": ", truth(o.retransmit),
         o.keepalive_ms);
  text += o.faults ? quoted(to_string(*o.faults)) : "null";
  // Options that matter if they differ from the defaults.
  text += ", \"memory\": " + (o.memory == 0 ? "null" : std::to_string(o.memory));
  text +=
      ", \"workers\": " + (o.dispatch == Dispatch::kInline ? "null" : std::to_string(o.workers));
  append_nfs3_options(text, o);
  append_server_options(text, o);
  text += "},\n";
}

}  // namespace

std::string quoted(const std::string& text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string version_text() {
  return std::string("testrpc " RRDK_VERSION_STRING " (") + kRevision + ")";
}

std::string utc_now() {
  time_t now = time(nullptr);
  tm parts = {};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string to_json(const JsonInput& input) {
  std::string text;
  append(text, "{\n  \"tool\": \"testrpc\",\n  \"schema\": %d,\n", kSchema);
  text +=
      "  \"version\": \"" RRDK_VERSION_STRING "\",\n  \"revision\": " + quoted(kRevision) + ",\n";
  append_environment(text, input);
  append_options(text, input);
  append_negotiated(text, input.negotiated);
  if (!input.rank_hosts.empty())
    text += "  \"ranks\": " + list_of(input.rank_hosts, quoted) + ",\n";
  append(text, "  \"connect_seconds\": %.6f,\n", input.connect_seconds);
  text += "  \"runs\": [\n";
  for (size_t i = 0; i < input.results.size(); ++i) {
    text += i == 0 ? "" : ",\n";
    append_run(text, *input.results[i], input.options);
  }
  text += "\n  ],\n";
  if (input.options.find_knee)
    append_knees(text, input.knees);
  const Audit& audit = input.audit;
  append(text,
         "  \"audit\": {\"pools_whole\": %s, \"allocations\": %" PRIu64
         ", \"allocations_per_call\": %.6f, \"registrations\": %" PRIu64
         ", \"registrations_per_call\": %.6f}\n}\n",
         truth(audit.pools_whole), audit.allocations, audit.per_call(audit.allocations),
         audit.registrations, audit.per_call(audit.registrations));
  return text;
}

}  // namespace rrdk::testrpc
