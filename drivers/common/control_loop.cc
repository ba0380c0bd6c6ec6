#include "drivers/common/control_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/system.h"

namespace rrdk::drivers {

namespace {

Result<void> control(int epoll, int operation, int fd, uint32_t interest, uint64_t id) {
  epoll_event event{};
  event.events = interest;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, operation, fd, &event) != 0)
    return base::system_failure("epoll_ctl");
  return {};
}

// Endpoints that are served in one call.
constexpr uint32_t kMostServed = 32;

void drain(int fd) {
  uint64_t value;
  (void)!::read(fd, &value, sizeof(value));
}

}  // namespace

Result<void> ControlLoop::start() {
  epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_)
    return base::system_failure("epoll_create1");
  timer_ = base::Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_)
    return base::system_failure("timerfd_create");
  nudges_ = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!nudges_)
    return base::system_failure("eventfd");
  return control(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), EPOLLIN, kTimerId).and_then([&] {
    return control(epoll_.get(), EPOLL_CTL_ADD, nudges_.get(), EPOLLIN, kNudgeId);
  });
}

void ControlLoop::clear() {
  events_.clear();
  adopted_.clear();
}

std::vector<fabric::Event> ControlLoop::poll_events(uint32_t most, base::Budget& budget) {
  const std::lock_guard lock(mutex_);
  budget_ = &budget;
  budget.begin();
  if (events_.size() < most)
    serve();
  budget_ = &base::Budget::none();
  std::vector<fabric::Event> out;
  while (!events_.empty() && out.size() < most) {
    RRDK_ASSERT(events_.front().source->num_events_ != 0);
    --events_.front().source->num_events_;
    out.push_back(std::move(events_.front().event));
    events_.pop_front();
  }
  if (!events_.empty() || !due_.empty() || in_round_ || ticks_first_ || tick_wanted_)
    keep_readable();
  return out;
}

// Both what is ready and the ticks can use up the budget, so they take turns in being first. What
// has nothing to do uses up nothing, however small the budget is: a core may sleep after it.
void ControlLoop::serve() {
  if (std::exchange(ticks_first_, false)) {
    tick();
    if (!over_budget())
      serve_ready();
  } else {
    ticks_first_ = serve_ready() && over_budget();
    if (!ticks_first_)
      tick();
  }
}

// Returns whether an endpoint was ready.
bool ControlLoop::serve_ready() {
  bool any = false;
  for (uint32_t served = 0; served < kMostServed; ++served) {
    const Served one = serve_one();
    any = any || one == Served::kEndpoint;
    if (one == Served::kNothing || over_budget())
      break;
  }
  return any;
}

// One at a time: epoll then reports what is left after the others that are ready, so that each has
// its turn.
ControlLoop::Served ControlLoop::serve_one() {
  epoll_event ready;
  if (::epoll_wait(epoll_.get(), &ready, 1, /*timeout=*/0) != 1)
    return Served::kNothing;
  const uint64_t id = ready.data.u64;
  if (id == kTimerId || id == kNudgeId) {
    drain(id == kTimerId ? timer_.get() : nudges_.get());
    round_due_ = round_due_ || id == kTimerId;
    tick_wanted_ = true;
    return Served::kOwn;
  }
  if (auto it = endpoints_.find(id); it != endpoints_.end())
    it->second->on_ready();
  return Served::kEndpoint;
}

// What the budget leaves goes on in the next call.
void ControlLoop::tick() {
  tick_wanted_ = false;  // first: nudges that come from now on are for the next one
  {
    const std::lock_guard lock(nudged_mutex_);
    ticking_.insert(nudged_.begin(), nudged_.end());
    for (Endpoint* endpoint : nudged_)
      make_due(*endpoint);
    nudged_.clear();
  }
  if (std::exchange(round_due_, false) && !in_round_) {
    in_round_ = true;
    round_at_ = nullptr;
  }
  for (Endpoint* endpoint = next_due(); endpoint != nullptr;
       endpoint = over_budget() ? nullptr : next_due())
    endpoint->on_tick(Clock::now());
  run_timer();
}

// Those that were nudged and, one after the other, all that tick: in turn, since either may be
// many. Null: none is due.
Endpoint* ControlLoop::next_due() {
  if (in_round_ && std::exchange(round_next_, !round_next_)) {
    if (Endpoint* const endpoint = next_in_round())
      return endpoint;
  }
  while (!due_.empty()) {
    Endpoint* const endpoint = due_.front();
    due_.pop_front();
    endpoint->is_due_ = false;
    if (ticking_.contains(endpoint))
      return endpoint;
  }
  return in_round_ ? next_in_round() : nullptr;
}

