#include "report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "repetitions.h"
#include "stages.h"
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
  if (!spec.weights.empty())
    return "mix";
  if (spec.sizes.size() == 1)
    return size_text(spec.sizes[0]);
  return ".." + size_text(spec.largest_size());
}

double per_second(uint64_t amount, double seconds) {
  return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
}

template <typename... Values>
std::string format(const char* how, Values... values) {
  char text[64];
  std::snprintf(text, sizeof text, how, values...);
  return text;
}

std::string latency_text(const RunResult& r, uint64_t ns) {
  return r.right == 0 ? "-" : time_text(ns);
}

std::string latency_text(const RunResult& r, const std::optional<uint64_t>& ns) {
  return ns ? latency_text(r, *ns) : "-";
}

// A figure that may not have been measured.
std::string maybe(double value, const char* how) {
  return value > 0 ? format(how, value) : "-";
}

// Adds an exclamation mark if calls failed: a line below the table says how.
std::string throughput_text(const RunResult& r) {
  return (r.flawless() ? "" : "!") + rate_text(r.calls_per_s());
}

void print_latencies(const RunResult& r) {
  const Latencies l = r.latencies();
  for (std::optional<uint64_t> ns : {std::optional(l.p50), l.p99, l.p999, std::optional(l.max)})
    std::printf("%7s", latency_text(r, ns).c_str());
}

std::string spread_text(const RunResult& r) {
  if (r.repetitions.size() < 2)
    return "-";
  const double percent = 100 * spread(r);
  return format(percent < 999.95 ? "%.1f%%" : "%.0f%%", percent);
}

// Rows of repeated runs have their spread in place of some columns of single runs.
void print_closed_heading(bool repeated) {
  std::printf("\n%21s%41s%10s%s\n", "calls in", "latency of a call", "p50 in",
              repeated ? "" : "   % of");
  std::printf("%-8s%6s%7s%10s%6s%7s%7s%7s%7s%7s%7s\n", "call", "size", "flight", "RPC/s", "GB/s",
              "p50", "p99", "p99.9", "max", "lines", repeated ? "spread" : "memcpy");
}

void print_closed_row(const RunResult& r) {
  double gb_per_s = r.bytes_per_s() / 1e9;
  std::printf(
      "%-8s%6s%7u%10s%6s", r.spec.engine->name, sizes_text(r.spec).c_str(), r.spec.window,
      throughput_text(r).c_str(),
      r.spec.engine->sized ? maybe(gb_per_s, gb_per_s < 99.95 ? "%.2f" : "%.0f").c_str() : "-");
  print_latencies(r);
  std::printf("%7s%7s\n", maybe(r.p50_per_line, r.p50_per_line < 100 ? "%.1f" : "%.0f").c_str(),
              r.repeated ? spread_text(r).c_str() : maybe(100 * r.of_memcpy(), "%.0f%%").c_str());
}

void print_open_heading(bool repeated) {
  std::printf("\n%20s%10s%10s%11s%25s\n", "calls", "offered", "achieved",
              repeated ? "" : "due, but", "latency since due");
  std::printf("%-8s%6s%6s%10s%10s%11s%7s%7s%7s%7s\n", "call", "size", "<= w", "RPC/s", "RPC/s",
              repeated ? "spread" : "not made", "p50", "p99", "p99.9", "max");
}

void print_open_row(const RunResult& r) {
  std::printf("%-8s%6s%6u%10s%10s%11s", r.spec.engine->name, sizes_text(r.spec).c_str(),
              r.spec.window, rate_text(r.rate).c_str(), throughput_text(r).c_str(),
              r.repeated ? spread_text(r).c_str() : std::to_string(r.not_made).c_str());
  print_latencies(r);
  std::printf("\n");
}

// Prints the cache line's round trip during the runs, which the column of multiples is relative to.
void print_line_trip(Results results) {
  std::vector<double> trips;
  for (const std::unique_ptr<RunResult>& r : results) {
    if (r->line_ns > 0 && r->rate == 0)
      trips.push_back(r->line_ns);
  }
  if (trips.empty())
    return;
  std::ranges::sort(trips);
  std::printf("lines: trips of a cache line to the other core and back, of %.0f ns",
              trips[trips.size() / 2]);
  if (trips.size() > 1)
    std::printf(" (%.0f to %.0f)", trips.front(), trips.back());
  std::printf("\n");
}

