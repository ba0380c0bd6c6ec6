// Every way to answer a call, seen from the client.
#include "loopback.h"

namespace rrdk::loopback {
namespace {

class ByCores : public testing::TestWithParam<Cores> {};

std::string cores_name(const testing::TestParamInfo<Cores>& cores) {
  switch (cores.param) {
    case Cores::kEmbedded:
      return "Embedded";
    case Cores::kDedicated:
      return "Dedicated";
    case Cores::kWorkers:
      return "Workers";
  }
  return "None";
}

INSTANTIATE_TEST_SUITE_P(Cores, ByCores,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers),
                         cores_name);

TEST_P(ByCores, NullIsAnsweredThoughNoHandlerIsThere) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  for (int i = 0; i < 100; ++i) {
    call.begin(kBinding, 0);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_TRUE(call.results().at_end());
  }
  EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 100u);
  EXPECT_EQ(connection->stats()[Counter::kCallsOk], 100u);
}

TEST_P(ByCores, EchoesByEveryDispatch) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  std::vector<std::byte> bytes(3000);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = pattern(i);
  for (uint32_t procedure : {kEcho, kWorker, kThread}) {
    for (size_t size : {0, 1, 3, 4, 1000, 3000}) {
      SCOPED_TRACE(size);
      call.begin(kBinding, procedure).put_opaque(std::span(bytes).first(size));
      call.expect_reply(size + 3);
      ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      ItemView back = call.results().get_opaque(UINT32_MAX);
      EXPECT_TRUE(call.results().at_end());
      ASSERT_EQ(back.size(), size);
      std::vector<std::byte> copy(size);
      back.copy_to(copy.data());
      EXPECT_TRUE(std::equal(copy.begin(), copy.end(), bytes.begin()));
    }
  }
}

TEST_P(ByCores, AnswersWithEveryAcceptStatus) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  const std::pair<AcceptStat, CallStatus> kExpected[] = {
      {AcceptStat::kProgUnavail, CallStatus::kProgUnavail},
      {AcceptStat::kProgMismatch, CallStatus::kProgMismatch},
      {AcceptStat::kProcUnavail, CallStatus::kProcUnavail},
      {AcceptStat::kGarbageArgs, CallStatus::kGarbageArgs},
      {AcceptStat::kSystemErr, CallStatus::kSystemErr},
      {AcceptStat::kSuccess, CallStatus::kSystemErr}};
  for (auto [given, expected] : kExpected) {
    call.begin(kBinding, kReject).put_u32(static_cast<uint32_t>(given));
    EXPECT_EQ(call.submit_and_wait(), expected);
  }
  call.begin(kBinding, kForget);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
  call.begin(kBinding, kFailEncode);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kSystemErr);
  EXPECT_EQ(world.server->stats()[Counter::kCallsRejected], 8u);
  EXPECT_TRUE(connection->alive());
}

TEST_P(ByCores, DeniesWithTheReason) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  for (AuthStat reason : {AuthStat::kBadCred, AuthStat::kTooWeak, AuthStat::kGssCredProblem}) {
    call.begin(kBinding, kDeny).put_u32(static_cast<uint32_t>(reason));
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kAuthError);
    EXPECT_EQ(call.auth_stat(), reason);
  }
}

TEST_P(ByCores, RefusesUnknownProgramsAndProcedures) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  Binding other = kBinding;
  other.program = 0x20005601;
  call.begin(other, 0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kProgUnavail);
  other = kBinding;
  other.version = 4;
  call.begin(other, 0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kProgMismatch);
  EXPECT_EQ(call.mismatch_low(), 3u);
  EXPECT_EQ(call.mismatch_high(), 3u);
  call.begin(kBinding, 77);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kProcUnavail);
  call.begin(kBinding, kRead).put_u32(1);  // too short
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kGarbageArgs);
}

// Calls of a version that is not in the service table, answered as a gateway answers them.
struct ByWire : testing::TestWithParam<std::tuple<std::string, RpcRdmaVersion>> {};
INSTANTIATE_TEST_SUITE_P(
    Wires, ByWire,
    testing::Combine(testing::Values("shm:" + socket_path(), "iwarp://127.0.0.1:0"),
                     testing::Values(RpcRdmaVersion::kOne, RpcRdmaVersion::kTwo)));

