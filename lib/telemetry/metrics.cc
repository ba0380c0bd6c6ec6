#include "telemetry/metrics.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "rrdk/client.h"
#include "rrdk/counters.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"

namespace rrdk::telemetry {

namespace {

constexpr std::string_view kOwners[] = {"server", "client", "core", "pool", "procedure"};
constexpr std::string_view kRefusal = "refusal_";

// Refusals are one family, with their reasons as a label.
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

  // With these labels in front of its own.
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
    // A name can be that of two versions.
    to.add(families_of(p), {{"server", number},
                            {"program", std::to_string(p.program)},
                            {"version", std::to_string(p.version)},
                            {"procedure", p.name}});
  }
}

void add_runtime(Collection& to, Runtime& runtime) {
  for (uint32_t i = 0; i < runtime.num_cores(); ++i)
    to.add(families_of(runtime.stats(i)), {{"core", std::to_string(i)}});
  for (const PoolAudit& pool : runtime.memory().audit())
    to.add(families_of(pool),
           {{"size", std::to_string(pool.buffer_size)}, {"node", std::to_string(pool.numa_node)}});
}

}  // namespace

std::vector<Family> families_of(const Stats& stats) {
  std::vector<Family> families;
  for (const Stats::Value& one : stats.values()) {
    Family family = family_of(kOwners[static_cast<size_t>(stats.owner())], one);
    if (!families.empty() && families.back().name == family.name)
      families.back().samples.push_back(std::move(family.samples.front()));
    else
      families.push_back(std::move(family));
  }
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

std::vector<Family> families_of(const ProcedureStats& procedure) {
  Stats stats(CounterOwner::kProcedure);
  stats.add(Counter::kCalls, procedure.calls);
  stats.add(Counter::kErrors, procedure.errors);
  stats.add(Counter::kCallsInProgress, procedure.calls_in_progress);
  stats.add(Counter::kReceivedBytes, procedure.received_bytes);
  stats.add(Counter::kSentBytes, procedure.sent_bytes);
  std::vector<Family> families = families_of(stats);
  families.push_back({{"procedure_handler_seconds", Kind::kHistogram, "seconds",
                       "From a handler's entry to its answer, of the calls that are timed."},
                      {{{}, 0, procedure.handler}}});
  families.push_back(
      {{"procedure_stage_seconds", Kind::kHistogram, "seconds",
        "The time of the same calls before the handler and behind it, in this process."},
       {{{{"stage", "fetch"}}, 0, procedure.fetch},
        {{{"stage", "decode"}}, 0, procedure.decode},
        {{{"stage", "queue"}}, 0, procedure.queue},
        {{{"stage", "reply"}}, 0, procedure.reply}}});
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

Numbers numbers_of(const ProcedureStats& stats) {
  Numbers numbers = {{"program", stats.program},
                     {"version", stats.version},
                     {"calls", stats.calls},
                     {"errors", stats.errors},
                     {"calls_in_progress", stats.calls_in_progress},
                     {"received_bytes", stats.received_bytes},
                     {"sent_bytes", stats.sent_bytes},
                     {"timed_calls", stats.handler.count()}};
  const std::pair<std::string, const DurationHistogram&> stages[] = {{"fetch", stats.fetch},
                                                                     {"decode", stats.decode},
                                                                     {"queue", stats.queue},
                                                                     {"handler", stats.handler},
                                                                     {"reply", stats.reply}};
  for (const auto& [name, times] : stages) {
    numbers.emplace_back(name + "_p50_ns", times.percentile_ns(50));
    numbers.emplace_back(name + "_p99_ns", times.percentile_ns(99));
    numbers.emplace_back(name + "_max_ns", times.percentile_ns(100));
  }
  return numbers;
}

// Clients are summed: a program can have thousands, and each label of a metric costs whoever keeps
// it.
std::vector<Family> collect(const TelemetrySources& sources) {
  std::vector<Family> families;
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
  return families;
}

// The text format of OpenMetrics 1.0.

namespace {

// Bounds of a histogram's buckets, in powers of two of nanoseconds: finer ones would make a scrape
// of many procedures long.
constexpr uint32_t kLeastBound = 8, kMostBound = 34;  // 256 ns to 17 s

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"')
      out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
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
  // Not as a double: that would be written as the program's locale has it.
  char text[32];
  std::snprintf(text, sizeof text, "%" PRIu64 ".%09" PRIu64, ns / 1'000'000'000,
                ns % 1'000'000'000);
  return text;
}

void add_histogram(std::string& text, const std::string& name, const Sample& sample) {
  const DurationHistogram& times = sample.times;
  uint64_t below = 0;
  size_t bucket = 0;
  for (uint32_t power = kLeastBound; power <= kMostBound; ++power) {
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

const char* type_name(Kind kind) {
  return kind == Kind::kCounter ? "counter" : kind == Kind::kGauge ? "gauge" : "histogram";
}

}  // namespace

std::string to_openmetrics(const std::vector<Family>& families) {
  std::string text;
  for (const Family& family : families) {
    const std::string name = "rrdk_" + std::string(family.name);
    text += "# TYPE " + name + " " + type_name(family.kind) + "\n";
    if (!family.unit.empty())
      text += "# UNIT " + name + " " + std::string(family.unit) + "\n";
    text += "# HELP " + name + " " + escaped(family.help) + "\n";
    for (const Sample& sample : family.samples) {
      if (family.kind == Kind::kHistogram)
        add_histogram(text, name, sample);
      else
        text += name + (family.kind == Kind::kCounter ? "_total" : "") +
                labels_text(sample.labels) + " " + std::to_string(sample.value) + "\n";
    }
  }
  return text + "# EOF\n";
}

}  // namespace rrdk::telemetry
