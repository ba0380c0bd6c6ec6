// RFC 5666's compatibility mode, from the public interface: doc/compat-rfc5666.md.
#include "loopback.h"
#include "proto/negotiation.h"
#include "raw_client.h"

namespace rrdk::loopback {
namespace {

constexpr ServerOptions kServer = {.rfc5666 = {.enabled = true, .align = 64}};
constexpr ClientOptions kClient = {.rfc5666 = {.enabled = true, .read_replies = true}};

// Reads `count` bytes and compares them.
void read_and_check(ClientConnection& connection, uint32_t count) {
  Call call(connection);
  Encoder& args = call.begin(kBinding, kRead);
  args.put_u64(5);
  args.put_u32(count);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), 7u);
  ItemView data = call.results().get_item(count);
  ASSERT_TRUE(call.results().at_end());
  ASSERT_EQ(data.size(), count);
  uint64_t at = 5;
  uint32_t wrong = 0;
  data.for_each([&](const std::byte* bytes, size_t n) {
    for (size_t i = 0; i < n; ++i)
      wrong += bytes[i] != pattern(at++);
  });
  EXPECT_EQ(wrong, 0u);
}

void write_and_check(ClientConnection& connection, Memory& memory, uint32_t count) {
  Call call(connection);
  Encoder& args = call.begin(kBinding, kWrite);
  args.put_u64(9);
  args.put_item(patterned(memory, 9, count), count, Ddp::kEligible);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), count);
  EXPECT_EQ(call.results().get_u32(), 0u) << "wrong bytes";
}

// Shows: V1-CCP-01, V1-CCP-04, V1-CCP-18
TEST(Rfc5666, BothEndsSupportTheWholeMode) {
  for (Cores cores : {Cores::kEmbedded, Cores::kWorkers}) {
    World world(cores, kServer, kClient);
    auto connection = world.connect();
    EXPECT_EQ(connection->stats()[Counter::kRfc5666Configured], 1u) << "before any call";
    EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 1u);
    for (uint32_t count : {100u, 5000u, 100001u, 3u << 20})
      read_and_check(*connection, count);
    for (uint32_t count : {10u, 300u, 5000u, 300001u})
      write_and_check(*connection, *world.memory, count);
    const Stats ours = connection->stats();
    EXPECT_EQ(ours[Counter::kRfc5666ReadReplies], 3u);
    EXPECT_EQ(ours[Counter::kRfc5666Dones], 3u);
    EXPECT_EQ(ours[Counter::kRfc5666PaddedCalls], 1u);
    world.until([&] { return world.server->stats()[Counter::kRfc5666Dones] == 3; });
    const Stats theirs = world.server->stats();
    EXPECT_EQ(theirs[Counter::kRfc5666Configured], 1u);
    EXPECT_EQ(theirs[Counter::kRfc5666ReadReplies], 3u);
    EXPECT_EQ(theirs[Counter::kRfc5666PaddedCalls], 1u);
  }
}

// Shows: V1-CCP-04, V1-CCP-18, V1-DONE-02, V1-MSGP-02
TEST(Rfc5666, OneEndAloneServesAndIsServed) {
  for (bool server_alone : {false, true}) {
    World world(Cores::kEmbedded, server_alone ? kServer : ServerOptions{},
                server_alone ? ClientOptions{} : kClient);
    auto connection = world.connect();
    write_and_check(*connection, *world.memory, 500);
    write_and_check(*connection, *world.memory, 5000);
    Call call(*connection);
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(5);
    args.put_u32(100000);
    Buffer room = world.memory->get(100000);
    call.offer(room.first(100000));
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    const Stats ours = connection->stats();
    EXPECT_EQ(ours[Counter::kRfc5666Configured] + ours[Counter::kRfc5666PaddedCalls] +
                  ours[Counter::kRfc5666ReadReplies] + ours[Counter::kRfc5666Dones],
              0u);
    EXPECT_EQ(world.server->stats()[Refusal::kNoProgram], server_alone ? 0u : 1u);
  }
}