void print_failures(const RunResult& r, const char* name) {
  if (r.failures.total() != 0)
    std::printf("ERRORS in %s: %s\n", name, r.failures.text().c_str());
  if (r.wrong_bytes != 0)
    std::printf("WRONG BYTES in %s: %" PRIu64 "\n", name, r.wrong_bytes);
}

void print_saturation(const RunResult& r, const char* name) {
  if (r.saturated())
    std::printf(
        "SATURATED: %s: offered %s RPC/s, achieved %s; %" PRIu64 " of %" PRIu64 " not made\n", name,
        rate_text(r.rate).c_str(), rate_text(r.calls_per_s()).c_str(), r.not_made, r.due);
}

void print_mix(const RunResult& r, const char* name) {
  if (!r.spec.weights.empty())
    std::printf("MIX in %s: %s\n", name, mix_text(r.spec.sizes, r.spec.weights).c_str());
}

void print_arrivals(const RunResult& r, const char* name) {
  if (r.rate != 0 && r.arrivals != ArrivalPattern{})
    std::printf("ARRIVALS in %s: %s, seed %" PRIu64 "\n", name, to_string(r.arrivals).c_str(),
                r.seed);
}

void print_thinking(const RunResult& r, const char* name) {
  if (r.think_us != 0)
    std::printf("THINK in %s: %s us between a reply and the next call\n", name,
                number_text(r.think_us).c_str());
}

// Prints which procedures of NFS were called, and how often.
void print_nfs3_calls(const RunResult& r, const char* name) {
  if (!is_nfs3(*r.spec.engine))
    return;
  std::string text;
  for (const ProcedureBinding& procedure : r.spec.engine->binding().procedures) {
    if (uint64_t calls = r.nfs3_calls[procedure.procedure])
      text += (text.empty() ? "" : ", ") + std::to_string(calls) + " " + procedure.name;
  }
  std::printf("CALLS in %s: %s\n", name, text.c_str());
}

// Rows of one engine, size and window differ only in this.
void print_active(const RunResult& r, const char* name) {
  if (r.spec.idle != 0)
    std::printf("IDLE in %s: %u connections, while %u made calls: %s RPC/s\n", name, r.spec.idle,
                r.spec.active, rate_text(r.calls_per_s()).c_str());
}

void print_targets(const RunResult& r, const char* name) {
  for (size_t i = 0; i < r.by_target.size(); ++i) {
    const Share& share = r.by_target[i];
    std::printf("TARGET in %s: %s\n  %u connections, %s%s RPC/s, p50 %s, p99 %s, p99.9 %s\n", name,
                r.targets[i].c_str(), r.connections_of_target[i], share.wrong == 0 ? "" : "!",
                rate_text(per_second(share.right, r.seconds)).c_str(),
                latency_text(r, share.latency.told(50)).c_str(),
                latency_text(r, share.latency.told(99)).c_str(),
                latency_text(r, share.latency.told(99.9)).c_str());
  }
}

// Prints how evenly a server treats equal connections.
void print_shares(const RunResult& r, const char* name) {
  double mean = r.mean_connection();
  if (r.spec.active > 1 && mean > 0)
    std::printf(
        "SHARES in %s: the slowest connection made %.0f%% of the mean, the fastest %.0f%%\n", name,
        100 * static_cast<double>(r.slowest_connection) / mean,
        100 * static_cast<double>(r.fastest_connection) / mean);
}

void print_survival(const RunResult& r, const char* name) {
  const Survival& s = r.survival;
  if (s.reconnects != 0 || s.keepalives != 0)
    std::printf("SURVIVED in %s: %" PRIu64 " reconnections, %" PRIu64 " calls sent again, %" PRIu64
                " keepalives\n",
                name, s.reconnects, s.retransmissions, s.keepalives);
  if (r.tried_later != 0)
    std::printf("PUT OFF in %s: %" PRIu64
                " calls were put off by the server (NFS3ERR_JUKEBOX) and made again later\n",
                name, r.tried_later);
}

// Adds `item` to the line if the line stays short enough; always adds the first one.
void add_to_line(std::string& line, const char* separator, const std::string& item, bool first) {
  constexpr size_t kColumns = 80;
  if (first)
    line += item;
  else if (line.size() + std::string_view(separator).size() + item.size() <= kColumns)
    line += separator + item;
}

