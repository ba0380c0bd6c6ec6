// Cores and workers as their users see them: every item runs, on the right thread, with every idle
// policy, and a sleeping core wakes.
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/internals.h"
#include "rrdk/log.h"
#include "runtime_env.h"
#include "seed.h"

namespace rrdk::runtime {
namespace {

// Runs `task` on the core and waits for its end.
void run_on(Runtime& runtime, PollCore& core, const std::function<void()>& task) {
  std::atomic<bool> done = false;
  core.post([&] {
    task();
    done.store(true, std::memory_order_release);
  });
  Internals::of(runtime).wait_until([&] { return done.load(std::memory_order_acquire); },
                                    UINT64_MAX, "a thread waits for a core to run a task");
}

class CoresByPolicy : public testing::TestWithParam<IdlePolicy> {
 protected:
  // A busy core gives its CPU to a producer on the same CPU only when the scheduler decides so, and
  // has no wake-ups to lose.
  static int rounds() { return GetParam() == IdlePolicy::kBusy ? 100 : 5000; }
};

std::string policy_name(const testing::TestParamInfo<IdlePolicy>& policy) {
  switch (policy.param) {
    case IdlePolicy::kBusy:
      return "Busy";
    case IdlePolicy::kYield:
      return "Yield";
    case IdlePolicy::kAdaptive:
      return "Adaptive";
  }
  return "None";
}

INSTANTIATE_TEST_SUITE_P(Idle, CoresByPolicy,
                         testing::Values(IdlePolicy::kBusy, IdlePolicy::kYield,
                                         IdlePolicy::kAdaptive),
                         policy_name);

// Ping-pong with a core that may fall asleep at once.
TEST_P(CoresByPolicy, EveryItemWakesTheCore) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}, .idle = GetParam(), .adaptive_us = 0});
  PollCore& core = *Internals::of(*runtime).cores[0];
  std::atomic<int> count = 0;
  Counted item;
  item.run = count_it;
  item.count = &count;
  for (int round = 0; round < rounds(); ++round) {
    core.submit(item);
    count.wait(round, std::memory_order_acquire);
    ASSERT_EQ(count.load(), round + 1);
  }
  if (GetParam() != IdlePolicy::kAdaptive) {
    EXPECT_EQ(runtime->stats(0)[Counter::kSleeps], 0u);
    return;
  }
  while (runtime->stats(0)[Counter::kSleeps] == 0)
    std::this_thread::yield();
}

TEST_P(CoresByPolicy, ControlTasksRunInOrder) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}, .idle = GetParam(), .adaptive_us = 0});
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i)
    Internals::of(*runtime).cores[0]->post([&seen, i] { seen.push_back(i); });
  run_on(*runtime, *Internals::of(*runtime).cores[0], [] {});
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i)
    EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

// A task that comes while others run is for the next pass.
TEST(Cores, ATaskThatIsPostedByATaskIsNotForgotten) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  PollCore& core = *Internals::of(*runtime).cores[0];
  bool second = false;
  core.post([&] { core.post([&] { second = true; }); });
  runtime->poll();
  EXPECT_FALSE(second);
  runtime->poll();
  EXPECT_TRUE(second);
}

// From two threads at once, to a core that sleeps in between.
TEST_P(CoresByPolicy, TwoProducersLoseNoWakeUp) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}, .idle = GetParam(), .adaptive_us = 0});
  PollCore& core = *Internals::of(*runtime).cores[0];
  auto produce = [&core] {
    std::atomic<int> count = 0;
    Counted item;
    item.run = count_it;
    item.count = &count;
    for (int round = 0; round < rounds(); ++round) {
      core.submit(item);
      count.wait(round, std::memory_order_acquire);
    }
  };
  std::thread first(produce), second(produce);
  first.join();
  second.join();
}

// To the workers and back, through rings that are far too small.
TEST_P(CoresByPolicy, WorkersDoEverythingThoughTheRingIsFull) {
  constexpr int kItems = 2000;
  struct Job : WorkItem {
    PollCore* core = nullptr;
    std::atomic<int>* done = nullptr;
    std::thread::id worked_on, returned_on;
  };
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1},
                                      .worker_cpus = {-1, -1},
                                      .idle = GetParam(),
                                      .adaptive_us = 0,
                                      .ring_size = 8});
  ASSERT_EQ(runtime->num_workers(), 2u);
  PollCore& core = *Internals::of(*runtime).cores[0];
  std::atomic<int> done = 0;
  std::vector<Job> jobs(kItems);
  WorkerClient client;
  WorkerQueue queue(client);
  for (int round = 0; round < 3; ++round) {
    done = 0;
    core.post([&] {
      for (Job& job : jobs) {
        job.core = &core;
        job.done = &done;
        job.run = [](WorkItem& item) {
          auto& j = static_cast<Job&>(item);
          j.worked_on = std::this_thread::get_id();
          j.run = [](WorkItem& back) {
            auto& returned = static_cast<Job&>(back);
            returned.returned_on = std::this_thread::get_id();
            returned.done->fetch_add(1, std::memory_order_release);
            returned.done->notify_all();
          };
          j.core->submit(j);
        };
        core.to_worker(queue, job);
      }
    });
    for (int seen = 0; seen < kItems; seen = done.load(std::memory_order_acquire))
      done.wait(seen, std::memory_order_acquire);
    for (const Job& job : jobs) {
      ASSERT_NE(job.worked_on, job.returned_on);
      ASSERT_EQ(job.returned_on, jobs[0].returned_on);
    }
  }
}

