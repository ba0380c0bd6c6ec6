#include "runtime/poll_core.h"

#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/system.h"
#include "runtime/link.h"
#include "runtime/open_device.h"

namespace rrdk::runtime {

namespace {

// An estimate of what the connections of one core can have posted; drivers may round it up.
constexpr uint32_t kCompletionQueueEntries = 16384;
constexpr size_t kReservedLinks = 1024;
// Two for each of more connections than one core serves; an unposted Receive costs a few bytes.
constexpr uint32_t kMostSharedReceives = 65536;
constexpr uint64_t kSecondNs = 1'000'000'000;

}  // namespace

PollCore::PollCore(uint32_t index, Memory& memory, const RuntimeOptions& options,
                   WorkerPool* workers, std::unique_ptr<Ring> ring)
    : index_(index),
      idle_(options.idle),
      adaptive_ns_(uint64_t{options.adaptive_us} * 1000),
      dedicated_(!options.poll_cpus.empty()),
      workers_(workers),
      call_pool_(memory, engine::CallPool::kMostCalls, this),
      budget_(options.pass_budget_us, counters_.passes),
      inbox_(std::move(ring), alarm_),
      control_(alarm_, budget_),
      // An embedded core's reactor may sleep whatever the policy says.
      alarm_(!dedicated_ || idle_ == IdlePolicy::kAdaptive) {
  ticking_.reserve(kReservedLinks);
}

Result<std::unique_ptr<PollCore>> PollCore::create(uint32_t index, Memory& memory,
                                                   const RuntimeOptions& options,
                                                   WorkerPool* workers) {
  auto ring = Ring::create(options.ring_size, Consumers::kOne);
  if (!ring)
    return tl::unexpected(ring.error());
  std::unique_ptr<PollCore> core(new PollCore(index, memory, options, workers, std::move(*ring)));
  if (auto opened = core->open(); !opened)
    return tl::unexpected(opened.error());
  return core;
}

Result<void> PollCore::open() {
  // If the kernel has none, it is detected a little less often that two threads poll.
  (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
  if (auto opened = alarm_.open(); !opened)
    return opened;
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0)
    return base::system_failure("epoll_create1");
  timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer_fd_ < 0)
    return base::system_failure("timerfd_create");
  if (auto watched = watch_fd(alarm_.fd()); !watched)
    return watched;
  return watch_fd(timer_fd_);
}

PollCore::~PollCore() {
  completions_.clear();
  if (timer_fd_ >= 0)
    close(timer_fd_);
  if (epoll_fd_ >= 0)
    close(epoll_fd_);
}

Result<void> PollCore::watch_fd(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
    return base::system_failure("epoll_ctl");
  return {};
}

Result<fabric::CompletionQueue*> PollCore::completion_queue(OpenDevice& device) {
  RRDK_ON_CORE(*this);
  for (Completions& known : completions_) {
    if (known.device == &device)
      return known.queue.get();
  }
  auto queue = device.with(
      [](fabric::Device& d) { return d.create_completion_queue(kCompletionQueueEntries); });
  if (!queue)
    return tl::unexpected(queue.error());
  if ((*queue)->wake_fd() >= 0) {
    if (auto watched = watch_fd((*queue)->wake_fd()); !watched)
      return tl::unexpected(watched.error());
  }
  (*queue)->set_budget(budget_);
  auto tapped = std::make_unique<fabric::TappedCompletionQueue>(tap_, **queue);
  fabric::CompletionQueue* const made = queue->get();
  completions_.push_back({.core = this,
                          .device = &device,
                          .queue = std::move(*queue),
                          .tapped = std::move(tapped),
                          .polled = made});
  if (tapped_)
    completions_.back().polled = completions_.back().tapped.get();
  return made;
}

void PollCore::place_tap() {
  if (std::exchange(tapped_, true))
    return;
  for (Completions& source : completions_)
    source.polled = source.tapped.get();
  for (auto& [id, link] : links_)
    link->tap(tap_);
}

