#include "reactor.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "memory.h"
#include "rrdk/eal.h"

namespace rrdk::tirpc {

namespace {

// A polling server answers within kSpinNs, over TCP too. From then until kYieldNs the thread yields
// its CPU to others. A longer wait is worth a sleep and a wake-up.
constexpr uint64_t kSpinNs = 20'000;
constexpr uint64_t kYieldNs = 50'000;
// A core that no thread has polled for this long is polled by the keeper.
constexpr auto kGrace = std::chrono::milliseconds(1);
// Threads that make calls at the same time seldom need more cores; each costs a few descriptors.
constexpr uint32_t kMostClientCores = 4;

std::atomic<bool> forked = false;

struct Cores {
  std::unique_ptr<Runtime> runtime;
  std::vector<std::unique_ptr<Reactor>> reactors;

  Result<void> start(uint32_t count);
};

Result<void> Cores::start(uint32_t count) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { forked = true; });
  (void)registered;
  if (runtime != nullptr)
    return {};
  auto memory = process_memory();
  if (!memory)
    return tl::unexpected(memory.error());
  auto made = Runtime::create(**memory, {.embedded_cores = count});
  if (!made)
    return tl::unexpected(made.error());
  for (uint32_t core = 0; core < count; ++core) {
    const Result<int> kick = open_eventfd();
    if (!kick) {
      reactors.clear();
      return tl::unexpected(kick.error());
    }
    reactors.push_back(std::make_unique<Reactor>(**made, core, *kick));
  }
  runtime = std::move(*made);
  return {};
}

// Neither is destroyed before the process ends, because threads may be in them until then.
Result<Reactor*> reactor_of(bool servers) {
  static std::mutex& mutex = *new std::mutex;
  static Cores& of_clients = *new Cores;
  static Cores& of_servers = *new Cores;
  static std::atomic<uint32_t> threads = 0;
  static thread_local const uint32_t me = threads.fetch_add(1, std::memory_order_relaxed);
  if (auto allowed = check_process(); !allowed)
    return tl::unexpected(allowed.error());
  // Without an EAL identity the thread works too, but slower.
  std::lock_guard lock(mutex);
  Cores& cores = servers ? of_servers : of_clients;
  const uint32_t most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostClientCores);
  if (auto started = cores.start(servers ? 1 : most); !started)
    return tl::unexpected(started.error());
  (void)register_thread();
  return cores.reactors[me % cores.reactors.size()].get();
}

// Signals sent to the program are for the program's threads, except those that a thread raises by
// its own fault.
sigset_t signals_of_programs() {
  sigset_t signals;
  sigfillset(&signals);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF})
    sigdelset(&signals, fault);
  return signals;
}

// A new thread inherits the CPUs of the one that starts it; this one may run anywhere.
void run_on_any_cpu() {
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  (void)::sched_setaffinity(0, sizeof all, &all);
}

}  // namespace

Result<void> check_process() {
  if (!forked.load(std::memory_order_relaxed)) [[likely]]
    return {};
  return fail(Errc::kInvalidArgument,
              "this process was forked from one that uses librrdk-tirpc, and cannot use it itself: "
              "call exec() after fork(), or fork() before the first CLIENT or SVCXPRT is made");
}

tl::unexpected<Error> system_failure(const char* function) {
  const char* remedy = errno == EMFILE ? " (RLIMIT_NOFILE: raise it, by ulimit -n say)" : "";
  return fail(Errc::kSystem,
              std::string(function) + ": " + std::generic_category().message(errno) + remedy);
}

Result<int> open_eventfd() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0)
    return fd;
  return system_failure("eventfd");
}

void Wait::sleep() noexcept {
  State open = kOpen;
  if (state_.compare_exchange_strong(open, kAsleep, std::memory_order_acq_rel)) {
    while (state_.load(std::memory_order_acquire) == kAsleep)
      state_.wait(kAsleep, std::memory_order_acquire);
  }
  State promoted = kPromoted;
  state_.compare_exchange_strong(promoted, kOpen, std::memory_order_acq_rel);
}

bool Wait::promote() noexcept {
  State seen = state_.load(std::memory_order_acquire);
  while (seen != kOver) {
    if (!state_.compare_exchange_weak(seen, kPromoted, std::memory_order_acq_rel))
      continue;
    if (seen == kAsleep)
      state_.notify_one();
    return true;
  }
  return false;
}

// It may be destroyed as soon as the state has changed: then it was not asleep.
void Wait::finish() noexcept {
  if (state_.exchange(kOver, std::memory_order_acq_rel) == kAsleep)
    state_.notify_one();
}

Result<Reactor*> Reactor::of_clients() {
  return reactor_of(false);
}

Result<Reactor*> Reactor::of_servers() {
  return reactor_of(true);
}

Reactor::~Reactor() {
  ::close(kick_);
}