Endpoint* ControlLoop::next_in_round() {
  const auto next = ticking_.upper_bound(round_at_);
  in_round_ = next != ticking_.end();
  return in_round_ ? round_at_ = *next : nullptr;
}

void ControlLoop::make_due(Endpoint& endpoint) {
  if (!std::exchange(endpoint.is_due_, true))
    due_.push_back(&endpoint);
}

void ControlLoop::run_timer() {
  if (timer_runs_ == !ticking_.empty())
    return;
  timer_runs_ = !timer_runs_;
  itimerspec interval{};
  if (timer_runs_)
    interval.it_value.tv_nsec = interval.it_interval.tv_nsec =
        std::chrono::nanoseconds(kTick).count();
  ::timerfd_settime(timer_.get(), 0, &interval, nullptr);
}

void ControlLoop::keep_readable() {
  const uint64_t one = 1;
  (void)!::write(nudges_.get(), &one, sizeof(one));
}

Result<void> ControlLoop::watch(Endpoint& endpoint, int socket, uint32_t interest) {
  const std::lock_guard lock(mutex_);
  const uint64_t id = next_id_++;
  if (Result<void> added = control(epoll_.get(), EPOLL_CTL_ADD, socket, interest, id); !added)
    return added;
  endpoints_.erase(std::exchange(endpoint.id_, id));
  endpoints_.emplace(id, &endpoint);
  return {};
}

void ControlLoop::change(Endpoint& endpoint, int socket, uint32_t interest) {
  if (endpoint.id_ != 0)
    (void)control(epoll_.get(), EPOLL_CTL_MOD, socket, interest, endpoint.id_);
}

void ControlLoop::unwatch(int socket) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void ControlLoop::set_ticking(Endpoint& endpoint, bool on) {
  if (on)
    nudge(endpoint);
  else
    ticking_.erase(&endpoint);
}

void ControlLoop::nudge(Endpoint& endpoint) noexcept {
  {
    const std::lock_guard lock(nudged_mutex_);
    nudged_.insert(&endpoint);
  }
  keep_readable();
}

void ControlLoop::forget(Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  endpoints_.erase(std::exchange(endpoint.id_, 0));
  if (std::exchange(endpoint.num_events_, 0) != 0)
    std::erase_if(events_, [&](const PendingEvent& e) { return e.source == &endpoint; });
  ticking_.erase(&endpoint);
  if (std::exchange(endpoint.is_due_, false))
    std::erase(due_, &endpoint);
  const std::lock_guard nudged_lock(nudged_mutex_);
  nudged_.erase(&endpoint);
}

void ControlLoop::emit(Endpoint& source, fabric::Event event) {
  events_.push_back({&source, std::move(event)});
  ++source.num_events_;
  keep_readable();
}

void ControlLoop::adopt(std::unique_ptr<Endpoint> endpoint) {
  RRDK_ASSERT(endpoint != nullptr && !adopted_.contains(endpoint.get()));
  const Endpoint* const key = endpoint.get();
  adopted_.emplace(key, std::move(endpoint));
}

std::unique_ptr<Endpoint> ControlLoop::release(Endpoint& endpoint) {
  auto it = adopted_.find(&endpoint);
  if (it == adopted_.end())
    return nullptr;
  std::unique_ptr<Endpoint> released = std::move(it->second);
  adopted_.erase(it);
  return released;
}

bool Acceptor::out_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void Acceptor::lack(int error) {
  if (paused_)  // it has just been reported
    return;
  if (auto left_out = shortages_.allow(base::Tsc::now_ns()))
    base::log_warning("connections wait to be accepted: %s%s", base::system_message(error).c_str(),
                      base::and_more(*left_out).text);
  fabric::Event event;
  event.type = fabric::EventType::kShortage;
  event.listener = &listener_;
  loop_.emit(owner_, std::move(event));
  pause();
}

void Acceptor::pause() {
  RRDK_ASSERT(listening_ >= 0);
  constexpr std::chrono::milliseconds kPause{100};
  paused_ = true;
  resume_ = Clock::now() + kPause;
  loop_.change(owner_, listening_, 0);
  loop_.set_ticking(owner_, true);
}

void Acceptor::on_tick(Clock::time_point now) {
  if (now < resume_)
    return;
  paused_ = false;
  loop_.change(owner_, listening_, EPOLLIN);
  loop_.set_ticking(owner_, false);
}

}  // namespace rrdk::drivers
