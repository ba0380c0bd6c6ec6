#include "server_prompt.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <iterator>

#include "option_table.h"
#include "report.h"
#include "rrdk/faults.h"
#include "server_role.h"
#include "stop.h"

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kLookNs = 10'000'000;
constexpr size_t kPeerColumns = 34;
constexpr const char* kShow = "show what: stats, connections, procedures, cores, faults, limits";
constexpr const char* kSettings[] = {
    "capture",      "faults",          "first-call-timeout",
    "idle-timeout", "max-connections", "max-connections-per-client",
    "send-timeout"};
constexpr const char* kSet =
    "set what: capture, faults, first-call-timeout, idle-timeout, max-connections, "
    "max-connections-per-client, send-timeout";

// An IPv6 address can be longer than its column; its two ends are the most useful.
std::string shortened(const std::string& text) {
  if (text.size() <= kPeerColumns)
    return text;
  constexpr size_t kEnd = (kPeerColumns - 2) / 2;
  return text.substr(0, kEnd) + ".." + text.substr(text.size() - kEnd);
}

void print_row(const ConnectionInfo& info) {
  std::printf("%8" PRIu64 " %-*s %3u %7u %12" PRIu64 " %9.1f\n", info.id,
              static_cast<int>(kPeerColumns), shortened(info.peer.to_string()).c_str(),
              info.version, info.credits, info.calls, static_cast<double>(info.idle_ns) / 1e9);
}

}  // namespace

ServerPrompt::ServerPrompt(Server& server, Runtime& runtime, const Options& options)
    : server_(server),
      runtime_(runtime),
      options_(options),
      faults_(options.faults ? to_string(*options.faults) : "off"),
      prompt_(*this) {}

bool ServerPrompt::look(int timeout_ms) {
  return prompt_.read(timeout_ms, [this] { return quit_; }) && !quit_;
}

bool ServerPrompt::look_now_and_then() {
  uint64_t now = Runtime::now_ns();
  if (now < next_look_ns_)
    return true;
  next_look_ns_ = now + kLookNs;
  return look(0);
}

std::vector<std::string> ServerPrompt::next(const std::vector<std::string>& words) const {
  if (words.empty())
    return {"close", "help", "quit", "set", "show"};
  if (words.size() == 1 && words[0] == "show")
    return {"connections", "cores", "faults", "limits", "procedures", "stats"};
  if (words.size() == 1 && words[0] == "set")
    return {std::begin(kSettings), std::end(kSettings)};
  if (words.size() == 2 && words[0] == "set" && (words[1] == "faults" || words[1] == "capture"))
    return values_of(words[1]);
  return {};
}

void ServerPrompt::run(const std::vector<std::string>& words) {
  const std::string& verb = words[0];
  if (verb == "quit")
    quit_ = true;
  else if (verb == "show")
    show(words.size() == 2 ? words[1] : "");
  else if (verb == "set")
    set(words);
  else if (verb == "close")
    close(words.size() == 2 ? words[1] : "");
  else
    std::printf(
        "%sshow stats, show connections, show procedures, show cores, show faults, show limits, "
        "close ID, set faults SPEC|off, set capture FILE|off, set "
        "first-call-timeout|idle-timeout|send-timeout MS, "
        "set max-connections|max-connections-per-client N, quit\n",
        verb == "help" ? "" : ("unknown command '" + verb + "'; there are: ").c_str());
}

void ServerPrompt::show(const std::string& what) {
  if (what == "stats") {
    print_served(server_.stats(), options_.replay_cache);
  } else if (what == "connections") {
    show_connections();
  } else if (what == "procedures") {
    show_procedures();
  } else if (what == "cores") {
    for (uint32_t core = 0; core < runtime_.num_cores(); ++core) {
      Stats stats = runtime_.stats(core);
      std::printf("core %u: %" PRIu64 " connections, %" PRIu64 " completions, %" PRIu64
                  " passes (%" PRIu64 " with work), %" PRIu64 " sleeps\n",
                  core, stats[Counter::kConnections], stats[Counter::kCompletions],
                  stats[Counter::kPasses], stats[Counter::kBusyPasses], stats[Counter::kSleeps]);
    }
  } else if (what == "faults") {
    std::printf("faults %s\n", faults_.c_str());
    print_faults(runtime_.fault_counts());
  } else if (what == "limits") {
    show_limits();
  } else {
    std::printf("%s\n", kShow);
  }
}