void Reactor::lead_after_others() {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = tickets_++;
  wanting_.fetch_add(1, std::memory_order_relaxed);
  note_waiters();
  resigned_.wait(lock, [&] { return !is_led() && ticket == served_; });
  ++served_;
  wanting_.fetch_sub(1, std::memory_order_relaxed);
  take_lead();
}

// The state is not 0, so no other thread does.
void Reactor::take_lead() {
  const uint32_t before = state_.fetch_or(kLed);
  terms_.store(terms_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if ((before & kSleeper) != 0) {
    state_.fetch_and(~kSleeper);
    kicked_ = true;
    const uint64_t one = 1;
    [[maybe_unused]] auto written = ::write(kick_, &one, sizeof one);
  }
  note_waiters();
}

void Reactor::note_waiters() {
  if (is_wanted() || !followers_.empty() || (keeper_waits_ && is_needed()))
    state_.fetch_or(kWaiters);
  else
    state_.fetch_and(~kWaiters);
}

void Reactor::resign_to_others() {
  std::lock_guard lock(mutex_);
  state_.fetch_and(~kLed);
  pass_on();
}

// No thread leads: one that waits for that does now, or the keeper some time later.
void Reactor::pass_on() {
  if (is_wanted())
    return resigned_.notify_all();
  while (!followers_.empty()) {
    Wait& next = *followers_.back();
    followers_.pop_back();
    if (next.promote())
      return;
  }
  if (keeper_waits_ && is_needed())
    unattended_.notify_one();
  note_waiters();
}

bool Reactor::follow(Wait& wait) {
  std::unique_lock lock(mutex_);
  state_.fetch_or(kWaiters);
  if (!is_free() || is_wanted()) {
    followers_.push_back(&wait);
    lock.unlock();
    wait.sleep();
    lock.lock();
    std::erase(followers_, &wait);
    state_.fetch_or(kWaiters);
  }
  if (is_free() && !is_wanted()) {
    if (!wait.over()) {
      take_lead();
      return true;
    }
    pass_on();
  }
  note_waiters();
  return false;
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
  return runtime_.arm_wake(core_);
}

bool Reactor::sleep() {
  std::vector<pollfd> nothing_else;
  return sleep(nothing_else);
}

bool Reactor::sleep(std::vector<pollfd>& more, bool is_keeper) {
  {
    std::lock_guard lock(mutex_);
    if (is_wanted() || kicked_)
      return true;
    state_.fetch_or(kSleeper);
    state_.fetch_and(~kLed);
  }
  const size_t others = more.size();
  more.push_back({.fd = runtime_.wake_fd(core_), .events = POLLIN, .revents = 0});
  more.push_back({.fd = kick_, .events = POLLIN, .revents = 0});
  ::poll(more.data(), more.size(), -1);
  more.resize(others);
  std::unique_lock lock(mutex_);
  if (is_keeper && shared_ && (state_.load() & kSleeper) != 0)
    unattended_.wait_for(lock, kGrace);
  if ((state_.load() & kSleeper) != 0) {
    state_.fetch_or(kLed);
    state_.fetch_and(~kSleeper);
    return true;
  }
  kicked_ = false;
  uint64_t kicks = 0;
  [[maybe_unused]] auto taken = ::read(kick_, &kicks, sizeof kicks);
  return false;
}

void Reactor::share_wake_fd() {
  std::lock_guard lock(mutex_);
  shared_ = true;
}

Result<void> Reactor::need() {
  std::lock_guard lock(mutex_);
  if (!keeper_runs_) {
    const sigset_t theirs = signals_of_programs();
    sigset_t before;
    ::pthread_sigmask(SIG_SETMASK, &theirs, &before);
    int error = 0;
    try {
      std::thread([this] { keep(); }).detach();
    } catch (const std::system_error& failure) {
      error = failure.code().value();
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (error != 0)
      return fail(Errc::kSystem,
                  "cannot start a thread: " + std::generic_category().message(error));
    keeper_runs_ = true;
  }
  needs_.fetch_add(1, std::memory_order_relaxed);
  note_waiters();
  return {};
}

void Reactor::keep() {
  ::pthread_setname_np(::pthread_self(), "rrdk-tirpc");
  run_on_any_cpu();
  (void)register_thread();
  std::vector<pollfd> nothing_else;
  std::unique_lock lock(mutex_);
  while (true) {
    keeper_waits_ = true;
    note_waiters();
    unattended_.wait(lock, [&] { return is_free() && is_needed(); });
    keeper_waits_ = false;
    note_waiters();
    const uint64_t terms = terms_.load(std::memory_order_relaxed);
    unattended_.wait_for(lock, kGrace);
    state_.fetch_or(kWaiters);
    if (!is_free() || is_wanted() || terms != terms_.load(std::memory_order_relaxed))
      continue;
    take_lead();
    lock.unlock();
    bool leads = true;
    while (leads && !is_wanted() && is_needed()) {
      if (poll() == 0 && runtime_.arm_wake(core_))
        leads = sleep(nothing_else, true);
    }
    if (leads)
      resign();
    lock.lock();
  }
}

}  // namespace rrdk::tirpc
