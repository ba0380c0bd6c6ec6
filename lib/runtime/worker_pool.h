// Worker cores: they run handlers that may take long. All workers share one ring, so that a slow
// call delays no other.
//
// If the ring is full, the poll core keeps the item in a list of its own and tries again on its
// next pass. This cannot deadlock: a worker never waits for a poll core (Inbox::push always
// succeeds), so the ring always drains, and a poll core that keeps items goes on polling meanwhile.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "rrdk/runtime.h"
#include "runtime/inbox.h"

namespace rrdk::runtime {

class WorkerPool {
 public:
  // Starts the threads. Errors: as Runtime::create.
  static Result<std::unique_ptr<WorkerPool>> start(const RuntimeOptions& options);
  // Stops them. No item is queued any more, since the servers are gone by now.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  uint32_t size() const noexcept { return static_cast<uint32_t>(threads_.size()); }
  // For poll cores: how many more items keep the workers busy for a while. Others may push
  // meanwhile.
  uint32_t room() const noexcept {
    uint32_t most = size() * kBurst;
    uint32_t queued = ring_->count();
    return queued < most ? most - queued : 0;
  }
  // Whether the calling thread is a worker, of any pool.
  static bool here() noexcept { return running_here != nullptr; }
  // Whether a worker is in a handler of `service`, or of any service if it is null. If the service
  // was marked as removed before, by a sequentially consistent store, no worker enters a handler
  // afterwards.
  bool runs(const void* service) const noexcept;
  // Exists while a worker is in a handler of `service`, or is about to check whether that is
  // removed.
  class Running {
   public:
    explicit Running(const void* service) noexcept {
      RRDK_ASSERT(here() && running_here->load(std::memory_order_relaxed) == nullptr);
      running_here->store(service, std::memory_order_seq_cst);
    }
    ~Running() { running_here->store(nullptr, std::memory_order_release); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
  };
  // Moves items from the front of `items` to the ring, in bursts. Returns false if some are left.
  bool push(ItemList& items) noexcept;

 private:
  static constexpr uint32_t kBurst = 16;

  // The service whose handler one worker is in; null: none.
  struct alignas(64) Slot {
    std::atomic<const void*> service = nullptr;
  };

  WorkerPool(const RuntimeOptions& options, std::unique_ptr<Ring> ring, int wake_fd);

  void run(uint32_t workers) noexcept;
  uint32_t poll(uint32_t workers) noexcept;
  void sleep() noexcept;
  void wake(uint64_t count) noexcept;

  const IdlePolicy idle_;
  const uint64_t adaptive_ns_;
  std::unique_ptr<Ring> ring_;
  const int wake_fd_;  // eventfd as a semaphore: a token wakes one worker
  std::atomic<bool> stop_ = false;
  alignas(64) std::atomic<uint32_t> sleepers_ = 0;
  static inline thread_local constinit std::atomic<const void*>* running_here = nullptr;
  const std::unique_ptr<Slot[]> slots_;  // by worker
  std::vector<std::thread> threads_;
};

}  // namespace rrdk::runtime
