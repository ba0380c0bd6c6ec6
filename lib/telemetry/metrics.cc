#include "telemetry/metrics.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/internals.h"
#include "base/log.h"
#include "rrdk/client.h"
#include "rrdk/counters.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "runtime/runtime_impl.h"

namespace rrdk::telemetry {

namespace {

constexpr std::string_view kOwners[] = {"server", "client", "core", "pool", "procedure"};
constexpr std::string_view kRefusal = "refusal_";

// All refusals form one family, in which the reason is a label.
Family family_of(std::string_view owner, const Stats::Value& one) {
  const std::string_view name = one.info->name;
  const std::string prefix = std::string(owner) + "_";
  if (name.starts_with(kRefusal))
    return {
        {prefix + "refusals", Kind::kCounter, "", "What peers sent that was refused or ignored."},
        {{{{"reason", std::string(name.substr(kRefusal.size()))}}, one.value, {}}}};
  return {{prefix + std::string(name), one.info->is_gauge ? Kind::kGauge : Kind::kCounter,
           one.info->unit, one.info->text},
          {{{}, one.value, {}}}};
}

class Collection {
 public:
  explicit Collection(std::vector<Family>& families) : families_(families) {}

  // Puts `labels` in front of the labels of each sample.
  void add(std::vector<Family> families, const Labels& labels) {
    for (Family& family : families) {
      Family& its = of(family);
      for (Sample& sample : family.samples) {
        sample.labels.insert(sample.labels.begin(), labels.begin(), labels.end());
        its.samples.push_back(std::move(sample));
      }
    }
  }

 private:
  Family& of(const Description& wanted) {
    const auto found = std::ranges::find(families_, wanted.name, &Family::name);
    return found != families_.end() ? *found : families_.emplace_back(Family{wanted, {}});
  }

