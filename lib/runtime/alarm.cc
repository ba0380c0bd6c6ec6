#include "runtime/alarm.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "base/system.h"

namespace rrdk::runtime {

Alarm::~Alarm() {
  if (fd_ >= 0)
    close(fd_);
}

Result<void> Alarm::open() {
  fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd_ < 0)
    return base::system_failure("eventfd");
  return {};
}

void Alarm::write_fd() noexcept {
  uint64_t one = 1;
  // Fails only when the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] ssize_t n = write(fd_, &one, sizeof(one));
}

void Alarm::clear() noexcept {
  // A producer that has cleared the flag already has written the descriptor, or is about to: that
  // write then wakes the core once more, for nothing.
  asleep_.exchange(false, std::memory_order_acq_rel);
  uint64_t count;
  [[maybe_unused]] ssize_t n = read(fd_, &count, sizeof(count));
}

}  // namespace rrdk::runtime
