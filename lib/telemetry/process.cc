// Metrics of the process itself.
#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <ctime>
#include <memory>

#include "rrdk/release.h"
#include "telemetry/metrics.h"

namespace rrdk::telemetry {

namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

uint64_t now_ns(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

// Returns when the process started, since 1970, or 0 if /proc does not say.
uint64_t read_start_ns() {
  const File file(std::fopen("/proc/self/stat", "re"), std::fclose);
  char text[1024] = {};
  if (file == nullptr || std::fread(text, 1, sizeof text - 1, file.get()) == 0)
    return 0;
  // The name of the program stands in parentheses and may contain blanks and parentheses.
  const std::string_view line(text);
  const size_t behind = line.rfind(')');
  uint64_t ticks = 0;  // the 22nd word: since boot
  if (behind == std::string_view::npos ||
      std::sscanf(text + behind + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                  "%" SCNu64,
                  &ticks) != 1)
    return 0;
  const uint64_t per_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  const uint64_t began = ticks * (kSecondNs / per_second);
  return now_ns(CLOCK_REALTIME) - (now_ns(CLOCK_BOOTTIME) - began);
}

uint64_t resident_bytes() {
  const File file(std::fopen("/proc/self/statm", "re"), std::fclose);
  uint64_t pages = 0;
  if (file == nullptr || std::fscanf(file.get(), "%*u %" SCNu64, &pages) != 1)
    return 0;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  uint64_t count = 0;
  while (folder != nullptr && readdir(folder.get()) != nullptr)
    ++count;
  return count > 3 ? count - 3 : 0;  // without ".", "..", and the folder's own
}

uint64_t most_descriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace

std::vector<Family> families_of_process() {
  // Read only once: when somebody sets the clock, a changed start time would look like a restart.
  static const uint64_t start_ns = read_start_ns();
  const auto one = [](const char* name, Kind kind, const char* unit, const char* help,
                      uint64_t value) {
    return Family{{name, kind, unit, help}, {{{}, value, {}}}};
  };
  return {{{"build", Kind::kInfo, "", "The release of the library that runs."},
           {{{{"version", rrdk_version_string()}}, 1, {}}}},
          one("process_start_time_seconds", Kind::kGauge, "seconds",
              "When the process started, since 1970.", start_ns),
          one("process_cpu_seconds", Kind::kCounter, "seconds",
              "CPU time that the process has used.", now_ns(CLOCK_PROCESS_CPUTIME_ID)),
          one("process_resident_memory_bytes", Kind::kGauge, "bytes",
              "Resident memory of the process.", resident_bytes()),
          one("process_open_fds", Kind::kGauge, "", "Open file descriptors.", open_descriptors()),
          one("process_max_fds", Kind::kGauge, "", "Limit of open file descriptors.",
              most_descriptors())};
}

}  // namespace rrdk::telemetry
