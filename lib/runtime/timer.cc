#include "rrdk/timer.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/internals.h"
#include "base/lifetime.h"
#include "runtime/runtime_impl.h"

namespace rrdk {

struct Timer::Impl : runtime::Timer {
  Impl(Runtime& runtime_in, runtime::PollCore& core_in, Fire fire_in, void* argument_in)
      : runtime(runtime_in), core(core_in), function(fire_in), argument(argument_in) {}

  void restart(uint64_t when_ns, uint64_t request) {
    armed = request;
    core.timers().cancel(*this);
    core.start_timer(*this, when_ns);
  }

  Runtime& runtime;
  runtime::PollCore& core;
  const Fire function;
  void* const argument;
  rrdk::Timer* owner = nullptr;
  // The number of the last start() or stop(). An earlier request of another thread that the core
  // has not handled yet is void.
  std::atomic<uint64_t> latest = 0;
  uint64_t armed = 0;  // the start() that it runs for; used by the core
};

Timer::Timer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {
  impl_->owner = this;
  impl_->fire = [](runtime::Timer& timer) {
    auto& fired = static_cast<Impl&>(timer);
    if (fired.armed == fired.latest)
      fired.function(*fired.owner, fired.argument);
  };
}

// In a forked process there is no core that could stop it.
Timer::~Timer() {
  if (!base::forked)
    stop();
}

Result<std::unique_ptr<Timer>> Timer::create(Runtime& runtime, uint32_t core, Fire fire,
                                             void* argument) {
  if (core >= runtime.num_cores())
    return fail(Errc::kInvalidArgument, "a Timer of core " + std::to_string(core) +
                                            ": the Runtime has " +
                                            std::to_string(runtime.num_cores()) + " cores");
  if (fire == nullptr)
    return fail(Errc::kInvalidArgument, "a Timer without a function to call");
  auto impl = std::make_shared<Impl>(runtime, *Internals::of(runtime).cores[core], fire, argument);
  return std::unique_ptr<Timer>(new Timer(std::move(impl)));
}

void Timer::start(uint64_t due_ns) {
  uint64_t request = ++impl_->latest;
  if (impl_->core.here())
    return impl_->restart(due_ns, request);
  impl_->core.post([impl = impl_, request, due_ns] {
    if (impl->latest == request)
      impl->restart(due_ns, request);
  });
}

void Timer::stop() {
  ++impl_->latest;
  if (impl_->core.here())
    return impl_->core.timers().cancel(*impl_);
  auto stopped = std::make_shared<std::atomic<bool>>(false);
  impl_->core.post([impl = impl_, stopped] {
    impl->core.timers().cancel(*impl);
    stopped->store(true, std::memory_order_release);
  });
  Internals::of(impl_->runtime)
      .wait_patiently([&] { return stopped->load(std::memory_order_acquire); },
                      "Timer::stop() waits for a poll core");
}

}  // namespace rrdk
