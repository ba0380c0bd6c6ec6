#include "rrdk/runtime.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "fabric/driver.h"
#include "rrdk/eal.h"
#include "runtime/runtime_impl.h"
#include "runtime/thread.h"

namespace rrdk {

using runtime::OpenDevice;
using runtime::PollCore;

namespace {

constexpr uint32_t kMostCores = 128;
// Between looks at a condition that another thread will make true.
constexpr auto kLookAgain = std::chrono::microseconds(50);

}  // namespace

Runtime::Impl::~Impl() {
  for (auto& core : cores)
    core->stop();
  for (std::thread& thread : threads)
    thread.join();
}

Result<void> Runtime::Impl::start() {
  bool embedded = options.poll_cpus.empty();
  size_t count = embedded ? options.embedded_cores : options.poll_cpus.size();
  if (count == 0 || count > kMostCores || options.worker_cpus.size() > kMostCores)
    return fail(Errc::kInvalidArgument, "a Runtime has 1 to 128 poll cores and 0 to 128 workers");
  if (!options.worker_cpus.empty()) {
    auto pool = runtime::WorkerPool::start(options);
    if (!pool)
      return tl::unexpected(pool.error());
    workers = std::move(*pool);
  }
  for (uint32_t i = 0; i < count; ++i) {
    auto core = PollCore::create(i, memory, options, workers.get());
    if (!core)
      return tl::unexpected(core.error());
    cores.push_back(std::move(*core));
    if (embedded)
      continue;
    auto thread = runtime::start_thread("rrdk-poll-" + std::to_string(i), options.poll_cpus[i],
                                        [c = cores.back().get()] { c->run(); });
    if (!thread)
      return tl::unexpected(thread.error());
    threads.push_back(std::move(*thread));
  }
  return {};
}

Result<OpenDevice*> Runtime::Impl::device(const std::string& uri) {
  auto driver = fabric::find_driver(uri);
  if (!driver)
    return tl::unexpected(driver.error());
  std::lock_guard lock(devices_mutex);
  for (auto& open : devices) {
    if (open->scheme() == (*driver)->scheme)
      return open.get();
  }
  auto device = (*driver)->open(memory, uri);
  if (!device)
    return tl::unexpected(device.error());
  devices.push_back(
      std::make_unique<OpenDevice>(std::string((*driver)->scheme), std::move(*device)));
  OpenDevice* open = devices.back().get();
  for (auto& core : cores)
    core->post([c = core.get(), open] { c->watch(*open); });
  return open;
}

PollCore& Runtime::Impl::pick_core() {
  return **std::ranges::min_element(cores, {}, [](const std::unique_ptr<PollCore>& core) {
    return core->assigned().load(std::memory_order_relaxed);
  });
}

bool Runtime::Impl::wait_until(const std::function<bool()>& done, uint64_t deadline_ns,
                               runtime::StallWatch* watch) {
  while (!done()) {
    if (base::Tsc::now_ns() > deadline_ns)
      return false;
    if (watch != nullptr)
      watch->look();
    if (!embedded_here())
      std::this_thread::sleep_for(kLookAgain);
    else if (poll_here() == 0)
      std::this_thread::yield();
  }
  return true;
}

bool Runtime::Impl::embedded_here() {
  return options.poll_cpus.empty() && std::ranges::any_of(cores, [](const auto& core) {
           return core->here() || core->abandoned();
         });
}

bool Runtime::Impl::in_pass() const noexcept {
  return std::ranges::any_of(cores, [](const auto& core) { return core->passing(); });
}

uint32_t Runtime::Impl::poll_here() {
  uint32_t work = 0;
  for (auto& core : cores) {
    if (core->here() || core->abandoned())
      work += core->poll();
  }
  return work;
}

void Runtime::Impl::run_on(PollCore& core, const std::function<void()>& task,
                           runtime::StallWatch* watch) {
  std::atomic<bool> done = false;
  core.post([&] {
    task();
    done.store(true, std::memory_order_release);
  });
  wait_until([&] { return done.load(std::memory_order_acquire); }, UINT64_MAX, watch);
}

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::~Runtime() = default;

Result<std::unique_ptr<Runtime>> Runtime::create(Memory& memory, const RuntimeOptions& options) {
  if (!eal_running())
    return fail(Errc::kInvalidArgument, "EAL is not initialised: call rrdk::ensure_eal() first");
  auto impl = std::make_unique<Impl>(memory, options);
  if (auto started = impl->start(); !started)
    return tl::unexpected(started.error());
  return std::unique_ptr<Runtime>(new Runtime(std::move(impl)));
}

uint32_t Runtime::poll(uint32_t core) {
  return impl_->cores[core]->poll();
}

int Runtime::wake_fd(uint32_t core) const {
  return impl_->cores[core]->wake_fd();
}

bool Runtime::arm_wake(uint32_t core) {
  return impl_->cores[core]->arm();
}

bool Runtime::embedded() const noexcept {
  return impl_->options.poll_cpus.empty();
}

uint32_t Runtime::num_cores() const noexcept {
  return static_cast<uint32_t>(impl_->cores.size());
}

uint32_t Runtime::num_workers() const noexcept {
  return impl_->workers ? impl_->workers->size() : 0;
}

Memory& Runtime::memory() noexcept {
  return impl_->memory;
}

CoreStats Runtime::stats(uint32_t core) const {
  return impl_->cores[core]->stats();
}

uint64_t Runtime::now_ns() noexcept {
  return base::Tsc::now_ns();
}

}  // namespace rrdk
