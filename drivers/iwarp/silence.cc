#include "drivers/iwarp/silence.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

namespace {

constexpr size_t kLooksAtOnce = 256;  // each is a system call

}  // namespace

Result<void> SilenceWatch::start() {
  timer_ = base::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_)
    return base::system_failure("timerfd_create");
  return control_.watch(*this, timer_.get(), EPOLLIN);
}

void SilenceWatch::add(QueuePair& qp, drivers::Clock::duration look_every) {
  connections_.push_back(&qp);
  if (connections_.size() != 1 && look_every >= look_every_)
    return;
  look_every_ = look_every;
  arm();
}

void SilenceWatch::remove(QueuePair& qp) {
  if (const auto at = std::ranges::find(connections_, &qp); at != connections_.end()) {
    *at = connections_.back();
    connections_.pop_back();
  }
}

void SilenceWatch::arm() {
  const auto turns = static_cast<int64_t>(1 + connections_.size() / kLooksAtOnce);
  const int64_t wait = std::chrono::nanoseconds(look_every_ / turns).count();
  itimerspec once{};
  once.it_value = {.tv_sec = wait / 1'000'000'000, .tv_nsec = wait % 1'000'000'000};
  ::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void SilenceWatch::on_ready() {
  uint64_t times;
  (void)!::read(timer_.get(), &times, sizeof(times));
  const drivers::Clock::time_point now = drivers::Clock::now();
  for (size_t i = std::min(connections_.size(), kLooksAtOnce); i != 0; --i) {
    next_ = next_ < connections_.size() ? next_ : 0;
    connections_[next_++]->look_for_silence(now);
  }
  if (!connections_.empty())
    arm();
}

}  // namespace rrdk::iwarp