  std::vector<Family>& families_;
};

void add_procedures(Collection& to, const Server& server, const std::string& number) {
  for (const ProcedureStats& p : server.procedures()) {
    // Two versions of a program can have a procedure of the same name.
    to.add(families_of(p), {{"server", number},
                            {"program", std::to_string(p.program)},
                            {"version", std::to_string(p.version)},
                            {"procedure", p.name}});
  }
}

// A reader multiplies a histogram's count by this to get the number of calls.
Family sampling(Runtime& runtime) {
  return {{"runtime_stamp_every", Kind::kGauge, "",
           "N, where one call in N is timed (Runtime::stamp_every()). 0 times no calls."},
          {{{}, Internals::of(runtime).stamp_every, {}}}};
}

void add_runtime(Collection& to, Runtime& runtime) {
  to.add({sampling(runtime)}, {});
  for (uint32_t i = 0; i < runtime.num_cores(); ++i)
    to.add(families_of(runtime.stats(i)), {{"core", std::to_string(i)}});
  for (const PoolAudit& pool : runtime.memory().audit())
    to.add(families_of(pool),
           {{"size", std::to_string(pool.buffer_size)}, {"node", std::to_string(pool.numa_node)}});
}

void add_called(Collection& to, Runtime& runtime) {
  for (const runtime::CalledStats& called : Internals::of(runtime).called.read()) {
    to.add(families_of(called), {{"target", called.target},
                                 {"program", std::to_string(called.program)},
                                 {"version", std::to_string(called.version)},
                                 {"procedure", called.name}});
  }
}

}  // namespace

std::vector<Family> families_of(const Stats& stats) {
  std::vector<Family> families;
  Collection collection(families);
  for (const Stats::Value& one : stats.values())
    collection.add({family_of(kOwners[static_cast<size_t>(stats.owner())], one)}, {});
  return families;
}

std::vector<Family> families_of(const PoolAudit& pool) {
  Stats stats(CounterOwner::kPool);
  stats.add(Counter::kBuffers, pool.count);
  stats.add(Counter::kBuffersFree, pool.available);
  stats.add(Counter::kBuffersMore, pool.more);
  stats.add(Counter::kBuffersLeast, pool.least_available);
  stats.add(Counter::kBuffersMissing, pool.missing);
  return families_of(stats);
}

namespace {

Family& add_times(std::vector<Family>& to, const char* name, const char* help, Buckets buckets) {
  Family& family = to.emplace_back();
  family.name = name;
  family.kind = Kind::kHistogram;
  family.unit = "seconds";
  family.help = help;
  family.buckets = buckets;
  return family;
}

}  // namespace

std::vector<Family> families_of(const ProcedureStats& procedure) {
  Stats stats(CounterOwner::kProcedure);
  stats.add(Counter::kCalls, procedure.calls);
  stats.add(Counter::kErrors, procedure.errors);
  stats.add(Counter::kCallsInProgress, procedure.calls_in_progress);
  stats.add(Counter::kReceivedBytes, procedure.received_bytes);
  stats.add(Counter::kSentBytes, procedure.sent_bytes);
  std::vector<Family> families = families_of(stats);
  if (procedure.handler.count() == 0)
    return families;
  add_times(families, "procedure_handler_seconds",
            "From a handler's entry to its answer, of the calls that are timed.", Buckets::kDouble)
      .samples.push_back({{}, 0, procedure.handler});
  Family& stages =
      add_times(families, "procedure_stage_seconds",
                "The time of the same calls before the handler and behind it, in this process.",
                Buckets::kFourfold);
  const std::pair<const char*, const DurationHistogram*> times[] = {{"fetch", &procedure.fetch},
                                                                    {"decode", &procedure.decode},
                                                                    {"queue", &procedure.queue},
                                                                    {"reply", &procedure.reply}};
  for (const auto& [name, histogram] : times)
    stages.samples.push_back({{{"stage", name}}, 0, *histogram});
  return families;
}

std::vector<Family> families_of(const runtime::CalledStats& called) {
  std::vector<Family> families;
  add_times(families, "client_call_seconds",
            "From submit() to the callback, of the calls that are timed and were answered.",
            Buckets::kDouble)
      .samples.push_back({{}, 0, called.call});
  Family& steps = add_times(
      families, "client_stage_seconds",
      "Time that the same calls spent in each part of their way, all together.", Buckets::kDouble);
  steps.kind = Kind::kCounter;
  for (size_t i = 0; i < called.step_ns.size(); ++i)
    steps.samples.push_back({{{"stage", runtime::kCalledSteps[i].name}}, called.step_ns[i], {}});
  return families;
}

Numbers numbers_of(const ConnectionInfo& info) {
  return {{"id", info.id},
          {"core", info.core},
          {"version", info.version},
          {"send_size", info.send_size},
          {"receive_size", info.receive_size},
          {"credits", info.credits},
          {"in_progress", info.in_progress},
          {"calls", info.calls},
          {"replies", info.replies},
          {"calls_rejected", info.calls_rejected},
          {"transport_errors", info.transport_errors},
          {"rdma_read_bytes", info.rdma_read_bytes},
          {"rdma_written_bytes", info.rdma_written_bytes},
          {"protocol_breaches", info.protocol_breaches},
          {"age_us", info.age_ns / 1000},
          {"idle_us", info.idle_ns / 1000}};
}

namespace {

void add_percentiles(Numbers& numbers, const std::string& name, const DurationHistogram& times) {
  numbers.emplace_back(name + "_p50_ns", times.percentile_ns(50));
  numbers.emplace_back(name + "_p99_ns", times.percentile_ns(99));
  numbers.emplace_back(name + "_max_ns", times.percentile_ns(100));
}

}  // namespace

Numbers numbers_of(const ProcedureStats& stats) {
  Numbers numbers = {{"program", stats.program},
                     {"version", stats.version},
                     {"calls", stats.calls},
                     {"errors", stats.errors},
                     {"calls_in_progress", stats.calls_in_progress},
                     {"received_bytes", stats.received_bytes},
                     {"sent_bytes", stats.sent_bytes},
                     {"timed_calls", stats.handler.count()}};
  add_percentiles(numbers, "fetch", stats.fetch);
  add_percentiles(numbers, "decode", stats.decode);
  add_percentiles(numbers, "queue", stats.queue);
  add_percentiles(numbers, "handler", stats.handler);
  add_percentiles(numbers, "reply", stats.reply);
  return numbers;
}

Numbers numbers_of(const runtime::CalledStats& called) {
  Numbers numbers = {{"program", called.program},
                     {"version", called.version},
                     {"timed_calls", called.call.count()}};
  add_percentiles(numbers, "call", called.call);
  for (size_t i = 0; i < called.step_ns.size(); ++i)
    numbers.emplace_back(std::string(runtime::kCalledSteps[i].name) + "_total_ns",
                         called.step_ns[i]);
  return numbers;
}

// Sums all clients: a program can have thousands, and each value of a label costs memory in
// the database.
std::vector<Family> collect(const TelemetrySources& sources) {
  std::vector<Family> families = families_of_process();
  Collection to(families);
  if (sources.runtime != nullptr)
    add_runtime(to, *sources.runtime);
  for (size_t i = 0; i < sources.servers.size(); ++i) {
    const std::string number = std::to_string(i);
    to.add(families_of(sources.servers[i]->stats()), {{"server", number}});
    add_procedures(to, *sources.servers[i], number);
  }
  Stats clients(CounterOwner::kClient);
  for (const ClientConnection* client : sources.clients)
    clients += client->stats();
  if (!sources.clients.empty())
    to.add(families_of(clients), {});
  if (sources.runtime != nullptr)
    add_called(to, *sources.runtime);
  return families;
}

// The two text formats differ only in their comment lines.

namespace {

// The bounds of a histogram's buckets are powers of two of nanoseconds.
constexpr uint32_t kLeastBound = 10, kMostBound = 34;  // 1 us to 17 s

// Help texts have their quotes escaped in OpenMetrics only. Invalid UTF-8, such as a path in
// another encoding, becomes U+FFFD, because a reader would reject the whole text.
std::string escaped(const std::string& text, bool quotes = true) {
  std::string out;
  for (const char* at = text.c_str(); *at != '\0';) {
    const size_t length = base::utf8_length(at);
    if (length == 0)
      out += "\uFFFD";
    else if (*at == '\n')
      out += "\\n";
    else if (*at == '\\' || (*at == '"' && quotes))
      out += {'\\', *at};
    else
      out.append(at, length);
    at += std::max<size_t>(length, 1);
  }
  return out;
}

std::string labels_text(const Labels& labels, const std::string& bound = "") {
  std::string text;
  for (const auto& [name, value] : labels)
    text += (text.empty() ? "" : ",") + std::string(name) + "=\"" + escaped(value) + "\"";
  if (!bound.empty())
    text += (text.empty() ? "" : ",") + ("le=\"" + bound + "\"");
  return text.empty() ? "" : "{" + text + "}";
}

std::string seconds(uint64_t ns) {
  // A double would be printed with the decimal separator of the program's locale.
  char text[32];
  std::snprintf(text, sizeof text, "%" PRIu64 ".%09" PRIu64, ns / 1'000'000'000,
                ns % 1'000'000'000);
  return text;
}

void add_histogram(std::string& text, const std::string& name, const Sample& sample,
                   Buckets buckets) {
  const DurationHistogram& times = sample.times;
  uint64_t below = 0;
  size_t bucket = 0;
  const uint32_t step = buckets == Buckets::kDouble ? 1 : 2;
  for (uint32_t power = kLeastBound; power <= kMostBound; power += step) {
    const uint64_t bound = uint64_t{1} << power;
    for (; bucket < DurationHistogram::kBuckets && DurationHistogram::upper_end_ns(bucket) < bound;
         ++bucket)
      below += times.buckets[bucket];
    text += name + "_bucket" + labels_text(sample.labels, seconds(bound)) + " " +
            std::to_string(below) + "\n";
  }
  const std::string count = std::to_string(times.count());
  text += name + "_bucket" + labels_text(sample.labels, "+Inf") + " " + count + "\n";
  text += name + "_sum" + labels_text(sample.labels) + " " + seconds(times.total_ns) + "\n";
  text += name + "_count" + labels_text(sample.labels) + " " + count + "\n";
}

const char* type_name(Kind kind, Format format) {
  switch (kind) {
    case Kind::kCounter:
      return "counter";
    case Kind::kHistogram:
      return "histogram";
    case Kind::kInfo:
      return format == Format::kOpenMetrics ? "info" : "gauge";
    case Kind::kGauge:
      break;
  }
  return "gauge";
}

// Returns what the names of samples have after the name of their family.
const char* suffix_of(Kind kind) {
  return kind == Kind::kCounter ? "_total" : kind == Kind::kInfo ? "_info" : "";
}

void add_family(std::string& text, const Family& family, Format format) {
  const bool open = format == Format::kOpenMetrics;
  const std::string name = "rrdk_" + family.name;
  const std::string full = name + suffix_of(family.kind);
  const std::string& described = open ? name : full;
  text += "# TYPE " + described + " " + type_name(family.kind, format) + "\n";
  if (open && !family.unit.empty())
    text += "# UNIT " + name + " " + std::string(family.unit) + "\n";
  text += "# HELP " + described + " " + escaped(std::string(family.help), open) + "\n";
  for (const Sample& sample : family.samples) {
    if (family.kind == Kind::kHistogram)
      add_histogram(text, name, sample, family.buckets);
    else
      text += full + labels_text(sample.labels) + " " +
              (family.unit == "seconds" ? seconds(sample.value) : std::to_string(sample.value)) +
              "\n";
  }
}

}  // namespace

std::string to_text(const std::vector<Family>& families, Format format) {
  std::string text;
  for (const Family& family : families)
    add_family(text, family, format);
  return format == Format::kOpenMetrics ? text + "# EOF\n" : text;
}

namespace {

// Removes the part up to `end` from `text`, and returns it without the blanks around it.
std::string_view take_part(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  part.remove_prefix(std::min(part.find_first_not_of(" \t"), part.size()));
  return part.substr(0, part.find_last_not_of(" \t") + 1);
}

// Compares without regard to case. `lower` contains no capitals.
bool is_same(std::string_view text, std::string_view lower) {
  const auto small = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(text, lower, {}, small);
}

// Returns the weight q in thousandths. A missing or malformed weight counts as 1.
int weight_of(std::string_view parameters) {
  while (!parameters.empty()) {
    std::string_view value = take_part(parameters, ';');
    if (!is_same(take_part(value, '='), "q") || value.empty())
      continue;
    int weight = value[0] == '0' ? 0 : 1000;
    int digit = 100;
    for (size_t i = 2; i < std::min<size_t>(value.size(), 5) && weight < 1000; ++i, digit /= 10)
      weight += value[i] >= '0' && value[i] <= '9' ? (value[i] - '0') * digit : 0;
    return weight;
  }
  return 1000;
}

}  // namespace

Format format_for(std::string_view accept) {
  int open = 0, plain = 0;
  while (!accept.empty()) {
    std::string_view parameters = take_part(accept, ',');
    const std::string_view type = take_part(parameters, ';');
    if (is_same(type, "application/openmetrics-text"))
      open = std::max(open, weight_of(parameters));
    else if (is_same(type, "text/plain"))
      plain = std::max(plain, weight_of(parameters));
  }
  return open != 0 && open >= plain ? Format::kOpenMetrics : Format::kPrometheus;
}

}  // namespace rrdk::telemetry
