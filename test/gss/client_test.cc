// Calls by RPCSEC_GSS through the API, at both ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "rrdk/gss_context.h"
#include "rrdk/rrdk.h"
#include "test/seed.h"
#include "test/server/loopback.h"

namespace rrdk::gss {
namespace {

using loopback::kBinding;
using loopback::kEcho;
using loopback::kOnce;
using loopback::kRead;
using loopback::kWrite;

using Secured = std::tuple<GssProtection, const char*>;  // the second one is a driver

std::string name_of(const testing::TestParamInfo<Secured>& of) {
  return std::to_string(static_cast<uint32_t>(std::get<0>(of.param))) + std::get<1>(of.param);
}

// A World whose server takes callers with the protection of a test only.
class SecuredCalls : public testing::TestWithParam<Secured> {
 protected:
  SecuredCalls()
      : acceptor(GssAcceptor::create({.service = "nfs@localhost", .key_table = {}}).value()) {}
  GssProtection protection() const { return std::get<0>(GetParam()); }
  void start(const ClientOptions& client_options = {}) {
    ServerOptions options;
    options.gss = acceptor.get();
    ends = std::make_unique<loopback::Ends>(
        loopback::options_for(loopback::Cores::kDedicated), options, client_options,
        std::initializer_list<Service>{
            {.binding = &kBinding, .procedures = loopback::kTable, .accepts = kAcceptGss}},
        place());
    connection = ends->client->connect(ends->uri).value();
    connection->set_credential(establish());
  }
  // Where a server may listen.
  static std::string place() {
    const std::string driver = std::get<1>(GetParam());
    return driver == "shm" ? "shm:" + loopback::socket_path() : "iwarp://127.0.0.1:0";
  }
  SharedCredential establish() {
    GssContextOptions context;
    context.target = "nfs@localhost";
    context.protection = protection();
    auto made = establish_context(*connection, kBinding, context);
    EXPECT_TRUE(made) << made.error().message;
    return made.value_or(SharedCredential());
  }
  void TearDown() override {
    connection.reset();
    if (ends != nullptr)
      ends->end();
  }

