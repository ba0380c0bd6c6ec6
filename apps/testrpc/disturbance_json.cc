#include "disturbance_json.h"

#include <optional>

#include "engines.h"
#include "results_json.h"
#include "stages.h"

namespace rrdk::testrpc {
namespace {

// Writes an object or a list, member by member.
class JsonValue {
 public:
  explicit JsonValue(char open) : text_(1, open), close_(open == '{' ? '}' : ']') {}

  void add(const std::string& value) { text_ += (text_.size() == 1 ? "" : ", ") + value; }
  void add(const char* name, const std::string& value) {
    add("\"" + std::string(name) + "\": " + value);
  }
  void add(const char* name, const char* value) { add(name, quoted(value)); }
  void add(const char* name, uint64_t value) { add(name, std::to_string(value)); }
  void add(const char* name, std::optional<uint64_t> value) {
    add(name, value ? std::to_string(*value) : "null");
  }
  void add(const char* name, double value) { add(name, std::to_string(value)); }
  void add(const char* name, std::optional<double> value) {
    add(name, value ? std::to_string(*value) : "null");
  }
  std::string end() const { return text_ + close_; }

 private:
  std::string text_;
  char close_;
};

std::optional<uint64_t> known_cpu(int cpu) {
  return cpu < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(cpu));
}

std::string json_of(const Cause& cause) {
  JsonValue json('{');
  json.add("cause", to_string(cause.kind));
  json.add("side", cause.at_server ? "server" : "client");
  json.add("cpu", known_cpu(cause.cpu));
  json.add("ns", is_event(cause.kind) ? std::nullopt : std::optional(cause.took_ns));
  json.add("times", uint64_t{cause.times});
  return json.end();
}

std::string json_of(const Steps& steps) {
  JsonValue json('{');
  for (size_t step = 0; step < steps.size(); ++step) {
    if (steps[step])
      json.add(to_string(static_cast<Step>(step)), *steps[step]);
  }
  return json.end();
}

std::string json_of(const Outlier& call) {
  JsonValue causes('[');
  for (const Cause& cause : std::span(call.causes).first(call.num_causes))
    causes.add(json_of(cause));
  JsonValue json('{');
  json.add("start_ns", call.start_ns);
  json.add("total_ns", call.total_ns);
  json.add("connection", uint64_t{call.connection});
  json.add("engine", call.engine->name);
  json.add("size", uint64_t{call.size});
  json.add("stages", call.stamps ? json_of(call.steps) : "null");
  json.add("causes", causes.end());
  return json.end();
}

std::string json_of(const GapTotals& gaps) {
  JsonValue json('{');
  for (size_t i = 0; i < kGapKinds; ++i) {
    const auto kind = static_cast<GapKind>(i);
    if (gaps.count(kind) == 0 || is_event(kind))
      continue;
    JsonValue one('{');
    one.add("count", gaps.count(kind));
    one.add("ns", gaps.took(kind));
    json.add(to_string(kind), one.end());
  }
  return json.end();
}

std::string json_of(const Noise::Thread& thread) {
  const ThreadUsage& used = thread.used;
  JsonValue json('{');
  json.add("side", thread.side);
  json.add("cpu", known_cpu(thread.cpu));
  json.add("cpu_ns", used.cpu_ns);
  json.add("waited_ns", used.waited_ns);
  json.add("obtained", thread.obtained());
  json.add("voluntary_switches", used.voluntary);
  json.add("involuntary_switches", used.involuntary);
  json.add("minor_faults", used.minor_faults);
  json.add("major_faults", used.major_faults);
  json.add("tcp_retransmissions", thread.tcp_retransmissions);
  json.add("gaps", json_of(thread.gaps));
  return json.end();
}

std::string json_of(const Noise::Cpu& cpu) {
  JsonValue most('{');
  for (const auto& [name, count] : cpu.most)
    most.add(quoted(name) + ": " + std::to_string(count));
  JsonValue json('{');
  json.add("cpu", known_cpu(cpu.cpu));
  json.add("interrupts", cpu.interrupts);
  json.add("most_interrupts", most.end());
  json.add("softirqs", cpu.softirqs);
  json.add("steal_ns", cpu.steal_ns);
  json.add("khz_before", cpu.khz_before);
  json.add("khz_after", cpu.khz_after);
  return json.end();
}

template <typename Items>
std::string json_list(const Items& items) {
  JsonValue json('[');
  for (const auto& item : items)
    json.add(json_of(item));
  return json.end();
}

std::optional<double> measured(double ns) {
  return ns > 0 ? std::optional(ns) : std::nullopt;
}

}  // namespace

std::string outliers_json(std::span<const Outlier> calls) {
  return json_list(calls);
}

std::string noise_json(const Noise& noise) {
  JsonValue remarks('[');
  for (const std::string& remark : noise.remarks())
    remarks.add(quoted(remark));
  JsonValue line('{');
  line.add("before_ns", measured(noise.line_before_ns));
  line.add("after_ns", measured(noise.line_after_ns));
  JsonValue waits('{');
  waits.add("credit", noise.waits.credit_waits);
  waits.add("sent_again", noise.waits.sent_again);
  JsonValue json('{');
  json.add("seconds", noise.seconds);
  json.add("remarks", remarks.end());
  json.add("threads", json_list(noise.threads));
  json.add("cpus", json_list(noise.cpus));
  json.add("cache_line", line.end());
  json.add("waits", waits.end());
  return json.end();
}

}  // namespace rrdk::testrpc
