// Injected faults: how they are produced, and the text format of plans.
#include "runtime/faults.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "fabric/device.h"
#include "rrdk/faults.h"
#include "runtime/link.h"

namespace rrdk::runtime {

using fabric::Completion;
using fabric::Op;
using fabric::WcStatus;

namespace {

WcStatus status_of(WorkError error) {
  switch (error) {
    case WorkError::kLocalLength:
      return WcStatus::kLocalLength;
    case WorkError::kLocalProtection:
      return WcStatus::kLocalProtection;
    case WorkError::kRemoteInvalid:
      return WcStatus::kRemoteInvalid;
    case WorkError::kRemoteAccess:
      return WcStatus::kRemoteAccess;
    case WorkError::kRemoteOperation:
      return WcStatus::kRemoteOperation;
    case WorkError::kRnrExceeded:
      return WcStatus::kRnrExceeded;
    case WorkError::kPeerLost:
      break;
  }
  return WcStatus::kPeerLost;
}

struct SlowName {
  const char* name;
  Stage stage;
  bool made;
};
// In the order of SlowStage.
constexpr SlowName kSlowStages[] = {
    {"wait", Stage::kStarted, true},    {"post", Stage::kPosted, true},
    {"complete", Stage::kCalled, true}, {"callback", Stage::kEnded, true},
    {"fetch", Stage::kWhole, false},    {"decode", Stage::kDecoded, false},
    {"queue", Stage::kEntered, false},  {"handler", Stage::kAnswered, false},
    {"reply", Stage::kReplied, false},
};

}  // namespace

void Faults::set(const FaultPlan& plan) {
  // The seeds are far apart, so that the kinds do not fail in step.
  uint64_t seed = plan.seed << 8;
  auto kind = [&](Kind& to, const FaultRate& rate, WcStatus status) {
    seed += uint64_t{1} << 52;
    to.dice.set(seed, rate.rate, rate.every);
    to.status.store(status, std::memory_order_relaxed);
  };
  kind(send, plan.send, status_of(plan.send_error));
  kind(read, plan.read, status_of(plan.read_error));
  kind(write, plan.write, status_of(plan.write_error));
  kind(receive, plan.receive, status_of(plan.receive_error));
  kind(rnr, plan.rnr, WcStatus::kRnrExceeded);
  kind(bind, plan.bind, WcStatus::kLocalProtection);
  delay.set(seed + (uint64_t{1} << 52), plan.delay.rate, plan.delay.every);
  delay_ns.store(uint64_t{plan.delay_us} * 1000, std::memory_order_relaxed);
  const auto& slow = kSlowStages[static_cast<size_t>(plan.slow_stage)];
  stage.set(slow.stage, slow.made, uint64_t{plan.stage_us} * 1000);
  stage.dice().set(seed + (uint64_t{2} << 52), plan.stage.rate, plan.stage.every);
  on.store(true);
}

void Faults::clear() {
  on.store(false);
  for (Kind* kind : {&send, &read, &write, &receive, &rnr, &bind})
    kind->dice.off();
  delay.off();
  stage.dice().off();
}

FaultCounts Faults::counts() const {
  return {.send = send.dice.hits(),
          .read = read.dice.hits(),
          .write = write.dice.hits(),
          .receive = receive.dice.hits(),
          .rnr = rnr.dice.hits(),
          .bind = bind.dice.hits(),
          .delay = delay.hits(),
          .no_buffers = 0,
          .registration = 0,
          .stage = stage.dice().hits()};
}

CoreFaults::Broken* CoreFaults::find(const void* link) {
  auto found = std::ranges::find(broken_, link, &Broken::link);
  return found == broken_.end() ? nullptr : &*found;
}

void CoreFaults::forget(const Link& link) {
  std::erase_if(broken_, [&](const Broken& broken) { return broken.link == &link; });
}

bool CoreFaults::holds_up(const void* owner) const {
  return std::ranges::any_of(held_, [&](const Held& h) { return h.completion.owner == owner; });
}

// Called when the plan is off: as soon as none of its effects is left, the core runs without the
// tap. A plan that is set meanwhile engages it again, before or after.
void CoreFaults::disengage(Faults& faults) {
  if (!held_.empty() || !broken_.empty())
    return;
  faults_.store(nullptr);
  if (faults.on.load())
    faults_.store(&faults);
}

// Completions that were held back and are due come first. Those that find no place in `out` are
// then held back until the next time.
uint32_t CoreFaults::filter(std::span<Completion> out, uint32_t count) {
  Faults& faults = *faults_.load(std::memory_order_relaxed);
  const bool on = faults.on.load();
  const uint64_t now = base::Tsc::now_ns();
  polled_.assign(out.begin(), out.begin() + count);
  uint32_t passed = 0;
  // In order: completions of one connection are due in the order in which they came.
  std::erase_if(held_, [&](const Held& held) {
    const bool passes = passed < out.size() && (!on || held.due_ns <= now);
    if (passes)
      out[passed++] = held.completion;
    return passes;
  });
  for (Completion& completion : polled_) {
    fail(faults, completion);
    const bool late = faults.delay.roll();
    if (late || holds_up(completion.owner))
      held_.push_back({completion, now + faults.delay_ns.load(std::memory_order_relaxed)});
    else if (passed == out.size())
      held_.push_back({completion, now});
    else
      out[passed++] = completion;
  }
  if (!on)
    disengage(faults);
  return passed;
}

// A Receive fails when it completes; a request that failed when it was posted gets its status here.
void CoreFaults::fail(Faults& faults, Completion& completion) {
  Broken* broken = find(completion.owner);
  if (completion.status != WcStatus::kSuccess) {
    if (broken != nullptr && broken->status != WcStatus::kSuccess && completion.op == broken->op &&
        completion.wr_id == broken->wr_id)
      completion.status = std::exchange(broken->status, WcStatus::kSuccess);
    return;
  }
  if (completion.op != Op::kReceive)
    return;
  if (broken == nullptr && faults.receive.dice.roll()) {
    auto& link = *static_cast<Link*>(completion.owner);
    link.break_queue_pair();
    broken_.push_back({&link, 0, Op::kReceive, WcStatus::kSuccess, true});
    completion.status = faults.receive.status.load(std::memory_order_relaxed);
  } else if (broken != nullptr && broken->receives) {
    completion.status = WcStatus::kFlushed;
  }
  if (completion.status != WcStatus::kSuccess) {
    completion.byte_length = 0;
    completion.has_invalidated = false;
  }
}

// Returns the kind of fault with which the request fails, or null.
Faults::Kind* CoreFaults::failing(Faults& faults, Op op) {
  auto roll = [](Faults::Kind& kind) { return kind.dice.roll() ? &kind : nullptr; };
  switch (op) {
    case Op::kSend:
    case Op::kSendInvalidate: {
      Faults::Kind* kind = roll(faults.send);
      return kind != nullptr ? kind : roll(faults.rnr);
    }
    case Op::kRead:
      return roll(faults.read);
    case Op::kWrite:
      return roll(faults.write);
    case Op::kBindKey:
      return roll(faults.bind);
    case Op::kInvalidateKey:
    case Op::kReceive:
      break;
  }
  return nullptr;
}

// The requests before the failing one are carried out. The failing one and those after it are
// posted to a queue pair in error, which flushes them, so that the fabric reports as usual when
// memory may be reused.
uint32_t CoreFaults::post(Link& link, fabric::QueuePair& queue_pair,
                          std::span<const fabric::SendWr> wrs) {
  Faults& faults = *faults_.load(std::memory_order_relaxed);
  bool tried = find(&link) == nullptr && faults.on.load();
  for (size_t i = 0; tried && i < wrs.size(); ++i) {
    Faults::Kind* kind = failing(faults, wrs[i].op);
    if (kind == nullptr)
      continue;
    uint32_t taken = queue_pair.post_send(wrs.first(i));
    queue_pair.disconnect();
    broken_.push_back(
        {&link, wrs[i].wr_id, wrs[i].op, kind->status.load(std::memory_order_relaxed), false});
    if (taken < i)  // what comes after it is flushed
      return taken + queue_pair.post_send(wrs.subspan(taken));
    // The failing one reports its failure even if it would have been unsignaled.
    fabric::SendWr failed = wrs[i];
    failed.signaled = true;
    failed.quiet = failed.copied = false;
    if (queue_pair.post_send({&failed, 1}) == 0)
      return taken;
    return taken + 1 + queue_pair.post_send(wrs.subspan(i + 1));
  }
  return queue_pair.post_send(wrs);
}

}  // namespace rrdk::runtime