  std::unique_ptr<GssAcceptor> acceptor;
  std::unique_ptr<loopback::Ends> ends;
  std::unique_ptr<ClientConnection> connection;
};

INSTANTIATE_TEST_SUITE_P(Gss, SecuredCalls,
                         testing::Combine(testing::Values(GssProtection::kNone,
                                                          GssProtection::kIntegrity,
                                                          GssProtection::kPrivacy),
                                          testing::Values("shm", "iwarp")),
                         name_of);

// Shows: GSS-VERF-01, GSS-INTEG-01, GSS-PRIV-01, GSS-RDMA-03, GSS-RDMA-04, SEC-04, SEC-05,
// SEC-06
TEST_P(SecuredCalls, CarryDataOfAllSizes) {
  start();
  Call call(*connection);
  for (const uint32_t size : {0u, 1u, 100u, 1000u, 5000u, 70'000u, 1'000'000u}) {
    SCOPED_TRACE(size);
    Buffer room = ends->memory->get(std::max(size, 1u));
    Encoder& write = call.begin(kBinding, kWrite);
    write.put_u64(0);
    write.put_item(loopback::patterned(*ends->memory, 0, size), size, Ddp::kEligible);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(call.results().get_u32(), size);
    EXPECT_EQ(call.results().get_u32(), 0u) << "bytes that are wrong";
    EXPECT_TRUE(call.results().at_end());

    Encoder& read = call.begin(kBinding, kRead);
    read.put_u64(0);
    read.put_u32(size);
    call.offer(room.first(std::max(size, 1u)));
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(call.results().get_u32(), 7u);
    const ItemView data = call.results().get_item(size);
    ASSERT_EQ(data.size(), size);
    EXPECT_EQ(data.size() != 0 && data.data() == room.data(),
              size != 0 && protection() == GssProtection::kNone)
        << "placed by RDMA";
    std::vector<std::byte> got(size);
    data.copy_to(got.data());
    for (uint32_t i = 0; i != size; ++i)
      ASSERT_EQ(got[i], loopback::pattern(i)) << i;
    EXPECT_TRUE(call.results().at_end());
  }
}

TEST_P(SecuredCalls, AreManyAtATime) {
  start();
  constexpr uint32_t kCalls = 20, kRounds = 50;
  std::vector<std::unique_ptr<Call>> calls;
  std::atomic<uint32_t> good = 0, ended = 0;
  struct Sums {
    std::atomic<uint32_t>&good, &ended;
  } sums = {good, ended};
  for (uint32_t i = 0; i != kCalls; ++i)
    calls.push_back(std::make_unique<Call>(*connection));
  const std::byte text[] = {std::byte{1}, std::byte{2}};
  for (uint32_t round = 1; round <= kRounds; ++round) {
    for (const auto& call : calls) {
      call->begin(kBinding, round % 2 == 0 ? kEcho : kOnce).put_opaque(text);
      ASSERT_TRUE(call->submit(
          [](Call& over, void* to) {
            auto& its = *static_cast<Sums*>(to);
            its.good +=
                over.status() == CallStatus::kOk && over.results().get_opaque(9).size() == 2;
            ++its.ended;
          },
          &sums));
    }
    ends->until([&] { return ended == round * kCalls; });
    for (const auto& call : calls)
      ends->until([&] { return !call->in_flight(); });
  }
  EXPECT_EQ(good, kCalls * kRounds);
}

// The context is the acceptor's and the caller's: a connection is only what carries it.
// Shows: GSS-CTX-01, GSS-RETRY-01
TEST_P(SecuredCalls, GoOnAfterAReconnection) {
  start({.reconnect = {.enabled = true}, .retransmit = true});
  Call call(*connection);
  constexpr uint64_t kWaits = 20'000'000;  // so that it is sent again, with another number
  for (uint64_t i = 1; i != 4; ++i) {
    call.begin(kBinding, loopback::kDelay).put_u64(kWaits);
    ASSERT_TRUE(call.submit(nullptr, nullptr));
    ends->server->visit([&](const ConnectionInfo& info) {
      (void)ends->server->close(info.id, "the test wants it");  // the last one may be there still
    });
    ends->until([&] { return !call.in_flight(); });
    ASSERT_EQ(call.status(), CallStatus::kOk);
    EXPECT_EQ(call.results().get_u64(), kWaits);
    ends->until([&] { return connection->stats()[Counter::kReconnections] >= i; });
  }
  EXPECT_EQ(acceptor->stats().established, 1u);
}

// What protection adds counts, too.
TEST_P(SecuredCalls, AreRefusedIfTheyGrowTooLarge) {
  start({.max_call = 4096});
  Call call(*connection);
  for (const uint32_t size : {3980u, 100u}) {  // 4088 bytes with the header
    const std::vector<std::byte> text(size);
    call.begin(kBinding, kEcho).put_opaque(text);
    call.expect_reply(size);
    const bool fits = size == 100 || protection() == GssProtection::kNone;
    EXPECT_EQ(call.submit_and_wait(), fits ? CallStatus::kOk : CallStatus::kTooLarge) << size;
  }
}

TEST_P(SecuredCalls, TakeAnotherCredentialBeforeTheFirstArgument) {
  start();
  Call call(*connection);
  const std::byte text[] = {std::byte{1}};
  call.begin(kBinding, 0);
  ASSERT_TRUE(call.set_credential(SharedCredential()));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk) << "NULL is for everyone";
  Encoder& out = call.begin(kBinding, kEcho);
  ASSERT_TRUE(call.reset_credential());
  out.put_opaque(text);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  call.begin(kBinding, kEcho).put_opaque(text);
  ASSERT_TRUE(call.set_credential(SharedCredential()));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidCall) << "it had an argument";
}

// A context that is not known any more costs another one, and no call.
// Shows: GSS-CTX-01, GSS-ERR-04
TEST_P(SecuredCalls, GoOnAfterTheServerHasForgottenTheirContext) {
  acceptor =
      GssAcceptor::create({.service = "nfs@localhost", .key_table = {}, .max_contexts = 1}).value();
  start();
  Call call(*connection);
  const auto echo = [&] {
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    return call.submit_and_wait();
  };
  EXPECT_EQ(echo(), CallStatus::kOk);
  std::vector<SharedCredential> others;
  for (int i = 0; i != 2; ++i) {  // each makes the acceptor forget the one before
    others.push_back(establish());
    ASSERT_TRUE(call.set_credential(others.back()));
    EXPECT_EQ(echo(), CallStatus::kOk);
  }
  EXPECT_EQ(acceptor->stats().evicted, 2u);
  ASSERT_TRUE(call.set_credential(others.front()));
  EXPECT_EQ(echo(), CallStatus::kOk);
  ASSERT_TRUE(call.reset_credential());
  EXPECT_EQ(echo(), CallStatus::kOk);
  const uint64_t again = connection->stats()[Counter::kCallsForgotten];
  EXPECT_GE(again, 1u);
  EXPECT_EQ(acceptor->stats().established, 3 + again);
}

// The server is told once a context has no user any more, by the connection that is left.
// Shows: GSS-DESTROY-03
TEST_P(SecuredCalls, EndTheirContextWithItsLastUser) {
  start();
  const auto echo = [](Call& call) {
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    return call.submit_and_wait();
  };
  auto second = ends->client->connect(ends->uri).value();
  SharedCredential alice = establish();
  second->set_credential(alice);
  {
    Call first(*connection), other(*second), own(*connection);
    ASSERT_EQ(echo(first), CallStatus::kOk);
    ASSERT_EQ(echo(other), CallStatus::kOk);
    ASSERT_TRUE(own.set_credential(alice));
    ASSERT_EQ(echo(own), CallStatus::kOk);
    connection->set_credential({});
    first.begin(kBinding, 0);
    EXPECT_EQ(first.submit_and_wait(), CallStatus::kOk);
    ends->until([&] { return acceptor->stats().destroyed == 1; });
    alice = {};
    second->set_credential({});
    other.begin(kBinding, 0);
    EXPECT_EQ(other.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(echo(own), CallStatus::kOk) << "its context has still a user";
    EXPECT_EQ(acceptor->stats().destroyed, 1u);
  }
  ends->until([&] { return acceptor->stats().destroyed == 2; });
  EXPECT_EQ(acceptor->stats().contexts, 0u);
  EXPECT_EQ(connection->stats()[Counter::kCallsMade] + second->stats()[Counter::kCallsMade], 8u)
      << "those of the program, and two tokens";
}

TEST_P(SecuredCalls, EndTheirContextWithTheirConnection) {
  start();
  auto second = ends->client->connect(ends->uri).value();
  {
    const SharedCredential alice = establish();
    connection->set_credential(alice);
    second->set_credential(alice);
  }
  for (ClientConnection* one : {connection.get(), second.get()}) {
    Call call(*one);
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  connection.reset();
  {
    Call call(*second);
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(acceptor->stats().destroyed, 0u);
  }
  EXPECT_EQ(second->drain(5000), 0u);
  ends->until([&] { return acceptor->stats().destroyed == 1; });
}

// Without a connection nothing happens, also if the Runtime is gone.
TEST_P(SecuredCalls, EndTheirContextWithoutAConnection) {
  start();
  SharedCredential alice = establish();
  {
    Call call(*connection);
    ASSERT_TRUE(call.set_credential(alice));
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  connection.reset();
  ends->end();
  ends.reset();
  alice = {};
  EXPECT_EQ(acceptor->stats().destroyed, 0u);
}

// A call that is made again and again, until it fails or is told to stop.
struct Steady {
  explicit Steady(Caller& caller) : call(caller) {}
  void make() {
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    call.set_timeout_ms(50'000);
    call.submit(
        [](Call& over, void* to) {
          auto& its = *static_cast<Steady*>(to);
          if (over.status() != CallStatus::kOk)
            return;
          ++its.good;
          if (!its.stop)
            its.make();
        },
        this);
  }
  Call call;
  std::atomic<bool> stop = false;
  std::atomic<uint32_t> good = 0;
};

struct SteadyCalls {
  void add(ClientConnection& connection, int count) {
    for (int i = 0; i != count; ++i) {
      all.push_back(std::make_unique<Steady>(connection));
      all.back()->make();
    }
  }
  uint32_t good() const {
    uint32_t sum = 0;
    for (const auto& one : all)
      sum += one->good;
    return sum;
  }
  void stop(loopback::Ends& ends) {
    for (const auto& one : all)
      one->stop = true;
    ends.until([&] {
      return std::ranges::none_of(all, [](const auto& one) { return one->call.in_flight(); });
    });
    for (const auto& one : all)
      EXPECT_EQ(one->call.status(), CallStatus::kOk) << to_string(one->call.status());
  }
  std::vector<std::unique_ptr<Steady>> all;
};

// Connections of two cores share a context, to a server with two cores, which closes them at any
// time. Each call is answered: none has a number that the server takes for a replay.
// Shows: GSS-CTX-01, GSS-RETRY-01
TEST_P(SecuredCalls, GoOnOverConnectionsThatAreCut) {
  start({.reconnect = {.enabled = true, .first_delay_ms = 1}, .retransmit = true});
  const SharedCredential alice = establish();
  std::vector<std::unique_ptr<ClientConnection>> connections;
  SteadyCalls calls;
  for (int i = 0; i != 4; ++i) {
    connections.push_back(ends->client->connect(ends->uri, i % 2).value());
    connections.back()->set_credential(alice);
    calls.add(*connections.back(), 8);
  }
  std::mt19937_64 random(test::run_seed());
  for (uint32_t round = 1; round <= 20; ++round) {
    ends->until([&] { return calls.good() >= 100 * round; });
    ends->server->visit([&](const ConnectionInfo& info) {
      if (random() % 2 == 0)
        (void)ends->server->close(info.id, "the test wants it");
    });
  }
  calls.stop(*ends);
  EXPECT_EQ(ends->server->stats()[Refusal::kGssReplay], 0u);
  EXPECT_EQ(acceptor->stats().established, 2u);
  calls.all.clear();
}

// A call whose answer takes long could be one that has not arrived. Its connection finds out.
TEST_P(SecuredCalls, DoNotWaitForASlowOneOnAnotherConnection) {
  start();
  const SharedCredential alice = establish();
  auto second = ends->client->connect(ends->uri, 1).value();
  connection->set_credential(alice);
  second->set_credential(alice);
  loopback::open_window(*connection);
  Call slow(*connection);
  slow.begin(kBinding, loopback::kDelay).put_u64(3600'000'000'000);
  ASSERT_TRUE(slow.submit(nullptr, nullptr));
  SteadyCalls calls;
  calls.add(*second, 16);
  ends->until([&] { return calls.good() > 5000; });  // the window has 2048 places
  calls.stop(*ends);
  EXPECT_TRUE(slow.in_flight());
  EXPECT_EQ(connection->stats()[Counter::kKeepalives], 0u);
  EXPECT_EQ(ends->server->stats()[Refusal::kGssReplay], 0u);
  calls.all.clear();
  second.reset();
  slow.cancel();
  ends->until([&] { return !slow.in_flight(); });
}

// The acceptor keeps the contexts of a server that ends in order, for the next one.
// Shows: GSS-CTX-01
TEST_P(SecuredCalls, GoOnAfterTheirServerHasDrained) {
  start({.reconnect = {.enabled = true, .first_delay_ms = 1}, .retransmit = true});
  SteadyCalls calls;
  calls.add(*connection, 8);
  ends->until([&] { return calls.good() > 100; });
  EXPECT_EQ(ends->server->drain(30'000), 0u);
  ends->server.reset();
  ServerOptions options;
  options.gss = acceptor.get();
  ends->server = Server::create(*ends->runtime, options).value();
  ASSERT_TRUE(ends->server->add_service(
      {.binding = &kBinding, .procedures = loopback::kTable, .accepts = kAcceptGss}));
  ASSERT_TRUE(ends->server->listen(ends->uri));
  const uint32_t before = calls.good();
  ends->until([&] { return calls.good() > before + 100; });
  calls.stop(*ends);
  EXPECT_EQ(acceptor->stats().established, 1u);
  EXPECT_EQ(ends->server->stats()[Refusal::kGssReplay], 0u);
  calls.all.clear();
}

// Two connections have calls in flight when their server ends. The next one has never heard of
// their context: both wait for one other, and no call fails.
// Shows: GSS-CTX-01, GSS-ERR-04
TEST_P(SecuredCalls, GoOnAfterTheServerWasStartedAgain) {
  start({.reconnect = {.enabled = true, .first_delay_ms = 1}, .retransmit = true});
  auto second = ends->client->connect(ends->uri).value();
  const SharedCredential shared = establish();
  connection->set_credential(shared);
  second->set_credential(shared);
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i != 20; ++i)
    calls.push_back(std::make_unique<Call>(i % 2 == 0 ? *connection : *second));
  const auto all_ended = [&] {
    return std::ranges::none_of(calls, [](const auto& call) { return call->in_flight(); });
  };
  for (const auto& call : calls) {
    call->begin(kBinding, loopback::kDelay).put_u64(50'000'000);
    ASSERT_TRUE(call->submit(nullptr, nullptr));
  }
  ends->until([&] { return ends->server->stats()[Counter::kCallsReceived] >= 20; });
  ends->server.reset();
  acceptor = GssAcceptor::create({.service = "nfs@localhost", .key_table = {}}).value();
  ServerOptions options;
  options.gss = acceptor.get();
  ends->server = Server::create(*ends->runtime, options).value();
  ASSERT_TRUE(ends->server->add_service(
      {.binding = &kBinding, .procedures = loopback::kTable, .accepts = kAcceptGss}));
  ASSERT_TRUE(ends->server->listen(ends->uri));
  ends->until(all_ended);
  for (const auto& call : calls) {
    EXPECT_EQ(call->status(), CallStatus::kOk) << to_string(call->auth_stat());
    EXPECT_EQ(call->results().get_u64(), 50'000'000u);
  }
  EXPECT_EQ(acceptor->stats().established, 1u);
  calls.clear();
  second.reset();
}

// A server that forgets each context at once is not asked for ever.
TEST_P(SecuredCalls, EndIfTheServerForgetsEachContext) {
  start();
  Call call(*connection);
  call.begin(kBinding, loopback::kDeny).put_u32(static_cast<uint32_t>(AuthStat::kGssCtxProblem));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kAuthError);
  EXPECT_EQ(call.auth_stat(), AuthStat::kGssCtxProblem);
  EXPECT_EQ(connection->stats()[Counter::kCallsForgotten], 3u);
  EXPECT_EQ(acceptor->stats().established, 4u);
  // The server has not said that it does not know the contexts of these calls.
  ends->until([&] { return acceptor->stats().destroyed == 3; });
  call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

TEST_P(SecuredCalls, EndIfThereCanBeNoOtherContext) {
  start();
  const std::string cache = getenv("KRB5CCNAME"), keys = getenv("KRB5_CLIENT_KTNAME");
  setenv("KRB5CCNAME", "FILE:/nonexistent/cache", 1);
  setenv("KRB5_CLIENT_KTNAME", "FILE:/nonexistent/keys", 1);
  Call call(*connection);
  call.begin(kBinding, loopback::kDeny).put_u32(static_cast<uint32_t>(AuthStat::kGssCredProblem));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kAuthError);
  EXPECT_EQ(call.auth_stat(), AuthStat::kGssCredProblem);
  EXPECT_EQ(connection->stats()[Counter::kCallsForgotten], 0u);
  setenv("KRB5CCNAME", cache.c_str(), 1);
  setenv("KRB5_CLIENT_KTNAME", keys.c_str(), 1);
  call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk) << "with the context that there is";
}

// All credits are held by calls that were denied, and the bound permits no other call.
TEST_P(SecuredCalls, AtTheirBoundGetAnotherContext) {
  start({.credits = 4, .max_queued = 0});
  std::vector<std::unique_ptr<Call>> calls;
  for (int round = 0; round != 2; ++round) {
    for (int i = 0; i != 4; ++i) {
      calls.push_back(std::make_unique<Call>(*connection));
      calls.back()
          ->begin(kBinding, loopback::kDeny)
          .put_u32(static_cast<uint32_t>(AuthStat::kGssCredProblem));
      if (!calls.back()->submit(nullptr, nullptr))
        calls.pop_back();  // at first there is one credit
    }
    ends->until([&] {
      return std::ranges::none_of(calls, [](const auto& call) { return call->in_flight(); });
    });
  }
  EXPECT_GE(calls.size(), 5u);
  for (const auto& call : calls)
    EXPECT_EQ(call->status(), CallStatus::kAuthError);
  EXPECT_GE(connection->stats()[Counter::kCallsForgotten], 15u) << "each three times";
  calls.clear();
}

// A server that denies calls, and does not answer those that would establish another context.
class DeniedCalls : public SecuredCalls {
 protected:
  void begin() {
    start();
    alice_ = establish();
    server_ = Server::create(*ends->runtime).value();
    ASSERT_TRUE(
        server_->add_service({.binding = &kBinding, .procedures = kSilent, .context = &keeper}));
    uri_ = server_->listen(place()).value();
  }
  void TearDown() override {
    keeper.release();
    server_.reset();
    SecuredCalls::TearDown();
  }
  std::unique_ptr<ClientConnection> connect() {
    auto made = ends->client->connect(uri_).value();
    made->set_credential(alice_);
    return made;
  }
  void make(Call& call, uint32_t timeout_ms = 0) {
    call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
    call.set_timeout_ms(timeout_ms);
    ASSERT_TRUE(
        call.submit([](Call&, void* to) { ++*static_cast<std::atomic<uint32_t>*>(to); }, &ended));
  }

  loopback::Keeper keeper;  // of calls with a token
  std::atomic<uint32_t> ended = 0;

 private:
  static constexpr Procedure kSilent[] = {
      {0, loopback::keep},
      {kEcho, [](ServerCall call, void*) { std::move(call).deny(AuthStat::kGssCredProblem); }}};

  SharedCredential alice_;
  std::unique_ptr<Server> server_;
  std::string uri_;
};

INSTANTIATE_TEST_SUITE_P(Gss, DeniedCalls,
                         testing::Combine(testing::Values(GssProtection::kNone,
                                                          GssProtection::kPrivacy),
                                          testing::Values("shm", "iwarp")),
                         name_of);

TEST_P(DeniedCalls, EndLikeAnyThatWait) {
  begin();
  auto denied = connect();
  Call late(*denied), cancelled(*denied), left(*denied);
  make(cancelled);
  make(left);
  ends->until([&] { return keeper.kept() == 1; });
  make(late, 20);
  ends->until([&] { return !late.in_flight(); });
  EXPECT_EQ(late.status(), CallStatus::kTimeout);
  cancelled.cancel();
  ends->until([&] { return !cancelled.in_flight(); });
  EXPECT_EQ(cancelled.status(), CallStatus::kCancelled);
  EXPECT_TRUE(left.in_flight());
  denied.reset();
  EXPECT_FALSE(left.in_flight());
  EXPECT_EQ(left.status(), CallStatus::kShutdown);
  EXPECT_EQ(ended, 3u);
}

// The connection that asks for the context ends: another one that waits for it asks itself.
TEST_P(DeniedCalls, DoNotDependOnTheConnectionThatAsks) {
  begin();
  auto first = connect();
  auto second = connect();
  Call asks(*first), waits(*second);
  make(asks);
  ends->until([&] { return keeper.kept() == 1; });
  make(waits);
  first.reset();
  EXPECT_EQ(asks.status(), CallStatus::kShutdown);
  ends->until([&] { return keeper.kept() == 2; });
  EXPECT_TRUE(waits.in_flight());
  keeper.release();  // with an answer that has no token
  ends->until([&] { return !waits.in_flight(); });
  EXPECT_EQ(waits.status(), CallStatus::kAuthError);
  EXPECT_EQ(ended, 2u);
}

// A server that has no acceptor answers such a call without a verifier, as one would that has no
// key and claims to have run it.
// Shows: GSS-DATA-02, GSS-RDMA-05
TEST_P(SecuredCalls, BelieveNoReplyWithoutAVerifier) {
  start();
  const SharedCredential alice = establish();
  auto other = Server::create(*ends->runtime).value();
  ASSERT_TRUE(other->add_service({.binding = &kBinding, .procedures = loopback::kTable}));
  auto impostor =
      ends->client->connect(other->listen("shm:" + loopback::socket_path()).value()).value();
  impostor->set_credential(alice);
  Call call(*impostor);
  call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kAuthError);
  EXPECT_EQ(call.auth_stat(), AuthStat::kInvalidResp);
  EXPECT_FALSE(call.results().ok()) << "nor can its results be read";
  EXPECT_EQ(impostor->stats()[Refusal::kGssReply], 1u);
  impostor.reset();
  other.reset();
}

// Calls that wait for a credit, are refused when they are to be sent, and are made again from their
// callbacks: the core still serves others.
TEST_P(SecuredCalls, ThatAreRefusedAndMadeAgainLeaveTheCoreToOthers) {
  if (protection() == GssProtection::kNone)
    GTEST_SKIP() << "without protection a call does not grow when it is sent";
  start({.credits = 1, .max_call = 4096});
  std::atomic<bool> over = false;
  struct Again {
    Again(Caller& caller, std::atomic<bool>& over_in) : call(caller), over(over_in) {}
    void make() {
      const std::vector<std::byte> text(3980);  // too large with its protection
      call.begin(kBinding, kEcho).put_opaque(text);
      call.expect_reply(4000);
      call.submit([](Call&, void* to) { static_cast<Again*>(to)->ended(); }, this);
    }
    void ended() {
      ends.fetch_add(1);
      if (!over)
        make();
    }
    Call call;
    std::atomic<bool>& over;
    std::atomic<uint32_t> ends = 0;
  };
  Again one(*connection, over), two(*connection, over);
  Call holds(*connection);  // the only credit
  holds.begin(kBinding, loopback::kDelay).put_u64(20'000'000);
  ASSERT_TRUE(holds.submit(nullptr, nullptr));
  one.make();
  two.make();
  ends->until([&] { return one.ends > 10 && two.ends > 10; });
  Call null(*connection);
  null.begin(kBinding, 0);
  EXPECT_EQ(null.submit_and_wait(), CallStatus::kOk);
  over = true;
  ends->until([&] { return !one.call.in_flight() && !two.call.in_flight(); });
  EXPECT_EQ(one.call.status(), CallStatus::kTooLarge);
}

// Another context would be denied, too.
// Shows: GSS-ERR-05
TEST_P(SecuredCalls, KeepTheirContextIfTheyAreDeniedForAnotherReason) {
  start();
  Call call(*connection);
  for (const AuthStat why : {AuthStat::kBadCred, AuthStat::kRejectedCred, AuthStat::kTooWeak}) {
    call.begin(kBinding, loopback::kDeny).put_u32(static_cast<uint32_t>(why));
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kAuthError);
    EXPECT_EQ(call.auth_stat(), why);
  }
  EXPECT_EQ(connection->stats()[Counter::kCallsForgotten], 0u);
  EXPECT_EQ(acceptor->stats().established, 1u);
}

TEST_P(SecuredCalls, AreDeniedWithoutTheContext) {
  start();
  Call call(*connection);
  ASSERT_TRUE(call.set_credential(SharedCredential()));
  call.begin(kBinding, kEcho).put_opaque(std::span<const std::byte>());
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kAuthError);
  EXPECT_EQ(call.auth_stat(), AuthStat::kTooWeak);
}

TEST(Establishing, SaysWhatIsMissing) {
  auto acceptor = GssAcceptor::create({.service = "nfs@localhost", .key_table = {}}).value();
  ServerOptions options;
  options.gss = acceptor.get();
  loopback::World world(loopback::Cores::kDedicated, options);
  auto connection = world.connect();
  GssContextOptions context;
  context.target = "unknown@localhost";
  auto unknown = establish_context(*connection, kBinding, context);
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::kNotFound);
  EXPECT_NE(unknown.error().message.find("unknown@localhost"), std::string::npos)
      << unknown.error().message;
  context.target = "other@localhost";  // whose key the server does not have
  auto other = establish_context(*connection, kBinding, context);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::kRefused) << other.error().message;
  context.target = "nfs@localhost";
  context.principal = "nobody";
  EXPECT_EQ(establish_context(*connection, kBinding, context).error().code, Errc::kNotFound);
}

