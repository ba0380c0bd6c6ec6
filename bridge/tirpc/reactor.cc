#include "reactor.h"

#include <poll.h>
#include <sched.h>

#include "memory.h"
#include "rrdk/eal.h"

namespace rrdk::tirpc {

namespace {

// A server that polls answers within kSpinNs, over TCP too. From then on until kYieldNs the thread
// yields its CPU to others. A longer wait is worth a sleep and a wake-up.
constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kYieldNs = 50'000;

}  // namespace

Result<std::unique_ptr<Reactor>> Reactor::create() {
  auto memory = process_memory();
  if (!memory)
    return tl::unexpected(memory.error());
  // Without an identity of EAL's the thread works all the same, but slower.
  (void)register_thread();
  auto runtime = Runtime::create(**memory);
  if (!runtime)
    return tl::unexpected(runtime.error());
  return std::make_unique<Reactor>(std::move(*runtime));
}

bool Reactor::is_tired() {
  const uint64_t now = Runtime::now_ns();
  if (idle_since_ns_ == 0)
    idle_since_ns_ = now;
  const uint64_t idle = now - idle_since_ns_;
  if (idle < kSpinNs)
    return false;
  if (idle < kYieldNs) {
    sched_yield();
    return false;
  }
  idle_since_ns_ = 0;
  return runtime_->arm_wake();
}

void Reactor::sleep() {
  pollfd core = {.fd = runtime_->wake_fd(), .events = POLLIN, .revents = 0};
  ::poll(&core, 1, -1);
}

}  // namespace rrdk::tirpc
