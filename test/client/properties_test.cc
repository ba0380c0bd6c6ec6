// Receive Buffer Sizes, as a program sees and changes them (draft-04 section 5.2.1).
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

ClientOptions speaking(RpcRdmaVersion version) {
  ClientOptions options;
  options.version = version;
  options.version2.max_receive_size = 16384;
  options.credits = 4;
  return options;
}
constexpr ServerOptions kGrows = {.credits = 4, .version2 = {.max_receive_size = 16384}};

void call(SurvivalWorld& world) {
  EndingCalls endings = submit(world, kEcho, 1);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
}
void request(SurvivalWorld& world, uint32_t bytes) {
  request_receive_size(*world.connection, bytes);
  world.until([&] {
    ReceiveSizes sizes = receive_sizes(*world.connection);
    return sizes.ended == sizes.asked;
  });
}

// A call that its handler keeps until the test is over.
struct Kept {
  explicit Kept(SurvivalWorld& world_in) : world(world_in) {
    world.gate.holding = true;
    endings = submit(world, kEcho, 1);
    world.until([&] { return world.gate.held.size() == 1; });
    world.gate.holding = false;
    call.emplace(std::move(world.gate.held.front()));
    world.gate.held.clear();
  }
  ~Kept() {
    if (call)
      std::move(*call).reply();
    world.until([&] { return all_ended(endings); });
  }
  ServerCall* operator->() { return &*call; }
  ServerCall& operator*() { return *call; }

  SurvivalWorld& world;
  EndingCalls endings;
  std::optional<ServerCall> call;
};

// Shows: V2D4-POP-20, V2D4-PROP-22
TEST(ReceiveSizes, ChangeWhenTheServerIsAsked) {
  SurvivalWorld world(speaking(RpcRdmaVersion::kTwo), kGrows);
  world.connect();
  call(world);
  call(world);
  EXPECT_EQ(receive_sizes(*world.connection).peer, 4096u);
  request(world, 1u << 20);
  for (int i = 0; i < 40 && receive_sizes(*world.connection).peer == 4096; ++i)
    call(world);
  EXPECT_EQ(receive_sizes(*world.connection).peer, 16384u);
  call(world);
  request(world, 8192);
  EXPECT_EQ(receive_sizes(*world.connection).peer, 8192u);
  request(world, 1000);
  ReceiveSizes sizes = receive_sizes(*world.connection);
  EXPECT_EQ(sizes.peer, 8192u);
  EXPECT_EQ(sizes.asked, 3u);
  EXPECT_EQ(sizes.refused, 1u);
  EXPECT_EQ(sizes.peer_changes, 2u);
  EXPECT_EQ(world.server->stats()[Counter::kReceiveSizeChanges], 2u);
}

TEST(ReceiveSizes, GrowWhenTheClientRaisesThem) {
  SurvivalWorld world(speaking(RpcRdmaVersion::kAuto), kGrows);
  world.connect();
  call(world);
  call(world);
  raise_receive_size(*world.connection, 16384);
  for (int i = 0; i < 40 && receive_sizes(*world.connection).own == 4096; ++i)
    call(world);
  call(world);
  EXPECT_EQ(receive_sizes(*world.connection).own, 16384u);
  EXPECT_EQ(world.server->stats()[Counter::kPeerReceiveSizeChanges], 1u);
}

TEST(ReceiveSizes, StayInVersion1AndWithoutProperties) {
  ClientOptions without = speaking(RpcRdmaVersion::kTwo);
  without.version2.properties = false;
  without.version2.max_receive_size = 0;
  for (const ClientOptions& options : {speaking(RpcRdmaVersion::kOne), without}) {
    SurvivalWorld world(options, kGrows);
    world.connect();
    call(world);
    request(world, 16384);
    raise_receive_size(*world.connection, 16384);
    call(world);
    ReceiveSizes sizes = receive_sizes(*world.connection);
    EXPECT_EQ(sizes.refused, 1u);
    EXPECT_EQ(sizes.own_changes + sizes.peer_changes, 0u);
  }
}

// A server's handler can change them as the client can.
TEST(ReceiveSizes, GrowWhenAHandlerRaisesThem) {
  SurvivalWorld world(speaking(RpcRdmaVersion::kTwo), kGrows);
  world.connect();
  call(world);
  Kept kept(world);
  EXPECT_EQ(receive_sizes(*kept).own, 4096u);
  raise_receive_size(*kept, 16384);
  for (int i = 0; i < 40 && receive_sizes(*kept).own == 4096; ++i)
    call(world);
  EXPECT_EQ(receive_sizes(*kept).own, 16384u);
  EXPECT_EQ(receive_sizes(*kept).own_changes, 1u);
  call(world);
  EXPECT_EQ(receive_sizes(*world.connection).peer, 16384u);
}

TEST(ReceiveSizes, ChangeWhenTheClientIsAsked) {
  SurvivalWorld world(speaking(RpcRdmaVersion::kTwo), kGrows);
  world.connect();
  call(world);
  Kept kept(world);
  auto ask = [&](uint32_t bytes) {
    request_receive_size(*kept, bytes);
    world.until([&] { return receive_sizes(*kept).ended == receive_sizes(*kept).asked; });
  };
  ask(16384);
  for (int i = 0; i < 40 && receive_sizes(*kept).peer == 4096; ++i)
    call(world);
  EXPECT_EQ(receive_sizes(*kept).peer, 16384u);
  EXPECT_EQ(receive_sizes(*world.connection).own, 16384u);
  ask(8192);  // less: calls may be on their way whose replies would not fit
  ask(1000);
  ReceiveSizes sizes = receive_sizes(*kept);
  EXPECT_EQ(sizes.peer, 16384u);
  EXPECT_EQ(sizes.asked, 3u);
  EXPECT_EQ(sizes.refused, 2u);
  EXPECT_EQ(sizes.peer_changes, 1u);
  // When it takes effect the connection may have been destroyed.
  request_receive_size(*kept, 16384);
  raise_receive_size(*kept, 16384);
  std::move(*kept.call).drop();
  kept.call.reset();
  world.until([&] { return !world.connection->alive(); });
}

