// A queue pair's turn, and the choice of the one whose turn it is.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/assert.h"
#include "base/prefetch_datapath.h"
#include "drivers/iwarp/completion_queue.h"
#include "drivers/iwarp/queue_pair.h"

namespace rrdk::iwarp {

namespace {

// Polls without work after which a queue pair that is polled alone is left to epoll.
constexpr uint32_t kIdlePolls = 1000;
// While one queue pair is polled alone, one poll in this many asks epoll.
constexpr uint32_t kEpollInterval = 32;
constexpr int kMostEvents = 64;
// Polls of one queue pair alone after which its socket is removed from epoll, since the
// notification costs the sender half a microsecond per message.
constexpr uint32_t kQuietPolls = 256;
// Messages that are taken in lanes in one poll, over all queue pairs, so that the core can do other
// work in between.
constexpr uint64_t kMostInLanes = 128;

}  // namespace

uint32_t QueuePair::poll(std::span<fabric::Completion> out, bool alone) noexcept {
  const Status status = status_.load(std::memory_order_acquire);
  if (status == Status::kError)
    return flush(out);
  if (status != Status::kEstablished)
    return 0;
  if (stalled_ && !receives_->empty())
    stalled_ = false;
  if (poke_wanted_.load(std::memory_order_relaxed)) [[unlikely]]
    poke();
  readable_ = readable_ || alone;
  // Sends first: a user that takes one completion at a time would never see them under load.
  uint32_t n = reap_sends(out);
  if (std::exchange(lane_held_, false))
    send_lane();
  const uint32_t before = n;
  pull(out, n);
  if (staged_end_ - staged_begin_ <= rest_.size() && !held_back_ && rest_length_ == 0)
    give_staging();
  // What is posted at once, as answers to what was received, leaves with what was sent in the lane.
  lane_held_ = (std::exchange(posted_, false) || n != before) && has_sent_in_lane();
  if (lane_held_)
    unsent_ = true;
  else
    transmit(Asked::kByPoll);
  n += reap_sends(out.subspan(n));
  if (hung_up_ && stalled_) [[unlikely]]
    fail_with(broken_ ? End::kPeerLost : End::kPeerClosed);
  return n;
}

void QueuePair::give_staging() noexcept {
  if (staging_ != nullptr) {
    rest_length_ = staged_end_ - staged_begin_;
    RRDK_ASSERT(rest_length_ <= rest_.size(), rest_length_);
    std::copy_n(staging_.get() + staged_begin_, rest_length_, rest_.data());
    cq_.give_staging(std::move(staging_));
  }
  staged_begin_ = staged_end_ = 0;
}

// Returns false if there is no memory to stage it in.
bool QueuePair::stage_rest() noexcept {
  RRDK_ASSERT(staged_begin_ == staged_end_ && rest_length_ <= rest_.size(), rest_length_);
  if (staging_ == nullptr && (staging_ = cq_.take_staging()) == nullptr)
    return false;
  std::copy_n(rest_.data(), rest_length_, staging_.get());
  staged_end_ = std::exchange(rest_length_, 0);
  return true;
}

// For a peer that may have taken our first message for granted and never looked at its socket.
void QueuePair::poke() noexcept {
  poke_wanted_.store(false, std::memory_order_relaxed);
  if (kept_.empty() && !cursor_.in_record && !cursor_.in_response)
    keep_empty_write();
}

bool QueuePair::has_work() noexcept {
  const Status status = status_.load(std::memory_order_acquire);
  if (status == Status::kError)
    return head_ != tail_ || receiving_ || !own_receives_.empty();
  if (status != Status::kEstablished)
    return false;
  if (unsent_ || (stalled_ ? !receives_->empty() || lane_goes_on() : readable_ || held_back_))
    return true;
  drop_reported();
  if (head_ != tail_ && record(head_).done)
    return true;
  return (hung_up_ && stalled_) || poke_wanted_.load(std::memory_order_relaxed);
}

bool QueuePair::needs_no_epoll() const noexcept {
  return status_.load(std::memory_order_relaxed) == Status::kEstablished && writable_ &&
         !stalled_ && !hung_up_;
}

// Checks whether there is something to read; epoll may have reported data that was read since.
void QueuePair::look() noexcept {
  if (!readable_ || stalled_ || held_back_ ||
      status_.load(std::memory_order_acquire) != Status::kEstablished)
    return;
  std::byte first;
  // datapath-allow: before going to sleep
  const ssize_t got = ::recv(socket_fd_, &first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
  readable_ = got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

void QueuePair::on_epoll(uint32_t events) noexcept {
  readable_ = readable_ || (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  // Epoll reports this once, possibly to arm(): data that waits for TCP is work from now on.
  unsent_ = unsent_ || (!writable_ && (events & EPOLLOUT) != 0);
  writable_ = writable_ || (events & EPOLLOUT) != 0;
  hung_up_ = hung_up_ || (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
}

uint32_t CompletionQueue::poll(std::span<fabric::Completion> out) {
  if (quiet_ != nullptr && (active_count_ != 1 || !quiet_->needs_no_epoll())) [[unlikely]]
    (void)end_quiet();
  if (active_count_ != 1 || ++polls_ % kEpollInterval == 0)
    take_ready();
  const bool alone = active_count_ == 1;
  uint32_t n = 0;
  poll_end_ = lane_messages_ + kMostInLanes;
  for (size_t turns = active_count_; turns > 0 && n < out.size() && lane_messages_ < poll_end_;
       --turns) {
    if (next_ >= active_count_)
      next_ = 0;
    QueuePair& qp = *active_[next_];
    if (active_count_ > 1)
      active_[next_ + 1 < active_count_ ? next_ + 1 : 0]->prefetch();
    const uint64_t in_lanes = lane_messages_;
    const uint32_t got = qp.poll(out.subspan(n), alone);
    n += got;
    if (got != 0 || lane_messages_ != in_lanes)
      qp.idle_polls = 0;
    else if ((!alone || ++qp.idle_polls > kIdlePolls) && !qp.has_work() &&
             (&qp != quiet_ || end_quiet())) {
      deactivate(next_);
      continue;
    }
    ++next_;
  }
  if (quiet_ == nullptr) {
    alone_polls_ = active_count_ == 1 && alone ? alone_polls_ + 1 : 0;
    if (alone_polls_ > kQuietPolls && active_[0]->needs_no_epoll()) [[unlikely]]
      begin_quiet(*active_[0]);
  }
  return n;
}

void CompletionQueue::begin_quiet(QueuePair& qp) noexcept {
  // datapath-allow: once in many polls
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, qp.socket(), nullptr) == 0)
    quiet_ = &qp;
}

// Returns false if the socket cannot be added to epoll; the queue pair is then still polled. Data
// that has come meanwhile is an event.
bool CompletionQueue::end_quiet() noexcept {
  if (quiet_ == nullptr)
    return true;
  // datapath-allow: once in many polls, or before going to sleep
  if (!watch(*quiet_, quiet_->socket()))
    return false;
  quiet_ = nullptr;
  alone_polls_ = 0;
  return true;
}

// Everything that a NULL call touches, except what the kernel has for the socket.
void QueuePair::prefetch() const noexcept {
  base::prefetch_lines(&owner_, &response_mask_);
  base::prefetch_lines(&in_, &rest_length_ + 1);
}

uint32_t CompletionQueue::take_ready() noexcept {
  std::array<epoll_event, kMostEvents> ready;
  // datapath-allow: one for all connections, which cost nothing while they are idle
  const int count = ::epoll_wait(epoll_.get(), ready.data(), kMostEvents, /*timeout=*/0);
  for (int i = 0; i < count; ++i)
    __builtin_prefetch(ready[static_cast<size_t>(i)].data.ptr);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.ptr == nullptr) {
      take_rings();
      continue;
    }
    auto& qp = *static_cast<QueuePair*>(event.data.ptr);
    qp.on_epoll(event.events);
    activate(qp);
  }
  return count > 0 ? static_cast<uint32_t>(count) : 0;
}

void CompletionQueue::activate(QueuePair& qp) noexcept {
  qp.idle_polls = 0;
  if (qp.active)
    return;
  qp.active = true;
  RRDK_ASSERT(active_count_ < active_.size());
  active_[active_count_++] = &qp;
}

void CompletionQueue::deactivate(size_t position) noexcept {
  RRDK_ASSERT(position < active_count_ && active_[position]->active, position, active_count_);
  RRDK_ASSERT(active_[position] != quiet_);
  active_[position]->active = false;
  active_[position] = active_[--active_count_];
}

// What epoll reports after this makes its descriptor readable.
bool CompletionQueue::arm() {
  if (!end_quiet())
    return false;
  if (lane_outbox_.owner != nullptr)
    lane_outbox_.owner->send_lane();
  take_ready();
  for (size_t i = active_count_; i > 0; --i) {
    active_[i - 1]->look();
    if (active_[i - 1]->has_work())
      return false;
    deactivate(i - 1);
  }
  return true;
}

void CompletionQueue::disarm() {
  take_ready();
}

}  // namespace rrdk::iwarp
