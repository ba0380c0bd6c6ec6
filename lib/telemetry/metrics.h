// A snapshot of everything that can be counted, for all who tell of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rrdk/procedure_stats.h"
#include "rrdk/telemetry.h"

namespace rrdk::telemetry {

enum class Kind : uint8_t { kCounter, kGauge, kHistogram };

using Labels = std::vector<std::pair<std::string_view, std::string>>;

struct Sample {
  Labels labels;
  uint64_t value = 0;
  DurationHistogram times = {};  // kHistogram
};

struct Description {
  std::string_view name;  // without rrdk_ and _total
  Kind kind = Kind::kCounter;
  std::string_view unit;  // "bytes", "seconds", or none; the name ends in it
  std::string_view help;
};

// All samples of one name.
struct Family : Description {
  std::vector<Sample> samples;
};

// Of these sources, by name.
std::vector<Family> collect(const TelemetrySources& sources);

// As OpenMetrics 1.0.
std::string to_openmetrics(const std::vector<Family>& families);

}  // namespace rrdk::telemetry
