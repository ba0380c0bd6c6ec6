// Fault plans as text.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "rrdk/faults.h"

namespace rrdk {

namespace {

constexpr uint32_t kLongestDelayUs = 1'000'000;
constexpr const char* kNames =
    "send-error, read-error, write-error, receive-error, rnr, bind-error, delay-us, no-buffers, "
    "registration and seed";
constexpr const char* kErrorNames[] = {"local-length",  "local-protection", "remote-invalid",
                                       "remote-access", "remote-operation", "rnr",
                                       "peer-lost"};

struct Field {
  const char* name;
  FaultRate FaultPlan::* rate;
  WorkError FaultPlan::* error;  // null: it fails in one way only
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
};

template <typename T>
std::optional<T> number(std::string_view text) {
  T value = {};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && !text.empty() ? std::optional<T>(value) : std::nullopt;
}

// Everything before `mark`, which is taken off with it; empty text when there is none.
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
  // NaN is neither.
  return rate && *rate >= 0 && *rate <= 1 ? std::optional(FaultRate{.rate = *rate}) : std::nullopt;
}

Result<void> parse_error(std::string_view part, std::string_view text, WorkError& error) {
  auto found = std::ranges::find(kErrorNames, text);
  if (found == std::end(kErrorNames))
    return wrong(part, "'" + std::string(text) +
                           "' is no error: local-length, local-protection, remote-invalid, "
                           "remote-access, remote-operation, rnr or peer-lost");
  error = static_cast<WorkError>(found - std::begin(kErrorNames));
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
    text += rate_text(rate);
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
