#include "runtime/worker_pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <string>

#include "base/system.h"
#include "runtime/thread.h"

namespace rrdk::runtime {

WorkerPool::WorkerPool(const RuntimeOptions& options, std::unique_ptr<Ring> ring, int wake_fd)
    : idle_(options.idle),
      adaptive_ns_(uint64_t{options.adaptive_us} * 1000),
      ring_(std::move(ring)),
      wake_fd_(wake_fd),
      slots_(std::make_unique<Slot[]>(options.worker_cpus.size())) {}

Result<std::unique_ptr<WorkerPool>> WorkerPool::start(const RuntimeOptions& options) {
  auto ring = Ring::create(options.ring_size, Consumers::kMany);
  if (!ring)
    return tl::unexpected(ring.error());
  int fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  if (fd < 0)
    return base::system_failure("eventfd");
  auto pool = std::unique_ptr<WorkerPool>(new WorkerPool(options, std::move(*ring), fd));
  auto workers = static_cast<uint32_t>(options.worker_cpus.size());
  for (uint32_t i = 0; i < workers; ++i) {
    auto thread = start_thread("rrdk-work-" + std::to_string(i), options.worker_cpus[i],
                               [p = pool.get(), workers, i] {
                                 running_here = &p->slots_[i].service;
                                 p->run(workers);
                               });
    if (!thread)
      return tl::unexpected(thread.error());
    pool->threads_.push_back(std::move(*thread));
  }
  return pool;
}

bool WorkerPool::runs(const void* service) const noexcept {
  return std::ranges::any_of(std::span(slots_.get(), size()), [service](const Slot& slot) {
    const void* runs = slot.service.load(std::memory_order_seq_cst);
    return service != nullptr ? runs == service : runs != nullptr;
  });
}

WorkerPool::~WorkerPool() {
  stop_.store(true, std::memory_order_release);
  wake(threads_.size());
  for (std::thread& thread : threads_)
    thread.join();
  close(wake_fd_);
}

}  // namespace rrdk::runtime
