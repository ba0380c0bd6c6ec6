#include "base/rcu.h"

#include <sched.h>

#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/lifetime.h"
#include "base/system.h"

namespace rrdk::base {

namespace {

// Null: liburcu's own does it.
std::atomic<call_rcu_data*> rcu_thread = nullptr;

// It inherits the signals that are blocked and the CPUs.
call_rcu_data* make_rcu_thread() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    CPU_SET(cpu, &all);
  pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
  call_rcu_data* made = urcu_bp_create_call_rcu_data(0, -1);
  pthread_setname_np(urcu_bp_get_call_rcu_thread(made), "rrdk-rcu");
  return made;
}

struct EndOfGracePeriod final : Retired {
  explicit EndOfGracePeriod(std::shared_ptr<std::atomic<bool>> flag) : over(std::move(flag)) {}
  ~EndOfGracePeriod() override { over->store(true, std::memory_order_release); }

  const std::shared_ptr<std::atomic<bool>> over;
};

}  // namespace

// By way of a thread of its own: the caller's CPUs are not changed.
Result<void> start_rcu_thread() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (rcu_thread.load(std::memory_order_relaxed) != nullptr)
    return {};
  SignalsBlocked blocked;
  try {
    std::thread([] { rcu_thread.store(make_rcu_thread(), std::memory_order_release); }).join();
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem, std::string("can not start thread rrdk-rcu: ") + error.what());
  }
  return {};
}

// In a child of fork() that thread does not exist.
void retire(std::unique_ptr<Retired> object) noexcept {
  if (object == nullptr)
    return;
  if (forked)
    return keep_for_good(std::move(object));
  tsan_release(&rcu_order);
  rcu_head* const head = object.release();
  call_rcu_data* const before = urcu_bp_get_thread_call_rcu_data();
  urcu_bp_set_thread_call_rcu_data(rcu_thread.load(std::memory_order_acquire));
  urcu_bp_call_rcu(head, [](rcu_head* of) {
    tsan_acquire(&rcu_order);
    delete static_cast<Retired*>(of);
  });
  urcu_bp_set_thread_call_rcu_data(before);
}

GracePeriod::GracePeriod() {
  retire(std::make_unique<EndOfGracePeriod>(over_));
}

}  // namespace rrdk::base
