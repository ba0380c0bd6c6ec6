#include "noise.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include "rrdk/runtime.h"

namespace rrdk::testrpc {
namespace {

constexpr size_t kMostFrequent = 3;
// The thresholds for remarks, which doc/testrpc.md lists.
constexpr double kLostCpu = 0.01;          // of the time in which it was runnable
constexpr double kSwitchesPerSecond = 20;  // if the kernel does not report the time
constexpr double kFaultsPerSecond = 100;   // minor ones
constexpr double kStolen = 0.01;           // of the time
constexpr double kStood = 0.01;            // of the time
constexpr double kInterruptsPerSecond = 10'000;
constexpr double kFrequencyChange = 0.05;
constexpr double kDistanceChange = 1.5;  // times

std::optional<uint64_t> number(std::string_view word) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;)
    words.push_back(std::move(word));
  return words;
}

template <typename... Values>
std::string remark(const char* how, Values... values) {
  char text[128];
  std::snprintf(text, sizeof text, how, values...);
  return text;
}

std::optional<NamedCounts> counts_in(const char* path, int cpu) {
  std::ifstream file(path);
  NamedCounts counts = counts_of_cpu(file, cpu);
  return counts.empty() ? std::nullopt : std::optional(std::move(counts));
}

std::optional<uint64_t> frequency_khz(int cpu) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                     "/cpufreq/scaling_cur_freq");
  uint64_t khz = 0;
  return file >> khz ? std::optional(khz) : std::nullopt;
}

// Several interrupts of one device may have the same name.
void add_count(NamedCounts& counts, const std::string& name, uint64_t count) {
  auto known = std::ranges::find(counts, name, &NamedCounts::value_type::first);
  if (known == counts.end())
    counts.emplace_back(name, count);
  else
    known->second += count;
}

// Returns how much each count has grown, the largest first. New interrupts may have appeared
// meanwhile.
NamedCounts growth(const NamedCounts& before, const NamedCounts& after) {
  NamedCounts grown;
  for (const auto& [name, count] : after) {
    auto then = std::ranges::find(before, name, &NamedCounts::value_type::first);
    const uint64_t old = then == before.end() ? 0 : then->second;
    if (count > old)
      grown.emplace_back(name, count - old);
  }
  std::ranges::sort(grown, [](const auto& a, const auto& b) { return a.second > b.second; });
  return grown;
}

// Counters may decrease if a connection was lost.
std::optional<uint64_t> grown(std::optional<uint64_t> before, std::optional<uint64_t> after) {
  if (!before || !after)
    return std::nullopt;
  return *after - std::min(*before, *after);
}

uint64_t sum_of(const NamedCounts& counts) {
  uint64_t sum = 0;
  for (const auto& [name, count] : counts)
    sum += count;
  return sum;
}

// Returns whether CPUs wake each other by this interrupt, as a sleeping transport does.
bool wakes(const std::string& interrupt) {
  return interrupt == "RES" || interrupt == "CAL";
}

Noise::Cpu between(const CpuState& before, const CpuState& after) {
  Noise::Cpu cpu;
  cpu.cpu = before.cpu;
  cpu.khz_before = before.khz;
  cpu.khz_after = after.khz;
  if (before.interrupts && after.interrupts) {
    cpu.most = growth(*before.interrupts, *after.interrupts);
    cpu.interrupts = sum_of(cpu.most);
    for (const auto& [name, count] : cpu.most)
      cpu.wake_ups += wakes(name) ? count : 0;
    cpu.most.resize(std::min(cpu.most.size(), kMostFrequent));
  }
  if (before.softirqs && after.softirqs)
    cpu.softirqs = sum_of(growth(*before.softirqs, *after.softirqs));
  cpu.steal_ns = grown(before.steal_ns, after.steal_ns);
  return cpu;
}

// Remarks, each with its severity.
class Remarks {
 public:
  explicit Remarks(const Noise& noise) : noise_(noise) {}

