#include "audit.h"

#include <sys/resource.h>

#include "allocation_hook.h"

namespace rrdk::testrpc {
namespace {

constinit std::atomic<uint64_t> own_counter{0};
constinit std::atomic<std::atomic<uint64_t>*> counter{&own_counter};

}  // namespace

uint64_t allocations() noexcept {
  return counter.load()->load(std::memory_order_relaxed);
}

void count_allocations() noexcept {
  apps::set_allocation_hook([]() noexcept {
    counter.load(std::memory_order_relaxed)->fetch_add(1, std::memory_order_relaxed);
  });
}

void count_allocations_in(std::atomic<uint64_t>& place) noexcept {
  counter = &place;
  count_allocations();
}

uint64_t preemptions() noexcept {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<uint64_t>(usage.ru_nivcsw);
}

}  // namespace rrdk::testrpc
