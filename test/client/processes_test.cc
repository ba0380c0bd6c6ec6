// Two processes over shm, and what remains when one of them is killed.
#include <signal.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>

#include "../server/loopback.h"

namespace rrdk::loopback {
namespace {

// EAL can not be used on both sides of a fork, so another process is this program again, with the
// role and the address in its environment.
constexpr const char* kRole = "RRDK_TEST_ROLE";
constexpr const char* kUri = "RRDK_TEST_URI";

class Process {
 public:
  Process(const char* role, const std::string& uri) {
    int fds[2];
    if (pipe(fds) != 0)
      return;
    pid_ = fork();
    if (pid_ == 0) {
      dup2(fds[1], STDOUT_FILENO);
      close(fds[0]);
      close(fds[1]);
      setenv(kRole, role, 1);
      setenv(kUri, uri.c_str(), 1);
      execl("/proc/self/exe", "other-process", "--gtest_filter=OtherProcess.Runs",
            static_cast<char*>(nullptr));
      _exit(127);
    }
    close(fds[1]);
    output_ = fdopen(fds[0], "r");
  }
  ~Process() {
    kill_hard();
    if (output_ != nullptr)
      fclose(output_);
  }
  // The rest of the first line that begins with `word`; empty at the end of the output.
  std::string wait_for(const char* word) {
    char line[512];
    while (fgets(line, sizeof(line), output_) != nullptr) {
      line[std::strcspn(line, "\n")] = 0;
      if (std::strncmp(line, word, std::strlen(word)) == 0)
        return line + std::strlen(word);
    }
    return "";
  }
  void kill_hard() {
    if (pid_ <= 0)
      return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int wait() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// A call that reads bulk data again and again, from its callback.
struct Load {
  Load(ClientConnection& connection, MemorySpan room_in) : call(connection), room(room_in) {}
  Call call;
  MemorySpan room;
  std::atomic<uint64_t> good = 0;
  std::atomic<int> ends = 0;
  bool named = false;

  void submit() {
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(1);
    args.put_u32(room.length);
    call.offer(room);
    call.submit(
        [](Call& ended, void* argument) {
          auto& self = *static_cast<Load*>(argument);
          if (ended.status() == CallStatus::kOk) {
            self.good.fetch_add(1, std::memory_order_relaxed);
            self.submit();
          } else {
            self.named = ended.status() == CallStatus::kConnectionLost;
            self.ends.fetch_add(1, std::memory_order_release);
          }
        },
        this);
  }
};

void run_server() {
  World world(Cores::kDedicated);
  say("listening on " + world.uri);
  char byte;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  pause();
}

void run_client(const std::string& uri) {
  auto memory = make_memory();
  auto runtime = Runtime::create(*memory, options_for(Cores::kDedicated)).value();
  auto client = Client::create(*runtime).value();
  auto connection = client->connect(uri).value();
  RegisteredMemory room = memory->allocate(32 * 65536).value();
  std::vector<std::unique_ptr<Load>> loads;
  for (size_t i = 0; i < 32; ++i) {
    loads.push_back(std::make_unique<Load>(*connection, room.span(i * 65536, 65536)));
    loads.back()->submit();
  }
  while (loads[0]->good.load() < 50)
    std::this_thread::yield();
  say("under load");
  pause();  // until it is killed
}

// Not a test of its own: what the other process does.
TEST(OtherProcess, Runs) {
  const char* role = std::getenv(kRole);
  if (role == nullptr)
    return;
  if (std::strcmp(role, "server") == 0)
    run_server();
  else
    run_client(std::getenv(kUri));
}

TEST(Processes, TalkToEachOther) {
  Process server("server", "");
  std::string uri = server.wait_for("listening on ");
  ASSERT_FALSE(uri.empty());
  auto memory = make_memory();
  auto runtime = Runtime::create(*memory, {}).value();
  auto client = Client::create(*runtime).value();
  auto connection = client->connect(uri).value();
  Call call(*connection);
  for (uint32_t size : {0u, 4u, 1000u, 65536u, 1u << 20}) {
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(9);
    args.put_u32(size);
    call.expect_reply(size + 4);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    call.results().get_u32();
    ItemView data = call.results().get_item(size);
    ASSERT_EQ(data.size(), size);
    uint64_t at = 9;
    data.for_each([&](const std::byte* bytes, size_t n) {
      for (size_t i = 0; i < n; ++i)
        ASSERT_EQ(bytes[i], pattern(at++));
    });
  }
}

TEST(Processes, AKilledClientLeavesTheServerServingAndWhole) {
  World world(Cores::kDedicated);
  auto survivor = world.connect();
  for (int round = 0; round < 3; ++round) {
    Process client("client", world.uri);
    client.wait_for("under load");
    client.kill_hard();
    Call call(*survivor);
    call.begin(kBinding, 0);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    world.until([&] { return world.server->stats().connections == 1; });
  }
  EXPECT_EQ(world.server->stats().connections_ended, 3u);
  // ~World: the pools are whole.
}

TEST(Processes, AKilledServerEndsEveryCallOnceWithAName) {
  auto server = std::make_unique<Process>("server", "");
  std::string uri = server->wait_for("listening on ");
  ASSERT_FALSE(uri.empty());
  auto memory = make_memory();
  {
    auto runtime = Runtime::create(*memory, options_for(Cores::kDedicated)).value();
    auto client = Client::create(*runtime).value();
    auto connection = client->connect(uri).value();
    RegisteredMemory room = memory->allocate(100 * 65536).value();
    {
      std::vector<std::unique_ptr<Load>> loads;
      for (size_t i = 0; i < 100; ++i) {
        loads.push_back(std::make_unique<Load>(*connection, room.span(i * 65536, 65536)));
        loads.back()->submit();
      }
      while (loads[0]->good.load() < 50)
        std::this_thread::yield();
      server->kill_hard();
      for (auto& load : loads) {
        while (load->ends.load(std::memory_order_acquire) == 0)
          std::this_thread::yield();
        EXPECT_TRUE(load->named);
      }
      EXPECT_FALSE(connection->alive());
      connection.reset();
      for (auto& load : loads)
        EXPECT_EQ(load->ends.load(), 1);
    }
  }
  EXPECT_TRUE(memory->whole());
}

}  // namespace
}  // namespace rrdk::loopback
