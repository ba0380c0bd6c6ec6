#include "rrdk/runtime.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/internals.h"
#include "base/lifetime.h"
#include "base/log.h"
#include "base/rcu.h"
#include "fabric/device.h"
#include "mem/memory_impl.h"
#include "rrdk/eal.h"
#include "rrdk/faults.h"
#include "runtime/runtime_impl.h"
#include "runtime/thread.h"

namespace rrdk {

using runtime::AsideThread;
using runtime::OpenDevice;
using runtime::PollCore;
using runtime::WorkerPool;

namespace {

constexpr uint32_t kMostCores = 128;
constexpr uint32_t kLongestFaultDelayUs = 1'000'000;
// Interval between checks of a condition that another thread will make true.
constexpr auto kLookAgain = std::chrono::microseconds(50);

std::vector<uint64_t> count_polls(const Runtime::Impl& runtime) {
  std::vector<uint64_t> polls;
  polls.reserve(runtime.cores.size());
  for (const auto& core : runtime.cores)
    polls.push_back(core->passes());
  return polls;
}

// Called when a wait is so long that it may never end. A wait for a peer (no `what`) is not
// reported as long as all cores are polled.
void complain(const Runtime::Impl& runtime, const char* what, std::span<const uint64_t> before) {
  std::string unpolled;
  std::vector<uint64_t> polls = count_polls(runtime);
  for (size_t i = 0; i < polls.size(); ++i) {
    if (polls[i] == before[i])
      unpolled += (unpolled.empty() ? "; no thread has polled core " : ", ") + std::to_string(i);
  }
  if (what == nullptr && unpolled.empty())
    return;
  base::log_error("%s: %lu s already%s", what != nullptr ? what : "a thread waits for a connection",
                  runtime.patience_ns / 1'000'000'000, unpolled.c_str());
}

}  // namespace

namespace runtime {

MemoryUse::MemoryUse(Memory& memory) : memory_(memory) {
  Internals::of(memory).users.enter();
}

MemoryUse::~MemoryUse() {
  if (Internals::of(memory_).users.leave())
    Memory::Impl::end(&memory_);
}

RuntimeUse::RuntimeUse(Runtime::Impl& runtime) : runtime_(runtime) {
  runtime.users.enter();
}

// Inside a pass, or on the helper thread, the Runtime's threads cannot be joined: it is then never
// destroyed.
RuntimeUse::~RuntimeUse() {
  if (!runtime_.users.leave())
    return;
  std::unique_ptr<Runtime::Impl> last(&runtime_);
  if (runtime_.in_pass() || AsideThread::here())
    base::keep_for_good(std::move(last));
}

}  // namespace runtime

bool Runtime::Impl::pollable(uint32_t core) const {
  return options.poll_cpus.empty() && core < cores.size();
}

Runtime::Impl::~Impl() {
  searches.stop();
  aside.stop();
  for (auto& core : cores)
    core->stop();
  for (std::thread& thread : threads)
    thread.join();
  clear_faults();
}

Result<void> Runtime::Impl::start() {
  bool embedded = options.poll_cpus.empty();
  size_t count = embedded ? options.embedded_cores : options.poll_cpus.size();
  if (count == 0 || count > kMostCores || options.worker_cpus.size() > kMostCores)
    return fail(Errc::kInvalidArgument, "a Runtime has 1 to 128 poll cores and 0 to 128 workers");
  for (const std::vector<int>* cpus : {&options.poll_cpus, &options.worker_cpus}) {
    if (std::ranges::any_of(*cpus, [](int cpu) { return cpu < -1; }))
      return fail(Errc::kInvalidArgument, "poll_cpus and worker_cpus are CPU numbers, or -1");
  }
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

Result<OpenDevice*> Runtime::Impl::device(const fabric::Driver& driver, const std::string& uri,
                                          fabric::Purpose purpose) {
  std::lock_guard opening(opening_mutex);
  if (OpenDevice* open = open_device(driver))
    return open;
  auto device = driver.open(memory, uri, purpose);
  if (!device)
    return tl::unexpected(device.error());
  auto fresh = std::make_unique<OpenDevice>(std::string(driver.scheme), std::move(*device));
  OpenDevice* open = fresh.get();
  {
    std::lock_guard lock(devices_mutex);
    devices.push_back(std::move(fresh));
  }
  for (auto& core : cores)
    core->post([c = core.get(), open] { c->watch(*open); });
  return open;
}

OpenDevice* Runtime::Impl::open_device(const fabric::Driver& driver) {
  std::lock_guard lock(devices_mutex);
  auto found = std::ranges::find(devices, driver.scheme, &OpenDevice::scheme);
  return found != devices.end() ? found->get() : nullptr;
}

// A core's load is its recent completions, plus the average of one connection for each of its
// connections, since connections that are idle now may call later. So while no core is busy, the
// number of connections decides.
PollCore& Runtime::Impl::pick_core() {
  constexpr uint64_t kLeast = 32;  // completions of a connection: those of making one do not count
  std::lock_guard lock(loads_mutex);
  loads.resize(cores.size());
  uint64_t completions = 0, connections = 0;
  for (size_t i = 0; i < cores.size(); ++i) {
    const uint64_t seen = cores[i]->completions();
    loads[i].lately = loads[i].lately / 2 + (seen - std::exchange(loads[i].seen, seen));
    completions += loads[i].lately;
    connections += cores[i]->assigned().load(std::memory_order_relaxed);
  }
  const uint64_t each = std::max(completions / std::max<uint64_t>(connections, 1), kLeast);
  auto load = [&](const std::unique_ptr<PollCore>& core) {
    return loads[core->index()].lately + each * core->assigned().load(std::memory_order_relaxed);
  };
  return **std::ranges::min_element(cores, {}, load);
}

bool Runtime::Impl::wait_until(const std::function<bool()>& done, uint64_t deadline_ns,
                               const char* what) {
  if (done())
    return true;
  if (base::forked)  // no thread is left to make it true
    return false;
  bool polling = embedded_here();
  std::vector<uint64_t> polls = count_polls(*this);
  uint64_t complain_at = base::Tsc::now_ns() + patience_ns;
  while (!done()) {
    if (base::Tsc::now_ns() > deadline_ns)
      return false;
    if (!polling) {
      std::this_thread::sleep_for(kLookAgain);
      polling = embedded_here();  // by now the thread that polled may have ended
    } else if (poll_here() == 0) {
      std::this_thread::yield();
    }
    if (base::Tsc::now_ns() > complain_at) {
      complain_at = UINT64_MAX;
      complain(*this, what, polls);
    }
  }
  return true;
}

bool Runtime::Impl::wait_patiently(const std::function<bool()>& done, const char* what) {
  const std::vector<uint64_t> polls = count_polls(*this);
  if (wait_until(done, base::Tsc::now_ns() + patience_ns))
    return true;
  complain(*this, what, polls);
  return false;
}

// A Server or a connection that is destroyed in one of its own callbacks is freed when that
// callback returns. A thread that waited for the callback may get here before that.
void Runtime::Impl::let_passes_end() {
  if (in_handler())
    return;
  const base::GracePeriod grace;
  wait_patiently([&] { return grace.over() && !workers_run(nullptr); },
                 "~Runtime() waits for callbacks and handlers that run now to return");
}

bool Runtime::Impl::in_handler() noexcept {
  return base::is_reading() || runtime::WorkerPool::here();
}

bool Runtime::Impl::embedded_here() {
  return options.poll_cpus.empty() && !AsideThread::here() &&
         std::ranges::any_of(cores,
                             [](const auto& core) { return core->here() || core->abandoned(); });
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

Result<void> Runtime::Impl::set_faults(const FaultPlan& plan) {
  for (const FaultRate& rate : {plan.send, plan.read, plan.write, plan.receive, plan.rnr, plan.bind,
                                plan.delay, plan.stage, plan.no_buffers, plan.registration}) {
    if (!(rate.rate >= 0 && rate.rate <= 1))
      return fail(Errc::kInvalidArgument, "a FaultRate::rate is from 0 to 1");
  }
  if (plan.delay_us > kLongestFaultDelayUs)
    return fail(Errc::kInvalidArgument, "FaultPlan::delay_us is at most 1000000");
  if (plan.stage_us > kLongestFaultDelayUs)
    return fail(Errc::kInvalidArgument, "FaultPlan::stage_us is at most 1000000");
  if (plan.slow_stage > SlowStage::kReply)
    return fail(Errc::kInvalidArgument, "there is no such FaultPlan::slow_stage");
  faults.set(plan);
  Internals::of(memory).set_faults(plan);
  memory_has_faults = true;
  for (auto& core : cores) {
    core->tap().faults().engage(faults);
    core->call_pool().stages().inject(faults.stage);
  }
  place_taps();
  return {};
}

// A core that the calling thread polls has its tap at once. A core with its own thread is waited
// for, unless the caller is in a pass, since that core may likewise wait for us. What another
// thread submits to a core afterwards passes through the tap in any case, since a pass looks for
// control tasks before it looks for that.
void Runtime::Impl::place_taps() {
  auto left = std::make_shared<std::atomic<size_t>>(0);
  for (auto& core : cores) {
    if (core->here()) {
      core->place_tap();
      continue;
    }
    left->fetch_add(1);
    core->post_first([&core = *core, left] {
      core.place_tap();
      left->fetch_sub(1);
    });
  }
  if (!options.poll_cpus.empty() && !in_any_pass())
    wait_until([&] { return left->load() == 0; }, base::Tsc::now_ns() + patience_ns);
}

void Runtime::Impl::clear_faults() {
  faults.clear();
  if (memory_has_faults.exchange(false))
    Internals::of(memory).clear_faults();
}

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::~Runtime() {
  if (base::forked) {
    base::keep_for_good(std::move(impl_));
    return;
  }
  impl_->let_passes_end();
  if (impl_->users.leave())
    return;
  base::log_error(
      "a Runtime is destroyed before the Servers, Clients, connections or BackwardClients that use "
      "it: it is kept until they are gone; destroy them first");
  [[maybe_unused]] Impl* theirs = impl_.release();  // the last user deletes it
}

Result<std::unique_ptr<Runtime>> Runtime::create(Memory& memory, const RuntimeOptions& options) {
  if (!eal_running())
    return fail(Errc::kInvalidArgument, "EAL is not initialised: call rrdk::ensure_eal() first");
  if (auto started = base::start_rcu_thread(); !started)
    return tl::unexpected(started.error());
  auto impl = std::make_unique<Impl>(memory, options);
  if (auto started = impl->start(); !started)
    return tl::unexpected(started.error());
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(impl)));
  runtime->stamp_every(options.stamp_every);
  return runtime;
}

// A dedicated core belongs to its own thread, and after fork() all cores belong to the parent: its
// peers and this process would write to the same rings.
uint32_t Runtime::poll(uint32_t core) {
  if (base::forked) [[unlikely]] {
    static base::LogOnce once;
    if (once.first())
      base::log_error("Runtime::poll() does nothing: the Runtime %s", base::kOfParent);
    return 0;
  }
  return impl_->pollable(core) ? impl_->cores[core]->poll() : 0;
}

int Runtime::wake_fd(uint32_t core) const {
  return impl_->pollable(core) ? impl_->cores[core]->wake_fd() : -1;
}

bool Runtime::arm_wake(uint32_t core) {
  return !base::forked && impl_->pollable(core) && impl_->cores[core]->arm();
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

Stats Runtime::stats(uint32_t core) const {
  return core < impl_->cores.size() ? impl_->cores[core]->stats() : Stats(CounterOwner::kCore);
}

Result<void> Runtime::set_faults(const FaultPlan& plan) {
  return impl_->set_faults(plan);
}

void Runtime::clear_faults() {
  impl_->clear_faults();
}

FaultCounts Runtime::fault_counts() const {
  FaultCounts counts = impl_->faults.counts();
  counts.no_buffers = Internals::of(impl_->memory).no_buffers.hits();
  counts.registration = Internals::of(impl_->memory).no_registration.hits();
  return counts;
}

void Runtime::stamp_every(uint32_t calls) {
  impl_->stamp_every = calls;
  for (auto& core : impl_->cores)
    core->call_pool().stages().sample(calls);
}

std::vector<StampedCall> Runtime::stamped_calls() const {
  std::vector<StampedCall> calls;
  for (const auto& core : impl_->cores)
    core->call_pool().stages().read(calls);
  return calls;
}

std::vector<StampedCall> Runtime::slow_calls() const {
  std::vector<StampedCall> calls;
  for (const auto& core : impl_->cores)
    core->call_pool().stages().read_slow(calls);
  return calls;
}

Result<void> Runtime::run_aside(Task task, void* argument) {
  if (task == nullptr)
    return fail(Errc::kInvalidArgument, "run_aside() without a task");
  return impl_->run_aside([task, argument] { task(argument); });
}

uint64_t Runtime::now_ns() noexcept {
  return base::Tsc::now_ns();
}

}  // namespace rrdk