// "reply 20.0ms (server)"
std::string part_text(const RunResult& r, const OutlierPart& part) {
  std::string text = part.name;
  if (part.took_ns)
    text += " " + latency_text(r, *part.took_ns);
  return part.side != nullptr ? text + " (" + part.side + ")" : text;
}

// Prints which calls were the slowest, and why.
void print_outliers(const RunResult& r, const char* name) {
  if (!r.list_outliers || r.outliers.empty())
    return;
  std::printf("SLOWEST in %s:\n", name);
  for (const Outlier& call : r.outliers) {
    std::string line = "  " + latency_text(r, call.total_ns);
    if (r.spec.active > 1)
      line += " on connection " + std::to_string(call.connection);
    line += format(" at %.6f s: ", static_cast<double>(call.start_ns) / 1e9);
    bool first = true;
    for (const OutlierPart& part : parts_of(call))
      add_to_line(line, ", ", part_text(r, part), std::exchange(first, false));
    if (first)
      line += "cause not known";
    std::printf("%s\n", line.c_str());
  }
}

// Prints at most one line with the worst remarks that fit. The JSON has all.
void print_noise(const RunResult& r, const char* name) {
  const std::vector<std::string> remarks = r.noise.remarks();
  if (remarks.empty())
    return;
  std::string line = "DISTURBED " + std::string(name) + ": ";
  for (size_t i = 0; i < remarks.size(); ++i)
    add_to_line(line, "; ", remarks[i], i == 0);
  std::printf("%s\n", line.c_str());
}

}  // namespace

Audit make_audit(Results results, bool pools_whole) {
  Audit audit;
  audit.pools_whole = pools_whole;
  bool lost = false, again = false, keepalives = false;
  for (const std::unique_ptr<RunResult>& r : results) {
    audit.calls += r->calls;
    audit.allocations += r->allocations;
    audit.registrations += r->registrations;
    lost |= r->connection_lost;
    again |= r->survival.reconnects != 0;
    keepalives |= r->survival.keepalives != 0;
  }
  audit.reason = again ? "connections were made again" : lost ? "connection lost" : "";
  if (keepalives && audit.reason.empty())
    audit.reason = "keepalives";
  return audit;
}

// Uses three digits if there are fewer before the point.
std::string rate_text(double per_s) {
  return format(per_s > 0 && per_s < 99.95 ? "%.3g"
                : per_s < 999'999'999.5    ? "%.0f"
                                           : "%.4g",
                per_s);
}

std::string time_text(uint64_t ns) {
  double value = in_us(ns);
  const char* unit = "us";
  for (const char* larger : {"ms", "s"}) {
    if (value < 999.5)
      break;
    value /= 1000;
    unit = larger;
  }
  return format(value < 9.995 ? "%.2f%s" : value < 99.95 ? "%.1f%s" : "%.0f%s", value, unit);
}

std::string run_name(const RunSpec& spec, double rate) {
  std::string name = spec.engine->name;
  if (spec.engine->sized)
    name += " " + sizes_text(spec);
  name += " w=" + std::to_string(spec.window);
  if (spec.idle != 0)
    name += ", " + std::to_string(spec.active) + " active";
  if (rate != 0)
    name += " at " + rate_text(rate) + "/s";
  return name;
}

void LiveLine::begin(const RunSpec& spec, double rate, const RunPlace& place) {
  std::printf("%s", run_name(spec, rate).c_str());
  if (place.of > 1)
    std::printf(", %zu of %zu", place.before + 1, place.of);
  if (place.of > 1 && place.seconds_each != 0)
    std::printf(", %.0f s left", place.seconds_each * static_cast<double>(place.of - place.before));
  std::printf("\n");
  std::fflush(stdout);
  start_ns_ = last_ns_ = Runtime::now_ns();
  last_bytes_ = 0;
}

bool LiveLine::due() const {
  return Runtime::now_ns() - last_ns_ >= kSecond;
}

