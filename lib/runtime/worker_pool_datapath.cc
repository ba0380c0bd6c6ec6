#include <rte_pause.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "runtime/worker_pool.h"

namespace rrdk::runtime {

bool WorkerPool::push(ItemList& items) noexcept {
  uint32_t pushed = 0;
  bool full = false;
  while (!items.empty() && !full) {
    WorkItem* burst[kBurst];
    uint32_t count = 0;
    // An item in the ring belongs to the worker at once, so it is taken off the list before.
    while (!items.empty() && count < kBurst)
      burst[count++] = &items.pop();
    uint32_t taken = ring_->push_burst({burst, count});
    for (uint32_t left = count; left != taken; --left)
      items.push_front(*burst[left - 1]);
    full = taken < count;
    pushed += taken;
  }
  // As in Alarm: publish, then look for sleepers by a read-modify-write.
  if (idle_ == IdlePolicy::kAdaptive && pushed != 0) {
    uint32_t sleepers = sleepers_.fetch_add(0, std::memory_order_acq_rel);
    if (sleepers != 0)
      wake(std::min(pushed, sleepers));
  }
  return !full;
}

void WorkerPool::run(uint32_t workers) noexcept {
  uint64_t last_work = base::Tsc::now_ns();
  while (!stop_.load(std::memory_order_acquire)) {
    if (poll(workers) != 0) {
      last_work = base::Tsc::now_ns();
      continue;
    }
    if (idle_ == IdlePolicy::kBusy)
      rte_pause();
    else if (idle_ == IdlePolicy::kAdaptive && base::Tsc::now_ns() - last_work > adaptive_ns_)
      sleep();
    else
      // datapath-allow: the worker is idle
      sched_yield();
  }
}

// Takes no more than a fair share of the items: the rest is for the other workers.
uint32_t WorkerPool::poll(uint32_t workers) noexcept {
  uint32_t share = std::clamp(ring_->count() / workers, 1u, kBurst);
  WorkItem* items[kBurst];
  uint32_t count = ring_->pop_burst({items, share});
  for (uint32_t i = 0; i < count; ++i)
    items[i]->run(*items[i]);
  return count;
}

void WorkerPool::sleep() noexcept {
  sleepers_.fetch_add(1, std::memory_order_acq_rel);
  if (ring_->empty() && !stop_.load(std::memory_order_acquire)) {
    uint64_t token;
    // datapath-allow: the worker is idle, and sleeps in it
    [[maybe_unused]] ssize_t n = read(wake_fd_, &token, sizeof(token));
  }
  sleepers_.fetch_sub(1, std::memory_order_acq_rel);
}

void WorkerPool::wake(uint64_t count) noexcept {
  // datapath-allow: a worker sleeps; one that is busy costs nothing
  [[maybe_unused]] ssize_t n = write(wake_fd_, &count, sizeof(count));
}

}  // namespace rrdk::runtime
