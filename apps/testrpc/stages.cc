#include "stages.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <map>
#include <tuple>
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

// Returns a number that identifies this boot of this host.
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

// Asks for one page of an answer. Returns when the earliest of its calls was received, or 0 after
// the last page.
uint64_t ask_page(Call& call, uint64_t before, uint32_t program, ServedCalls& answer) {
  call.begin(kStageBinding, kTellStages).put_u64(before);
  call.expect_reply(kMostTold * kBytesOfCall);
  if (call.submit_and_wait() != CallStatus::kOk)
    return 0;
  answer.told = true;
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
      answer.calls.try_emplace({xid, procedure},
                               served);  // only the latest one, if it was sent again
  }
  return told == kMostTold && results.ok() ? earliest : 0;
}

// Asks for at most as many pages as the calls that a core keeps can fill, whatever the server
// answers.
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

uint64_t ns_between(const StampedCall& made, Stage from, Stage to) {
  return ticks_to_ns(made.at(to) - made.at(from));
}

// Returns null if the server has no times of the call.
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
  // A server may send anything: impossible times are ignored.
  if (served == nullptr || longest_of(*served) > away) {
    set(Step::kNetwork, away);
    return steps;
  }
  // A refused call has not passed all stages.
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

StepTimes times_of(const Histogram& times, uint64_t longest = 0) {
  return {.calls = times.count(),
          .p50_ns = times.percentile(50),
          .p90_ns = times.told(90),
          .p99_ns = times.told(99),
          .max_ns = std::max(times.max(), longest),
          .mean_ns = times.mean()};
}

// The client's own steps, which it knows without the server.
constexpr std::tuple<Step, Stage, Stage> kOwnSteps[] = {
    {Step::kWait, Stage::kSubmitted, Stage::kStarted},
    {Step::kPost, Stage::kStarted, Stage::kPosted},
    {Step::kComplete, Stage::kSeen, Stage::kCalled},
};

bool is_own(Step step) {
  return std::ranges::any_of(kOwnSteps,
                             [step](const auto& own) { return std::get<0>(own) == step; });
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

// Answers only with calls of the asking connection.
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

void StageCollector::begin(const Binding& binding) {
  binding_ = &binding;
  procedures_.clear();
  for (size_t i = 0; i < binding.procedures.size(); ++i)
    procedures_.push_back(std::make_unique<Procedure>());
  since_ticks_ = now_ticks();
}

StageCollector::Procedure* StageCollector::find(const StampedCall& call) noexcept {
  const ProcedureBinding* entry =
      call.program == binding_->program ? binding_->find(call.procedure) : nullptr;
  return entry != nullptr
             ? procedures_[static_cast<size_t>(entry - binding_->procedures.data())].get()
             : nullptr;
}

void StageCollector::count(const Call& call) noexcept {
  const std::optional<StampedCall> made = call.stamps();
  if (!made || made->at(Stage::kPosted) == 0 || made->at(Stage::kSeen) == 0)
    return;
  Procedure* const procedure = find(*made);
  if (procedure == nullptr)
    return;
  procedure->round_trip.record(ns_between(*made, Stage::kSubmitted, Stage::kCalled));
  procedure->away.record(ns_between(*made, Stage::kPosted, Stage::kSeen));
  for (const auto& [step, from, to] : kOwnSteps)
    procedure->steps[static_cast<size_t>(step)].record(ns_between(*made, from, to));
}

void StageCollector::add_joined(const StampedCall& call, std::span<const ServedCalls> served,
                                bool slow) {
  Procedure* const procedure = find(call);
  if (procedure == nullptr || !call.made || call.at(Stage::kSubmitted) < since_ticks_ ||
      call.at(Stage::kPosted) == 0 || call.at(Stage::kSeen) == 0 || call.at(Stage::kCalled) == 0)
    return;
  if (!slow)
    procedure->callback.record(ns_between(call, Stage::kCalled, Stage::kEnded));
  const Steps steps = steps_of(call, served);
  if (!steps[static_cast<size_t>(Step::kReply)])
    return;  // the server no longer has the call
  for (size_t step = 0; step < steps.size(); ++step) {
    if (!steps[step] || is_own(static_cast<Step>(step)))
      continue;
    procedure->longest[step] = std::max(procedure->longest[step], *steps[step]);
    if (!slow)
      procedure->steps[step].record(*steps[step]);
  }
}

void StageCollector::join(const Runtime& runtime, std::span<const ServedCalls> served) {
  const uint64_t now = now_ticks();
  for (const StampedCall& call : runtime.stamped_calls())
    add_joined(call, served, false);
  for (const StampedCall& call : runtime.slow_calls())
    add_joined(call, served, true);
  since_ticks_ = now;
}

std::vector<ProcedureStages> StageCollector::told() const {
  std::vector<ProcedureStages> all;
  for (size_t i = 0; i < procedures_.size(); ++i) {
    const Procedure& procedure = *procedures_[i];
    if (procedure.round_trip.count() == 0)
      continue;
    ProcedureStages& stages = all.emplace_back();
    stages.name = name_of(*binding_, binding_->procedures[i].procedure);
    stages.calls = procedure.round_trip.count();
    stages.round_trip = times_of(procedure.round_trip);
    stages.callback = times_of(procedure.callback);
    for (size_t step = 0; step < stages.steps.size(); ++step) {
      if (procedure.steps[step].count() != 0)
        stages.steps[step] = times_of(procedure.steps[step], procedure.longest[step]);
    }
    // Without the server's times, one step covers all of the server's steps.
    if (!stages.steps[static_cast<size_t>(Step::kReply)])
      stages.steps[static_cast<size_t>(Step::kNetwork)] = times_of(procedure.away);
  }
  return all;
}

namespace {

// Formats microseconds with as many digits as fit.
std::string us_text(const std::optional<uint64_t>& ns) {
  if (!ns)
    return "-";
  const double us = static_cast<double>(*ns) / 1e3;
  char text[32];
  std::snprintf(text, sizeof text, us < 1e5 ? "%.2f" : "%.0f", us);
  return text;
}

}  // namespace

void print_stages(const std::string& run, const ProcedureStages& stages) {
  std::printf("\nSTAGES of %s, %s\n  %31s %11s %9s %9s %9s\n", run.c_str(), stages.name.c_str(),
              "calls", "us: p50", "p90", "p99", "max");
  auto row = [](const char* side, const char* name, const StepTimes& times) {
    std::printf("  %-8s %-11s %10" PRIu64 " %11s %9s %9s %9s\n", side, name, times.calls,
                us_text(times.p50_ns).c_str(), us_text(times.p90_ns).c_str(),
                us_text(times.p99_ns).c_str(), us_text(times.max_ns).c_str());
  };
  for (size_t step = 0; step < stages.steps.size(); ++step) {
    if (stages.steps[step])
      row(side_of(static_cast<Step>(step)), to_string(static_cast<Step>(step)),
          *stages.steps[step]);
  }
  row("", "round trip", stages.round_trip);
  std::printf("  %-8s %-11s %22s\n", "", "sum of p50s", us_text(stages.sum_ns()).c_str());
}

}  // namespace rrdk::testrpc
