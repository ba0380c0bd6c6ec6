// The Runtime's helper thread: what runs on it, and what remains at the end.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/internals.h"
#include "base/rcu.h"
#include "base/sanitizer.h"
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

TEST(AsideThread, RunsOnAThreadThatTakesNoSignals) {
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  Seen seen;
  ASSERT_TRUE(runtime->run_aside(look, &seen));
  while (seen.runs == 0)
    std::this_thread::yield();
  EXPECT_EQ(seen.thread, "rrdk-aside");
  EXPECT_FALSE(seen.takes_signals);
}

// The number of the process's threads with that name.
std::vector<int> threads_called(const std::string& name) {
  std::vector<int> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::getline(std::ifstream(task.path() / "comm"), comm);
    if (comm == name)
      found.push_back(std::stoi(task.path().filename()));
  }
  return found;
}

TEST(Retired, GoesOnAThreadThatTakesNoSignals) {
  struct Object : base::Retired {
    explicit Object(Seen& seen_in) : seen(seen_in) {}
    ~Object() override { look(&seen); }
    Seen& seen;
  };
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  Seen seen;
  base::begin_reading();
  base::begin_reading();
  base::retire(std::make_unique<Object>(seen));
  const base::GracePeriod grace;
  base::end_reading();
  EXPECT_TRUE(base::is_reading());
  EXPECT_FALSE(grace.over());
  EXPECT_EQ(seen.runs, 0);
  base::end_reading();
  EXPECT_FALSE(base::is_reading());
  while (!grace.over() || seen.runs == 0)
    std::this_thread::yield();
  EXPECT_EQ(seen.thread, "rrdk-rcu");
  EXPECT_FALSE(seen.takes_signals);
  EXPECT_EQ(threads_called("rrdk-rcu").size(), 1u);
}

std::atomic<bool> is_held = false, goes_on = false;
void hold(int) {
  is_held = true;
  while (!goes_on)
    ::usleep(100);
}

// The thread that writes the file is stopped by a signal that RRDK's threads do not block, as a
// stalled disk would stop it.
TEST(StopCapture, DoesNotWaitForEverForItsFile) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer takes the thread that is left behind for a leak";
  auto memory = small_memory();
  auto runtime = runtime_of(*memory, {});
  const std::string file = "/tmp/rrdk-held-" + std::to_string(::getpid()) + ".pcapng";
  ASSERT_TRUE(runtime->start_capture(file, {}));
  const std::vector<int> writers = threads_called("rrdk-capture");
  ASSERT_EQ(writers.size(), 1u);
  struct sigaction holds{}, before{};
  holds.sa_handler = hold;
  ASSERT_EQ(::sigaction(SIGPROF, &holds, &before), 0);
  ASSERT_EQ(::syscall(SYS_tgkill, ::getpid(), writers[0], SIGPROF), 0);
  while (!is_held)
    std::this_thread::yield();
  Internals::of(*runtime).patience_ns = 100'000'000;
  runtime->stop_capture();
  EXPECT_FALSE(goes_on);
  EXPECT_TRUE(runtime->start_capture(file + "2", {})) << "the next one may begin";
  runtime->stop_capture();
  goes_on = true;
  while (!threads_called("rrdk-capture").empty())
    std::this_thread::yield();
  EXPECT_GT(std::filesystem::file_size(file), 0u) << "and the first one has ended";
  ::sigaction(SIGPROF, &before, nullptr);
  std::filesystem::remove(file);
  std::filesystem::remove(file + "2");
}

// Tasks that wait behind it are dropped first.
TEST(AsideThread, ItsEndWaitsForTheTaskThatRunsAndForNoOther) {
  std::atomic<bool> let_go = false, ended = false;
  std::atomic<int> others = 0;
  {
    runtime::AsideThread aside;
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

TEST(AsideThread, RunsTasksInOrder) {
  runtime::AsideThread aside;
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

// A thread that waits there does not poll a core that no thread has polled yet.
TEST(AsideThread, IsNoThreadThatPolls) {
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
