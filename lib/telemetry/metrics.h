// A snapshot of all metrics, for every way to report them; and the Telemetry objects of this
// process.
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
  uint64_t value = 0;            // of a time: nanoseconds
  DurationHistogram times = {};  // kHistogram
};

// How much wider each bucket of a histogram is than the one before. Each bucket is a time series
// for each procedure, so only the times that one looks at first have fine ones.
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

// What is told of one server, client, core, size class or procedure: without labels, but for those
// that tell apart the samples of one family.
std::vector<Family> families_of(const Stats& stats);
std::vector<Family> families_of(const PoolAudit& pool);
std::vector<Family> families_of(const ProcedureStats& procedure);
std::vector<Family> families_of(const runtime::CalledStats& called);
// Of this process: its program, its beginning, and what it uses.
std::vector<Family> families_of_process();

// The numbers of what DPDK's telemetry is asked for by itself.
using Numbers = std::vector<std::pair<std::string, uint64_t>>;
Numbers numbers_of(const ConnectionInfo& info);
Numbers numbers_of(const ProcedureStats& stats);
Numbers numbers_of(const runtime::CalledStats& called);

// Of these sources, by name.
std::vector<Family> collect(const TelemetrySources& sources);

// OpenMetrics 1.0, or Prometheus' older text format 0.0.4.
enum class Format : uint8_t { kOpenMetrics, kPrometheus };
std::string to_text(const std::vector<Family>& families, Format format);
// What an Accept header of HTTP asks for: the first if it names it with a weight that is not below
// that of "text/plain", else the other one, which every reader knows.
Format format_for(std::string_view accept);

}  // namespace rrdk::telemetry

namespace rrdk {

struct Telemetry::Impl {
  std::string name;
  TelemetrySources sources;
};

}  // namespace rrdk

namespace rrdk::telemetry {

// Registers it in this process. False: its name is taken.
bool enter(Telemetry::Impl& telemetry);
// Waits while somebody uses it.
void leave(Telemetry::Impl& telemetry);

std::vector<std::string> names();
// False: there is none of that name. It does not leave meanwhile.
bool use(std::string_view name, const std::function<void(const TelemetrySources&)>& user);

// Makes the commands by which they are asked known to DPDK's telemetry, once in a process.
void register_commands();

}  // namespace rrdk::telemetry