TEST(Establishing, RefusesWrongArguments) {
  loopback::World world(loopback::Cores::kEmbedded);
  auto connection = world.connect();
  GssContextOptions context;
  context.target = "nfs@localhost";
  context.protection = static_cast<GssProtection>(4);
  EXPECT_EQ(establish_context(*connection, kBinding, context).error().code, Errc::kInvalidArgument);
  context.protection = GssProtection::kNone;
  Call call(*connection);
  call.begin(kBinding, 0);
  struct InCallback {
    Caller& caller;
    const GssContextOptions& context;
    Errc code = Errc::kConnectionLost;
  } its = {*connection, context};
  call.submit(
      [](Call&, void* to) {
        auto& self = *static_cast<InCallback*>(to);
        self.code = establish_context(self.caller, kBinding, self.context).error().code;
      },
      &its);
  world.until([&] { return !call.in_flight(); });
  EXPECT_EQ(its.code, Errc::kInvalidArgument) << "it would wait for itself";
}

// The C API makes the same contexts.
TEST(Establishing, WorksFromC) {
  auto acceptor = GssAcceptor::create({.service = "nfs@localhost", .key_table = {}}).value();
  ServerOptions options;
  options.gss = acceptor.get();
  loopback::Ends server(
      loopback::options_for(loopback::Cores::kDedicated), options, {},
      {{.binding = &kBinding, .procedures = loopback::kTable, .accepts = kAcceptPrivacy}});
  rrdk_memory* memory;
  rrdk_runtime* runtime;
  rrdk_client* client;
  rrdk_connection* connection;
  rrdk_program* program;
  rrdk_error error;
  rrdk_procedure procedures[1] = {};
  procedures[0].number = kEcho;
  procedures[0].name = "echo";
  const rrdk_program_options its =
      RRDK_PROGRAM(kBinding.program, kBinding.version, "c", procedures);
  rrdk_memory_options small;
  rrdk_memory_options_init(&small, sizeof small);
  small.hugepages = RRDK_HUGEPAGES_NEVER;
  ASSERT_EQ(rrdk_memory_create(&small, &memory, &error), RRDK_OK) << error.message;
  ASSERT_EQ(rrdk_runtime_create(memory, nullptr, &runtime, &error), RRDK_OK) << error.message;
  ASSERT_EQ(rrdk_program_create(&its, &program, &error), RRDK_OK) << error.message;
  ASSERT_EQ(rrdk_client_create(runtime, nullptr, &client, &error), RRDK_OK) << error.message;
  ASSERT_EQ(rrdk_connect(client, server.uri.c_str(), nullptr, &connection, &error), RRDK_OK);
  rrdk_caller* const caller = rrdk_connection_caller(connection);
  rrdk_credential* alice = nullptr;
  EXPECT_EQ(rrdk_credential_create_gss(caller, program, "unknown@localhost", RRDK_GSS_PRIVACY,
                                       nullptr, &alice, &error),
            RRDK_E_NOT_FOUND);
  EXPECT_EQ(rrdk_credential_create_gss(caller, program, nullptr, RRDK_GSS_PRIVACY, nullptr, &alice,
                                       &error),
            RRDK_E_INVALID_ARGUMENT);
  ASSERT_EQ(rrdk_credential_create_gss(caller, program, "nfs@localhost", RRDK_GSS_PRIVACY, "alice",
                                       &alice, &error),
            RRDK_OK)
      << error.message;
  rrdk_call* const call = rrdk_call_create(caller);
  const auto echo = [&] {
    rrdk_put_opaque(rrdk_call_begin(call, program, kEcho), "four", 4);
    rrdk_call_expect_reply(call, 8);
    return rrdk_call_submit_and_wait(call);
  };
  EXPECT_EQ(echo(), RRDK_CALL_AUTH_ERROR);
  rrdk_caller_set_credential(caller, alice);
  EXPECT_EQ(echo(), RRDK_CALL_OK);
  rrdk_caller_set_credential(caller, nullptr);
  EXPECT_EQ(echo(), RRDK_CALL_AUTH_ERROR);
  rrdk_client_set_credential(client, alice);
  rrdk_credential_destroy(alice);
  rrdk_call_destroy(call);
  rrdk_connection_destroy(connection);
  rrdk_client_destroy(client);
  rrdk_program_destroy(program);
  rrdk_runtime_destroy(runtime);
  EXPECT_TRUE(rrdk_memory_whole(memory));
  rrdk_memory_destroy(memory);
  server.end();
}

