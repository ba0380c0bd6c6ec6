#include "report.h"

#include <cinttypes>
#include <cstdio>
#include <string>

#include "values.h"

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

double in_us(uint64_t ns) {
  return static_cast<double>(ns) / 1000;
}

std::string sizes_text(const RunSpec& spec) {
  if (spec.sizes.empty())
    return "-";
  if (spec.sizes.size() == 1)
    return size_text(spec.sizes[0]);
  return ".." + size_text(spec.largest_size());
}

double per_second(uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
}

// Microseconds in seven columns.
std::string latency_text(uint64_t ns) {
  char text[32];
  double us = in_us(ns);
  std::snprintf(text, sizeof text, us < 100 ? "%.2f" : us < 10000 ? "%.1f" : "%.0f", us);
  return text;
}

// A figure that may not have been measured.
std::string maybe(double value, const char* format) {
  if (value <= 0)
    return "-";
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void print_row(const RunResult& r) {
  double gb_per_s = per_second(r.bytes, r.seconds) / 1e9;
  std::string memcpy_share =
      r.memcpy_bytes_per_s > 0 ? maybe(100 * gb_per_s * 1e9 / r.memcpy_bytes_per_s, "%.0f%%") : "-";
  std::printf("%-8s %6s %4u %10.0f %7s |%8s%8s%8s%8s%9s |%6s%7s |%7s%6s\n", r.spec.engine->name,
              sizes_text(r.spec).c_str(), r.spec.window, per_second(r.calls, r.seconds),
              r.spec.engine->sized ? maybe(gb_per_s, "%.3f").c_str() : "-",
              latency_text(r.latency.percentile(50)).c_str(),
              latency_text(r.latency.percentile(90)).c_str(),
              latency_text(r.latency.percentile(99)).c_str(),
              latency_text(r.latency.percentile(99.9)).c_str(),
              latency_text(r.latency.max()).c_str(), maybe(r.line_ns, "%.0f").c_str(),
              maybe(r.p50_per_line, r.p50_per_line < 100 ? "%.1f" : "%.0f").c_str(),
              maybe(r.memcpy_bytes_per_s / 1e9, "%.1f").c_str(), memcpy_share.c_str());
}

}  // namespace

Audit make_audit(Results results, bool pools_whole) {
  Audit audit = {.pools_whole = pools_whole};
  uint64_t calls = 0, allocations = 0, registrations = 0;
  for (const std::unique_ptr<RunResult>& r : results) {
    calls += r->calls;
    allocations += r->allocations;
    registrations += r->registrations;
  }
  if (calls != 0) {
    audit.allocations_per_call = static_cast<double>(allocations) / static_cast<double>(calls);
    audit.registrations_per_call = static_cast<double>(registrations) / static_cast<double>(calls);
  }
  return audit;
}

std::string run_name(const RunSpec& spec) {
  std::string name = spec.engine->name;
  if (spec.engine->sized)
    name += " " + sizes_text(spec);
  return name + " w=" + std::to_string(spec.window);
}

void LiveLine::begin(const RunSpec& spec) {
  std::printf("%s\n", run_name(spec).c_str());
  std::fflush(stdout);
  start_ns_ = last_ns_ = Runtime::now_ns();
  last_bytes_ = 0;
}

void LiveLine::tick(const RunResult& so_far, Histogram& recent) {
  uint64_t now = Runtime::now_ns();
  if (now - last_ns_ < kSecond)
    return;
  double seconds = static_cast<double>(now - last_ns_) / 1e9;
  std::printf("  %4.0f s %10.0f RPC/s %8.3f GB/s   p50 %9.2f us   p99 %9.2f us",
              static_cast<double>(now - start_ns_) / 1e9, per_second(recent.count(), seconds),
              per_second(so_far.bytes - last_bytes_, seconds) / 1e9, in_us(recent.percentile(50)),
              in_us(recent.percentile(99)));
  if (so_far.failures.total() != 0)
    std::printf("   %" PRIu64 " errors", so_far.failures.total());
  if (so_far.wrong_bytes != 0)
    std::printf("   %" PRIu64 " wrong bytes", so_far.wrong_bytes);
  std::printf("\n");
  std::fflush(stdout);
  recent.clear();
  last_ns_ = now;
  last_bytes_ = so_far.bytes;
}

void print_table(Results results) {
  std::printf("\n%39s |%41s |%13s |%13s\n", "", "latency in us", "cache line", "memcpy");
  std::printf("%-8s %6s %4s %10s %7s |%8s%8s%8s%8s%9s |%6s%7s |%7s%6s\n", "call", "size", "win",
              "RPC/s", "GB/s", "p50", "p90", "p99", "p99.9", "max", "ns", "p50/", "GB/s", "of it");
  for (const std::unique_ptr<RunResult>& r : results)
    print_row(*r);
}

void print_failures(Results results) {
  for (const std::unique_ptr<RunResult>& r : results) {
    if (r->failures.total() != 0)
      std::printf("ERRORS in %s: %s\n", run_name(r->spec).c_str(), r->failures.text().c_str());
    if (r->wrong_bytes != 0)
      std::printf("WRONG BYTES in %s: %" PRIu64 "\n", run_name(r->spec).c_str(), r->wrong_bytes);
  }
}

void print_nfs3_calls(Results results) {
  for (const std::unique_ptr<RunResult>& r : results) {
    if (!is_nfs3(*r->spec.engine))
      continue;
    std::string text;
    for (const ProcedureBinding& procedure : r->spec.engine->binding().procedures) {
      if (uint64_t calls = r->nfs3_calls[procedure.procedure])
        text += (text.empty() ? "" : ", ") + std::to_string(calls) + " " + procedure.name;
    }
    std::printf("CALLS in %s: %s\n", run_name(r->spec).c_str(), text.c_str());
  }
}

void print_survival(Results results) {
  for (const std::unique_ptr<RunResult>& r : results) {
    const Survival& s = r->survival;
    if (s.reconnects != 0 || s.keepalives != 0)
      std::printf("SURVIVED in %s: %" PRIu64 " reconnections, %" PRIu64
                  " calls sent again, %" PRIu64 " keepalives\n",
                  run_name(r->spec).c_str(), s.reconnects, s.retransmissions, s.keepalives);
  }
}

void print_audit(const Audit& audit) {
  std::printf("pools whole: %s; allocations per call: %g; registrations per call: %g\n",
              audit.pools_whole ? "yes" : "NO", audit.allocations_per_call,
              audit.registrations_per_call);
}

void print_faults(const FaultCounts& counts) {
  std::string text = to_string(counts);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
    text.replace(at, 1, "\n  ");
  std::printf("faults injected:\n  %s\n", text.c_str());
}

}  // namespace rrdk::testrpc
