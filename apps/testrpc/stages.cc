#include "stages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <utility>

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kTellStages = 1;
constexpr uint32_t kBytesOfCall = 3 * 4 + 8 + 5 * 8;
constexpr size_t kMostTold = 50;      // at once
constexpr size_t kMostAsked = 64;     // connections
constexpr uint32_t kAnswerMs = 5000;  // for a page

constexpr ProcedureBinding kStageProcedures[] = {
    {.procedure = 0, .name = "STAGES_NULL"},
    {.procedure = kTellStages, .name = "STAGES", .fixed_results = 12},
};
constexpr Binding kStageBinding = {
    .program = 0x20005668, .version = 2, .name = "stages", .procedures = kStageProcedures};

// Of this start of this host, and of no other.
uint64_t boot_number() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  uint64_t number = 0;
  for (char c : id)
    number = number * 1099511628211u + static_cast<unsigned char>(c);
  return number;
}

uint64_t host_boot() {
  static const uint64_t number = boot_number();
  return number;
}

uint64_t ns_between(uint64_t from, uint64_t to) {
  return to > from ? ticks_to_ns(to - from) : 0;
}

// One page of an answer. Returns when the earliest of its calls was received; 0: it was the last.
uint64_t ask_page(Call& call, uint64_t before, uint32_t program, ServedCalls& answer) {
  call.begin(kStageBinding, kTellStages).put_u64(before);
  call.expect_reply(kMostTold * kBytesOfCall);
  if (call.submit_and_wait() != CallStatus::kOk)
    return 0;
  Decoder& results = call.results();
  answer.same_host = results.get_u64() == host_boot();
  const uint32_t told = results.get_u32();
  uint64_t earliest = 0;
  for (uint32_t i = 0; i < std::min<uint32_t>(told, kMostTold) && results.ok(); ++i) {
    const uint32_t xid = results.get_u32();
    const uint32_t its_program = results.get_u32();
    const uint32_t procedure = results.get_u32();
    Served served = {.received = results.get_u64()};
    for (uint64_t* ns :
         {&served.whole, &served.decoded, &served.entered, &served.answered, &served.replied})
      *ns = results.get_u64();
    earliest = served.received;
    if (its_program == program && results.ok())
      answer.calls.try_emplace({xid, procedure}, served);  // the latest, if it was sent again
  }
  return told == kMostTold && results.ok() ? earliest : 0;
}

// Asks for no more pages than the calls that a core keeps can fill, whatever the server says.
ServedCalls ask(ClientConnection& connection, uint32_t program) {
  constexpr size_t kMostPages = (kStampedCalls + kSlowCalls) / kMostTold;
  ServedCalls answer;
  answer.connection = connection.info().id;
  Call call(connection);
  call.set_timeout_ms(kAnswerMs);
  uint64_t before = 0;
  for (size_t page = 0; page <= kMostPages; ++page) {
    before = ask_page(call, before, program, answer);
    if (before == 0)
      break;
  }
  answer.timed_out = call.status() == CallStatus::kTimeout;
  return answer;
}

struct Sample {
  uint64_t round_trip;
  uint64_t callback;
  Steps steps;
};

uint64_t ns_between(const StampedCall& made, Stage from, Stage to) {
  return ticks_to_ns(made.at(to) - made.at(from));
}

// Null: the server told nothing of it.
const Served* find_served(const StampedCall& made, const ServedCalls& of_connection) {
  auto found = of_connection.calls.find({made.xid, made.procedure});
  return found != of_connection.calls.end() ? &found->second : nullptr;
}

uint64_t longest_of(const Served& served) {
  return std::max({served.whole, served.decoded, served.entered, served.answered, served.replied});
}