// A connection gives its credential back when it closes, and sends no call without it.
TEST(Closing, SendsNoCallWithoutItsCredential) {
  struct Seen {
    std::atomic<int> proven = 0, others = 0;
  } seen;
  const Procedure kLooks[] = {{kEcho, [](ServerCall call, void* argument) {
                                 auto& all = *static_cast<Seen*>(argument);
                                 ++(call.security().principal.empty() ? all.others : all.proven);
                                 std::move(call).reply();
                               }}};
  auto acceptor = GssAcceptor::create({.service = "nfs@localhost", .key_table = {}}).value();
  ServerOptions options;
  options.gss = acceptor.get();
  loopback::Ends ends(loopback::options_for(loopback::Cores::kDedicated), options, {},
                      {{.binding = &kBinding, .procedures = kLooks, .context = &seen}});
  GssContextOptions context;
  context.target = "nfs@localhost";
  for (int i = 0; i != 20; ++i) {
    auto connection = ends.client->connect(ends.uri).value();
    connection->set_credential(establish_context(*connection, kBinding, context).value());
    // Its end is told to the server, which keeps the connection from closing at once.
    std::optional<SharedCredential> other =
        establish_context(*connection, kBinding, context).value();
    {
      Call call(*connection);
      EXPECT_TRUE(call.set_credential(*other));
      call.begin(kBinding, kEcho);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    }
    {
      std::deque<loopback::Repeating> calls;
      for (int k = 0; k != 8; ++k)
        calls.emplace_back(*connection, kEcho).again();
      const int before = seen.proven.load();
      loopback::wait_until([&] { return seen.proven.load() > before + 20; }, [] { return 0u; });
      other.reset();
      connection->close_start();
      for (const loopback::Repeating& call : calls)
        loopback::wait_until([&] { return call.ended() != 0; }, [] { return 0u; });
    }
  }
  EXPECT_EQ(seen.others.load(), 0);
  ends.end();
}