TEST_P(ByWire, AHandlerMayNameVersionsOfItsOwn) {
  static constexpr Binding kGateway = {
      .program = 0x20005603, .version = 2, .name = "gateway", .procedures = {}};
  auto refuse = [](ServerCall call, void*) {
    const uint32_t low = call.args().get_u32();
    call.results().put_u64(0);  // must not be seen
    std::move(call).reject_versions(low, call.args().get_u32());
  };
  auto by_other_thread = [](ServerCall call, void* keeper) {
    const uint32_t low = call.args().get_u32(), high = call.args().get_u32();
    static_cast<Keeper*>(keeper)->threads.emplace_back(
        [low, high](ServerCall mine) { std::move(mine).reject_versions(low, high); },
        std::move(call));
  };
  const Procedure table[] = {{1, refuse},
                             {2, refuse, Dispatch::kWorker},
                             {3, by_other_thread},
                             {4, refuse, Dispatch::kInline, false}};
  Keeper keeper;
  const auto& [where, version] = GetParam();
  Ends ends(options_for(Cores::kWorkers), {}, {.version = version},
            {{.binding = &kGateway, .procedures = table, .context = &keeper}}, where);
  auto connection = ends.client->connect(ends.uri).value();
  for (const Procedure& procedure : table) {
    Call call(*connection);
    for (auto [low, high] : {std::pair(3u, 7u), {0u, 0u}, {UINT32_MAX, 1u}}) {
      Encoder& args = call.begin(kGateway, procedure.number);
      args.put_u32(low);
      args.put_u32(high);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kProgMismatch);
      EXPECT_EQ(call.mismatch_low(), low);
      EXPECT_EQ(call.mismatch_high(), high);
    }
  }
  EXPECT_EQ(ends.server->stats()[Counter::kCallsRejected], 12u);
  EXPECT_EQ(connection->info().version, version == RpcRdmaVersion::kTwo ? 2u : 1u);
  keeper.join();
  connection.reset();
  ends.end();
}

// Shows: V1-LONG-11, EXP-24
TEST_P(ByCores, RefusesChunksThatTheBindingDoesNotAllow) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  // A client whose binding differs from the server's: the argument of ECHO is eligible.
  constexpr ProcedureBinding kOther[] = {{.procedure = kEcho,
                                          .name = "ECHO",
                                          .eligible_args = 1,
                                          .eligible_results = 1,
                                          .fixed_results = 4}};
  Binding other = kBinding;
  other.procedures = kOther;
  Buffer data = world.memory->get(4096);
  call.begin(other, kEcho).put_item(data.first(4096), Ddp::kEligible);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kGarbageArgs);
  call.begin(other, kEcho).put_u32(0);
  call.offer(data.first(4096));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kGarbageArgs);
  call.begin(kBinding, 0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

// Shows: EXP-24
TEST(Server, AnswersForbiddenChunksAsTheBindingSays) {
  World world(Cores::kEmbedded);
  constexpr Procedure kNothing[] = {
      {.number = 1, .handler = [](ServerCall call, void*) { std::move(call).reply(); }}};
  Binding strict = {.program = 0x20005601,
                    .version = 1,
                    .name = "strict",
                    .procedures = {},
                    .on_breach = BreachAnswer::kTransportError};
  auto server = Server::create(*world.runtime).value();
  ASSERT_TRUE(server->add_service({.binding = &strict, .procedures = kNothing}));
  std::string uri = server->listen("shm:" + socket_path()).value();
  auto connection = world.client->connect(uri).value();
  constexpr ProcedureBinding kOther[] = {{.procedure = 1,
                                          .name = "OTHER",
                                          .eligible_args = 1,
                                          .eligible_results = 1,
                                          .fixed_results = 4}};
  Binding other = strict;
  other.procedures = kOther;
  Buffer data = world.memory->get(4096);
  Call call(*connection);
  call.begin(other, 1).put_item(data.first(4096), Ddp::kEligible);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kChunkError);
  call.begin(other, 1).put_u32(0);
  call.offer(data.first(4096));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kChunkError);
  EXPECT_EQ(server->stats()[Counter::kTransportErrorsSent], 2u);
  EXPECT_EQ(server->stats()[Counter::kProtocolBreaches], 2u);
  call.begin(strict, 1);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

TEST_P(ByCores, ReportsTheCaller) {
  World world(GetParam());
  auto connection = world.connect();
  Call call(*connection);
  call.begin(kBinding, kWho);
  call.expect_reply(256);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), UINT32_MAX);
  char name[256];
  EXPECT_FALSE(call.results().get_string(name).empty());

  AuthSys identity;
  identity.uid = 1234;
  ASSERT_TRUE(identity.set_machine_name("there"));
  connection->set_auth_sys(identity);
  call.begin(kBinding, kWho);
  call.expect_reply(256);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), 1234u);
  EXPECT_EQ(call.results().get_string(name), "there");
}

TEST_P(ByCores, DelaysAReply) {
  World world(GetParam());
  // The first call of a connection may come before the server's end knows that it is up.
  for (int round = 0; round < 50; ++round) {
    auto connection = world.connect();
    Call call(*connection);
    uint64_t start = Runtime::now_ns();
    call.begin(kBinding, kDelay).put_u64(3'000'000);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_GE(Runtime::now_ns() - start, 3'000'000u);
  }
}

