// A snapshot of all metrics, which all reports are made from, and the registry of the Telemetry
// objects in this process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rrdk/procedure_stats.h"
#include "rrdk/telemetry.h"
#include "runtime/called.h"

namespace rrdk {

class Stats;
struct ConnectionInfo;
struct PoolAudit;

}  // namespace rrdk

namespace rrdk::telemetry {

enum class Kind : uint8_t { kCounter, kGauge, kHistogram, kInfo };

using Labels = std::vector<std::pair<std::string_view, std::string>>;

struct Sample {
  Labels labels;
  uint64_t value = 0;            // a time is in nanoseconds
  DurationHistogram times = {};  // kHistogram
};

// The ratio between neighbouring bounds of a histogram. Each bucket is a time series for each
// procedure, so only the most important times have narrow buckets.
enum class Buckets : uint8_t { kDouble, kFourfold };

struct Description {
  std::string name;  // without rrdk_ and _total
  Kind kind = Kind::kCounter;
  std::string_view unit;  // "bytes", "seconds", or none; the name ends in it
  std::string_view help;
  Buckets buckets = Buckets::kDouble;
};

// All samples of one name.
struct Family : Description {
  std::vector<Sample> samples;
};

// The metrics of one server, client, core, size class or procedure. The only labels are those that
// distinguish the samples of one family.
std::vector<Family> families_of(const Stats& stats);
std::vector<Family> families_of(const PoolAudit& pool);
std::vector<Family> families_of(const ProcedureStats& procedure);
std::vector<Family> families_of(const runtime::CalledStats& called);
// The metrics of this process: the release of the library, start time, and resources.
std::vector<Family> families_of_process();

// The numbers in the answer to a question about one object (DPDK's telemetry).
using Numbers = std::vector<std::pair<std::string, uint64_t>>;
Numbers numbers_of(const ConnectionInfo& info);
Numbers numbers_of(const ProcedureStats& stats);
Numbers numbers_of(const runtime::CalledStats& called);

// Collects the metrics of all sources into one family for each name.
std::vector<Family> collect(const TelemetrySources& sources);

// OpenMetrics 1.0, or Prometheus' older text format 0.0.4.
enum class Format : uint8_t { kOpenMetrics, kPrometheus };
std::string to_text(const std::vector<Family>& families, Format format);
// Returns the format that an Accept header of HTTP asks for: OpenMetrics if the header contains it
// with at least the weight of "text/plain", otherwise the older format, which all readers know.
Format format_for(std::string_view accept);

}  // namespace rrdk::telemetry

namespace rrdk {

struct Telemetry::Impl {
  std::string name;
  TelemetrySources sources;
};

}  // namespace rrdk

namespace rrdk::telemetry {

// Registers the object in this process. Returns false if the name is already in use.
bool enter(Telemetry::Impl& telemetry);
// Removes the object, and waits for a command that is using it.
void leave(Telemetry::Impl& telemetry);

std::vector<std::string> names();
// Returns false if there is no object of that name. The object stays until `user` returns.
bool use(std::string_view name, const std::function<void(const TelemetrySources&)>& user);

// Registers the commands with DPDK's telemetry, once in a process.
void register_commands();

}  // namespace rrdk::telemetry
