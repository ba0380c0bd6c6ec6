#include "runtime/inbox.h"

#include <rte_ring.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include "base/system.h"

namespace rrdk::runtime {

Alarm::~Alarm() {
  if (fd_ >= 0)
    close(fd_);
}

Result<void> Alarm::open() {
  fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd_ < 0)
    return base::system_failure("eventfd");
  return {};
}

void Alarm::write_fd() noexcept {
  uint64_t one = 1;
  // Fails only if the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] ssize_t n = write(fd_, &one, sizeof(one));
}

void Alarm::clear() noexcept {
  // A producer that has already cleared the flag has written the descriptor, or is about to: that
  // write then wakes the core once more, without need.
  asleep_.exchange(false, std::memory_order_acq_rel);
  uint64_t count;
  [[maybe_unused]] ssize_t n = read(fd_, &count, sizeof(count));
}

Result<std::unique_ptr<Ring>> Ring::create(uint32_t size, Consumers consumers) {
  if (size < 2 || size > (1u << 24) || !std::has_single_bit(size))
    return fail(Errc::kInvalidArgument,
                "ring_size " + std::to_string(size) + " is not a power of two between 2 and 2^24");
  auto bytes = static_cast<size_t>(rte_ring_get_memsize(size));
  void* memory = std::aligned_alloc(RTE_CACHE_LINE_SIZE, bytes);
  if (memory == nullptr)
    return fail(Errc::kNoMemory, "no memory for a ring of " + std::to_string(size) + " entries");
  auto* ring = static_cast<rte_ring*>(memory);
  unsigned flags = consumers == Consumers::kOne ? RING_F_SC_DEQ : 0;
  if (rte_ring_init(ring, "rrdk", size, flags) != 0) {
    std::free(memory);
    return fail(Errc::kInvalidArgument, "rte_ring refuses a size of " + std::to_string(size));
  }
  return std::unique_ptr<Ring>(new Ring(ring));
}

void ControlQueue::post(Task task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    waiting_.store(true, std::memory_order_release);
  }
  alarm_.ring();
}

void ControlQueue::post_first(Task task) {
  {
    std::lock_guard lock(mutex_);
    first_.push_back(std::move(task));
    waiting_.store(true, std::memory_order_release);
  }
  alarm_.ring();
}

void ControlQueue::post_here(Task task) {
  taken_.push_back(std::move(task));
  waiting_.store(true, std::memory_order_relaxed);
}

// Returns how many there are now. What comes later waits for the next pass, so that tasks which
// post others do not keep this one from its end.
size_t ControlQueue::take() {
  std::lock_guard lock(mutex_);
  waiting_.store(false, std::memory_order_relaxed);
  std::ranges::move(tasks_, std::back_inserter(taken_));
  tasks_.clear();
  for (; !first_.empty(); first_.pop_back())
    taken_.push_front(std::move(first_.back()));
  return taken_.size();
}

// The others wait for the next pass.
uint32_t ControlQueue::run_first() {
  std::deque<Task> quick;
  {
    std::lock_guard lock(mutex_);
    quick.swap(first_);
  }
  for (const Task& task : quick)
    task();
  return static_cast<uint32_t>(quick.size());
}

uint32_t ControlQueue::run() {
  if (!budget_.may_begin(base::SlowWork::kTasks))
    return run_first();
  const size_t most = take();
  uint32_t ran = 0;
  while (ran < most && (ran == 0 || budget_.may_go_on())) {
    const Task task = std::move(taken_.front());
    taken_.pop_front();
    task();
    ++ran;
  }
  if (!taken_.empty())
    waiting_.store(true, std::memory_order_relaxed);
  return ran;
}

}  // namespace rrdk::runtime