// Each connection of a ClientConnection is configured anew; calls wait for that.
// Shows: V1-CCP-06
TEST(Rfc5666, AReconnectionIsConfiguredAgain) {
  ClientOptions options = kClient;
  options.reconnect = {.enabled = true, .first_delay_ms = 1};
  World world(Cores::kEmbedded, kServer, options);
  auto connection = world.connect();
  read_and_check(*connection, 10000);
  std::string uri = world.uri;
  world.server.reset();
  world.until([&] { return connection->reconnecting(); });
  EndingCall waiting(*connection);
  Encoder& args = waiting.begin(kEcho);
  args.put_u32(0);
  waiting.submit();
  world.server = Server::create(*world.runtime, kServer).value();
  ASSERT_TRUE(world.server->add_service(
      {.binding = &kBinding, .procedures = kTable, .context = &world.keeper}));
  ASSERT_TRUE(world.server->listen(uri));
  world.until([&] { return waiting.ended() == 1; });
  EXPECT_EQ(waiting.call.status(), CallStatus::kOk);
  EXPECT_EQ(connection->stats()[Counter::kRfc5666Configured], 2u);
  read_and_check(*connection, 10000);
}

TEST(Rfc5666, OptionsThatMakeNoSenseAreRefused) {
  World world;
  auto server = [&](const ServerOptions& options) {
    auto made = Server::create(*world.runtime, options);
    return made ? Errc::kSystem : made.error().code;
  };
  EXPECT_EQ(server({.versions = {.one = false}, .rfc5666 = {.enabled = true}}),
            Errc::kInvalidArgument);
  for (uint32_t align : {1u, 4u, 48u, 8192u})
    EXPECT_EQ(server({.rfc5666 = {.enabled = true, .align = align}}), Errc::kInvalidArgument);
  EXPECT_EQ(server({.rfc5666 = {.enabled = true, .exposed_replies = 0}}), Errc::kInvalidArgument);
  EXPECT_EQ(server({.rfc5666 = {.enabled = true, .done_timeout_ms = 0}}), Errc::kInvalidArgument);
  auto client = Client::create(*world.runtime,
                               {.version = RpcRdmaVersion::kAuto, .rfc5666 = {.enabled = true}});
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, Errc::kInvalidArgument);
}

// A client that builds every message itself.
struct RawWorld {
  explicit RawWorld(const ServerOptions& options)
      : world(Cores::kEmbedded, options), client(*world.memory, world.uri) {
    until([&] { return client.up(); });
  }
  template <typename Done>
  void until(Done&& done) {
    world.until([&] {
      client.pump();
      return done();
    });
  }
  Received answer() {
    until([&] { return !client.received.empty(); });
    Received first = client.received.front();
    client.received.erase(client.received.begin());
    return first;
  }
  Received config(uint32_t xid, Words arguments, uint32_t procedure = proto::ccp::kConfRdma,
                  uint32_t version = proto::ccp::kVersion) {
    client.send(
        RawCall{.xid = xid, .procedure = procedure, .arguments = std::move(arguments)}.message(
            proto::ccp::kProgram, version));
    return answer();
  }

  World world;
  RawClient client;
};

constexpr size_t kAcceptStat = 12;  // word of a reply: 7 of the header, XID, three, verifier
constexpr uint32_t kSuccess = 0, kProgUnavail = 1, kProgMismatch = 2, kProcUnavail = 3,
                   kGarbageArgs = 4;

Words results_of(const Received& reply) {
  return {reply.at(kAcceptStat + 1), reply.at(kAcceptStat + 2), reply.at(kAcceptStat + 3)};
}

// Shows: V1-CCP-18
TEST(Rfc5666Server, WithoutTheModeTheProgramIsUnknown) {
  RawWorld raw({});
  EXPECT_EQ(raw.config(1, {4096, 4096, 16}).at(kAcceptStat), kProgUnavail);
}

