// What a binding promises and forbids, at the caller and at the handler.
#include <cstring>

#include "loopback.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kProgram = 0x20005610;
constexpr uint32_t kShort = 1;  // opaque<> -> opaque<>, never long
constexpr uint32_t kItem = 2;   // eligible opaque<> -> eligible opaque<>

constexpr ProcedureBinding kShortEntry = {
    .procedure = kShort, .name = "SHORT", .fixed_results = 4, .no_long_calls = true};
constexpr ProcedureBinding kItemEntry = {.procedure = kItem,
                                         .name = "ITEM",
                                         .eligible_args = 1,
                                         .eligible_results = 1,
                                         .fixed_results = 4};
constexpr ProcedureBinding kEntries[] = {kShortEntry, kItemEntry};
constexpr Binding kStrict = {
    .program = kProgram, .version = 1, .name = "strict", .procedures = kEntries};

void item(ServerCall call, void*) {
  ItemView data = call.args().get_item(UINT32_MAX);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  Buffer copy = call.memory().get(std::max(data.size(), 1u));
  if (!copy)
    return std::move(call).reject(AcceptStat::kSystemErr);
  data.copy_to(copy.data());
  call.results().put_item(std::move(copy), data.size(), Ddp::kEligible);
  std::move(call).reply();
}

constexpr Procedure kHandlers[] = {{kShort, echo}, {kItem, item}};

// A server of kStrict, beside the World's own.
class Bindings : public testing::Test {
 protected:
  void start(const ClientOptions& options = {}, const ServerOptions& server_options = {}) {
    world = std::make_unique<World>(Cores::kEmbedded, server_options, options);
    server = Server::create(*world->runtime, server_options).value();
    ASSERT_TRUE(server->add_service({.binding = &kStrict, .procedures = kHandlers}));
    ASSERT_TRUE(server->add_service(
        {.binding = &kBinding, .procedures = kTable, .context = &world->keeper}));
    uri = server->listen("shm:" + socket_path()).value();
    connection = world->client->connect(uri).value();
    open_window(*connection);
  }
  void TearDown() override {
    connection.reset();
    server.reset();
    world.reset();
  }
  Buffer bytes(uint32_t size) { return patterned(*world->memory, 0, size); }
  static bool is_pattern(const ItemView& data, uint32_t size) {
    std::vector<std::byte> got(data.size());
    data.copy_to(got.data());
    for (uint32_t i = 0; i != got.size(); ++i) {
      if (got[i] != pattern(i))
        return false;
    }
    return data.size() == size;
  }

  std::unique_ptr<World> world;
  std::unique_ptr<Server> server;
  std::unique_ptr<ClientConnection> connection;
  std::string uri;
};

// Shows: EXP-33
TEST_F(Bindings, LongCallsCanBeForbiddenOnBothSides) {
  start();
  Call call(*connection);
  Buffer large = bytes(9000);
  call.begin(kStrict, kShort).put_opaque(std::span<const std::byte>(large.data(), 9000));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kTooLarge);
  EXPECT_EQ(connection->stats()[Counter::kLongCalls], 0u);
  // A client that does not know the binding.
  constexpr ProcedureBinding kLax[] = {
      {.procedure = kShort, .name = "SHORT", .eligible_results = 1, .fixed_results = 4}};
  Binding other = kStrict;
  other.procedures = kLax;
  call.begin(other, kShort).put_opaque(std::span<const std::byte>(large.data(), 9000));
  call.expect_reply(9000);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kGarbageArgs);
  EXPECT_EQ(connection->stats()[Counter::kLongCalls], 1u);
  call.begin(kStrict, kShort).put_u32(0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

// Shows: EXP-31, V1-ERR-23, EXP-22
TEST_F(Bindings, LongCallsHaveTheLimitsOfInlineOnes) {
  start();
  constexpr ProcedureBinding kGreedy[] = {{.procedure = kItem,
                                           .name = "ITEM",
                                           .eligible_args = 2,
                                           .eligible_results = 1,
                                           .fixed_results = 4}};
  Binding other = kStrict;
  other.procedures = kGreedy;
  Call call(*connection);
  Buffer data = bytes(5000);
  for (uint32_t items : {1u, 2u}) {
    Encoder& args = call.begin(other, kItem);
    for (uint32_t i = 0; i != items; ++i)
      args.put_item(data.first(5000), Ddp::kEligible);
    args.put_fixed(std::span<const std::byte>(data.data(), 4900));
    call.expect_reply(5000);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kGarbageArgs);
  }
  EXPECT_EQ(connection->stats()[Counter::kLongCalls], 2u);
  // The first call was only too long for the handler; the second never got that far.
  EXPECT_EQ(server->stats()[Counter::kCallsRejected], 2u);
}

