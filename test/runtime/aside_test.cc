// The Runtime's helper thread, as programs use it: what runs there, and what is left at the end.
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/internals.h"
#include "runtime_env.h"

namespace rrdk {
namespace {

struct Seen {
  std::atomic<int> runs = 0;
  std::string thread;
  bool takes_signals = true;
};

void look(void* argument) {
  auto& seen = *static_cast<Seen*>(argument);
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  seen.thread = name;
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  seen.takes_signals = sigismember(&blocked, SIGTERM) == 0 || sigismember(&blocked, SIGALRM) == 0;
  seen.runs.fetch_add(1);
}

TEST(Aside, RunsOnAThreadThatTakesNoSignals) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  Seen seen;
  ASSERT_TRUE(runtime->run_aside(look, &seen));
  while (seen.runs == 0)
    std::this_thread::yield();
  EXPECT_EQ(seen.thread, "rrdk-aside");
  EXPECT_FALSE(seen.takes_signals);
}

// What waits behind it is dropped first.
TEST(Aside, ItsEndWaitsForTheTaskThatRunsAndForNoOther) {
  std::atomic<bool> let_go = false, ended = false;
  std::atomic<int> others = 0;
  {
    runtime::Aside aside;
    std::atomic<bool> begun = false;
    ASSERT_TRUE(aside.run([&] {
      begun = true;
      while (!let_go)
        std::this_thread::yield();
      ended = true;
    }));
    std::shared_ptr<void> dropped(nullptr, [&](void*) { let_go = true; });
    ASSERT_TRUE(aside.run([&others, dropped] { ++others; }));
    dropped.reset();
    while (!begun)
      std::this_thread::yield();
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(others, 0);
}

TEST(Aside, RunsTasksInOrder) {
  runtime::Aside aside;
  std::vector<int> order;
  std::atomic<bool> done = false;
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(aside.run([&, i] { order.push_back(i); }));
  ASSERT_TRUE(aside.run([&] { done = true; }));
  while (!done)
    std::this_thread::yield();
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(order.at(static_cast<size_t>(i)), i);
}

// Whoever waits there does not poll what nobody polls yet.
TEST(Aside, IsNoThreadThatPolls) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  struct Asked {
    Runtime* runtime;
    bool polls = true;
    std::atomic<bool> done = false;
  } asked{runtime.get()};
  ASSERT_TRUE(runtime->run_aside(
      [](void* argument) {
        auto& mine = *static_cast<Asked*>(argument);
        mine.polls = Internals::of(*mine.runtime).embedded_here();
        mine.done = true;
      },
      &asked));
  while (!asked.done)
    std::this_thread::yield();
  EXPECT_FALSE(asked.polls);
  EXPECT_TRUE(Internals::of(*runtime).embedded_here());
}

}  // namespace
}  // namespace rrdk