TEST(ReceiveSizes, AHandlerCannotChangeThemInVersion1) {
  SurvivalWorld world(speaking(RpcRdmaVersion::kOne), kGrows);
  world.connect();
  call(world);
  Kept kept(world);
  request_receive_size(*kept, 16384);
  raise_receive_size(*kept, 16384);
  world.until([&] { return receive_sizes(*kept).ended == 1; });
  call(world);
  EXPECT_EQ(receive_sizes(*kept).refused, 1u);
  EXPECT_EQ(receive_sizes(*kept).own_changes, 0u);
}

// make_memory() has 64 buffers of 65536 bytes, the class of all larger Receives here. 16 of them
// are kept for calls.
TEST(ReceiveGrowth, IsNoOptionWithoutBuffersForOneConnection) {
  SurvivalWorld world({});
  auto create = [&](ServerOptions options) { return Server::create(*world.runtime, options); };
  auto made = create({.credits = 46, .version2 = {.max_receive_size = 8192}});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kInvalidArgument);
  for (const char* named : {"max_receive_size", "64 buffers of 65536", "takes 49", "credits"})
    EXPECT_NE(made.error().message.find(named), std::string::npos) << made.error().message;
  EXPECT_FALSE(
      create({.credits = 40, .backward_credits = 6, .version2 = {.max_receive_size = 8192}}));
  EXPECT_TRUE(create({.credits = 45, .version2 = {.max_receive_size = 8192}}));
  // If nothing may grow, nothing is counted.
  EXPECT_TRUE(
      create({.versions = {.two = false}, .credits = 46, .version2 = {.max_receive_size = 8192}}));
  EXPECT_TRUE(
      create({.credits = 46, .inline_size = 8192, .version2 = {.max_receive_size = 16384}}));
}

TEST(ReceiveGrowth, EndsWhereTheBuffersOfCallsBegin) {
  LogLines log;
  SurvivalWorld world(speaking(RpcRdmaVersion::kTwo),
                      {.credits = 16, .version2 = {.max_receive_size = 16384}});
  std::vector<std::unique_ptr<ClientConnection>> connections;
  auto echo = [&](ClientConnection& connection) {
    EndingCall one(connection);
    one.begin(kEcho).put_opaque(std::span<const std::byte>());
    one.submit();
    world.until([&] { return one.ended() == 1; });
    EXPECT_EQ(one.call.status(), CallStatus::kOk);
  };
  // The size after as many calls as there are Receives to replace.
  auto grow = [&](ClientConnection& connection) {
    uint64_t asked = receive_sizes(connection).asked;
    request_receive_size(connection, 16384);
    world.until([&] { return receive_sizes(connection).ended == asked + 1; });
    for (int i = 0; i < 40; ++i)
      echo(connection);
    return receive_sizes(connection).peer;
  };
  for (uint32_t expected : {16384u, 16384u, 4096u}) {  // 19 each of 48
    auto made = world.client->connect(world.uri, SurvivalWorld::kClientCore);
    ASSERT_TRUE(made);
    connections.push_back(std::move(*made));
    echo(*connections.back());
    echo(*connections.back());
    EXPECT_EQ(grow(*connections.back()), expected);
  }
  EXPECT_EQ(world.server->stats()[Counter::kGrowthRefused], 1u);
  EXPECT_EQ(log.count(LogLevel::kWarning, "keeps its Receives"), 1);
  EXPECT_EQ(log.count(LogLevel::kWarning, "64 buffers of 65536"), 1);
  // A connection that has grown may grow further within its share; one that is destroyed leaves its
  // share to others.
  EXPECT_EQ(grow(*connections.front()), 16384u);
  connections.erase(connections.begin());
  world.until([&] { return world.server->stats()[Counter::kConnections] == 2; });
  EXPECT_EQ(grow(*connections.back()), 16384u);
  EXPECT_EQ(world.server->stats()[Counter::kGrowthRefused], 1u);
}

// An end that grants requests (RESPROP) or announces changes (UPDPROP) must announce its initial
// size (CONNPROP), and an end that sends requests must take the answers: one option covers all
// four, and options that need them are refused without it.
// Shows: V2D4-POP-06
TEST(ReceiveSizes, DoNotGrowWhereTheyCannotBeAnnounced) {
  SurvivalWorld world({});
  for (bool properties : {true, false}) {
    ClientOptions client;
    client.version2.properties = properties;
    client.version2.max_receive_size = 16384;
    auto made = Client::create(*world.runtime, client);
    EXPECT_EQ(made.has_value(), properties);
    EXPECT_TRUE(made || made.error().code == Errc::kInvalidArgument);
    ServerOptions server;
    server.credits = 16;  // so that there are buffers
    server.version2.properties = properties;
    server.version2.max_receive_size = 16384;
    auto served = Server::create(*world.runtime, server);
    EXPECT_EQ(served.has_value(), properties);
    EXPECT_TRUE(served || served.error().code == Errc::kInvalidArgument);
  }
}

}  // namespace
}  // namespace rrdk::loopback