// Shows: EXP-25
TEST_F(Bindings, WithoutAnEntryNothingMovesByItself) {
  start();
  Binding bare = kStrict;
  bare.procedures = {};
  Call call(*connection);
  Buffer data = bytes(5000);
  call.begin(bare, kItem);
  call.offer(data.first(5000));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kTooLarge);
}

// Shows: EXP-21
TEST_F(Bindings, WorkWithAnyInlineThreshold) {
  for (uint32_t threshold : {1024u, 4096u, 65536u, 262144u}) {
    SCOPED_TRACE(threshold);
    start({.credits = 2, .inline_size = threshold}, {.credits = 2, .inline_size = threshold});
    Call call(*connection);
    Buffer room = world->memory->get(300000);
    for (uint32_t size : {0u, 1u, 900u, 1024u, 4096u, 65536u, 262144u, 300000u}) {
      Buffer data = bytes(size);
      for (bool offered : {true, false}) {
        call.begin(kStrict, kItem).put_item(data.first(size), Ddp::kEligible);
        if (offered)
          call.offer(room.first(300000));
        else
          call.expect_reply(size + 3);
        ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
        EXPECT_TRUE(is_pattern(call.results().get_item(size), size));
        EXPECT_TRUE(call.results().at_end());
      }
      call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>(data.data(), size));
      call.expect_reply(size + 3);
      ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      EXPECT_TRUE(is_pattern(call.results().get_opaque(size), size));
    }
    connection.reset();
    server.reset();
    room.reset();
  }
}

// Shows: V1-INLINE-08, EXP-14
TEST_F(Bindings, ProgramsOfAConnectionShareItsCredits) {
  constexpr uint32_t kCredits = 4;
  start({}, {.credits = kCredits});
  std::vector<std::unique_ptr<EndingCall>> calls;
  for (uint32_t i = 0; i != 12; ++i) {
    calls.push_back(std::make_unique<EndingCall>(*connection));
    if (i % 2 == 0)
      calls.back()->begin(kKeep).put_u64(0);
    else
      calls.back()->call.begin(kStrict, kShort).put_u32(0);
    calls.back()->submit();
  }
  // KEEPs hold all credits, so the other program waits, too.
  world->until([&] { return world->keeper.kept() == kCredits; });
  for (int i = 0; i != 100; ++i)
    world->runtime->poll(connection->core());
  EXPECT_EQ(world->keeper.kept(), kCredits);
  size_t ended = 0;
  for (const auto& call : calls)
    ended += static_cast<size_t>(call->ended());
  world->until([&] {
    world->keeper.release();
    for (ended = 0; const auto& call : calls)
      ended += static_cast<size_t>(call->ended());
    return ended == calls.size();
  });
  for (const auto& call : calls)
    EXPECT_EQ(call->call.status(), CallStatus::kOk);
}

// An RPCSEC_GSS credential (RFC 2203 section 5.3.1): version, DATA, sequence number, service, an
// empty handle.
std::vector<std::byte> gss(uint32_t service) {
  std::vector<std::byte> body(20);
  uint32_t words[] = {1, 0, 77, service, 0};
  for (size_t i = 0; i != 5; ++i)
    xdr::store_u32(&body[4 * i], words[i]);
  return body;
}
constexpr uint32_t kNoService = 1, kIntegrity = 2, kPrivacy = 3;