void ServerPrompt::show_connections() {
  Stats stats = server_.stats();
  if (stats[Counter::kConnections] != 0)
    std::printf("%8s %-*s %3s %7s %12s %9s\n", "id", static_cast<int>(kPeerColumns), "peer", "ver",
                "credits", "calls", "idle s");
  server_.visit(print_row);
  std::printf("%" PRIu64 " connections now; %" PRIu64 " accepted, %" PRIu64 " refused, %" PRIu64
              " ended\n",
              stats[Counter::kConnections], stats[Counter::kConnectionsAccepted],
              stats[Counter::kConnectionsRefused], stats[Counter::kConnectionsEnded]);
  for (uint32_t core = 0; core < runtime_.num_cores(); ++core)
    std::printf("  on core %u: %" PRIu64 "\n", core, runtime_.stats(core)[Counter::kConnections]);
}

void ServerPrompt::show_procedures() {
  const std::vector<ProcedureStats> procedures = server_.procedures();
  std::printf("%-18s %11s %7s %7s %7s\n", "procedure", "calls", "errors", "MB in", "MB out");
  for (const ProcedureStats& p : procedures)
    std::printf("%-18s %11" PRIu64 " %7" PRIu64 " %7.0f %7.0f\n", p.name.c_str(), p.calls, p.errors,
                static_cast<double>(p.received_bytes) / 1e6,
                static_cast<double>(p.sent_bytes) / 1e6);
  std::printf("%-18s %11s %11s %11s %11s %11s\n", "p50/p99 in us", "fetch", "decode", "queue",
              "handler", "reply");
  auto us = [](const DurationHistogram& times) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f/%.1f",
                  static_cast<double>(times.percentile_ns(50)) / 1e3,
                  static_cast<double>(times.percentile_ns(99)) / 1e3);
    return times.count() == 0 ? std::string("-") : std::string(text);
  };
  for (const ProcedureStats& p : procedures) {
    if (p.handler.count() != 0)
      std::printf("%-18s %11s %11s %11s %11s %11s\n", p.name.c_str(), us(p.fetch).c_str(),
                  us(p.decode).c_str(), us(p.queue).c_str(), us(p.handler).c_str(),
                  us(p.reply).c_str());
  }
}

void ServerPrompt::close(const std::string& text) {
  uint64_t id = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) {
    std::printf("close ID: one of those that 'show connections' has\n");
    return;
  }
  if (Result<void> closed = server_.close(id, "closed at the prompt"); !closed)
    std::printf("%s\n", closed.error().message.c_str());
  else
    std::printf("closing connection %" PRIu64 "\n", id);
}

void ServerPrompt::set(const std::vector<std::string>& words) {
  const std::string what = words.size() > 1 ? words[1] : "";
  Options changed = options_;
  if (std::ranges::find(kSettings, what) == std::end(kSettings)) {
    std::printf("%s\n", kSet);
  } else if (words.size() != 3) {
    std::printf("%s\n", about_option(what).c_str());
  } else if (Result<void> taken = find_option(what)->apply(changed, words[2]); !taken) {
    std::printf("%s\n", taken.error().message.c_str());
  } else if (what == "faults") {
    set_faults(changed);
  } else if (what == "capture") {
    capture_whole_ = end_capture(runtime_) && capture_whole_;
    if (Result<void> done = begin_capture(runtime_, changed.capture); !done)
      std::printf("%s\n", done.error().message.c_str());
  } else {
    set_limit(what, changed);
  }
}

void ServerPrompt::set_faults(const Options& changed) {
  if (!changed.faults) {
    runtime_.clear_faults();
  } else if (Result<void> done = runtime_.set_faults(*changed.faults); !done) {
    std::printf("%s\n", done.error().message.c_str());
    return;
  }
  faults_ = changed.faults ? to_string(*changed.faults) : "off";
}

// Applies to existing connections, too.
void ServerPrompt::set_limit(const std::string& what, const Options& changed) {
  ServerLimits limits = server_.limits();
  if (what == "idle-timeout")
    limits.idle_timeout_ms = changed.idle_timeout_ms;
  else if (what == "send-timeout")
    limits.send_timeout_ms = changed.send_timeout_ms;
  else if (what == "first-call-timeout")
    limits.first_call_timeout_ms = changed.first_call_timeout_ms;
  else if (what == "max-connections")
    limits.max_connections = changed.max_connections;
  else
    limits.max_connections_per_client = changed.connections_per_client.value_or(0);
  if (Result<void> done = server_.set_limits(limits); !done)
    std::printf("%s\n", done.error().message.c_str());
}

void ServerPrompt::show_limits() {
  const ServerLimits limits = server_.limits();
  const auto row = [](const char* name, uint32_t value, const char* of_zero) {
    std::printf("%s %u%s\n", name, value, value == 0 ? of_zero : "");
  };
  row("max-connections", limits.max_connections, "");
  row("max-connections-per-client", limits.max_connections_per_client,
      " (half of those that memory allows)");
  row("first-call-timeout", limits.first_call_timeout_ms, " (never)");
  row("idle-timeout", limits.idle_timeout_ms, " (never)");
  row("send-timeout", limits.send_timeout_ms, " (never)");
}

}  // namespace rrdk::testrpc