// Shows: V1-CCP-03, V1-CCP-20, V1-CCP-22
TEST(Rfc5666Server, ConfRdmaIsAnsweredByTheValuesInForce) {
  RawWorld raw({.credits = 16,
                .inline_size = 8192,
                .rfc5666 = {.enabled = true, .align = 128, .max_reads = 5}});
  Received null = raw.config(1, {}, 0);
  EXPECT_EQ(null.at(kAcceptStat), kSuccess);
  EXPECT_EQ(null.words.size(), kAcceptStat + 1);
  Received reply = raw.config(2, {4096, 2048, 16});
  EXPECT_EQ(reply.at(kAcceptStat), kSuccess);
  EXPECT_EQ(reply.words.size(), kAcceptStat + 4);
  EXPECT_EQ(results_of(reply), (Words{8192, 128, 5}));
  EXPECT_EQ(results_of(raw.config(3, {1, 2, 3})), (Words{8192, 128, 5}));
  EXPECT_EQ(raw.config(4, {}, 2).at(kAcceptStat), kProcUnavail);
  EXPECT_EQ(raw.config(5, {}, 1, 2).at(kAcceptStat), kProgMismatch);
  for (Words short_or_long : {Words{}, Words{1, 2}, Words{1, 2, 3, 4}})
    EXPECT_EQ(raw.config(6, short_or_long).at(kAcceptStat), kGarbageArgs);
  EXPECT_EQ(raw.world.server->stats()[Counter::kRfc5666Configured], 1u);
}

// Shows: V1-CCP-11, V1-CCP-23
TEST(Rfc5666Server, HostileValuesOnlyBoundWhatTheirOwnConnectionGets) {
  for (uint32_t value : {0u, 1u, 1023u, 0x7fffffffu, UINT32_MAX}) {
    RawWorld raw({.rfc5666 = {.enabled = true}});
    EXPECT_EQ(results_of(raw.config(1, {value, value, value})).at(0), 4096u);
    // The largest inline reply has the size that the client announced, but at least 1024 and at
    // most our limit.
    uint32_t limit = value < 1024 ? 1024 : 4096;
    for (uint32_t size : {limit - 56, limit - 52}) {
      raw.client.send(RawCall{.xid = 2, .procedure = kRead, .arguments = {0, 5, size}}.message(
          kBinding.program, kBinding.version));
      Received reply = raw.answer();
      EXPECT_LE(reply.words.size() * 4, limit);
    }
    auto other = raw.world.connect();
    write_and_check(*other, *raw.world.memory, 100000);
  }
}

// Shows: V1-CCP-17
TEST(Rfc5666Server, APolicyMayDemandAFlavour) {
  RawWorld raw({.rfc5666 = {.enabled = true, .config_flavor = AuthFlavor::kRpcsecGss}});
  Received denied = raw.config(1, {4096, 1024, 16});
  EXPECT_EQ(denied.at(9), 1u) << "MSG_DENIED";
  EXPECT_EQ(denied.at(11), static_cast<uint32_t>(AuthStat::kTooWeak));
  EXPECT_EQ(raw.world.server->stats()[Counter::kRfc5666Configured], 0u);
  RawWorld trusting({.rfc5666 = {.enabled = true}});
  EXPECT_EQ(trusting.config(1, {4096, 1024, 16}).at(kAcceptStat), kSuccess);
}

// Shows: V1-DONE-05, V1-DONE-08
TEST(Rfc5666Server, AClientThatNeverAcknowledgesIsClosed) {
  RawWorld raw({.rfc5666 = {.enabled = true, .exposed_replies = 2, .done_timeout_ms = 50}});
  auto bystander = raw.world.connect();
  raw.client.send(RawCall{.xid = 1, .procedure = kRead, .arguments = {0, 5, 50000}}.message(
      kBinding.program, kBinding.version));
  Received reply = raw.answer();
  EXPECT_EQ(reply.type(), 0u);
  EXPECT_EQ(reply.at(4), 1u) << "a Read list";
  EXPECT_EQ(reply.at(7), 50000u);
  for (uint32_t wrong : {0u, 2u, UINT32_MAX})
    raw.client.send({wrong, 1, 32, 3});
  raw.until([&] { return raw.client.down(); });
  Stats stats = raw.world.server->stats();
  EXPECT_EQ(stats[Refusal::kNoDone], 1u);
  EXPECT_EQ(stats[Refusal::kDone], 3u);
  EXPECT_EQ(stats[Counter::kRfc5666Dones], 0u);
  write_and_check(*bystander, *raw.world.memory, 100000);
}

}  // namespace
}  // namespace rrdk::loopback
