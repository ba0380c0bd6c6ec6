// Which version of RPC-over-RDMA a client speaks with a server, and what it remembers about that.
#include "client/client_impl.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

constexpr ServerOptions kOnlyOne = {.versions = {.two = false}};

// A call on a new connection, answered.
void connect_and_call(SurvivalWorld& world) {
  world.connection.reset();
  world.connect();
  EndingCalls endings = submit(world, kEcho, 10);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
}

TEST(Versions, AClientSpeaksVersion1UnlessTold) {
  SurvivalWorld world({});
  connect_and_call(world);
  EXPECT_EQ(world.connection->version(), 1u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 0u);
}

TEST(Versions, AutoSpeaksVersion2WithServersThatSupportIt) {
  SurvivalWorld world({.version = RpcRdmaVersion::kAuto});
  connect_and_call(world);
  EXPECT_EQ(world.connection->version(), 2u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 0u);
}

// Shows: V2D4-NEG-05, V2D4-NEG-06, V2D4-NEG-12, V2D0-NEG-06, V2D0-NEG-07
TEST(Versions, AutoFallsBackOnceAndRemembersIt) {
  SurvivalWorld world({.version = RpcRdmaVersion::kAuto}, kOnlyOne);
  connect_and_call(world);
  EXPECT_EQ(world.connection->version(), 1u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 1u);
  EXPECT_EQ(world.server->stats()[Refusal::kBadVersion], 1u);
  connect_and_call(world);
  EXPECT_EQ(world.connection->version(), 1u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 0u);
  EXPECT_EQ(world.server->stats()[Refusal::kBadVersion], 1u);
}

// Shows: V2D4-NEG-13
TEST(Versions, ARememberedVersionExpires) {
  SurvivalWorld world({.version = RpcRdmaVersion::kAuto, .version2 = {.version_memory_ms = 0}},
                      kOnlyOne);
  for (uint64_t round = 1; round <= 3; ++round) {
    connect_and_call(world);
    EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 1u);
    EXPECT_EQ(world.server->stats()[Refusal::kBadVersion], round);
  }
  client::VersionMemory memory(10'000);
  constexpr uint64_t kSecond = 1'000'000'000;
  EXPECT_FALSE(memory.is_known("a", 5 * kSecond));
  EXPECT_TRUE(memory.knows_only_one("a", 5 * kSecond));
  EXPECT_FALSE(memory.knows_only_one("a", 6 * kSecond));
  EXPECT_TRUE(memory.is_known("a", 16 * kSecond - 1));
  EXPECT_FALSE(memory.is_known("a", 16 * kSecond));
  EXPECT_FALSE(memory.is_known("b", 6 * kSecond));
  EXPECT_TRUE(memory.knows_only_one("a", 20 * kSecond));
}

// Shows: V2D4-NEG-06, V2D0-NEG-08
TEST(Versions, AFirstMessageThatIsLostMakesTheNextConnectionBeginWithVersion1) {
  SurvivalWorld world(
      {.version = RpcRdmaVersion::kAuto, .reconnect = at_once(), .retransmit = true});
  world.connect();
  world.gate.holding = true;
  EndingCalls endings = submit(world, kKeep, 1);
  world.until([&] { return world.gate.held.size() == 1; });
  EXPECT_EQ(world.connection->version(), 2u);
  world.gate.holding = false;
  world.break_connection();
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_EQ(world.connection->version(), 1u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 1u);
}

// The connection dies behind ERR_VERS, before anything was answered in version 1.
// Shows: V2D4-NEG-06, V2D0-NEG-07
TEST(Versions, ErrVersIsRememberedWhenTheConnectionDies) {
  SurvivalWorld world(
      {.version = RpcRdmaVersion::kAuto, .reconnect = at_once(), .retransmit = true}, kOnlyOne);
  world.connect();
  world.gate.holding = true;
  EndingCalls endings = submit(world, kKeep, 1);
  world.until([&] { return world.gate.held.size() == 1; });  // in version 1
  EXPECT_EQ(world.server->stats()[Refusal::kBadVersion], 1u);
  world.gate.holding = false;
  world.break_connection();
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_EQ(world.stats()[Counter::kReconnections], 1u);
  EXPECT_EQ(world.server->stats()[Refusal::kBadVersion], 1u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 1u);
}

// If a connection was used and is lost, that says nothing about versions.
TEST(Versions, ALaterLossChangesNothing) {
  SurvivalWorld world({.version = RpcRdmaVersion::kAuto, .reconnect = at_once()});
  connect_and_call(world);
  world.restart_server();
  world.until([&] { return world.stats()[Counter::kReconnections] == 1; });
  EndingCalls endings = submit(world, kEcho, 1);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_EQ(world.connection->version(), 2u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 0u);
}

TEST(Versions, PinnedToVersion2CallsEndInAnErrorThatNamesIt) {
  SurvivalWorld world({.version = RpcRdmaVersion::kTwo}, kOnlyOne);
  world.connect();
  EndingCalls endings = submit(world, kEcho, 1);
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kVersionError);
  TransportError said = endings[0]->call.transport_error();
  EXPECT_EQ(said.code, 1u);
  EXPECT_EQ(said.low, 1u);
  EXPECT_EQ(said.high, 1u);
  EXPECT_EQ(world.stats()[Refusal::kNoCommonVersion], 1u);
  EXPECT_EQ(world.stats()[Counter::kVersionFallbacks], 0u);
}

// A call that expects less than the reply has.
void submit_short(EndingCall& ending, bool retransmit) {
  std::vector<std::byte> text(6000, std::byte{'x'});
  Encoder& args = ending.begin(kEcho);
  args.put_opaque(std::span<const std::byte>(text));
  ending.call.set_retransmit(retransmit);
  ending.submit();
}

// Shows: V2D4-ERR-12, V2D4-ERR-13, V2D4-ERR-16
TEST(Versions, AReplyWithoutRoomIsNamedAndTheCallRepeatedIfItMay) {
  SurvivalWorld world({.version = RpcRdmaVersion::kTwo, .reconnect = at_once()});
  connect_and_call(world);
  EndingCall once(*world.connection);
  submit_short(once, false);
  world.until([&] { return once.ended() == 1; });
  EXPECT_STREQ(to_string(once.call.status()), to_string(CallStatus::kChunkError));
  EXPECT_EQ(once.call.transport_error().version, 2u);
  EXPECT_EQ(once.call.transport_error().code, 8u);  // REPLY_RESOURCE
  EXPECT_EQ(once.call.transport_error().length, 24u + 4 + 6000);

  EndingCall again(*world.connection);
  submit_short(again, true);
  world.until([&] { return again.ended() == 1; });
  EXPECT_STREQ(to_string(again.call.status()), to_string(CallStatus::kOk));
  EXPECT_EQ(again.call.transport_error().code, 0u);
  EXPECT_EQ(again.call.results().get_opaque(1u << 20).size(), 6000u);
  EXPECT_EQ(world.server->stats()[Refusal::kNoReplyRoom], 2u);
}

}  // namespace
}  // namespace rrdk::loopback