namespace rrdk {

// Fault plans as text.

namespace {

constexpr uint32_t kLongestDelayUs = 1'000'000;
constexpr const char* kNames =
    "send-error, read-error, write-error, receive-error, rnr, bind-error, delay-us, stage-us, "
    "no-buffers, registration and seed";
constexpr const char* kStageNames =
    "wait, post, complete, callback, fetch, decode, queue, handler or reply";
constexpr const char* kErrorNames[] = {"local-length",  "local-protection", "remote-invalid",
                                       "remote-access", "remote-operation", "rnr",
                                       "peer-lost"};

struct Field {
  const char* name;
  FaultRate FaultPlan::* rate;
  WorkError FaultPlan::* error;  // null: it fails in only one way
  uint64_t FaultCounts::* count;
};

constexpr Field kFields[] = {
    {"send-error", &FaultPlan::send, &FaultPlan::send_error, &FaultCounts::send},
    {"read-error", &FaultPlan::read, &FaultPlan::read_error, &FaultCounts::read},
    {"write-error", &FaultPlan::write, &FaultPlan::write_error, &FaultCounts::write},
    {"receive-error", &FaultPlan::receive, &FaultPlan::receive_error, &FaultCounts::receive},
    {"rnr", &FaultPlan::rnr, nullptr, &FaultCounts::rnr},
    {"bind-error", &FaultPlan::bind, nullptr, &FaultCounts::bind},
    {"delay-us", &FaultPlan::delay, nullptr, &FaultCounts::delay},
    {"no-buffers", &FaultPlan::no_buffers, nullptr, &FaultCounts::no_buffers},
    {"registration", &FaultPlan::registration, nullptr, &FaultCounts::registration},
    {"stage-us", &FaultPlan::stage, nullptr, &FaultCounts::stage},
};

template <typename T>
std::optional<T> number(std::string_view text) {
  T value = {};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && !text.empty() ? std::optional<T>(value) : std::nullopt;
}

// Returns what is before `mark`, and removes both from the text. If there is no `mark`, it returns
// nothing, and the text does not change.
std::optional<std::string_view> take_until(std::string_view& text, char mark) {
  size_t at = text.find(mark);
  if (at == std::string_view::npos)
    return std::nullopt;
  std::string_view first = text.substr(0, at);
  text.remove_prefix(at + 1);
  return first;
}

tl::unexpected<Error> wrong(std::string_view part, const std::string& wanted) {
  return fail(Errc::kInvalidArgument, "fault '" + std::string(part) + "': " + wanted);
}

std::optional<FaultRate> parse_rate(std::string_view text) {
  if (text.starts_with("1/")) {
    std::optional<uint32_t> every = number<uint32_t>(text.substr(2));
    return every && *every != 0 ? std::optional(FaultRate{.every = *every}) : std::nullopt;
  }
  std::optional<double> rate = number<double>(text);
  // NaN fails both comparisons.
  return rate && *rate >= 0 && *rate <= 1 ? std::optional(FaultRate{.rate = *rate}) : std::nullopt;
}

Result<void> parse_error(std::string_view part, std::string_view text, WorkError& error) {
  auto found = std::ranges::find(kErrorNames, text);
  if (found == std::end(kErrorNames))
    return wrong(part, "'" + std::string(text) +
                           "' is not an error: local-length, local-protection, remote-invalid, "
                           "remote-access, remote-operation, rnr or peer-lost");
  error = static_cast<WorkError>(found - std::begin(kErrorNames));
  return {};
}

// "N:RATE:STAGE"
Result<void> parse_stage(std::string_view part, std::string_view text, FaultPlan& plan) {
  const std::optional<std::string_view> us = take_until(text, ':');
  const std::optional<std::string_view> rate = take_until(text, ':');
  const std::optional<uint32_t> length = us ? number<uint32_t>(*us) : std::nullopt;
  const std::optional<FaultRate> parsed = rate ? parse_rate(*rate) : std::nullopt;
  const auto slow = std::ranges::find(runtime::kSlowStages, text, &runtime::SlowName::name);
  if (!length || *length == 0 || *length > kLongestDelayUs || !parsed ||
      slow == std::end(runtime::kSlowStages))
    return wrong(part,
                 std::string("write stage-us=N:RATE:STAGE, with N from 1 to 1000000, a rate ") +
                     "from 0 to 1 or 1/N, and as STAGE " + kStageNames);
  plan.stage_us = *length;
  plan.stage = *parsed;
  plan.slow_stage = static_cast<SlowStage>(slow - std::begin(runtime::kSlowStages));
  return {};
}

Result<void> parse_part(std::string_view part, FaultPlan& plan) {
  std::string_view value = part;
  std::optional<std::string_view> name = take_until(value, '=');
  if (!name)
    return wrong(part, "write NAME=VALUE; names are " + std::string(kNames));
  if (*name == "seed") {
    std::optional<uint64_t> seed = number<uint64_t>(value);
    if (!seed)
      return wrong(part, "a seed is a number");
    plan.seed = *seed;
    return {};
  }
  auto field = std::ranges::find(kFields, *name, &Field::name);
  if (field == std::end(kFields))
    return wrong(part, "there is no such fault; names are " + std::string(kNames));
  if (field->rate == &FaultPlan::stage)
    return parse_stage(part, value, plan);
  if (field->rate == &FaultPlan::delay) {
    std::optional<std::string_view> us = take_until(value, ':');
    std::optional<uint32_t> delay = us ? number<uint32_t>(*us) : std::nullopt;
    if (!delay || *delay == 0 || *delay > kLongestDelayUs)
      return wrong(part, "write delay-us=N:RATE, with N from 1 to 1000000");
    plan.delay_us = *delay;
  } else if (std::string_view rate = value; field->error != nullptr && take_until(value, ':')) {
    if (auto parsed = parse_error(part, value, plan.*field->error); !parsed)
      return parsed;
    value = rate.substr(0, rate.find(':'));
  }
  std::optional<FaultRate> rate = parse_rate(value);
  if (!rate)
    return wrong(part, "a rate is a number from 0 to 1, or 1/N for each N-th time");
  plan.*field->rate = *rate;
  return {};
}

std::string rate_text(const FaultRate& rate) {
  if (rate.every != 0)
    return "1/" + std::to_string(rate.every);
  char text[32];
  auto written = std::to_chars(text, text + sizeof text, rate.rate);
  return {text, written.ptr};
}

}  // namespace

Result<FaultPlan> parse_fault_plan(std::string_view spec) {
  FaultPlan plan;
  for (bool more = true; more;) {
    std::optional<std::string_view> part = take_until(spec, ',');
    more = part.has_value();
    if (auto parsed = parse_part(part.value_or(spec), plan); !parsed)
      return tl::unexpected(parsed.error());
  }
  return plan;
}

std::string to_string(const FaultPlan& plan) {
  std::string text;
  for (const Field& field : kFields) {
    const FaultRate& rate = plan.*field.rate;
    if (rate.rate == 0 && rate.every == 0)
      continue;
    text += std::string(field.name) + "=";
    if (field.rate == &FaultPlan::delay)
      text += std::to_string(plan.delay_us) + ":";
    if (field.rate == &FaultPlan::stage)
      text += std::to_string(plan.stage_us) + ":";
    text += rate_text(rate);
    if (field.rate == &FaultPlan::stage)
      text += std::string(":") + runtime::kSlowStages[static_cast<size_t>(plan.slow_stage)].name;
    if (field.error != nullptr)
      text += std::string(":") + kErrorNames[static_cast<size_t>(plan.*field.error)];
    text += ",";
  }
  return text.empty() ? "off" : text + "seed=" + std::to_string(plan.seed);
}

std::string to_string(const FaultCounts& counts) {
  std::string text;
  for (const Field& field : kFields) {
    if (counts.*field.count != 0)
      text += (text.empty() ? "" : "\n") + std::string(field.name) + " " +
              std::to_string(counts.*field.count);
  }
  return text.empty() ? "none" : text;
}

}  // namespace rrdk