// The server does not wait with a reply if its connection has ended.
TEST_P(ByCores, DelayedRepliesEndWithTheirConnection) {
  World world(GetParam());
  {
    auto connection = world.connect();
    EndingCall ending(*connection);
    ending.begin(kDelay).put_u64(50'000'000'000);
    ending.submit();
    world.until([&] { return world.server->stats()[Counter::kCallsReceived] == 1; });
    connection.reset();
    EXPECT_EQ(ending.ended(), 1);
    EXPECT_EQ(ending.call.status(), CallStatus::kShutdown);
  }
  uint64_t start = Runtime::now_ns();
  world.until([&] { return world.server->stats()[Counter::kConnections] == 0; });
  EXPECT_LT(Runtime::now_ns() - start, 30'000'000'000u);
}

TEST_P(ByCores, AnswersLateAndFromElsewhere) {
  World world(GetParam(), {.first_credits = 20});
  auto connection = world.connect();
  open_window(*connection);
  std::vector<std::unique_ptr<EndingCall>> endings;
  for (int i = 0; i < 20; ++i) {
    endings.push_back(std::make_unique<EndingCall>(*connection));
    endings.back()->begin(kKeep);
    endings.back()->submit();
  }
  world.until([&] { return world.keeper.kept() == 20; });
  for (auto& ending : endings)
    EXPECT_EQ(ending->ended(), 0);
  world.keeper.release();
  for (auto& ending : endings) {
    world.until([&] { return ending->ended() == 1; });
    EXPECT_EQ(ending->call.status(), CallStatus::kOk);
  }
}

// Shows: V1-ERR-20
TEST_P(ByCores, ADroppedCallEndsItsConnectionAndNoOther) {
  World world(GetParam());
  auto doomed = world.connect();
  auto other = world.connect();
  Call call(*doomed);
  call.begin(kBinding, kDropCall);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kConnectionLost);
  EXPECT_FALSE(doomed->alive());
  Call good(*other);
  good.begin(kBinding, 0);
  EXPECT_EQ(good.submit_and_wait(), CallStatus::kOk);
}

TEST_P(ByCores, RefusesMoreConnectionsThanConfigured) {
  World world(GetParam(), {.max_connections = 2});
  auto one = world.connect();
  auto two = world.connect();
  open_window(*one);  // those that never made a call would make way
  open_window(*two);
  auto three = world.client->connect(world.uri);
  ASSERT_FALSE(three);
  EXPECT_EQ(three.error().code, Errc::kRefused) << three.error().message;
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsRefused], 1u);
  two.reset();
  world.until([&] { return world.server->stats()[Counter::kConnections] == 1; });
  auto four = world.connect();
  EXPECT_TRUE(four->alive());
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsAccepted], 3u);
}

TEST_P(ByCores, CallsEndWhenTheServerGoesAway) {
  World world(GetParam());
  auto connection = world.connect();
  std::vector<std::unique_ptr<EndingCall>> endings;
  for (int i = 0; i < 100; ++i) {  // more than the credits: some are sent, some wait
    endings.push_back(std::make_unique<EndingCall>(*connection));
    endings.back()->begin(kDelay).put_u64(50'000'000'000);
    endings.back()->submit();
  }
  world.until([&] { return world.server->stats()[Counter::kCallsReceived] > 0; });
  world.server.reset();
  for (auto& ending : endings) {
    world.until([&] { return ending->ended() == 1; });
    EXPECT_EQ(ending->call.status(), CallStatus::kConnectionLost);
  }
  EXPECT_FALSE(connection->alive());
  Call call(*connection);
  call.begin(kBinding, 0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kConnectionLost);
}

// The load continues while the server is destroyed: calls in handlers on workers, in rings, in
// timers.
TEST_P(ByCores, IsDestroyedUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    World world(GetParam());
    auto connection = world.connect();
    open_window(*connection);
    std::vector<std::unique_ptr<Repeating>> loads;
    for (int i = 0; i < 50; ++i) {
      loads.push_back(std::make_unique<Repeating>(*connection));
      loads.back()->again();
    }
    world.until([&] { return loads[0]->good.load() > 20; });
    world.server.reset();
    for (auto& load : loads) {
      world.until([&] { return load->ended() == 1; });
      EXPECT_EQ(load->call.status(), CallStatus::kConnectionLost);
    }
    connection.reset();
    for (auto& load : loads)
      EXPECT_EQ(load->ended(), 1);
  }
}