void PollCore::take_tap_away() {
  tapped_ = false;
  for (Completions& source : completions_)
    source.polled = source.queue.get();
  for (auto& [id, link] : links_)
    link->untap();
}

Result<SharedReceives*> PollCore::shared_receives(OpenDevice& device, uint32_t bytes,
                                                  Memory& memory) {
  RRDK_ON_CORE(*this);
  for (const auto& known : shared_receives_) {
    if (known->device == &device && known->bytes == bytes)
      return known.get();
  }
  const uint32_t most = std::min(device.capabilities().max_shared_receives, kMostSharedReceives);
  auto posted =
      device.with([most](fabric::Device& d) { return d.create_shared_receive_queue(most); });
  if (!posted)
    return tl::unexpected(posted.error());
  auto* receives =
      new SharedReceives{.device = &device,
                         .bytes = bytes,
                         .queue = {memory, most, bytes, engine::ReceiveQueue::Users::kMany},
                         .posted = std::move(*posted)};
  receives->queue.post_to(*receives->posted);
  return shared_receives_.emplace_back(receives).get();
}

void PollCore::watch(OpenDevice& device) {
  RRDK_ON_CORE(*this);
  if (std::ranges::find(devices_, &device) != devices_.end())
    return;
  devices_.push_back(&device);
  // If it fails, events are still taken whenever the core is awake.
  (void)watch_fd(device.event_fd());
}

void PollCore::add(Link& link) {
  RRDK_ON_CORE(*this);
  RRDK_ASSERT(!links_.contains(link.id()), link.id());
  links_.emplace(link.id(), &link);
  if (tapped_)
    link.tap(tap_);
  connections_.fetch_add(1, std::memory_order_relaxed);
}

void PollCore::remove(Link& link) {
  RRDK_ON_CORE(*this);
  RRDK_ASSERT(!link.dirty_ && !link.waits_turn_ && !link.ending_posted_, link.id());
  RRDK_ASSERT(links_.contains(link.id()), link.id());
  connections_.fetch_sub(1, std::memory_order_relaxed);
  if (link.ticking_)
    std::erase(ticking_, &link);
  links_.erase(link.id());
}

void PollCore::deliver(uint64_t link_id, const fabric::Event& event) {
  RRDK_ON_CORE(*this);
  if (Link* link = find(link_id))
    link->on_event(event);
}

Link* PollCore::find(uint64_t link_id) const {
  RRDK_ON_CORE(*this);
  auto found = links_.find(link_id);
  return found != links_.end() ? found->second : nullptr;
}

// If the thread that polled last still runs, either it sees that it is no longer the owner, or we
// see that it is in a pass: the membarrier here replaces the fence that its begin_pass() leaves
// out.
bool PollCore::begin_first_pass() {
  std::lock_guard lock(owner_mutex_);
  const std::shared_ptr<ThreadToken>& me = this_thread_token();
  if (owner_token_ == me && in_pass_.load(std::memory_order_relaxed))
    return false;  // from a callback, while another thread tried to take over
  if (owner_token_ && owner_token_ != me && owner_token_->running.load(std::memory_order_acquire)) {
    owner_.store(me.get(), std::memory_order_relaxed);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    if (owner_token_->pass.load(std::memory_order_acquire) == this ||
        in_pass_.load(std::memory_order_acquire)) {
      owner_.store(owner_token_.get(), std::memory_order_relaxed);
      if (!std::exchange(two_said_, true))
        base::log_error(
            "two threads poll core %u at once: the second one's pass is refused; have one thread "
            "call Runtime::poll(%u)",
            index_, index_);
      return false;
    }
  }
  owner_token_ = me;
  owner_.store(me.get(), std::memory_order_relaxed);
  outer_pass_ = me->pass.load(std::memory_order_relaxed);
  me->pass.store(this, std::memory_order_relaxed);
  in_pass_.store(true, std::memory_order_relaxed);
  return true;
}

bool PollCore::abandoned() {
  std::lock_guard lock(owner_mutex_);
  return !owner_token_ || !owner_token_->running.load(std::memory_order_acquire);
}

