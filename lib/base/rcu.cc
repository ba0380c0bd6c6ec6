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

// Retired objects that have not been handled yet, newest first. Never destroyed: the thread
// outlives all static objects.
constinit std::atomic<Retired*> retired_list = nullptr;

struct EndOfGracePeriod final : Retired {
  explicit EndOfGracePeriod(std::shared_ptr<std::atomic<bool>> flag) : over(std::move(flag)) {}
  ~EndOfGracePeriod() override { over->store(true, std::memory_order_release); }

  const std::shared_ptr<std::atomic<bool>> over;
};

}  // namespace

// liburcu's own worker, that of call_rcu(), sleeps for ten milliseconds before each grace period,
// and remove_service() would take that long. It also aborts the process if it cannot be started.
class RetiredObjects {
 public:
  static void push(Retired* object) noexcept {
    object->next_ = retired_list.load(std::memory_order_relaxed);
    while (!retired_list.compare_exchange_weak(object->next_, object, std::memory_order_release,
                                               std::memory_order_relaxed))
      continue;
    retired_list.notify_one();
  }

  [[noreturn]] static void destroy_as_they_come() {
    pthread_setname_np(pthread_self(), "rrdk-rcu");
    run_on_all_cpus();
    for (;;) {
      retired_list.wait(nullptr, std::memory_order_relaxed);
      Retired* list = retired_list.exchange(nullptr, std::memory_order_acquire);
      urcu_bp_synchronize_rcu();
      tsan_acquire(&rcu_order);
      while (list != nullptr)
        delete std::exchange(list, list->next_);
    }
  }

 private:
  // The thread that starts it may be pinned to the CPU of a core.
  static void run_on_all_cpus() {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      CPU_SET(cpu, &all);
    pthread_setaffinity_np(pthread_self(), sizeof(all), &all);
  }
};

Result<void> start_rcu_thread() {
  static std::mutex mutex;
  static bool started = false;
  std::lock_guard lock(mutex);
  if (started)
    return {};
  SignalsBlocked blocked;
  try {
    std::thread(RetiredObjects::destroy_as_they_come).detach();
  } catch (const std::system_error& error) {
    return fail(Errc::kSystem, std::string("cannot start thread rrdk-rcu: ") + error.what());
  }
  started = true;
  return {};
}

// In a child of fork() that thread does not exist.
void retire(std::unique_ptr<Retired> object) noexcept {
  if (object == nullptr)
    return;
  if (forked)
    return keep_for_good(std::move(object));
  tsan_release(&rcu_order);
  RetiredObjects::push(object.release());
}

GracePeriod::GracePeriod() {
  retire(std::make_unique<EndOfGracePeriod>(over_));
}

}  // namespace rrdk::base
