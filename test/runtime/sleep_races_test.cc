// Races of cores and workers that go to sleep, at every moment of their passes.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>
#include <vector>

#include "base/internals.h"
#include "rrdk/log.h"
#include "runtime_env.h"
#include "seed.h"

namespace rrdk::runtime {
namespace {

// The races of a core that goes to sleep: work that arrives between its last look and its sleep,
// for the core itself and for a worker. The threads have a CPU each, and the producer hits every
// moment of the pass.
class Jitter {
 public:
  explicit Jitter(uint64_t seed) : state_(seed | 1) {}
  void operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    for (uint64_t spins = state_ >> 53; spins != 0; --spins)
      std::atomic_signal_fence(std::memory_order_seq_cst);  // not to be optimised away
  }

 private:
  uint64_t state_;
};

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set),
                         &set);  // on any CPU if there is no such one
}

TEST(Cores, NoMomentOfFallingAsleepLosesAnItem) {
  constexpr int kRounds = 50000;
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  PollCore& core = *Internals::of(*runtime).cores[0];
  core.set_longest_sleep_ns(3'600'000'000'000);
  std::atomic<int> count = 0;
  std::thread producer([&, seed = test::run_seed()] {
    stay_on(1);
    Jitter jitter(seed);
    Counted item;
    item.run = [](WorkItem& i) {
      static_cast<Counted&>(i).count->fetch_add(1, std::memory_order_release);
    };
    item.count = &count;
    for (int round = 0; round < kRounds; ++round) {
      jitter();
      core.submit(item);
      while (count.load(std::memory_order_acquire) == round)
        std::this_thread::yield();
    }
  });
  std::thread reactor([&] {
    stay_on(0);
    while (count.load(std::memory_order_relaxed) < kRounds) {
      if (runtime->poll() != 0 || !runtime->arm_wake())
        continue;
      pollfd fd = {runtime->wake_fd(), POLLIN, 0};
      if (poll(&fd, 1, 20000) != 1) {
        ADD_FAILURE() << "a wake-up was lost after " << count.load() << " items";
        while (count.load() < kRounds)
          runtime->poll();
      }
    }
  });
  producer.join();
  reactor.join();
}

// A worker sleeps without a limit, so it never wakes by chance after a missed item. There is only
// one item, since the next would wake it; another item goes round on the core, which is thus awake
// and pushes the first one at any moment of the worker's falling asleep.
TEST(Cores, NoMomentOfAWorkersSleepLosesAnItem) {
  constexpr int kRounds = 30000;
  auto memory = small_memory();
  auto runtime = runtime_of(
      *memory,
      {.poll_cpus = {0}, .worker_cpus = {1}, .idle = IdlePolicy::kAdaptive, .adaptive_us = 0});
  struct Ball : WorkItem {
    PollCore* core = nullptr;
    WorkerClient client;
    WorkerQueue queue{client};
    std::optional<Jitter> jitter;
    std::atomic<int> rounds = 0;
    std::promise<void> over;

    static void to_worker(WorkItem& item) {
      auto& ball = static_cast<Ball&>(item);
      (*ball.jitter)();
      ball.run = back;
      ball.core->to_worker(ball.queue, ball);
    }
    static void back(WorkItem& item) {
      auto& ball = static_cast<Ball&>(item);
      ball.run = to_worker;
      if (++ball.rounds < kRounds)
        ball.core->submit(ball);
      else
        ball.over.set_value();
    }
  };
  struct Unrest : WorkItem {
    PollCore* core = nullptr;
    std::atomic<bool> goes_on = true;
    std::promise<void> over;
  };
  PollCore& core = *Internals::of(*runtime).cores[0];
  Unrest unrest;
  unrest.core = &core;
  unrest.run = [](WorkItem& item) {
    auto& self = static_cast<Unrest&>(item);
    if (self.goes_on)
      self.core->submit(self);
    else
      self.over.set_value();
  };
  Ball ball;
  ball.core = &core;
  ball.jitter.emplace(test::run_seed());
  ball.run = Ball::to_worker;
  core.submit(unrest);
  core.submit(ball);
  std::future<void> over = ball.over.get_future();
  int before = -1;
  while (over.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
    if (const int rounds = ball.rounds; std::exchange(before, rounds) != rounds)
      continue;  // on a busy machine it takes longer
    ADD_FAILURE() << "the worker sleeps, and an item waits for it";
    Counted item;  // wakes it
    std::atomic<int> count = 0;
    item.run = count_it;
    item.count = &count;
    WorkerClient client;
    WorkerQueue queue(client);
    core.post([&] { core.to_worker(queue, item); });
    count.wait(0);
  }
  unrest.goes_on = false;
  unrest.over.get_future().wait();
}

WorkItem* item_behind = nullptr;
std::atomic<int> pauses = 0;
void pause_here(int) {
  for (int spins = 0; spins != 3000; ++spins)
    std::atomic_signal_fence(std::memory_order_seq_cst);  // not to be optimised away
  ++pauses;
}

// Items in the ring belong to the worker, and may have changed completely by the time the core
// continues. A timer delays the core at any moment of its push.
TEST(Workers, PushedItemsAreNotReadAgain) {
  constexpr int kPauses = 10000;
  ASSERT_TRUE(ensure_eal());
  auto workers =
      WorkerPool::start({.worker_cpus = {-1}, .idle = IdlePolicy::kYield, .ring_size = 128});
  ASSERT_TRUE(workers) << workers.error().message;
  struct Item : WorkItem {
    std::atomic<bool> ran = false;
  };
  Item stray;
  stray.run = [](WorkItem& item) { static_cast<Item&>(item).ran = true; };
  item_behind = &stray;
  std::array<Item, 64> items;  // there are many, so that this thread is seldom elsewhere
  for (Item& job : items) {
    job.ran = true;
    job.run = [](WorkItem& item) {
      item.next = item_behind;
      static_cast<Item&>(item).ran = true;
    };
  }
  struct sigaction pauses_here{}, before{};
  pauses_here.sa_handler = pause_here;
  ASSERT_EQ(sigaction(SIGUSR1, &pauses_here, &before), 0);
  sigevent here{};
  here.sigev_notify = SIGEV_THREAD_ID;
  here.sigev_signo = SIGUSR1;
  here._sigev_un._tid = gettid();
  timer_t timer;
  ASSERT_EQ(timer_create(CLOCK_MONOTONIC, &here, &timer), 0);
  itimerspec often{};
  often.it_value.tv_nsec = often.it_interval.tv_nsec = 20'000;
  ASSERT_EQ(timer_settime(timer, 0, &often, nullptr), 0);
  ItemList list;
  pauses = 0;
  for (size_t next = 0; pauses < kPauses && !stray.ran; next = (next + 1) % items.size()) {
    while (!items[next].ran)
      sched_yield();
    items[next].ran = false;
    list.push(items[next]);
    while (!(*workers)->push(list))
      sched_yield();
  }
  timer_delete(timer);
  sigaction(SIGUSR1, &before, nullptr);
  for (Item& job : items) {
    while (!job.ran)
      sched_yield();
  }
  EXPECT_FALSE(stray.ran) << "what a worker had was taken for the head of what was left";
}

}  // namespace
}  // namespace rrdk::runtime
