// The text format of OpenMetrics 1.0, of what a snapshot has.
#include <cinttypes>
#include <cstdio>

#include "telemetry/metrics.h"

namespace rrdk::telemetry {

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
