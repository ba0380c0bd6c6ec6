#include "drivers/verbs/completion_queue.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "base/assert.h"
#include "base/log.h"
#include "base/system.h"
#include "drivers/common/device.h"
#include "drivers/verbs/device.h"
#include "drivers/verbs/queue_pair.h"

namespace rrdk::verbs {

namespace {

// For a queue that cannot grow later, on devices like siw: enough for about a hundred connections.
constexpr uint32_t kFixedEntries = 1u << 16;

Result<void> add_to(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return base::system_failure("epoll_ctl");
  return {};
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Device& device, uint32_t entries) {
  std::unique_ptr<CompletionQueue> cq(new CompletionQueue(device));
  if (Result<void> opened = cq->open(entries); !opened)
    return tl::unexpected(opened.error());
  return cq;
}

Result<void> CompletionQueue::open(uint32_t entries) {
  active_.reserve(kMaxQueuePairs);
  epoll_ = base::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_)
    return base::system_failure("epoll_create1");
  rings_ = base::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!rings_)
    return base::system_failure("eventfd");
  channel_ = ibv_create_comp_channel(device_.verbs());
  if (channel_ == nullptr)
    return base::system_failure("ibv_create_comp_channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
    return base::system_failure("fcntl");
  if (!device_.resizes_completion_queues())
    entries = std::max(entries, kFixedEntries);
  entries = std::min(entries, device_.max_completions());
  cq_ = ibv_create_cq(device_.verbs(), static_cast<int>(entries), nullptr, channel_, 0);
  if (cq_ == nullptr)
    return base::system_failure("ibv_create_cq");
  return add_to(epoll_.get(), rings_.get()).and_then([&] {
    return add_to(epoll_.get(), channel_->fd);
  });
}

CompletionQueue::~CompletionQueue() {
  if (cq_ != nullptr)
    ibv_destroy_cq(cq_);
  if (channel_ != nullptr)
    ibv_destroy_comp_channel(channel_);
}

Result<void> CompletionQueue::reserve(uint32_t completions) {
  const std::lock_guard lock(mutex_);
  if (queue_pairs_ == kMaxQueuePairs)
    return tl::unexpected(drivers::too_many_queue_pairs(kMaxQueuePairs));
  const uint64_t wanted = reserved_ + completions;
  if (wanted > static_cast<uint64_t>(cq_->cqe) && !grow(wanted))
    return fail(Errc::kLimit, "a completion queue of " + device_.name() + " has no more than " +
                                  std::to_string(cq_->cqe) +
                                  " entries, and its connections could need " +
                                  std::to_string(wanted) +
                                  ": use more poll cores, or fewer credits or connections");
  reserved_ = wanted;
  ++queue_pairs_;
  return {};
}

bool CompletionQueue::grow(uint64_t entries) {
  const uint64_t most = device_.max_completions();
  if (entries > most || !device_.resizes_completion_queues())
    return false;
  const auto target = static_cast<int>(std::min(std::bit_ceil(entries), most));
  return ibv_resize_cq(cq_, target) == 0 && static_cast<uint64_t>(cq_->cqe) >= entries;
}

void CompletionQueue::unreserve(uint32_t completions) {
  const std::lock_guard lock(mutex_);
  RRDK_ASSERT(completions <= reserved_ && queue_pairs_ != 0, completions, reserved_);
  reserved_ -= completions;
  --queue_pairs_;
}

void CompletionQueue::add(QueuePair& qp, uint32_t number) {
  const std::lock_guard lock(mutex_);
  RRDK_ASSERT(queue_pairs_ <= kMaxQueuePairs && qp.number() == number, queue_pairs_, number);
  size_t place = number % kPlaces;
  while (places_[place].load(std::memory_order_relaxed) != nullptr)
    place = (place + 1) % kPlaces;
  places_[place].store(&qp, std::memory_order_release);
}

void CompletionQueue::forget(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  std::erase(rung_, &qp);
  std::erase(active_, &qp);
}

void CompletionQueue::destroy(QueuePair& qp, ibv_qp* queue_pair) {
  // No other queue pair with the same number is added meanwhile.
  const std::lock_guard lock(mutex_);
  const uint32_t number = queue_pair->qp_num;
  if (const int error = ibv_destroy_qp(queue_pair); error != 0)
    base::log_error("verbs: queue pair %u of %s could not be destroyed: %s", number,
                    device_.name().c_str(), std::strerror(error));
  vacate(qp, number);
  purge(qp, number);
}

void CompletionQueue::vacate(QueuePair& qp, uint32_t number) noexcept {
  size_t hole = number % kPlaces;
  while (places_[hole].load(std::memory_order_relaxed) != &qp) {
    if (places_[hole].load(std::memory_order_relaxed) == nullptr)
      return;  // it was never added
    hole = (hole + 1) % kPlaces;
  }
  // The entries after it move up, as far as their own positions allow.
  for (size_t next = (hole + 1) % kPlaces;; next = (next + 1) % kPlaces) {
    QueuePair* other = places_[next].load(std::memory_order_relaxed);
    if (other == nullptr)
      break;
    const size_t home = other->number() % kPlaces;
    if ((next - home) % kPlaces >= (next - hole) % kPlaces) {
      places_[hole].store(other, std::memory_order_release);
      hole = next;
    }
  }
  places_[hole].store(nullptr, std::memory_order_release);
}

void CompletionQueue::purge(QueuePair& qp, uint32_t number) {
  std::vector<ibv_wc> left(batch_.begin() + batch_next_, batch_.begin() + batch_count_);
  RRDK_ASSERT(batch_next_ <= batch_count_ && kept_next_ <= kept_.size(), batch_next_, kept_next_);
  left.insert(left.end(), kept_.begin() + static_cast<long>(kept_next_), kept_.end());
  // At most what the queue holds, however busy the others are.
  ibv_wc wc;
  for (int i = 0; i <= cq_->cqe && ibv_poll_cq(cq_, 1, &wc) == 1; ++i)
    left.push_back(wc);
  batch_next_ = batch_count_ = 0;
  kept_.clear();
  kept_next_ = 0;
  for (const ibv_wc& each : left) {
    if (each.qp_num == number)
      qp.drop(each);
    else
      kept_.push_back(each);
  }
}

void CompletionQueue::ring(QueuePair& qp) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(rung_, &qp) == rung_.end())
      rung_.push_back(&qp);
    has_rings_.store(true, std::memory_order_release);
  }
  const uint64_t one = 1;
  (void)!::write(rings_.get(), &one, sizeof(one));
}

void CompletionQueue::take_rings() noexcept {
  uint64_t value;
  (void)!::read(rings_.get(), &value, sizeof(value));
  const std::lock_guard lock(mutex_);
  has_rings_.store(false, std::memory_order_relaxed);
  for (QueuePair* qp : rung_)
    activate(*qp);
  rung_.clear();
}

bool CompletionQueue::arm() {
  if (batch_next_ != batch_count_ || kept_next_ != kept_.size() || !active_.empty() ||
      has_rings_.load(std::memory_order_acquire))
    return false;
  if (ibv_req_notify_cq(cq_, 0) != 0)
    return false;
  // What came before it was armed is not reported through the channel.
  return !refill(kBatch);
}

void CompletionQueue::disarm() {
  ibv_cq* which = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (ibv_get_cq_event(channel_, &which, &context) == 0)
    ++events;
  if (events != 0)
    ibv_ack_cq_events(cq_, events);
}

}  // namespace rrdk::verbs
