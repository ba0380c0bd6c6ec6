// Calls in both directions between two processes, and the state that remains when one is killed.
#include <cstring>

#include "both_ways.h"
#include "other_process.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kCalls = 64;  // in flight each way
constexpr uint64_t kEnough = 2000;

struct Way {
  const char* driver;
  Wire wire;
  std::string listen_uri() const {
    return std::strcmp(driver, "Shm") == 0 ? "shm:" + socket_path() : "iwarp://127.0.0.1:0";
  }
  std::string role(const char* what) const { return std::string(what) + " " + wire.name; }
};

// The cores run by themselves.
template <typename Done>
void wait_until(Done&& done) {
  loopback::wait_until(done, [] { return 0; });
}

struct ServerEnd {
  ServerEnd(const Wire& wire, const std::string& address)
      : memory(make_memory()),
        runtime(Runtime::create(*memory, options_for(Cores::kDedicated)).value()),
        server(Server::create(*runtime, server_options(wire)).value()) {
    EXPECT_TRUE(server->add_service(
        {.binding = &kHostBinding, .procedures = kHostTable, .context = &host}));
    uri = server->listen(address).value();
  }
  // Returns true if every buffer is back.
  bool close() {
    host.release();
    server.reset();
    runtime.reset();
    return memory->whole();
  }

  Host host;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Server> server;
  std::string uri;
};

struct ClientEnd {
  ClientEnd(const Wire& wire, const std::string& uri)
      : memory(make_memory()),
        runtime(Runtime::create(*memory, options_for(Cores::kDedicated)).value()),
        client(Client::create(*runtime, client_options(wire)).value()) {
    EXPECT_TRUE(client->add_service(
        {.binding = &kGuestBinding, .procedures = kGuestTable, .context = &guest}));
    connection = client->connect(uri).value();
    guest.connection = connection.get();
  }
  bool close() {
    connection.reset();
    forward.words.clear();  // they have their last replies
    client.reset();
    runtime.reset();
    return memory->whole();
  }

  // Both ends have this many calls in flight, again and again, until many were right in each
  // direction.
  void load() {
    Call start(*connection);
    start.begin(kHostBinding, kStartLoad).put_u32(kCalls);
    ASSERT_EQ(start.submit_and_wait(), CallStatus::kOk);
    forward.start(*connection, kHostBinding, kPlus, kCalls);
    wait_until([&] { return forward.rights() > kEnough && backward_rights() > kEnough; });
  }
  uint64_t backward_rights() {
    Call ask(*connection);
    ask.begin(kHostBinding, kLoadRights);
    return ask.submit_and_wait() == CallStatus::kOk ? ask.results().get_u64() : 0;
  }

  Guest guest;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Client> client;
  std::unique_ptr<ClientConnection> connection;
  Stream forward;
};

// Serves one connection.
int run_server(const Wire& wire, const std::string& address) {
  ServerEnd end(wire, address);
  say("listening on " + end.uri);
  while (end.server->stats()[Counter::kConnectionsAccepted] == 0 ||
         end.server->stats()[Counter::kConnections] != 0)
    std::this_thread::yield();
  bool clean = end.host.load.over() && end.server->stats()[Counter::kProtocolBreaches] == 0;
  return end.close() && clean ? 0 : 1;
}

void run_client(const Wire& wire, const std::string& uri) {
  ClientEnd end(wire, uri);
  end.load();
  say("under load");
  pause();  // until it is killed
}

// Not a test: the role of the other process.
TEST(OtherProcess, Runs) {
  const char* role = std::getenv(kRole);
  if (role == nullptr)
    return;
  const char* name = std::strchr(role, ' ') + 1;
  for (const Wire& wire : kWires) {
    if (std::strcmp(wire.name, name) != 0)
      continue;
    if (role[0] == 's')
      EXPECT_EQ(run_server(wire, std::getenv(kUri)), 0);
    else
      run_client(wire, std::getenv(kUri));
  }
}

class BothWaysProcesses : public testing::TestWithParam<Way> {};
std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const char* driver : {"Shm", "Iwarp"}) {
    for (const Wire& wire : kWires)
      ways.push_back({driver, wire});
  }
  return ways;
}
INSTANTIATE_TEST_SUITE_P(Ways, BothWaysProcesses, testing::ValuesIn(all_ways()),
                         [](const auto& way) {
                           return std::string(way.param.driver) + way.param.wire.name;
                         });

// Shows: EXP-18, BIDIR-01, BIDIR-07, BIDIR-12, V2D0-BIDIR-01
TEST_P(BothWaysProcesses, CallEachOtherWithManyCallsInFlight) {
  Process server(GetParam().role("server").c_str(), GetParam().listen_uri());
  std::string uri = server.wait_for("listening on ");
  ASSERT_FALSE(uri.empty());
  ClientEnd client(GetParam().wire, uri);
  client.load();
  Stats stats = client.connection->stats();
  EXPECT_EQ(stats[Counter::kProtocolBreaches], 0u);
  EXPECT_EQ(client.connection->version(),
            GetParam().wire.version == RpcRdmaVersion::kOne ? 1u : 2u);
  EXPECT_GT(stats[Counter::kRepliesSent], kEnough);
  EXPECT_EQ(stats[Counter::kCallsRejected], 0u);
  client.connection.reset();
  for (auto& word : client.forward.words)
    EXPECT_STREQ(to_string(word->call.status()), to_string(CallStatus::kShutdown));
  EXPECT_TRUE(client.close());
  EXPECT_EQ(server.wait(), 0) << "its calls have ended, its pools are whole";
}

// Shows: BIDIR-17
TEST_P(BothWaysProcesses, AKilledServerEndsTheCallsOfItsClient) {
  Process server(GetParam().role("server").c_str(), GetParam().listen_uri());
  std::string uri = server.wait_for("listening on ");
  ASSERT_FALSE(uri.empty());
  ClientEnd client(GetParam().wire, uri);
  client.load();
  server.kill_hard();
  wait_until([&] { return client.forward.over(); });
  for (auto& word : client.forward.words) {
    EXPECT_STREQ(to_string(word->call.status()), to_string(CallStatus::kConnectionLost));
    EXPECT_EQ(static_cast<uint64_t>(word->ended()), word->rights + 1) << "each ended once";
  }
  EXPECT_FALSE(client.connection->alive());
  EXPECT_TRUE(client.close());
}

// Shows: BIDIR-17
TEST_P(BothWaysProcesses, AKilledClientEndsTheCallsOfItsServer) {
  ServerEnd end(GetParam().wire, GetParam().listen_uri());
  {
    Process client(GetParam().role("client").c_str(), end.uri);
    client.wait_for("under load");
    ASSERT_EQ(end.server->stats()[Counter::kConnections], 1u);
    EXPECT_TRUE(end.host.load_client->alive());
    client.kill_hard();
  }
  wait_until(
      [&] { return end.host.load.over() && end.server->stats()[Counter::kConnections] == 0; });
  for (auto& word : end.host.load.words) {
    EXPECT_STREQ(to_string(word->call.status()), to_string(CallStatus::kConnectionLost));
    EXPECT_EQ(static_cast<uint64_t>(word->ended()), word->rights + 1) << "each ended once";
  }
  EXPECT_FALSE(end.host.load_client->alive());
  const Stats stats = end.server->stats();
  EXPECT_EQ(stats[Counter::kCallsMade], stats[Counter::kCallsOk] + stats[Counter::kCallsFailed]);
  EXPECT_EQ(stats[Counter::kCallsFailed], kCalls);
  EXPECT_TRUE(end.close());
}

}  // namespace
}  // namespace rrdk::loopback
