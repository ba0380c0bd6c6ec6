#include "poll_loop.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>

namespace rrdk::testrpc {
namespace {

constexpr uint64_t kIdleBeforeSleepNs = 50'000;
constexpr uint64_t kLongestSleepNs = 10'000'000;

}  // namespace

PollLoop::PollLoop(Runtime& runtime, IdlePolicy policy) : runtime_(runtime), policy_(policy) {
  // A Runtime with dedicated cores needs no polling here.
  if (runtime.embedded())
    alarm_ = Timer::create(runtime, 0, [](Timer&, void*) {}, nullptr).value();
}

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
  if (now - idle_since_ >= kIdleBeforeSleepNs && wake_ns > now)
    sleep(std::min(wake_ns, now + kLongestSleepNs));
}

// The timer ends the sleep, not the time-out of poll(), which the kernel may end 50 us late.
void PollLoop::sleep(uint64_t until_ns) {
  alarm_->start(until_ns);
  if (runtime_.arm_wake()) {
    pollfd event = {runtime_.wake_fd(), POLLIN, 0};
    poll(&event, 1, 1000);
  }
  alarm_->stop();
}

}  // namespace rrdk::testrpc
