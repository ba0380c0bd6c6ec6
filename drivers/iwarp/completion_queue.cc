#include "drivers/iwarp/completion_queue.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/system.h"
#include "drivers/common/device.h"
#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create() {
  std::unique_ptr<CompletionQueue> cq(new CompletionQueue);
  cq->epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!cq->epoll_)
    return base::system_failure("epoll_create1");
  cq->rings_ = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!cq->rings_)
    return base::system_failure("eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(cq->epoll_.get(), EPOLL_CTL_ADD, cq->rings_.get(), &event) != 0)
    return base::system_failure("epoll_ctl");
  return cq;
}

std::unique_ptr<std::byte[]> CompletionQueue::take_staging() noexcept try {
  if (free_staging_.empty()) {
    free_staging_.reserve(kFreeStaging);
    return std::make_unique_for_overwrite<std::byte[]>(kStaging + kBehindStaging);
  }
  std::unique_ptr<std::byte[]> staging = std::move(free_staging_.back());
  free_staging_.pop_back();
  return staging;
} catch (const std::bad_alloc&) {
  return nullptr;
}

Result<void> CompletionQueue::add() {
  const std::lock_guard lock(mutex_);
  if (queue_pairs_ == kMaxQueuePairs)
    return tl::unexpected(drivers::too_many_queue_pairs(kMaxQueuePairs));
  ++queue_pairs_;
  return {};
}

void CompletionQueue::remove(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  --queue_pairs_;
  forget_quiet(qp);
  if (lane_outbox_.owner == &qp)
    lane_outbox_.clear();
  std::erase(rung_, &qp);
  active_count_ = static_cast<size_t>(
      std::remove(active_.begin(), active_.begin() + static_cast<long>(active_count_), &qp) -
      active_.begin());
}

// Edge-triggered: reported once, and remembered by the queue pair.
Result<void> CompletionQueue::watch(QueuePair& qp, int socket) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = &qp;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0)
    return base::system_failure("epoll_ctl");
  return {};
}

void CompletionQueue::unwatch(int socket) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
}

void CompletionQueue::ring(QueuePair& qp) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(rung_, &qp) == rung_.end())
      rung_.push_back(&qp);
  }
  const uint64_t one = 1;
  (void)!::write(rings_.get(), &one, sizeof(one));
}

void CompletionQueue::take_rings() noexcept {
  uint64_t value;
  (void)!::read(rings_.get(), &value, sizeof(value));
  const std::lock_guard lock(mutex_);
  for (QueuePair* qp : rung_)
    activate(*qp);
  rung_.clear();
}

}  // namespace rrdk::iwarp
