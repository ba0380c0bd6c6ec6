// Two processes over shm, and the state of one after the other was killed.
#include <cstring>

#include "../server/loopback.h"
#include "other_process.h"

namespace rrdk::loopback {
namespace {

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
  std::vector<std::unique_ptr<Repeating>> loads;
  for (size_t i = 0; i < 32; ++i) {
    loads.push_back(std::make_unique<Repeating>(*connection, kRead, room.span(i * 65536, 65536)));
    loads.back()->again();
  }
  while (loads[0]->good.load() < 50)
    std::this_thread::yield();
  say("under load");
  pause();  // until it is killed
}

// Not a test: the role of the other process.
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
    world.until([&] { return world.server->stats()[Counter::kConnections] == 1; });
  }
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsEnded], 3u);
  // ~World checks that the pools are whole.
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
      std::vector<std::unique_ptr<Repeating>> loads;
      for (size_t i = 0; i < 100; ++i) {
        loads.push_back(
            std::make_unique<Repeating>(*connection, kRead, room.span(i * 65536, 65536)));
        loads.back()->again();
      }
      while (loads[0]->good.load() < 50)
        std::this_thread::yield();
      server->kill_hard();
      for (auto& load : loads) {
        while (load->ended() == 0)
          std::this_thread::yield();
        EXPECT_EQ(load->call.status(), CallStatus::kConnectionLost);
      }
      EXPECT_FALSE(connection->alive());
      connection.reset();
      for (auto& load : loads)
        EXPECT_EQ(load->ended(), 1);
    }
  }
  EXPECT_TRUE(memory->whole());
}

}  // namespace
}  // namespace rrdk::loopback
