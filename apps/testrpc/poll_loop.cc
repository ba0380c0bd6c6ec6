#include "poll_loop.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <ctime>

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kIdleBeforeSleepNs = 50'000;
constexpr uint64_t kLongestSleepNs = 10'000'000;

}  // namespace

void PollLoop::step(uint64_t wake_ns) {
  if (runtime_.poll() != 0) {
    idle_since_ = 0;
    return;
  }
  if (policy_ == IdlePolicy::kBusy)
    return;
  if (policy_ == IdlePolicy::kYield) {
    sched_yield();
    return;
  }
  uint64_t now = Runtime::now_ns();
  if (idle_since_ == 0)
    idle_since_ = now;
  if (now - idle_since_ >= kIdleBeforeSleepNs && wake_ns > now && runtime_.arm_wake())
    sleep(now, wake_ns);
}

void PollLoop::sleep(uint64_t now, uint64_t wake_ns) {
  uint64_t length = std::min(wake_ns - now, kLongestSleepNs);
  timespec timeout = {0, static_cast<long>(length)};
  pollfd event = {runtime_.wake_fd(), POLLIN, 0};
  ppoll(&event, 1, &timeout, nullptr);
}

}  // namespace rrdk::testrpc