// A context is renewed for the principal that had it, whose tickets need not be the default any
// more.
TEST(Establishing, KeepsItsPrincipal) {
  static constexpr Procedure kNames[] = {{kEcho,
                                          [](ServerCall call, void*) {
                                            call.results().put_string(call.security().principal);
                                            std::move(call).reply();
                                          }},
                                         {loopback::kDeny, loopback::deny}};
  auto acceptor = GssAcceptor::create({.service = "nfs@localhost", .key_table = {}}).value();
  ServerOptions options;
  options.gss = acceptor.get();
  loopback::Ends ends(loopback::options_for(loopback::Cores::kDedicated), options, {},
                      {{.binding = &kBinding, .procedures = kNames, .accepts = kAcceptGss}});
  auto connection = ends.client->connect(ends.uri).value();
  GssContextOptions context;
  context.target = "nfs@localhost";
  const auto name = [&](const SharedCredential& credential) {
    Call call(*connection);
    EXPECT_TRUE(call.set_credential(credential));
    call.begin(kBinding, kEcho);
    call.expect_reply(100);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    const ItemView text = call.results().get_opaque(100);
    std::string copy(text.size(), ' ');
    text.copy_to(reinterpret_cast<std::byte*>(copy.data()));
    return copy;
  };
  const SharedCredential first = establish_context(*connection, kBinding, context).value();
  const std::string alice = name(first);
  ASSERT_EQ(std::system("kinit -k -t \"${KRB5_CLIENT_KTNAME#FILE:}\" bob"), 0);
  EXPECT_NE(name(establish_context(*connection, kBinding, context).value()), alice);
  {
    Call denied(*connection);
    ASSERT_TRUE(denied.set_credential(first));
    denied.begin(kBinding, loopback::kDeny)
        .put_u32(static_cast<uint32_t>(AuthStat::kGssCredProblem));
    EXPECT_EQ(denied.submit_and_wait(), CallStatus::kAuthError);
  }
  EXPECT_EQ(acceptor->stats().established, 5u) << "three are others for alice's";
  EXPECT_EQ(name(first), alice);
  EXPECT_EQ(std::system("kswitch -p alice"), 0);
  connection.reset();
  ends.end();
}

// A server without an acceptor passes the token to nothing: NULL is answered without results.
TEST(Establishing, NeedsAServerThatTakesIt) {
  loopback::World world(loopback::Cores::kDedicated);
  auto connection = world.connect();
  GssContextOptions context;
  context.target = "nfs@localhost";
  auto made = establish_context(*connection, kBinding, context);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kNotAPeer);
  EXPECT_NE(made.error().message.find("takes no RPCSEC_GSS"), std::string::npos)
      << made.error().message;
}

}  // namespace
}  // namespace rrdk::gss