TEST_P(CoresByPolicy, ATimerEndsTheSleep) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}, .idle = GetParam(), .adaptive_us = 0});
  PollCore& core = *Internals::of(*runtime).cores[0];
  struct Promised : Timer {
    std::promise<uint64_t> fired;
  } timer;
  timer.fire = [](Timer& t) { static_cast<Promised&>(t).fired.set_value(Runtime::now_ns()); };
  uint64_t due = 0;
  run_on(*runtime, core, [&] {
    due = core.now() + 5'000'000;
    core.timers().start(timer, due);
  });
  EXPECT_GE(timer.fired.get_future().get(), due);
}

TEST(Cores, EmbeddedCoresRunWhenPolledOnly) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.embedded_cores = 2});
  EXPECT_TRUE(runtime->embedded());
  ASSERT_EQ(runtime->num_cores(), 2u);
  int ran = 0;
  Internals::of(*runtime).cores[1]->post([&] { ++ran; });
  runtime->poll(0);
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(runtime->poll(1), 1u);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(runtime->poll(1), 0u);
  EXPECT_EQ(runtime->stats(1)[Counter::kPasses], 2u);
  EXPECT_EQ(runtime->stats(1)[Counter::kBusyPasses], 1u);
}

// A wake-up lasts for one pass: a core that stayed awake for ever would cost a CPU.
TEST(Cores, AWakeUpEndsWithTheNextPass) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  pollfd fd = {runtime->wake_fd(), POLLIN, 0};
  for (int round = 0; round < 3; ++round) {
    while (runtime->poll() != 0) {
    }
    ASSERT_TRUE(runtime->arm_wake());
    ASSERT_EQ(poll(&fd, 1, 0), 0) << "round " << round;
    Internals::of(*runtime).cores[0]->post([] {});
    ASSERT_EQ(poll(&fd, 1, 0), 1);
  }
}

// An event-driven reactor: sleeps on wake_fd, many rounds, with a producer in another thread.
TEST(Cores, WakeFdWakesAnEmbeddingReactor) {
  constexpr int kRounds = 3000;
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  PollCore& core = *Internals::of(*runtime).cores[0];
  std::atomic<int> count = 0;
  std::thread producer([&] {
    Counted item;
    item.run = count_it;
    item.count = &count;
    for (int round = 0; round < kRounds; ++round) {
      core.submit(item);
      count.wait(round, std::memory_order_acquire);
    }
  });
  while (count.load(std::memory_order_relaxed) < kRounds) {
    if (runtime->poll() != 0 || !runtime->arm_wake())
      continue;
    pollfd fd = {runtime->wake_fd(), POLLIN, 0};
    ASSERT_EQ(poll(&fd, 1, 20000), 1) << "a wake-up was lost";
  }
  producer.join();
}

TEST(Cores, ArmSaysSoWhenThereIsWork) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  while (runtime->poll() != 0) {
  }
  EXPECT_TRUE(runtime->arm_wake());
  EXPECT_EQ(runtime->stats(0)[Counter::kSleeps], 1u);
  pollfd fd = {runtime->wake_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 0);
  Internals::of(*runtime).cores[0]->post([] {});
  EXPECT_EQ(poll(&fd, 1, 0), 1);
  runtime->poll();
  Internals::of(*runtime).cores[0]->post([] {});
  EXPECT_FALSE(runtime->arm_wake());
  EXPECT_EQ(runtime->stats(0)[Counter::kSleeps], 1u);
}

// A core whose polling thread has ended is polled by a blocking function in another thread.
TEST(Cores, AnAbandonedCoreIsPolledByTheWaitingThread) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  std::thread([&] { runtime->poll(); }).join();
  bool ran = false;
  run_on(*runtime, *Internals::of(*runtime).cores[0], [&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(Cores, RefuseInvalidOptions) {
  auto memory = small_memory();
  for (const RuntimeOptions& options :
       {RuntimeOptions{.poll_cpus = {99999}}, RuntimeOptions{.poll_cpus = {1000}},
        RuntimeOptions{.poll_cpus = {-1}, .worker_cpus = {1000}}, RuntimeOptions{.poll_cpus = {-2}},
        RuntimeOptions{.worker_cpus = {-1, -2}}, RuntimeOptions{.embedded_cores = 0},
        RuntimeOptions{.ring_size = 1000}}) {
    auto runtime = Runtime::create(*memory, options);
    ASSERT_FALSE(runtime);
    EXPECT_EQ(runtime.error().code, Errc::kInvalidArgument) << runtime.error().message;
  }
}

TEST(Cores, MissingCoresDoNothing) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.embedded_cores = 2});
  for (uint32_t core : {2u, 3u, UINT32_MAX}) {
    EXPECT_EQ(runtime->poll(core), 0u);
    EXPECT_EQ(runtime->wake_fd(core), -1);
    EXPECT_FALSE(runtime->arm_wake(core));
    EXPECT_EQ(runtime->stats(core)[Counter::kPasses], 0u);
  }
}

