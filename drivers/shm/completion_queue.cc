#include "drivers/shm/completion_queue.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "drivers/shm/queue_pair.h"

namespace rrdk::shm {

void wake(int wake_socket) noexcept {
  // A full socket is as good: its reader has been woken and not yet emptied it.
  const char token = 0;
  (void)::send(wake_socket, &token, sizeof(token), MSG_DONTWAIT | MSG_NOSIGNAL);
}

Result<std::unique_ptr<CompletionQueue>> CompletionQueue::create() {
  Result<SharedMemory> page = create_shared("rrdk-doorbells", kDoorbellBytes);
  if (!page)
    return tl::unexpected(page.error());
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail(Errc::kSystem, std::string("socketpair: ") + std::strerror(errno));
  return std::unique_ptr<CompletionQueue>(
      new CompletionQueue(std::move(*page), Fd(ends[0]), Fd(ends[1])));
}

CompletionQueue::CompletionQueue(SharedMemory page, Fd wake_receiver, Fd wake_sender)
    : page_memory_(std::move(page)),
      page_(reinterpret_cast<DoorbellPage*>(page_memory_.mapping.base())),
      wake_receiver_(std::move(wake_receiver)),
      wake_sender_(std::move(wake_sender)) {}

Result<uint32_t> CompletionQueue::add(QueuePair& qp) {
  const std::lock_guard lock(mutex_);
  auto free = std::ranges::find(queue_pairs_, nullptr,
                                [](const auto& p) { return p.load(std::memory_order_relaxed); });
  if (free == queue_pairs_.end())
    return fail(Errc::kLimit, "a completion queue serves at most " +
                                  std::to_string(kMaxQueuePairs) + " queue pairs");
  const auto bit = static_cast<uint32_t>(free - queue_pairs_.begin());
  free->store(&qp, std::memory_order_release);
  if (bit >= bits_used_.load(std::memory_order_relaxed))
    bits_used_.store(bit + 1, std::memory_order_release);
  return bit;
}

void CompletionQueue::remove(QueuePair& qp, uint32_t bit) {
  const std::lock_guard lock(mutex_);
  queue_pairs_[bit].store(nullptr, std::memory_order_release);
  active_count_ = static_cast<size_t>(
      std::remove(active_.begin(), active_.begin() + active_count_, &qp) - active_.begin());
}

void CompletionQueue::disarm() {
  page_->sleeping.store(0, std::memory_order_relaxed);
  // Bounded: a peer that floods the socket only makes the next sleep a short one.
  constexpr int kMostTokens = 1024;
  char token;
  for (int i = 0; i < kMostTokens; ++i)
    if (::recv(wake_receiver_.get(), &token, sizeof(token), MSG_DONTWAIT) < 0)
      break;
}

}  // namespace rrdk::shm
