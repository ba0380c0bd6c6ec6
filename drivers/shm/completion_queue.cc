#include "drivers/shm/completion_queue.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/assert.h"
#include "base/system.h"
#include "drivers/common/device.h"
#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

namespace {

Result<void> add_to(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    return base::system_failure("epoll_ctl");
  return {};
}

// What is left in a wake-up socket.
enum class Tokens { kNone, kSome, kOver, kBad };

// Takes tokens. A packet with descriptors is left in the socket, which is not read any more, since
// the peer decides how long closing them takes. The end of the socket looks like an empty packet.
Tokens take_tokens(int receiver) {
  // Limited: a peer that floods its socket only makes the next sleep short.
  constexpr int kMostTokens = 16;
  for (int i = 0; i < kMostTokens; ++i) {
    char token;
    iovec piece{&token, sizeof(token)};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    const ssize_t bytes = ::recvmsg(receiver, &header, MSG_DONTWAIT | MSG_PEEK);
    if (bytes < 0)
      return errno == EAGAIN ? Tokens::kNone : Tokens::kOver;
    if ((header.msg_flags & MSG_CTRUNC) != 0)
      return Tokens::kBad;
    if (bytes == 0 || ::recv(receiver, &token, sizeof(token), MSG_DONTWAIT) < 0)
      return Tokens::kOver;
  }
  return Tokens::kSome;
}

}  // namespace

// Not a datagram socket: if its other end is gone, a send() discards what the peer has put into its
// queue, and closes the descriptors there.
void wake(int wake_socket) noexcept {
  // A full socket is equivalent: its reader has been woken and not yet emptied it.
  const char token = 0;
  (void)::send(wake_socket, &token, sizeof(token), MSG_DONTWAIT | MSG_NOSIGNAL);
}

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create(Counters& counts) {
  Fd own_waker(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!own_waker)
    return base::system_failure("eventfd");
  Fd wakers(::epoll_create1(EPOLL_CLOEXEC));
  if (!wakers)
    return base::system_failure("epoll_create1");
  if (Result<void> added = add_to(wakers.get(), own_waker.get()); !added)
    return tl::unexpected(added.error());
  std::unique_ptr<CompletionQueue> queue(
      new CompletionQueue(counts, std::move(own_waker), std::move(wakers)));
  if (Result<UsersPage*> own = queue->join_page(::geteuid()); !own)
    return tl::unexpected(own.error());
  return queue;
}

CompletionQueue::CompletionQueue(Counters& counts, Fd own_waker, Fd wakers)
    : counts_(counts), own_waker_(std::move(own_waker)), wakers_(std::move(wakers)) {}

// A new page says that nothing sleeps, even if we do. Its first peer's queue pair rings the first
// page when it is established (QueuePair::attach()), after which the sleeper checks all pages.
Result<CompletionQueue::UsersPage*> CompletionQueue::join_page(uid_t user) {
  const std::lock_guard lock(mutex_);
  auto found = std::ranges::find(users_, user, &UsersPage::user);
  if (found == users_.end() && users_.size() == kMaxPages)
    found = users_.end() - 1;
  if (found == users_.end()) {
    Result<SharedMemory> memory = create_shared("rrdk-doorbells", kDoorbellBytes, Writers::kBoth);
    if (!memory)
      return tl::unexpected(memory.error());
    users_.push_back(std::make_unique<UsersPage>(UsersPage{user, std::move(*memory)}));
    found = users_.end() - 1;
    pages_[users_.size() - 1] = (*found)->doorbells();
    num_pages_.store(static_cast<uint32_t>(users_.size()), std::memory_order_release);
  }
  ++(*found)->connections;
  return found->get();
}

// Never used again: processes that had it may write to it for any time.
void CompletionQueue::leave_page(UsersPage& page) {
  RRDK_ASSERT(page.connections != 0);
  if (--page.connections != 0)
    return;
  auto at = std::ranges::find(users_, &page, &std::unique_ptr<UsersPage>::get);
  RRDK_ASSERT(at != users_.end() && at != users_.begin());  // the first one stays
  std::swap(*at, users_.back());
  pages_[static_cast<size_t>(at - users_.begin())] = (*at)->doorbells();
  num_pages_.store(static_cast<uint32_t>(users_.size() - 1), std::memory_order_release);
  users_.pop_back();
}

Result<void> CompletionQueue::wake_by(int receiver) {
  return add_to(wakers_.get(), receiver);
}

void CompletionQueue::ignore(int receiver) noexcept {
  ::epoll_ctl(wakers_.get(), EPOLL_CTL_DEL, receiver, nullptr);
}

void CompletionQueue::ring(uint32_t bit) noexcept {
  if (!set_bit(*pages_[0], bit))
    return;
  const uint64_t one = 1;
  (void)!::write(own_waker_.get(), &one, sizeof(one));
}

Result<uint32_t> CompletionQueue::add(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  auto free = std::ranges::find(queue_pairs_, nullptr,
                                [](const auto& p) { return p.load(std::memory_order_relaxed); });
  if (free == queue_pairs_.end())
    return tl::unexpected(drivers::too_many_queue_pairs(kMaxQueuePairs));
  const auto bit = static_cast<uint32_t>(free - queue_pairs_.begin());
  free->store(&qp, std::memory_order_release);
  if (bit >= bits_used_.load(std::memory_order_relaxed))
    bits_used_.store(bit + 1, std::memory_order_release);
  return bit;
}

void CompletionQueue::remove(QueuePair& qp, uint32_t bit, UsersPage* page) {
  RRDK_ASSERT(bit < kMaxQueuePairs, bit);
  const std::lock_guard lock(mutex_);
  QueuePair* removed = &qp;  // otherwise it was never added
  queue_pairs_[bit].compare_exchange_strong(removed, nullptr, std::memory_order_release);
  active_count_ = static_cast<size_t>(
      std::remove(active_.begin(), active_.begin() + active_count_, &qp) - active_.begin());
  if (page != nullptr)
    leave_page(*page);
}

void CompletionQueue::disarm() {
  for (DoorbellPage* page : pages())
    page->sleeping.store(0, std::memory_order_relaxed);
  std::array<epoll_event, 64> ready;
  const int count =
      ::epoll_wait(wakers_.get(), ready.data(), static_cast<int>(ready.size()), /*timeout=*/0);
  for (const epoll_event& event : std::span(ready).first(static_cast<size_t>(std::max(count, 0)))) {
    const int fd = event.data.fd;
    if (fd == own_waker_.get()) {
      uint64_t times;
      (void)!::read(fd, &times, sizeof(times));
      continue;
    }
    const Tokens left = take_tokens(fd);
    if (left == Tokens::kBad)
      Counters::count(counts_.bad_wake_ups);
    if (left == Tokens::kBad || left == Tokens::kOver)
      ignore(fd);
  }
}

}  // namespace rrdk::shm
