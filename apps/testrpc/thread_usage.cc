#include "thread_usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>

namespace rrdk::testrpc {

ThreadUsage ThreadUsage::since(const ThreadUsage& earlier) const noexcept {
  ThreadUsage grown;
  grown.cpu_ns = cpu_ns - earlier.cpu_ns;
  grown.voluntary = voluntary - earlier.voluntary;
  grown.involuntary = involuntary - earlier.involuntary;
  grown.minor_faults = minor_faults - earlier.minor_faults;
  grown.major_faults = major_faults - earlier.major_faults;
  if (waited_ns && earlier.waited_ns)
    grown.waited_ns = *waited_ns - *earlier.waited_ns;
  return grown;
}

UsageMeter::UsageMeter() noexcept
    : schedstat_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

UsageMeter::~UsageMeter() {
  if (schedstat_ >= 0)
    close(schedstat_);
}

ThreadUsage UsageMeter::read() const noexcept {
  ThreadUsage now;
  timespec cpu = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
  now.cpu_ns =
      static_cast<uint64_t>(cpu.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(cpu.tv_nsec);
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  now.voluntary = static_cast<uint64_t>(usage.ru_nvcsw);
  now.involuntary = static_cast<uint64_t>(usage.ru_nivcsw);
  now.minor_faults = static_cast<uint64_t>(usage.ru_minflt);
  now.major_faults = static_cast<uint64_t>(usage.ru_majflt);
  // "CPU_NS WAITED_NS TIMESLICES"; the kernel calls the second run_delay. All are zero if the
  // kernel does not keep them.
  char text[96];
  const ssize_t length = schedstat_ < 0 ? 0 : pread(schedstat_, text, sizeof text, 0);
  const char* const end = text + std::max<ssize_t>(length, 0);
  uint64_t ran = 0, waited = 0;
  const std::from_chars_result first = std::from_chars(text, end, ran);
  if (first.ec == std::errc() && first.ptr != end && ran != 0 &&
      std::from_chars(first.ptr + 1, end, waited).ec == std::errc())
    now.waited_ns = waited;
  return now;
}

}  // namespace rrdk::testrpc