Steps steps_of(const StampedCall& made, const Served* served, bool same_host) {
  auto between = [&made](Stage from, Stage to) { return ns_between(made, from, to); };
  Steps steps = {};
  auto set = [&steps](Step step, uint64_t ns) { steps[static_cast<size_t>(step)] = ns; };
  set(Step::kWait, between(Stage::kSubmitted, Stage::kStarted));
  set(Step::kPost, between(Stage::kStarted, Stage::kPosted));
  set(Step::kComplete, between(Stage::kSeen, Stage::kCalled));
  const uint64_t away = between(Stage::kPosted, Stage::kSeen);
  // A server may say anything: times that cannot be right are ignored.
  if (served == nullptr || longest_of(*served) > away) {
    set(Step::kNetwork, away);
    return steps;
  }
  // A call that was refused has not passed all of them.
  auto step = [](uint64_t from, uint64_t to) { return to > from ? to - from : 0; };
  set(Step::kFetch, served->whole);
  set(Step::kDecode, step(served->whole, served->decoded));
  set(Step::kQueue, step(served->decoded, served->entered));
  set(Step::kHandler, step(served->entered, served->answered));
  set(Step::kReply, step(served->answered, served->replied));
  if (!same_host) {
    set(Step::kNetwork, away - served->replied);
    return steps;
  }
  const uint64_t both_ways = away - served->replied;
  const uint64_t request =
      std::min<uint64_t>(both_ways, ns_between(made.at(Stage::kPosted), served->received));
  set(Step::kRequest, request);
  set(Step::kResponse, both_ways - request);
  return steps;
}

StepTimes times_of(std::vector<uint64_t> ns) {
  std::ranges::sort(ns);
  auto at = [&ns](size_t percent) { return ns[(percent * (ns.size() - 1) + 50) / 100]; };
  const double sum = std::accumulate(ns.begin(), ns.end(), 0.0);
  return {.p50_ns = at(50),
          .p90_ns = at(90),
          .p99_ns = at(99),
          .max_ns = ns.back(),
          .mean_ns = sum / static_cast<double>(ns.size())};
}

ProcedureStages summary_of(std::string name, const std::vector<Sample>& samples) {
  auto all = [&samples](auto&& ns_of) {
    std::vector<uint64_t> ns;
    ns.reserve(samples.size());
    for (const Sample& sample : samples)
      ns.push_back(ns_of(sample));
    return times_of(std::move(ns));
  };
  ProcedureStages stages;
  stages.name = std::move(name);
  stages.calls = samples.size();
  stages.round_trip = all([](const Sample& sample) { return sample.round_trip; });
  stages.callback = all([](const Sample& sample) { return sample.callback; });
  for (size_t step = 0; step < stages.steps.size(); ++step) {
    std::vector<uint64_t> ns;
    for (const Sample& sample : samples) {
      if (sample.steps[step])
        ns.push_back(*sample.steps[step]);
    }
    if (!ns.empty())
      stages.steps[step] = times_of(std::move(ns));
  }
  return stages;
}

std::string name_of(const Binding& binding, uint32_t procedure) {
  const ProcedureBinding* entry = binding.find(procedure);
  return entry != nullptr ? entry->name : "procedure " + std::to_string(procedure);
}

}  // namespace

Service StageService::service() {
  static constexpr Procedure kStageTable[] = {{kTellStages, tell}};
  return {.binding = &kStageBinding, .procedures = kStageTable, .context = this};
}

// Of other clients nothing is told.
void StageService::tell(ServerCall call, void* self) {
  const uint64_t before = call.args().get_u64();
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  const Runtime& runtime = static_cast<StageService*>(self)->runtime_;
  std::vector<StampedCall> calls = runtime.stamped_calls();
  const std::vector<StampedCall> slow = runtime.slow_calls();
  calls.insert(calls.end(), slow.begin(), slow.end());
  const uint64_t connection = call.connection().id();
  std::erase_if(calls, [connection, before](const StampedCall& one) {
    const bool is_ours = !one.made && one.connection == connection;
    const bool is_earlier = before == 0 || one.at(Stage::kReceived) < before;
    return !is_ours || !is_earlier || one.at(Stage::kReplied) == 0;
  });
  std::ranges::sort(calls, std::ranges::greater(),
                    [](const StampedCall& one) { return one.at(Stage::kReceived); });
  calls.resize(std::min(calls.size(), kMostTold));
  Encoder& results = call.results();
  results.put_u64(host_boot());
  results.put_u32(static_cast<uint32_t>(calls.size()));
  for (const StampedCall& one : calls) {
    const uint64_t received = one.at(Stage::kReceived);
    results.put_u32(one.xid);
    results.put_u32(one.program);
    results.put_u32(one.procedure);
    results.put_u64(received);
    for (Stage stage :
         {Stage::kWhole, Stage::kDecoded, Stage::kEntered, Stage::kAnswered, Stage::kReplied})
      results.put_u64(ns_between(received, one.at(stage)));
  }
  std::move(call).reply();
}

