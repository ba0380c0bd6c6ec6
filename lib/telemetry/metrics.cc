#include "telemetry/metrics.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "rrdk/client.h"
#include "rrdk/memory.h"
#include "rrdk/refusals.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"

namespace rrdk::telemetry {

namespace {

constexpr uint64_t sum_of(const HandlerMistakes& m) {
  return m.invalid_memory + m.unusable_memory + m.too_large + m.no_buffers + m.failed +
         m.unanswered;
}

// A metric that is one number of a struct of statistics.
template <typename Stats>
struct Field {
  Description what;
  uint64_t (*value)(const Stats&);
};

constexpr Field<ServerStats> kServer[] = {
    {{"server_connections", Kind::kGauge, "", "Connections now."},
     [](auto& s) { return uint64_t{s.connections}; }},
    {{"server_connections_accepted", Kind::kCounter, "", "Connections accepted."},
     [](auto& s) { return uint64_t{s.connections_accepted}; }},
    {{"server_connections_refused", Kind::kCounter, "",
      "Connections refused: too many, no room, or by on_open."},
     [](auto& s) { return uint64_t{s.connections_refused}; }},
    {{"server_connections_refused_per_client", Kind::kCounter, "",
      "Connections refused because their client had too many."},
     [](auto& s) { return uint64_t{s.refused_per_client}; }},
    {{"server_connections_ended", Kind::kCounter, "",
      "Connections ended by the peer, by its death or for a breach."},
     [](auto& s) { return uint64_t{s.connections_ended}; }},
    {{"server_closed_idle", Kind::kCounter, "", "Connections closed for idleness."},
     [](auto& s) { return uint64_t{s.closed_idle}; }},
    {{"server_closed_silent", Kind::kCounter, "", "Connections closed before their first call."},
     [](auto& s) { return uint64_t{s.closed_silent}; }},
    {{"server_closed_for_room", Kind::kCounter, "",
      "Connections without a call closed to make room."},
     [](auto& s) { return uint64_t{s.closed_for_room}; }},
    {{"server_closed_stalled", Kind::kCounter, "",
      "Connections closed because they took no replies."},
     [](auto& s) { return uint64_t{s.closed_stalled}; }},
    {{"server_calls", Kind::kCounter, "", "Calls received."},
     [](auto& s) { return uint64_t{s.calls}; }},
    {{"server_replies", Kind::kCounter, "", "Replies sent."},
     [](auto& s) { return uint64_t{s.replies}; }},
    {{"server_calls_rejected", Kind::kCounter, "",
      "Calls that the program or the server did not let succeed."},
     [](auto& s) { return uint64_t{s.rejected}; }},
    {{"server_calls_not_run", Kind::kCounter, "", "Calls that came while the server drained."},
     [](auto& s) { return uint64_t{s.calls_not_run}; }},
    {{"server_transport_errors", Kind::kCounter, "", "RDMA_ERROR answers."},
     [](auto& s) { return uint64_t{s.transport_errors}; }},
    {{"server_protocol_breaches", Kind::kCounter, "", "Breaches of the protocol by clients."},
     [](auto& s) { return uint64_t{s.protocol_breaches}; }},
    {{"server_rdma_read_bytes", Kind::kCounter, "bytes", "Bytes fetched by RDMA Read."},
     [](auto& s) { return uint64_t{s.bytes_read}; }},
    {{"server_rdma_written_bytes", Kind::kCounter, "bytes", "Bytes placed by RDMA Write."},
     [](auto& s) { return uint64_t{s.bytes_written}; }},
    {{"server_waits_turn", Kind::kCounter, "", "Calls that waited for other connections' turns."},
     [](auto& s) { return uint64_t{s.turn_waits}; }},
    {{"server_waits_chunk_bytes", Kind::kCounter, "",
      "Times that calls waited for max_chunk_bytes."},
     [](auto& s) { return uint64_t{s.chunk_waits}; }},
    {{"server_waits_share", Kind::kCounter, "",
      "Times that calls waited because their client held its share of buffers."},
     [](auto& s) { return uint64_t{s.share_waits}; }},
    {{"server_replay_answered", Kind::kCounter, "",
      "Repeated calls answered from the duplicate request cache."},
     [](auto& s) { return uint64_t{s.replay.hits}; }},
    {{"server_replay_kept", Kind::kCounter, "", "Replies kept in the duplicate request cache."},
     [](auto& s) { return uint64_t{s.replay.stored}; }},
    {{"server_replay_refused", Kind::kCounter, "",
      "Calls refused because the duplicate request cache could not protect them."},
     [](auto& s) { return uint64_t{s.replay.refused}; }},
    {{"server_replay_clients", Kind::kGauge, "",
      "Clients that the duplicate request cache remembers: places taken."},
     [](auto& s) { return uint64_t{s.replay.clients}; }},
    {{"server_replay_places", Kind::kGauge, "",
      "Clients that the duplicate request cache can remember."},
     [](auto& s) { return uint64_t{s.replay.places}; }},
    {{"server_replay_made_way", Kind::kCounter, "",
      "Clients forgotten before their time, since places lacked."},
     [](auto& s) { return uint64_t{s.replay.made_way}; }},
    {{"server_replay_lost", Kind::kCounter, "",
      "Repeated calls whose reply the duplicate request cache had not kept."},
     [](auto& s) { return uint64_t{s.replay.lost}; }},
    {{"server_handler_mistakes", Kind::kCounter, "",
      "Mistakes of the program's own handlers; the log has the first of each kind."},
     [](auto& s) { return sum_of(s.mistakes); }},
    {{"server_backward_calls", Kind::kCounter, "", "Calls that the server made to its clients."},
     [](auto& s) { return uint64_t{s.backward.calls}; }},
    {{"server_backward_errors", Kind::kCounter, "",
      "Calls that the server made to its clients and that failed."},
     [](auto& s) { return uint64_t{s.backward.ended_error}; }},
};

constexpr Field<ClientStats> kClient[] = {
    {{"client_calls", Kind::kCounter, "", "Calls made."},
     [](auto& s) { return uint64_t{s.calls}; }},
    {{"client_calls_ok", Kind::kCounter, "", "Calls that ended well."},
     [](auto& s) { return uint64_t{s.ended_ok}; }},
    {{"client_calls_failed", Kind::kCounter, "", "Calls that ended in an error."},
     [](auto& s) { return uint64_t{s.ended_error}; }},
    {{"client_calls_timed_out", Kind::kCounter, "", "Calls that ended by their deadline."},
     [](auto& s) { return uint64_t{s.timeouts}; }},
    {{"client_calls_in_flight", Kind::kGauge, "", "Calls that have not ended."},
     [](auto& s) { return uint64_t{s.in_flight}; }},
    {{"client_credits", Kind::kGauge, "", "Credits of the last grants, of all connections."},
     [](auto& s) { return uint64_t{s.granted}; }},
    {{"client_waits_credit", Kind::kCounter, "", "Calls that waited for a credit."},
     [](auto& s) { return uint64_t{s.credit_waits}; }},
    {{"client_reconnections", Kind::kCounter, "", "Connections established after the first."},
     [](auto& s) { return uint64_t{s.reconnects}; }},
    {{"client_retransmissions", Kind::kCounter, "", "Calls sent again under their XIDs."},
     [](auto& s) { return uint64_t{s.retransmissions}; }},
    {{"client_keepalives", Kind::kCounter, "", "NULL calls to ask a silent server."},
     [](auto& s) { return uint64_t{s.keepalives}; }},
    {{"client_connections", Kind::kGauge, "", "Connections that are up."},
     [](auto& s) { return uint64_t{s.granted != 0}; }},
    {{"client_attempts_failed", Kind::kCounter, "", "Attempts at a connection that failed."},
     [](auto& s) { return uint64_t{s.failed_attempts}; }},
    {{"client_protocol_breaches", Kind::kCounter, "", "Breaches of the protocol by the server."},
     [](auto& s) { return uint64_t{s.protocol_breaches}; }},
};

constexpr Field<CoreStats> kCore[] = {
    {{"core_connections", Kind::kGauge, "", "Connections of the core now."},
     [](auto& s) { return uint64_t{s.connections}; }},
    {{"core_passes", Kind::kCounter, "", "Passes of the core's loop."},
     [](auto& s) { return uint64_t{s.polls}; }},
    {{"core_busy_passes", Kind::kCounter, "", "Passes that found work."},
     [](auto& s) { return uint64_t{s.busy_polls}; }},
    {{"core_completions", Kind::kCounter, "", "Completions handled."},
     [](auto& s) { return uint64_t{s.completions}; }},
    {{"core_sleeps", Kind::kCounter, "", "Times that the core slept."},
     [](auto& s) { return uint64_t{s.sleeps}; }},
};

constexpr Field<PoolAudit> kPool[] = {
    {{"pool_buffers", Kind::kGauge, "", "Buffers that the size class has."},
     [](auto& s) { return uint64_t{s.count}; }},
    {{"pool_buffers_free", Kind::kGauge, "", "Buffers that are not in use."},
     [](auto& s) { return uint64_t{s.available}; }},
    {{"pool_buffers_more", Kind::kGauge, "", "Buffers that the budget could still give."},
     [](auto& s) { return uint64_t{s.more}; }},
    {{"pool_buffers_least", Kind::kGauge, "", "Low-water mark of free and more."},
     [](auto& s) { return uint64_t{s.least_available}; }},
    {{"pool_buffers_missing", Kind::kCounter, "",
      "Times that a buffer was wanted and none was to be had."},
     [](auto& s) { return uint64_t{s.refusals}; }},
};

constexpr Field<ProcedureStats> kProcedure[] = {
    {{"procedure_calls", Kind::kCounter, "", "Calls that have ended."},
     [](auto& s) { return uint64_t{s.calls}; }},
    {{"procedure_errors", Kind::kCounter, "", "Calls that ended without success."},
     [](auto& s) { return uint64_t{s.errors}; }},
    {{"procedure_calls_in_progress", Kind::kGauge, "", "Calls that have not ended."},
     [](auto& s) { return uint64_t{s.in_progress}; }},
    {{"procedure_received_bytes", Kind::kCounter, "bytes", "Bytes of calls."},
     [](auto& s) { return uint64_t{s.bytes_in}; }},
    {{"procedure_sent_bytes", Kind::kCounter, "bytes", "Bytes of replies."},
     [](auto& s) { return uint64_t{s.bytes_out}; }},
};

template <typename Stats, size_t kCount>
std::vector<Family> families_by(const Field<Stats> (&fields)[kCount], const Stats& stats) {
  std::vector<Family> families;
  for (const Field<Stats>& field : fields)
    families.push_back({field.what, {{{}, field.value(stats), {}}}});
  return families;
}

Family refusals_by(const Description& what, const Refusals& refusals) {
  Family family = {what, {}};
  for (const Refusal reason : all_refusals())
    family.samples.push_back({{{"reason", to_string(reason)}}, refusals[reason], {}});
  return family;
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
  // To the samples that there are.
  void sum(std::vector<Family> families) {
    for (Family& family : families) {
      std::vector<Sample>& samples = of(family).samples;
      samples.resize(family.samples.size());
      for (size_t i = 0; i < samples.size(); ++i) {
        samples[i].labels = std::move(family.samples[i].labels);
        samples[i].value += family.samples[i].value;
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

std::vector<Family> families_of(const ServerStats& stats) {
  std::vector<Family> families = families_by(kServer, stats);
  families.push_back(refusals_by(
      {"server_refusals", Kind::kCounter, "", "What clients sent that was refused or ignored."},
      stats.refusals));
  return families;
}

std::vector<Family> families_of(const ClientStats& stats) {
  std::vector<Family> families = families_by(kClient, stats);
  families.push_back(refusals_by(
      {"client_refusals", Kind::kCounter, "", "What servers sent that was refused or ignored."},
      stats.refusals));
  return families;
}

std::vector<Family> families_of(const CoreStats& stats) {
  return families_by(kCore, stats);
}

std::vector<Family> families_of(const PoolAudit& stats) {
  return families_by(kPool, stats);
}

std::vector<Family> families_of(const ProcedureStats& stats) {
  std::vector<Family> families = families_by(kProcedure, stats);
  families.push_back({{"procedure_handler_seconds", Kind::kHistogram, "seconds",
                       "From a handler's entry to its answer, of the calls that are timed."},
                      {{{}, 0, stats.handler}}});
  families.push_back(
      {{"procedure_stage_seconds", Kind::kHistogram, "seconds",
        "The time of the same calls before the handler and behind it, in this process."},
       {{{{"stage", "fetch"}}, 0, stats.fetch},
        {{{"stage", "decode"}}, 0, stats.decode},
        {{{"stage", "queue"}}, 0, stats.queue},
        {{{"stage", "reply"}}, 0, stats.reply}}});
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
          {"rejected", info.rejected},
          {"transport_errors", info.transport_errors},
          {"bytes_read", info.bytes_read},
          {"bytes_written", info.bytes_written},
          {"protocol_breaches", info.protocol_breaches},
          {"age_us", info.age_ns / 1000},
          {"idle_us", info.idle_ns / 1000}};
}

Numbers numbers_of(const ProcedureStats& stats) {
  Numbers numbers = {{"program", stats.program},
                     {"version", stats.version},
                     {"calls", stats.calls},
                     {"errors", stats.errors},
                     {"in_progress", stats.in_progress},
                     {"bytes_in", stats.bytes_in},
                     {"bytes_out", stats.bytes_out},
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
  for (const ClientConnection* client : sources.clients)
    to.sum(families_of(client->stats()));
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