// Of each device in turn. There must be one.
uint32_t PollCore::route_events() {
  uint32_t count = 0;
  for (size_t i = 0; i < devices_.size() && (i == 0 || budget_.may_go_on()); ++i) {
    next_device_ = (next_device_ + 1) % devices_.size();
    count += devices_[next_device_]->route_events(budget_);
  }
  return count;
}

// A step of a connection's end: closes it, or frees its queue pair if nothing refers to that any
// more.
void PollCore::go_on_ending(Link& link) {
  link.ending_posted_ = false;
  if (link.wants_close() && link.may_close())
    link.give_up();
  if (link.fabric_is_down() && !link.dirty_)
    link.finish_close();
}

Stats PollCore::stats() const {
  Stats all(CounterOwner::kCore);
#define RRDK_CORE_COUNTER(id, enumerator, name, text) \
  all.add(Counter::k##enumerator, counters_.name);
#include "rrdk/counter_table.h"
  all.add(Counter::kConnections, connections_.load(std::memory_order_relaxed));
  return all;
}

void PollCore::stop() {
  stop_.store(true, std::memory_order_release);
  alarm_.ring();
}

void PollCore::start_timer(Timer& timer, uint64_t due_ns) {
  RRDK_ON_CORE(*this);
  timers_.start(timer, due_ns);
  if (armed_)
    set_sleep_limit();
}

bool PollCore::arm() {
  armed_ = true;
  alarm_.set();
  uint64_t now = base::Tsc::now_ns();
  bool idle = flushed_ && deferred_.empty() && turns_.empty() && !for_workers_ &&
              !tap_.faults().holding() && dirty_.empty() && !stop_.load(std::memory_order_acquire);
  idle = idle && inbox_.try_sleep(now) && control_.try_sleep(now) && timers_.try_sleep(now) &&
         housekeeping_.try_sleep(now);
  for (Completions& source : completions_)
    idle = idle && source.try_sleep(now);
  if (!idle) {
    disarm();
    return false;
  }
  set_sleep_limit();
  ++counters_.sleeps;
  return true;
}

void PollCore::disarm() {
  armed_ = false;
  now_ = base::Tsc::now_ns();
  alarm_.clear();
  inbox_.wake();
  control_.wake();
  timers_.wake();
  housekeeping_.wake();
  for (Completions& source : completions_)
    source.wake();
}

// The timer's descriptor becomes readable when the next timer is due, or the next tick that matters
// to a link (most calls in flight only wait for their deadlines), and after the longest sleep in
// any case: peers can spoil a wake-up that a driver shares with them.
void PollCore::set_sleep_limit() {
  uint64_t now = base::Tsc::now_ns();
  uint64_t due = std::min(timers_.next_due(), now + longest_sleep_ns_);
  for (const Link* link : ticking_) {
    if (due <= housekeeping_.next_tick)
      break;
    due = std::min(due, std::max(housekeeping_.next_tick, link->quiet_until()));
  }
  uint64_t wait = due > now ? due - now : 1;
  itimerspec limit = {};
  limit.it_value.tv_sec = static_cast<time_t>(wait / kSecondNs);
  limit.it_value.tv_nsec = static_cast<long>(wait % kSecondNs);
  timerfd_settime(timer_fd_, 0, &limit, nullptr);
}

bool PollCore::sleep() {
  if (!arm())
    return false;
  epoll_event event;
  epoll_wait(epoll_fd_, &event, 1, -1);
  return true;
}

// A core that sleeps still makes a pass each second.
void StallWatch::look() noexcept {
  uint64_t now = base::Tsc::now_ns();
  if (said_ || now < due_ns_)
    return;
  uint64_t polls = core_.passes();
  if (due_ns_ != 0 && polls == polls_) {
    said_ = true;
    base::log_warning("%s %s waits for poll core %u, which no thread has polled for 5 seconds",
                      what_, whom_.c_str(), core_.index());
  }
  polls_ = polls;
  due_ns_ = now + kStallNs;
}

}  // namespace rrdk::runtime
