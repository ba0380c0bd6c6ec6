// What the kernel has given to a thread, and what it has done to it.
#pragma once

#include <cstdint>
#include <optional>

namespace rrdk::testrpc {

// Since the thread began.
struct ThreadUsage {
  uint64_t cpu_ns = 0;
  // Ready to run, and another had its CPU. Empty: this kernel does not say.
  std::optional<uint64_t> waited_ns;
  uint64_t voluntary = 0;    // switches: it slept
  uint64_t involuntary = 0;  // it was switched out, or yielded
  uint64_t minor_faults = 0;
  uint64_t major_faults = 0;

  ThreadUsage since(const ThreadUsage& earlier) const noexcept;
};

// Of the thread that makes it.
class UsageMeter {
 public:
  UsageMeter() noexcept;
  ~UsageMeter();
  UsageMeter(const UsageMeter&) = delete;
  UsageMeter& operator=(const UsageMeter&) = delete;

  // Three system calls, about 2 us in all; allocates nothing.
  ThreadUsage read() const noexcept;

 private:
  int schedstat_ = -1;
};

}  // namespace rrdk::testrpc
