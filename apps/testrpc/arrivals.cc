#include "arrivals.h"

#include <cmath>

#include "values.h"

namespace rrdk::testrpc {
namespace {

constexpr uint32_t kLargestBurst = 1'000'000;
constexpr std::string_view kBurstPrefix = "burst:";

}  // namespace

std::string to_string(const ArrivalPattern& pattern) {
  switch (pattern.kind) {
    case ArrivalPattern::Kind::kEven:
      return "even";
    case ArrivalPattern::Kind::kPoisson:
      return "poisson";
    case ArrivalPattern::Kind::kBurst:
      break;
  }
  return std::string(kBurstPrefix) + std::to_string(pattern.burst);
}

Result<ArrivalPattern> parse_arrivals(const std::string& text) {
  if (text == "even")
    return ArrivalPattern{};
  if (text == "poisson")
    return ArrivalPattern{ArrivalPattern::Kind::kPoisson};
  if (!text.starts_with(kBurstPrefix))
    return fail(Errc::kInvalidArgument,
                "'" + text + "' is not even, poisson or burst:N, such as burst:8");
  return parse_count(text.substr(kBurstPrefix.size()), 1, kLargestBurst).map([](uint64_t burst) {
    return ArrivalPattern{ArrivalPattern::Kind::kBurst, static_cast<uint32_t>(burst)};
  });
}

Arrivals::Arrivals(const ArrivalPattern& pattern, double rate, uint64_t seed, double lead)
    : pattern_(pattern), gap_ns_(1e9 / rate), rate_(rate), lead_(lead), random_(seed) {
  next_ns_ = pattern.kind == ArrivalPattern::Kind::kPoisson ? exponential_gap() : time_of_burst(0);
}

// A single call is a burst of one.
double Arrivals::time_of_burst(uint64_t number) const {
  return (static_cast<double>(number) + lead_) * pattern_.burst * 1e9 / rate_;
}

// Inverts the distribution for a number in [0, 1) from SplitMix64 (Steele, Lea and Flood, 2014).
double Arrivals::exponential_gap() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return -gap_ns_ * std::log1p(-static_cast<double>(z >> 11) * 0x1p-53);
}

void Arrivals::take() {
  ++taken_;
  if (pattern_.kind == ArrivalPattern::Kind::kPoisson)
    next_ns_ += exponential_gap();
  else
    next_ns_ = time_of_burst(taken_ / pattern_.burst);
}

uint64_t Arrivals::due_before(double end_ns) const {
  if (pattern_.kind == ArrivalPattern::Kind::kPoisson)
    return taken_ + (next_ns_ < end_ns ? 1 + std::llround((end_ns - next_ns_) / gap_ns_) : 0);
  // Rounding may be off by one.
  const double whole = end_ns / gap_ns_ / pattern_.burst - lead_;
  uint64_t bursts = whole < 1 ? 0 : static_cast<uint64_t>(whole) - 1;
  while (time_of_burst(bursts) < end_ns)
    ++bursts;
  return bursts * pattern_.burst;
}

}  // namespace rrdk::testrpc