const char* to_string(Step step) {
  static constexpr const char* kStepNames[] = {"wait",     "post",    "request", "fetch",
                                               "decode",   "queue",   "handler", "reply",
                                               "response", "network", "complete"};
  return kStepNames[static_cast<size_t>(step)];
}

const char* side_of(Step step) {
  if (step == Step::kWait || step == Step::kPost || step == Step::kComplete)
    return "client";
  const bool way = step == Step::kRequest || step == Step::kResponse || step == Step::kNetwork;
  return way ? "network" : "server";
}

uint64_t ProcedureStages::sum_ns() const {
  uint64_t sum = 0;
  for (const std::optional<StepTimes>& step : steps)
    sum += step ? step->p50_ns : 0;
  return sum;
}

std::vector<ServedCalls> ask_server(std::span<const std::unique_ptr<ClientConnection>> connections,
                                    const Binding& binding) {
  std::vector<ServedCalls> served;
  for (const auto& connection : connections.first(std::min(connections.size(), kMostAsked))) {
    served.push_back(ask(*connection, binding.program));
    if (served.back().timed_out)
      break;
  }
  return served;
}

Steps steps_of(const StampedCall& made, std::span<const ServedCalls> served) {
  auto found = std::ranges::find(served, made.connection, &ServedCalls::connection);
  if (found == served.end())
    return steps_of(made, nullptr, false);
  return steps_of(made, find_served(made, *found), found->same_host);
}

std::vector<ProcedureStages> collect_stages(const Runtime& runtime,
                                            std::span<const ServedCalls> served,
                                            const Binding& binding, uint64_t since_ticks) {
  std::vector<StampedCall> made = runtime.stamped_calls();
  std::erase_if(made, [&](const StampedCall& call) {
    return !call.made || call.program != binding.program || call.at(Stage::kSeen) == 0 ||
           call.at(Stage::kPosted) == 0 || call.at(Stage::kCalled) == 0 ||
           call.at(Stage::kSubmitted) < since_ticks;
  });
  std::map<uint32_t, std::vector<Sample>> samples;
  for (const ServedCalls& of_connection : served) {
    for (const StampedCall& call : made) {
      const Served* const known = find_served(call, of_connection);
      // If the server tells of any calls, only those that it tells of count.
      if (call.connection != of_connection.connection ||
          (known == nullptr && !of_connection.calls.empty()))
        continue;
      samples[call.procedure].push_back(
          {.round_trip = ns_between(call, Stage::kSubmitted, Stage::kCalled),
           .callback = ns_between(call, Stage::kCalled, Stage::kEnded),
           .steps = steps_of(call, known, of_connection.same_host)});
    }
  }
  std::vector<ProcedureStages> all;
  all.reserve(samples.size());
  for (const auto& [procedure, of_procedure] : samples)
    all.push_back(summary_of(name_of(binding, procedure), of_procedure));
  return all;
}

void print_stages(const std::string& run, const ProcedureStages& stages) {
  auto us = [](uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  std::printf("\nSTAGES of %s, %s: %" PRIu64 " calls, us%14s %9s %9s %9s\n", run.c_str(),
              stages.name.c_str(), stages.calls, "p50", "p90", "p99", "max");
  auto row = [&us](const char* side, const char* name, const StepTimes& times) {
    std::printf("  %-8s %-12s %25.2f %9.2f %9.2f %9.2f\n", side, name, us(times.p50_ns),
                us(times.p90_ns), us(times.p99_ns), us(times.max_ns));
  };
  for (size_t step = 0; step < stages.steps.size(); ++step) {
    if (stages.steps[step])
      row(side_of(static_cast<Step>(step)), to_string(static_cast<Step>(step)),
          *stages.steps[step]);
  }
  row("", "round trip", stages.round_trip);
  std::printf("  %-8s %-12s %25.2f\n", "", "sum of p50s", us(stages.sum_ns()));
}

}  // namespace rrdk::testrpc