// Receives are posted before a connection is accepted: without buffers for them it is refused.
TEST_P(ByCores, RefusesConnectionsThatItHasNoBuffersFor) {
  World world(GetParam(), {.credits = 600});
  std::vector<std::unique_ptr<ClientConnection>> connections;
  Error refused;
  while (connections.size() < 1000) {
    auto connection = world.client->connect(world.uri);
    if (!connection) {
      refused = connection.error();
      break;
    }
    open_window(**connection);
    connections.push_back(std::move(*connection));
  }
  EXPECT_EQ(refused.code, Errc::kRefused) << refused.message;
  ASSERT_GE(connections.size(), 1u);
  Call call(*connections[0]);
  call.begin(kBinding, 0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

TEST(Server, RefusesBadTables) {
  World world;
  auto server = Server::create(*world.runtime).value();
  Service service = {.binding = &kBinding, .procedures = kTable};
  EXPECT_TRUE(server->add_service(service));
  EXPECT_EQ(server->add_service(service).error().code, Errc::kInvalidArgument);
  constexpr Procedure kTwice[] = {{1, echo}, {1, read}};
  Binding other = kBinding;
  other.version = 9;
  EXPECT_FALSE(server->add_service({.binding = &other, .procedures = kTwice}));
  constexpr Procedure kNobody[] = {{1, nullptr}};
  EXPECT_FALSE(server->add_service({.binding = &other, .procedures = kNobody}));
  EXPECT_FALSE(server->add_service({}));
}

TEST(Server, RefusesBadOptionsAndAddresses) {
  World world;
  EXPECT_FALSE(Server::create(*world.runtime, {.credits = 0}));
  EXPECT_FALSE(Server::create(*world.runtime, {.inline_size = 1000}));
  EXPECT_FALSE(Client::create(*world.runtime, {.inline_size = 0}));
  auto server = Server::create(*world.runtime).value();
  EXPECT_EQ(server->listen("nonsense:/x").error().code, Errc::kBadUri);
  EXPECT_EQ(server->listen(world.uri).error().code, Errc::kAddressInUse);
  EXPECT_EQ(world.client->connect("shm:/nonexistent/x").error().code, Errc::kNotFound);
  EXPECT_EQ(world.client->connect("nonsense:/x").error().code, Errc::kBadUri);
}

TEST(Server, SpreadsConnectionsOverCores) {
  World world(RuntimeOptions{.embedded_cores = 4}, {}, {});
  std::vector<std::unique_ptr<ClientConnection>> connections;
  for (int i = 0; i < 8; ++i)
    connections.push_back(world.connect());
  world.until([&] { return world.server->stats()[Counter::kConnections] == 8; });
  // Both limits count: 16 in all, 4 on each core.
  for (uint32_t core = 0; core < 4; ++core)
    EXPECT_EQ(world.runtime->stats(core)[Counter::kConnections], 4u);
}

TEST(ServerCallObject, IsEmptyUntilItHasACallAndAfterIt) {
  static constexpr ProcedureBinding kOne[] = {{.procedure = 1, .name = "ONE", .fixed_results = 4},
                                              {.procedure = 2, .name = "TWO", .fixed_results = 4}};
  static constexpr Binding kPair = {
      .program = 0x20005603, .version = 1, .name = "pair", .procedures = kOne};
  using Waiting = std::map<uint32_t, ServerCall>;
  auto keep_call = [](ServerCall call, void* context) {
    EXPECT_TRUE(call);
    uint32_t procedure = call.procedure();
    (*static_cast<Waiting*>(context))[procedure] = std::move(call);
    EXPECT_FALSE(call);
  };
  Waiting ones, twos;
  const Procedure table[] = {{1, keep_call}, {.number = 2, .handler = keep_call, .context = &twos}};
  World world;
  auto server = Server::create(*world.runtime).value();
  ASSERT_TRUE(server->add_service({.binding = &kPair, .procedures = table, .context = &ones}));
  auto connection = world.client->connect(server->listen("shm:" + socket_path()).value()).value();
  ServerCall empty;
  EXPECT_FALSE(empty);
  for (uint32_t procedure : {1u, 2u}) {
    EndingCall ending(*connection);
    ending.call.begin(kPair, procedure);
    ending.submit();
    Waiting& waiting = procedure == 1 ? ones : twos;
    world.until([&] { return waiting.size() == 1; });
    EXPECT_EQ(waiting.begin()->first, procedure);
    std::vector<ServerCall> more(3);
    more[1] = std::move(waiting.begin()->second);
    EXPECT_FALSE(waiting.begin()->second);
    more.erase(more.begin());
    EXPECT_EQ(ending.ended(), 0);
    more[0].results().put_u32(procedure);
    std::move(more[0]).reply();
    EXPECT_FALSE(more[0]);
    world.until([&] { return ending.ended() == 1; });
    EXPECT_EQ(ending.call.status(), CallStatus::kOk);
    EXPECT_EQ(ending.call.results().get_u32(), procedure);
  }
  connection.reset();
  server.reset();
}

}  // namespace
}  // namespace rrdk::loopback