  void add_thread(const Noise::Thread& thread);
  void add_cpu(const Noise::Cpu& cpu);
  void add_distance();
  std::vector<std::string> take();

 private:
  // Adds a remark if `measure` is above `limit`.
  void add(double measure, double limit, std::string text) {
    if (measure > limit)
      remarks_.emplace_back(measure / limit, std::move(text));
  }
  double per_second(uint64_t count) const {
    return static_cast<double>(count) / std::max(noise_.seconds, 0.1);
  }
  double share(uint64_t ns) const {
    return static_cast<double>(ns) / 1e9 / std::max(noise_.seconds, 1e-3);
  }

  const Noise& noise_;
  std::vector<std::pair<double, std::string>> remarks_;
};

void Remarks::add_thread(const Noise::Thread& thread) {
  const ThreadUsage& used = thread.used;
  const auto involuntary = static_cast<unsigned long>(used.involuntary);
  if (std::optional<double> got = thread.obtained()) {
    add(1 - *got, kLostCpu, remark("%s had %.1f%% of CPU %d", thread.side, 100 * *got, thread.cpu));
  } else if (noise_.busy) {
    add(per_second(used.involuntary), kSwitchesPerSecond,
        remark("%s lost CPU %d %lu times", thread.side, thread.cpu, involuntary));
  }
  add(static_cast<double>(used.major_faults), 0.5,
      remark("%s: %lu major page faults", thread.side,
             static_cast<unsigned long>(used.major_faults)));
  add(per_second(used.minor_faults), kFaultsPerSecond,
      remark("%s: %lu page faults", thread.side, static_cast<unsigned long>(used.minor_faults)));
  const uint64_t interrupted = thread.gaps.took(GapKind::kInterrupt);
  add(share(interrupted), kStood,
      remark("%s interrupted for %.1f%%", thread.side, 100 * share(interrupted)));
  const uint64_t stood = noise_.sized ? 0 : thread.gaps.took(GapKind::kUnaccounted);
  add(share(stood), kStood, remark("%s stood still for %.1f%%", thread.side, 100 * share(stood)));
}

void Remarks::add_cpu(const Noise::Cpu& cpu) {
  if (cpu.steal_ns)
    add(share(*cpu.steal_ns), kStolen,
        remark("CPU %d: %.1f%% stolen", cpu.cpu, 100 * share(*cpu.steal_ns)));
  const uint64_t disturbing = cpu.interrupts.value_or(0) - cpu.wake_ups;
  add(per_second(disturbing), kInterruptsPerSecond,
      remark("CPU %d: %.0f interrupts/s", cpu.cpu, per_second(disturbing)));
  if (cpu.khz_before && cpu.khz_after && *cpu.khz_before != 0) {
    const auto before = static_cast<double>(*cpu.khz_before);
    const auto after = static_cast<double>(*cpu.khz_after);
    add(std::abs(after - before) / before, kFrequencyChange,
        remark("CPU %d from %.0f to %.0f MHz", cpu.cpu, before / 1e3, after / 1e3));
  }
}

void Remarks::add_distance() {
  const double before = noise_.line_before_ns, after = noise_.line_after_ns;
  if (before > 0 && after > 0)
    add(std::max(before / after, after / before), kDistanceChange,
        remark("cache line %.0f ns before, %.0f after", before, after));
}

std::vector<std::string> Remarks::take() {
  std::ranges::sort(remarks_, std::ranges::greater());  // by measure, then by text
  std::vector<std::string> texts;
  texts.reserve(remarks_.size());
  for (auto& [measure, text] : remarks_)
    texts.push_back(std::move(text));
  return texts;
}

}  // namespace

ThreadState thread_state(const GapWatch& watch) {
  return {.cpu = sched_getcpu(),
          .usage = watch.usage(),
          .gaps = watch.totals(),
          .tcp_retransmissions = watch.tcp_retransmissions()};
}