// Shows: SEC-04, SEC-05, SEC-06, SEC-08
TEST_F(Bindings, ATransformedBodyIsWholeOnBothSides) {
  start();
  Call call(*connection);
  Buffer data = bytes(5000);
  Buffer room = world->memory->get(5000);
  auto prepare = [&] {
    call.begin(kStrict, kItem).put_item(data.first(5000), Ddp::kEligible);
    call.offer(room.first(5000));
  };
  auto expect_data = [&] {
    EXPECT_TRUE(is_pattern(call.results().get_item(5000), 5000));
    EXPECT_TRUE(call.results().at_end());
  };
  ASSERT_TRUE(connection->set_auth(AuthFlavor::kRpcsecGss, gss(kNoService)));
  prepare();
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  expect_data();
  EXPECT_EQ(connection->stats()[Counter::kLongCalls], 0u);
  EXPECT_EQ(server->stats()[Counter::kRdmaWrittenBytes], 5000u) << "it was placed";
  for (uint32_t service : {kIntegrity, kPrivacy}) {
    ASSERT_TRUE(connection->set_auth(AuthFlavor::kRpcsecGss, gss(service)));
    prepare();
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kGarbageArgs) << "chunks of their own";
    prepare();
    call.forbid_ddp(64);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    expect_data();
  }
  EXPECT_EQ(connection->stats()[Counter::kLongCalls], 2u);
  EXPECT_EQ(connection->stats()[Counter::kLongReplies], 2u);
  // The space for the reply includes what the service adds.
  for (uint32_t growth : {0u, 100u}) {
    std::vector<std::byte> echoed(9000);
    call.begin(kBinding, kEcho).put_opaque(echoed);
    call.expect_reply(8960);  // 40 bytes below the limit
    call.forbid_ddp(growth);
    EXPECT_EQ(call.submit_and_wait(), growth != 0 ? CallStatus::kOk : CallStatus::kChunkError);
  }
}

TEST_F(Bindings, ACredentialHasAtMost400Bytes) {
  start();
  std::vector<std::byte> body(kMaxAuthBody + 1);
  auto refused = connection->set_auth(AuthFlavor::kShort, body);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
  body.pop_back();
  ASSERT_TRUE(connection->set_auth(AuthFlavor::kShort, body));
  Call call(*connection);
  call.begin(kStrict, kShort).put_u32(0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

// Shows: V1-PAD-13, EXP-32
TEST(Client, ConcessionsAreMadeOnRequest) {
  for (ClientOptions options :
       {ClientOptions{.pad_write_chunks = true}, ClientOptions{.one_segment = true}}) {
    World world(Cores::kEmbedded, {}, options);
    auto connection = world.connect();
    Call call(*connection);
    Buffer room = world.memory->get(8192);
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(0);
    args.put_u32(5001);
    MemorySpan halves[] = {room.first(4099), {room.data() + 4100, 4000, room.span().region}};
    bool several = options.pad_write_chunks;
    call.offer(several ? std::span(halves) : std::span(halves).first(1));
    call.expect_reply(0);
    EXPECT_EQ(call.submit_and_wait(), several ? CallStatus::kOk : CallStatus::kChunkError);
    if (several) {
      EXPECT_EQ(call.results().get_u32(), 7u);
      EXPECT_EQ(call.results().get_item(5001).size(), 5001u);
      EXPECT_TRUE(call.results().at_end());
    } else {
      Encoder& again = call.begin(kBinding, kRead);
      again.put_u64(0);
      again.put_u32(5001);
      call.offer(halves);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kTooLarge);
    }
  }
  World world;
  auto both = Client::create(*world.runtime, {.pad_write_chunks = true, .one_segment = true});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rrdk::loopback