// Afterwards its thread must still own the core.
TEST(Cores, ADedicatedCoreIsNotForTheApplicationToPoll) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}});
  PollCore& core = *Internals::of(*runtime).cores[0];
  bool own = false;
  for (int round = 0; round < 100; ++round) {
    EXPECT_EQ(runtime->poll(0), 0u);
    EXPECT_EQ(runtime->wake_fd(0), -1);
    EXPECT_FALSE(runtime->arm_wake(0));
    EXPECT_FALSE(core.here());
    run_on(*runtime, core, [&] { own = core.here(); });
    EXPECT_TRUE(own);
  }
}

// Collects the log's errors while it lives.
class Errors {
 public:
  Errors() {
    set_log_sink(
        [](LogLevel level, const char* line, void* self) {
          auto& errors = *static_cast<Errors*>(self);
          if (level != LogLevel::kError)
            return;
          std::lock_guard lock(errors.mutex_);
          errors.lines_.emplace_back(line);
        },
        this);
  }
  ~Errors() { set_log_sink(nullptr); }
  std::vector<std::string> lines() {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

// A thread that has polled once lives on and polls no more: another thread that needs the core
// waits, and a log line says so. When the polling thread has ended, the waiting thread polls.
TEST(Cores, AWaitForAnUnpolledCoreIsLogged) {
  Errors errors;
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  Internals::of(*runtime).patience_ns = 1'000'000;
  std::promise<void> polled;
  std::promise<void> end;
  std::thread poller([&] {
    runtime->poll();
    polled.set_value();
    end.get_future().wait();
  });
  polled.get_future().wait();
  std::thread watcher([&] {
    while (errors.lines().empty())
      std::this_thread::yield();
    end.set_value();
    poller.join();
  });
  bool ran = false;
  run_on(*runtime, *Internals::of(*runtime).cores[0], [&] { ran = true; });
  watcher.join();
  EXPECT_TRUE(ran);
  ASSERT_EQ(errors.lines().size(), 1u);
  EXPECT_NE(errors.lines()[0].find("run a task"), std::string::npos) << errors.lines()[0];
  EXPECT_NE(errors.lines()[0].find("no thread has polled core 0"), std::string::npos)
      << errors.lines()[0];
}

// A wait for a peer may take long, as long as the cores are polled.
TEST(Cores, ALongWaitForAPeerIsNoError) {
  Errors errors;
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  Internals::of(*runtime).patience_ns = 1'000'000;
  uint64_t deadline = Runtime::now_ns() + 10'000'000;
  EXPECT_FALSE(Internals::of(*runtime).wait_until([] { return false; }, deadline));
  EXPECT_TRUE(errors.lines().empty());
}

// The name and the blocked signals of each thread of this process, by its number.
std::map<std::string, std::pair<std::string, uint64_t>> threads() {
  std::map<std::string, std::pair<std::string, uint64_t>> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(entry.path() / "status");
    auto& [name, blocked] = found[entry.path().filename()];
    for (std::string word; file >> word;) {
      if (word == "Name:")
        file >> name;
      else if (word == "SigBlk:")
        file >> std::hex >> blocked;
    }
  }
  return found;
}

TEST(Threads, TakeNoSignalsOfTheApplication) {
  uint64_t wanted = 0;
  for (int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGRTMIN, SIGIO})
    wanted |= uint64_t{1} << (signal - 1);
  const auto ours_blocked = [] {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    std::vector<int> blocked;
    for (int signal = 1; signal <= SIGRTMAX; ++signal) {
      if (sigismember(&now, signal) == 1)
        blocked.push_back(signal);
    }
    return blocked;
  };
  const std::vector<int> before = ours_blocked();
  auto memory = small_memory();
  const auto old = threads();  // EAL's among them
  auto runtime = runtime_of(*memory, {.poll_cpus = {-1}, .worker_cpus = {-1}});
  int ours = 0;
  for (const auto& [number, thread] : threads()) {
    const auto& [name, blocked] = thread;
    if (number == std::to_string(getpid()) || (old.contains(number) && !name.starts_with("eal-")))
      continue;
    ours += name.starts_with("rrdk-");
    EXPECT_EQ(blocked & wanted, wanted) << name;
    EXPECT_EQ(blocked & (uint64_t{1} << (SIGSEGV - 1)), 0u) << name;
  }
  EXPECT_EQ(ours, 2);
  EXPECT_EQ(ours_blocked(), before);
}

}  // namespace
}  // namespace rrdk::runtime