void LiveLine::print(const RunResult& so_far, Histogram& recent) {
  uint64_t now = Runtime::now_ns();
  double seconds = static_cast<double>(now - last_ns_) / 1e9;
  if (!so_far.measuring) {
    std::printf("  %4.0f s warming up\n", static_cast<double>(now - start_ns_) / 1e9);
    std::fflush(stdout);
    last_ns_ = now;
    return;
  }
  std::printf("  %4.0f s %10.0f RPC/s %8.3f GB/s", static_cast<double>(now - start_ns_) / 1e9,
              per_second(recent.count(), seconds),
              per_second(so_far.bytes - last_bytes_, seconds) / 1e9);
  for (double percent : {50.0, 99.0}) {
    if (std::optional<uint64_t> ns = recent.told(percent))
      std::printf("   p%.0f %9.2f us", percent, in_us(*ns));
    else
      std::printf("   p%.0f %9s   ", percent, "-");
  }
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
  const RunResult* last = nullptr;
  for (const std::unique_ptr<RunResult>& r : results) {
    bool open = r->rate != 0;
    if (last == nullptr || open != (last->rate != 0) || r->repeated != last->repeated)
      open ? print_open_heading(r->repeated) : print_closed_heading(r->repeated);
    open ? print_open_row(*r) : print_closed_row(*r);
    last = r.get();
  }
  if (last == nullptr)
    std::printf("no runs\n");
}

void print_remarks(Results results) {
  if (std::ranges::any_of(results, [](const auto& r) { return r->repetitions.size() > 1; }))
    std::printf("spread: lowest to highest RPC/s, in %% of the median; the rest are medians\n");
  print_line_trip(results);
  if (!std::ranges::all_of(results, [](const auto& r) { return r->flawless(); }))
    std::printf("!: some calls failed; RPC/s and latency are those of the others\n");
  for (const std::unique_ptr<RunResult>& r : results) {
    std::string name = run_name(r->spec, r->rate);
    print_mix(*r, name.c_str());
    print_arrivals(*r, name.c_str());
    print_thinking(*r, name.c_str());
    print_active(*r, name.c_str());
    print_targets(*r, name.c_str());
    print_shares(*r, name.c_str());
    print_nfs3_calls(*r, name.c_str());
    print_failures(*r, name.c_str());
    print_saturation(*r, name.c_str());
    print_survival(*r, name.c_str());
    for (const ProcedureStages& stages : r->stages)
      print_stages(name, stages);
    print_outliers(*r, name.c_str());
    print_noise(*r, name.c_str());
  }
}

void print_audit(const Audit& audit) {
  std::printf("pools whole: %s; while calls were measured: allocations %" PRIu64
              ", registrations %" PRIu64,
              audit.pools_whole ? "yes" : "NO", audit.allocations, audit.registrations);
  if (!audit.reason.empty() && audit.allocations + audit.registrations != 0)
    std::printf(" (%s)", audit.reason.c_str());
  std::printf("\n");
}

void print_negotiated(const ConnectionInfo& info) {
  if (info.version == 0) {
    std::printf(
        "connected, but the first connection is lost already: its parameters are unknown\n");
    std::fflush(stdout);
    return;
  }
  std::printf("connected over %s to %s\n", std::string(info.peer.driver).c_str(),
              info.peer.to_string().c_str());
  std::printf("RPC-over-RDMA version %u; %u credits; inline: %u bytes out, %u in\n", info.version,
              info.credits, info.send_size, info.receive_size);
  std::fflush(stdout);
}

void print_faults(const FaultCounts& counts) {
  std::string text = to_string(counts);
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
    text.replace(at, 1, "\n  ");
  std::printf("faults injected:\n  %s\n", text.c_str());
}

Result<void> begin_capture(Runtime& runtime, const std::string& file) {
  return file.empty() ? Result<void>() : runtime.start_capture(file);
}

bool end_capture(Runtime& runtime) {
  const CaptureCounts counts = runtime.stop_capture();
  if (counts.captured + counts.lost == 0)
    return true;
  std::printf("captured: %" PRIu64 " messages, RDMA Writes and Reads", counts.captured);
  if (counts.lost != 0)
    std::printf("; %" PRIu64
                " more are LOST: too many for the thread that writes the file, or for"
                " the file",
                counts.lost);
  std::printf("\n");
  if (counts.lost != 0)
    std::fprintf(stderr,
                 "testrpc: the capture is incomplete: %" PRIu64 " of %" PRIu64
                 " messages are lost\n",
                 counts.lost, counts.captured + counts.lost);
  return counts.lost == 0;
}

}  // namespace rrdk::testrpc