NamedCounts counts_of_cpu(std::istream& file, int cpu) {
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> cpus = words_of(line);
  const auto column =
      static_cast<size_t>(std::ranges::find(cpus, "CPU" + std::to_string(cpu)) - cpus.begin());
  NamedCounts counts;
  while (column < cpus.size() && std::getline(file, line)) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() < 2 || !words[0].ends_with(':'))
      continue;
    std::string name = words[0].substr(0, words[0].size() - 1);
    // A number is meaningless to readers; the device's name is the last word.
    if (number(name) && words.size() > cpus.size() + 1)
      name = words.back();
    const std::optional<uint64_t> count =
        column + 1 < words.size() ? number(words[column + 1]) : std::nullopt;
    if (count)
      add_count(counts, name, *count);
  }
  return counts;
}

std::optional<uint64_t> steal_ns_of_cpu(std::istream& file, int cpu) {
  constexpr size_t kSteal = 8;  // proc_stat(5): the name, then user, nice...
  const std::string wanted = "cpu" + std::to_string(cpu);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.size() <= kSteal || words[0] != wanted)
      continue;
    const long ticks_per_s = sysconf(_SC_CLK_TCK);
    const std::optional<uint64_t> ticks = number(words[kSteal]);
    if (!ticks || ticks_per_s <= 0)
      return std::nullopt;
    return *ticks * (1'000'000'000 / static_cast<uint64_t>(ticks_per_s));
  }
  return std::nullopt;
}

CpuState CpuState::read(int cpu) {
  std::ifstream stat("/proc/stat");
  return {.cpu = cpu,
          .interrupts = counts_in("/proc/interrupts", cpu),
          .softirqs = counts_in("/proc/softirqs", cpu),
          .steal_ns = steal_ns_of_cpu(stat, cpu),
          .khz = frequency_khz(cpu)};
}

// A thread that is switched out runs less than it could; time in which it sleeps does not count.
std::optional<double> Noise::Thread::obtained() const {
  if (!used.waited_ns)
    return std::nullopt;
  const auto got = static_cast<double>(used.cpu_ns);
  const double wanted = got + static_cast<double>(*used.waited_ns);
  return wanted > 0 ? got / wanted : 1;
}

std::vector<std::string> Noise::remarks() const {
  Remarks remarks(*this);
  for (const Thread& thread : threads)
    remarks.add_thread(thread);
  for (const Cpu& cpu : cpus)
    remarks.add_cpu(cpu);
  remarks.add_distance();
  return remarks.take();
}

void NoiseMeter::begin(const GapWatch& client, const ThreadState* server,
                       const WaitCounters& waits) {
  client_ = thread_state(client);
  server_ = server == nullptr ? std::nullopt : std::optional(*server);
  waits_ = waits;
  cpus_.clear();
  cpus_.push_back(CpuState::read(client_.cpu));
  if (server_ && server_->cpu != client_.cpu)
    cpus_.push_back(CpuState::read(server_->cpu));
  began_ns_ = Runtime::now_ns();
}

Noise NoiseMeter::end(const GapWatch& client, const ThreadState* server,
                      const WaitCounters& waits) const {
  Noise noise;
  noise.seconds = static_cast<double>(Runtime::now_ns() - began_ns_) / 1e9;
  noise.waits = {waits.credit_waits - waits_.credit_waits, waits.sent_again - waits_.sent_again};
  auto add = [&noise](const char* side, const ThreadState& before, const ThreadState& after) {
    noise.threads.push_back(
        {.side = side,
         .cpu = after.cpu,
         .used = after.usage.since(before.usage),
         .gaps = after.gaps.since(before.gaps),
         .tcp_retransmissions = grown(before.tcp_retransmissions, after.tcp_retransmissions)});
  };
  add("client", client_, thread_state(client));
  if (server_ && server != nullptr)
    add("server", *server_, *server);
  for (const CpuState& before : cpus_)
    noise.cpus.push_back(between(before, CpuState::read(before.cpu)));
  return noise;
}

}  // namespace rrdk::testrpc
