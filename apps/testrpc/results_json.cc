#include "results_json.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace rrdk::testrpc {
namespace {

[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...) {
  char room[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(room, sizeof room, format, arguments);
  va_end(arguments);
  text += room;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      append(result, "\\u%04x", c);
    else
      result += c;
  }
  return result + "\"";
}

double rate(uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
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

void append_nfs3_calls(std::string& text, const RunResult& r) {
  text += ", \"procedures\": {";
  for (const ProcedureBinding& procedure : r.spec.engine->binding().procedures)
    append(text, "%s\"%s\": %" PRIu64, procedure.procedure == 0 ? "" : ", ", procedure.name,
           r.nfs3_calls[procedure.procedure]);
  text += "}";
}

void append_run(std::string& text, const RunResult& r, const Options& options) {
  const Histogram& l = r.latency;
  append(text, "    {\"engine\": \"%s\", \"size\": %u, \"window\": %u, \"connections\": %u, ",
         r.spec.engine->name, r.spec.largest_size(), r.spec.window, options.connections);
  append(text, "\"dispatch\": \"%s\", \"seconds\": %.6f, ", to_string(options.dispatch), r.seconds);
  append(text, "\"calls\": %" PRIu64 ", \"errors\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64 ", ",
         r.calls, r.failures.total(), r.wrong_bytes);
  append(text,
         "\"reconnects\": %" PRIu64 ", \"retransmissions\": %" PRIu64 ", \"keepalives\": %" PRIu64
         ", ",
         r.survival.reconnects, r.survival.retransmissions, r.survival.keepalives);
  append(text, "\"rpcrdma_version\": %u, \"fallbacks\": %" PRIu64 ", ", r.survival.version,
         r.survival.fallbacks);
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
  append(text, "\"rpc_per_s\": %.1f, \"bytes_per_s\": %.1f, ", rate(r.calls, r.seconds),
         rate(r.bytes, r.seconds));
  append(text,
         "\"latency_ns\": {\"min\": %" PRIu64 ", \"mean\": %.1f, \"p50\": %" PRIu64
         ", \"p90\": %" PRIu64 ", \"p99\": %" PRIu64 ", \"p99.9\": %" PRIu64 ", \"max\": %" PRIu64
         "}",
         l.min(), l.mean(), l.percentile(50), l.percentile(90), l.percentile(99),
         l.percentile(99.9), l.max());
  if (is_nfs3(*r.spec.engine))
    append_nfs3_calls(text, r);
  if (options.histogram)
    append_histogram(text, l);
  text += "}";
}

// The machine's limits as they were beside each run, in the runs' order.
void append_limits(std::string& text, const JsonInput& input) {
  std::vector<double> lines;
  for (const std::unique_ptr<RunResult>& r : input.results) {
    if (r->line_ns > 0)
      lines.push_back(r->line_ns);
  }
  std::ranges::sort(lines);
  append(text, "  \"limits\": {\"cache_line_rtt_ns\": %.1f, \"cpus\": [",
         lines.empty() ? 0 : lines[lines.size() / 2]);
  for (size_t i = 0; i < input.cpus.size(); ++i)
    append(text, "%s%d", i == 0 ? "" : ", ", input.cpus[i]);
  text += "], \"runs\": [";
  for (size_t i = 0; i < input.results.size(); ++i) {
    const RunResult& r = *input.results[i];
    double share = r.memcpy_bytes_per_s > 0 ? rate(r.bytes, r.seconds) / r.memcpy_bytes_per_s : 0;
    append(text, "%s\n    {\"engine\": \"%s\", \"size\": %u, \"window\": %u, ", i == 0 ? "" : ",",
           r.spec.engine->name, r.spec.largest_size(), r.spec.window);
    append(text, "\"cache_line_rtt_ns\": %.1f, \"p50_per_cache_line_rtt\": %.2f, ", r.line_ns,
           r.p50_per_line);
    append(text, "\"memcpy_bytes_per_s\": %.1f, \"of_memcpy\": %.3f}", r.memcpy_bytes_per_s, share);
  }
  text += "]},\n";
}

std::string to_json(const JsonInput& input) {
  std::string text = "{\n  \"tool\": \"testrpc\",\n  \"version\": \"" RRDK_VERSION "\",\n";
  text += "  \"uri\": " + quoted(input.uri) + ",\n  \"runs\": [\n";
  for (size_t i = 0; i < input.results.size(); ++i) {
    text += i == 0 ? "" : ",\n";
    append_run(text, *input.results[i], input.options);
  }
  text += "\n  ],\n";
  append_limits(text, input);
  append(text,
         "  \"audit\": {\"pools_whole\": %s, \"allocations_per_call\": %.6f, "
         "\"registrations_per_call\": %.6f}\n}\n",
         input.audit.pools_whole ? "true" : "false", input.audit.allocations_per_call,
         input.audit.registrations_per_call);
  return text;
}

std::string temporary_of(const std::string& path) {
  return path + "." + std::to_string(getpid()) + ".tmp";
}

Result<void> system_error(const std::string& what) {
  return fail(Errc::kSystem, what + ": " + std::strerror(errno));
}

}  // namespace

Result<void> check_writable(const std::string& path) {
  std::string temporary = temporary_of(path);
  FILE* file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr)
    return system_error("cannot write " + temporary);
  std::fclose(file);
  unlink(temporary.c_str());
  return {};
}

Result<void> write_json(const JsonInput& input) {
  const std::string& path = input.options.json;
  std::string temporary = temporary_of(path);
  FILE* file = std::fopen(temporary.c_str(), "we");
  if (file == nullptr)
    return system_error("cannot write " + temporary);
  std::string text = to_json(input);
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fclose(file) == 0 && written;
  if (!written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    Result<void> error = system_error("cannot write " + path);
    unlink(temporary.c_str());
    return error;
  }
  return {};
}

}  // namespace rrdk::testrpc
