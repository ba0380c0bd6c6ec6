// A child of fork() that ends as a program does, by exit() or return, and so destroys the objects
// it has from its parent: neither the parent nor the child is affected.
#include <fcntl.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>

#include "../server/loopback.h"
#include "base/sanitizer.h"
#include "rrdk/timer.h"

// Asked by LeakSanitizer at exit: memory that only the parent's other threads knew is no leak of
// the child.
static bool in_child = false;
extern "C" int __lsan_is_turned_off();
int __lsan_is_turned_off() {
  return in_child;
}

namespace rrdk::loopback {
namespace {

struct Place {
  const char* name;
  Cores cores;
  const char* uri;  // null: shm
};

class Fork : public testing::TestWithParam<Place> {};

INSTANTIATE_TEST_SUITE_P(
    Everywhere, Fork,
    testing::Values(Place{"ShmEmbedded", Cores::kEmbedded, nullptr},
                    Place{"ShmThreads", Cores::kWorkers, nullptr},
                    Place{"IwarpEmbedded", Cores::kEmbedded, "iwarp://127.0.0.1:0"},
                    Place{"IwarpThreads", Cores::kWorkers, "iwarp://127.0.0.1:0"}),
    [](const testing::TestParamInfo<Place>& place) { return std::string(place.param.name); });

// One of each object that a program can have, with calls in flight.
struct Program {
  explicit Program(const Place& place)
      : ends(options_for(place.cores), {}, {},
             {{.binding = &kBinding, .procedures = kTable, .context = &keeper}},
             place.uri != nullptr ? place.uri : "shm:" + socket_path()),
        connection(ends.client->connect(ends.uri).value()),
        buffer(ends.memory->get(4096)),
        registered(ends.memory->allocate(4096).value()),
        timer(Timer::create(
                  *ends.runtime, 0, [](Timer&, void*) {}, nullptr)
                  .value()),
        waiting(std::in_place, *connection) {
    timer->start(Runtime::now_ns() + 3'600'000'000'000);
    open_window(*connection);
    waiting->begin(kKeep);
    waiting->submit();
    ends.until([&] { return keeper.kept() == 1; });
  }
  void destroy() {
    waiting.reset();
    timer.reset();
    connection.reset();
    keeper.calls.clear();
    buffer.reset();
    registered = {};
    ends.client.reset();
    ends.server.reset();
    ends.runtime.reset();
    ends.memory.reset();
  }

  Keeper keeper;
  Ends ends;
  std::unique_ptr<ClientConnection> connection;
  Buffer buffer;
  RegisteredMemory registered;
  std::unique_ptr<Timer> timer;
  std::optional<EndingCall> waiting;
};

TEST_P(Fork, AChildThatExitsHarmsNeitherItsParentNorItself) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer does not follow a fork() of several threads";
  Program program(GetParam());
  for (int i = 0; i < 10; ++i) {
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      in_child = true;
      alarm(100);  // it must not hang
      program.destroy();
      if (eal_running() || ensure_eal() || Memory::create())
        _exit(1);
      std::exit(0);
    }
    Call call(*program.connection);
    for (int calls = 0; calls < 20; ++calls) {
      call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
      ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  EXPECT_EQ(program.ends.server->stats()[Counter::kConnections], 1u);
  program.keeper.release();
  program.ends.until([&] { return program.waiting->ended() == 1; });
  EXPECT_EQ(program.waiting->call.status(), CallStatus::kOk);
  std::unique_ptr<Memory> memory = std::move(program.ends.memory);
  program.destroy();
  EXPECT_TRUE(memory->whole());
}

// Runs in a child that continues as if it were its parent. Returns zero, or the number of the step
// that was not refused.
int use_what_is_the_parents(Program& program, Call& begun) {
  Runtime& runtime = *program.ends.runtime;
  const uint64_t passes = runtime.stats(0)[Counter::kPasses];
  for (int i = 0; i < 100; ++i)
    runtime.poll();
  const uint64_t polled = runtime.stats(0)[Counter::kPasses] - passes;
  if (polled != 0 || runtime.arm_wake())
    return 1;
  if (begun.submit(nullptr, nullptr) || begun.status() != CallStatus::kInvalidCall)
    return 2;
  Call call(*program.connection);
  if (call.begin(kBinding, 0).ok() || call.submit_and_wait() != CallStatus::kInvalidCall)
    return 3;
  if (program.ends.memory->get(4096))
    return 4;
  std::move(program.keeper.calls.front()).reply();
  program.waiting->call.cancel();
  program.waiting->call.abandon();
  if (program.ends.client->connect(program.ends.uri) ||
      program.ends.client->connect_start(program.ends.uri) ||
      program.ends.server->listen("shm:" + socket_path()))
    return 5;
  program.destroy();
  return 0;
}

TEST_P(Fork, AChildThatGoesOnAsItsParentIsRefused) {
  if (RRDK_TSAN)
    GTEST_SKIP() << "ThreadSanitizer does not follow a fork() of several threads";
  struct Forks {
    Program program;
    Call begun;
    pid_t child = 0;
    std::atomic<bool> done = false;

    void fork_one() {
      fflush(nullptr);
      child = fork();
      if (child == 0) {
        in_child = true;
        alarm(100);
        _exit(use_what_is_the_parents(program, begun));
      }
      done.store(true, std::memory_order_release);
    }
  } forks{Program(GetParam()), Call(*forks.program.connection)};
  Ends& ends = forks.program.ends;
  for (bool in_callback : {false, true}) {
    forks.begun.begin(kBinding, kEcho).put_u32(0);
    forks.done = false;
    Call call(*forks.program.connection);
    if (in_callback) {
      call.begin(kBinding, 0);
      call.submit([](Call&, void* mine) { static_cast<Forks*>(mine)->fork_one(); }, &forks);
    } else {
      forks.fork_one();
    }
    ends.until([&] { return forks.done.load(std::memory_order_acquire) && !call.in_flight(); });
    EXPECT_EQ(forks.begun.submit_and_wait(), CallStatus::kOk);
    int status = -1;
    ASSERT_EQ(waitpid(forks.child, &status, 0), forks.child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << in_callback;
    EXPECT_EQ(forks.program.waiting->ended(), 0) << "answered, or cancelled, by the child";
    EXPECT_EQ(ends.server->stats()[Counter::kConnections], 1u);
  }
  forks.program.keeper.release();
  ends.until([&] { return forks.program.waiting->ended() == 1; });
  EXPECT_EQ(forks.program.waiting->call.status(), CallStatus::kOk);
}

// The open descriptors and their targets.
std::map<int, std::string> descriptors() {
  std::map<int, std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    std::error_code gone;  // the one that reads the folder
    if (fcntl(fd, F_GETFD) >= 0)
      open[fd] = std::filesystem::read_symlink(entry.path(), gone);
  }
  return open;
}
const std::map<int, std::string> kInherited = descriptors();

// These include EAL's, which this library has started.
TEST(ForkAndExec, ClosesAllOurDescriptors) {
  Program program({"", Cores::kWorkers, nullptr});
  for (const auto& [fd, what] : descriptors()) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && !kInherited.contains(fd)) {
      EXPECT_NE(flags & FD_CLOEXEC, 0) << fd << " is " << what;
    }
  }
  program.keeper.release();
  program.ends.until([&] { return program.waiting->ended() == 1; });
  program.destroy();
}

}  // namespace
}  // namespace rrdk::loopback
