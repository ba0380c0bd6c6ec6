// What a program is told about connections: when they come and go, who they belong to, and what
// they do.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "site.h"

namespace rrdk::loopback {
namespace {

using testing::HasSubstr;

// What happened to each connection, according to the callbacks and the handlers.
struct Ledger {
  struct Entry {
    Peer peer;
    int opened = 0, closed = 0;
    uint32_t calls = 0;
    uint32_t late = 0;     // handlers that were entered while it was not open
    uint32_t mislaid = 0;  // handlers that saw another context
    std::optional<Ending> ending;
  };
  std::mutex mutex;
  std::map<uint64_t, Entry> entries;
  std::function<Result<void>(ServerConnection&)> judge;  // before the tests' threads
  Keeper keeper;
  std::atomic<bool> gate = false;       // kWait's handlers wait for it
  std::atomic<uint32_t> at_gate = 0;    // how many do
  std::atomic<uint32_t> past_gate = 0;  // and did

  Entry of(uint64_t id) {
    std::lock_guard lock(mutex);
    return entries[id];
  }
  Entry only() {
    std::lock_guard lock(mutex);
    EXPECT_EQ(entries.size(), 1u);
    return entries.empty() ? Entry() : entries.begin()->second;
  }
  size_t closed() {
    std::lock_guard lock(mutex);
    return static_cast<size_t>(
        std::ranges::count_if(entries, [](const auto& e) { return e.second.closed != 0; }));
  }
  size_t opened() {
    std::lock_guard lock(mutex);
    return static_cast<size_t>(
        std::ranges::count_if(entries, [](const auto& e) { return e.second.opened != 0; }));
  }
  void expect_whole() {
    std::lock_guard lock(mutex);
    for (const auto& [id, entry] : entries) {
      EXPECT_EQ(entry.opened, 1) << id;
      EXPECT_EQ(entry.closed, 1) << id;
      EXPECT_EQ(entry.late, 0u) << id;
      EXPECT_EQ(entry.mislaid, 0u) << id;
      EXPECT_FALSE(entry.ending && entry.ending->text.empty()) << id;
    }
  }
};

Result<void> on_open(ServerConnection& connection, void* argument) {
  auto& ledger = *static_cast<Ledger*>(argument);
  if (ledger.judge) {
    if (Result<void> judged = ledger.judge(connection); !judged)
      return judged;
  }
  std::lock_guard lock(ledger.mutex);
  Ledger::Entry& entry = ledger.entries[connection.id()];
  ++entry.opened;
  entry.peer = connection.peer();
  EXPECT_EQ(connection.context(), nullptr);
  connection.set_context(&entry);
  return {};
}

void on_close(ServerConnection& connection, const Ending& ending, void* argument) {
  auto& ledger = *static_cast<Ledger*>(argument);
  std::lock_guard lock(ledger.mutex);
  Ledger::Entry& entry = ledger.entries[connection.id()];
  ++entry.closed;
  entry.ending = ending;
  EXPECT_EQ(connection.info().ending, ending);
  EXPECT_EQ(connection.context(), &entry);
}

constexpr uint32_t kNote = 1;      // -> the connection's id
constexpr uint32_t kHold = 2;      // the same, when the test releases it
constexpr uint32_t kWait = 3;      // the same, on a worker, when the gate opens
constexpr uint32_t kClose = 4;     // the call is dropped
constexpr uint32_t kHoldWork = 5;  // as kHold, on a worker

constexpr ProcedureBinding kProceduresHere[] = {
    {.procedure = kNote, .name = "NOTE", .fixed_results = 8},
    {.procedure = kHold, .name = "HOLD", .fixed_results = 8},
    {.procedure = kWait, .name = "WAIT", .fixed_results = 8},
    {.procedure = kHoldWork, .name = "HOLD_WORK", .fixed_results = 8},
};
constexpr Binding kHere = {
    .program = 0x20005701, .version = 1, .name = "here", .procedures = kProceduresHere};

void note(ServerCall& call, Ledger& ledger) {
  ServerConnection& connection = call.connection();
  {
    std::lock_guard lock(ledger.mutex);
    Ledger::Entry& entry = ledger.entries[connection.id()];
    ++entry.calls;
    entry.late += entry.opened != 1 || entry.closed != 0;
    entry.mislaid += connection.context() != &entry;
  }
  call.results().put_u64(connection.id());
}

void note_now(ServerCall call, void* context) {
  note(call, *static_cast<Ledger*>(context));
  std::move(call).reply();
}

void hold(ServerCall call, void* context) {
  auto& ledger = *static_cast<Ledger*>(context);
  note(call, ledger);
  keep(std::move(call), &ledger.keeper);
}

void wait_at_gate(ServerCall call, void* context) {
  auto& ledger = *static_cast<Ledger*>(context);
  note(call, ledger);
  ledger.at_gate.fetch_add(1);
  while (!ledger.gate.load())
    std::this_thread::yield();
  ledger.past_gate.fetch_add(1);
  std::move(call).reply();
}

void drop_it(ServerCall call, void* context) {
  note(call, *static_cast<Ledger*>(context));
  std::move(call).drop();
}

constexpr Procedure kTableHere[] = {{kNote, note_now},
                                    {kHold, hold},
                                    {kWait, wait_at_gate, Dispatch::kWorker},
                                    {kClose, drop_it},
                                    {kHoldWork, hold, Dispatch::kWorker}};

ServerOptions told(Ledger& ledger, ServerOptions options = {}) {
  options.on_open = on_open;
  options.on_close = on_close;
  options.connection_argument = &ledger;
  return options;
}

std::string uri_of(const std::string& scheme) {
  return scheme == "shm" ? "shm:" + socket_path() : scheme + "://127.0.0.1:0";
}

// A server that reports its connections.
struct Told {
  explicit Told(Cores cores = Cores::kEmbedded, const ServerOptions& options = {},
                const std::string& scheme = "shm", const ClientOptions& client_options = {})
      : ends(options_for(cores), told(ledger, options), client_options,
             {{.binding = &kHere, .procedures = kTableHere, .context = &ledger}}, uri_of(scheme)) {}
  ~Told() {
    ledger.gate = true;
    ledger.keeper.release();
    ends.end();
    ledger.expect_whole();
  }

  std::unique_ptr<ClientConnection> connect() {
    auto connection = ends.client->connect(ends.uri);
    EXPECT_TRUE(connection) << connection.error().message;
    return connection ? std::move(*connection) : nullptr;
  }
  // The id by which the server knows the connection.
  uint64_t id_of(ClientConnection& connection) {
    Call call(connection);
    call.begin(kHere, kNote);
    call.expect_reply(8);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    return call.results().get_u64();
  }
  ConnectionInfo seen(uint64_t id) {
    ConnectionInfo found;
    ends.server->visit([&](const ConnectionInfo& info) {
      if (info.id == id)
        found = info;
    });
    return found;
  }
  void until(const std::function<bool()>& done) { ends.until(done); }
  void until_closed(size_t count) {
    until([&] { return ledger.closed() == count; });
  }

  Ledger ledger;
  Ends ends;
};

struct Connections : testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, Connections,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

struct ConnectionsOver : testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Drivers, ConnectionsOver, testing::Values("shm", "iwarp"));

TEST_P(ConnectionsOver, AreDescribedAtBothEnds) {
  Told t(Cores::kEmbedded, {.credits = 20, .first_credits = 20}, GetParam(),
         {.credits = 10, .inline_size = 2048});
  auto connection = t.connect();
  uint64_t id = t.id_of(*connection);
  ASSERT_NE(id, 0u);
  ConnectionInfo here = t.seen(id);
  EXPECT_EQ(here.id, id);
  EXPECT_EQ(here.peer, t.ledger.of(id).peer);
  EXPECT_EQ(here.peer.driver, GetParam());
  EXPECT_EQ(here.calls, 1u);
  EXPECT_EQ(here.replies, 1u);
  EXPECT_EQ(here.calls_rejected + here.transport_errors + here.protocol_breaches, 0u);
  EXPECT_EQ(here.version, 1u);
  EXPECT_EQ(here.send_size, 2048u);
  EXPECT_EQ(here.receive_size, 2048u);
  EXPECT_EQ(here.credits, 10u);
  EXPECT_EQ(here.in_progress, 0u);
  EXPECT_GT(here.age_ns, 0u);
  EXPECT_LE(here.idle_ns, here.age_ns);

  ConnectionInfo there = connection->info();
  EXPECT_NE(there.id, 0u);
  EXPECT_NE(there.id, id) << "each end has its own";
  EXPECT_EQ(there.calls, 1u);
  EXPECT_EQ(there.replies, 1u);
  EXPECT_EQ(there.version, 1u);
  EXPECT_EQ(there.send_size, 2048u);
  EXPECT_EQ(there.receive_size, 2048u);
  EXPECT_EQ(there.credits, 10u);
  EXPECT_EQ(there.peer.driver, GetParam());
  EXPECT_EQ(there.peer.local, here.peer.remote);
  EXPECT_EQ(there.peer.remote, here.peer.local);
  if (std::string(GetParam()) == "shm") {
    EXPECT_EQ(there.peer.process, (ProcessIdentity{::getpid(), ::getuid(), ::getgid()}));
    EXPECT_EQ(here.peer, there.peer) << "this process, at both ends";
  } else {
    EXPECT_FALSE(here.peer.process);
    EXPECT_EQ("iwarp://" + there.peer.to_string(), t.ends.uri);
  }
}

TEST(ConnectionInfos, HaveTheVersionOfTheLastCallAndCountWhatFails) {
  Told t(Cores::kEmbedded, {}, "shm", {.version = RpcRdmaVersion::kTwo});
  auto connection = t.connect();
  ConnectionInfo fresh;
  t.until([&] {
    t.ends.server->visit([&](const ConnectionInfo& info) { fresh = info; });
    return fresh.send_size != 0;
  });
  EXPECT_EQ(fresh.version, 0u) << "none was made yet";
  uint64_t id = t.id_of(*connection);
  Call call(*connection);
  call.begin(kHere, 99);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kProcUnavail);
  ConnectionInfo info = t.seen(id);
  EXPECT_EQ(info.version, 2u);
  EXPECT_EQ(info.calls, 2u);
  EXPECT_EQ(info.replies, 2u);
  EXPECT_EQ(info.calls_rejected, 1u);
  EXPECT_EQ(connection->info().version, 2u);
}

TEST(ConnectionInfos, AreIdleWithoutCallsOnly) {
  Told t;
  auto connection = t.connect();
  uint64_t id = t.id_of(*connection);
  constexpr uint64_t kWhileNs = 5'000'000;
  t.until([&] { return t.seen(id).idle_ns > kWhileNs && connection->info().idle_ns > kWhileNs; });
  EndingCall held(*connection);
  held.begin(kHold);
  held.call.begin(kHere, kHold);
  held.call.expect_reply(8);
  held.submit();
  t.until([&] { return t.ledger.keeper.kept() == 1; });
  uint64_t begun = Runtime::now_ns();
  t.until([&] { return Runtime::now_ns() - begun > kWhileNs; });
  const uint64_t middle = Runtime::now_ns();
  // The core looks at the clock every 16 passes.
  const uint64_t passes = t.ends.runtime->stats(0)[Counter::kPasses];
  t.until([&] {
    return Runtime::now_ns() - middle > kWhileNs &&
           t.ends.runtime->stats(0)[Counter::kPasses] > passes + 32;
  });
  EXPECT_EQ(t.seen(id).idle_ns, 0u);
  EXPECT_EQ(t.seen(id).in_progress, 1u);
  EXPECT_EQ(connection->info().in_progress, 1u);
  t.ledger.keeper.release();
  t.until([&] { return held.ended() == 1; });
  const uint64_t idle = t.seen(id).idle_ns;
  EXPECT_LT(idle, Runtime::now_ns() - middle) << "since its reply, not since its call";
  // As soon as the core has looked at the clock, a call ends the idle time.
  t.until([&] {
    t.id_of(*connection);
    return t.seen(id).idle_ns < kWhileNs && connection->info().idle_ns < kWhileNs;
  });
}

TEST_P(Connections, AreClosedById) {
  Told t(GetParam());
  auto one = t.connect();
  auto other = t.connect();
  uint64_t id = t.id_of(*one);
  ASSERT_TRUE(t.ends.server->close(id, "the operator wants it"));
  t.until_closed(1);
  Ledger::Entry entry = t.ledger.of(id);
  EXPECT_EQ(entry.closed, 1);
  EXPECT_EQ(entry.ending->code, Errc::kShutdown);
  EXPECT_EQ(entry.ending->text, "the operator wants it");
  t.until([&] { return !one->alive(); });
  EXPECT_EQ(one->error()->code, Errc::kConnectionLost);
  EXPECT_EQ(one->info().id, 0u);
  EXPECT_NE(t.id_of(*other), id) << "the other one lives";
  t.until([&] { return t.ends.server->stats()[Counter::kConnections] == 1; });
  for (uint64_t none : {uint64_t{0}, id, UINT64_MAX}) {
    Result<void> closed = t.ends.server->close(none, "again");
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error().code, Errc::kNotFound);
  }
  EXPECT_EQ(t.ends.server->stats()[Counter::kConnectionsEnded], 0u) << "it was us";
}

// The thread that closes it may have its id from on_open before that has returned.
TEST_P(Connections, AreClosedByIdFromTheBeginning) {
  Told t(GetParam());
  uint64_t id = 0;
  t.ledger.judge = [&](ServerConnection& connection) -> Result<void> {
    id = connection.id();
    EXPECT_EQ(t.seen(id).id, id);
    EXPECT_TRUE(t.ends.server->close(id, "not after all"));
    return {};
  };
  auto connection = t.ends.client->connect(t.ends.uri);
  t.until_closed(1);
  EXPECT_EQ(t.ledger.of(id).ending->text, "not after all");
  t.until([&] { return !connection || !(*connection)->alive(); });
  t.until([&] { return t.ends.server->stats()[Counter::kConnections] == 0; });
}

TEST_P(Connections, AreClosedAlthoughTheirCallsAreKept) {
  Told t(GetParam());
  auto connection = t.connect();
  uint64_t id = t.id_of(*connection);
  EndingCall held(*connection);
  held.call.begin(kHere, kHold);
  held.submit();
  t.until([&] { return t.ledger.keeper.kept() == 1; });
  ASSERT_TRUE(t.ends.server->close(id, "now"));
  t.until_closed(1);
  t.until([&] { return held.ended() == 1; });
  EXPECT_EQ(held.call.status(), CallStatus::kConnectionLost);
  // The kept call still has its connection.
  {
    std::lock_guard lock(t.ledger.keeper.mutex);
    ServerConnection& closed = t.ledger.keeper.calls.at(0).connection();
    EXPECT_EQ(closed.id(), id);
    EXPECT_EQ(closed.info().calls, 2u);
    EXPECT_EQ(closed.peer().driver, "shm");
    EXPECT_NE(closed.context(), nullptr);
  }
  EXPECT_TRUE(t.ends.server->close(id, "again")) << "it is there while its call is";
  t.ledger.keeper.release();
  t.until([&] { return t.ends.server->stats()[Counter::kConnections] == 0; });
  EXPECT_EQ(t.ledger.of(id).closed, 1);
}

TEST_P(Connections, TellWhyTheyEnd) {
  Told t(GetParam());
  auto ended = [&](auto&& end) {
    auto connection = t.connect();
    uint64_t id = t.id_of(*connection);
    size_t before = t.ledger.closed();
    end(connection);
    t.until_closed(before + 1);
    return t.ledger.of(id).ending.value();
  };
  Ending gone = ended([](auto& connection) { connection.reset(); });
  EXPECT_EQ(gone.code, Errc::kConnectionLost);
  Ending dropped = ended([](auto& connection) {
    Call call(*connection);
    call.begin(kHere, kClose);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kConnectionLost);
  });
  EXPECT_EQ(dropped.code, Errc::kShutdown);
  EXPECT_THAT(dropped.text, HasSubstr("dropped"));
  Ending drained = ended([&](auto&) { EXPECT_EQ(t.ends.server->drain(60'000), 0u); });
  EXPECT_EQ(drained.code, Errc::kShutdown);
  EXPECT_THAT(drained.text, HasSubstr("drain()"));
}

TEST(ConnectionsThatEnd, WithTheirServerAreTold) {
  Ledger ledger;
  {
    Ends ends(options_for(Cores::kEmbedded), told(ledger), {}, {}, uri_of("shm"));
    auto connection = ends.client->connect(ends.uri).value();
    ends.server.reset();
    EXPECT_EQ(ledger.only().ending->code, Errc::kShutdown);
    connection.reset();
    ends.end();
  }
  ledger.expect_whole();
}

TEST(ConnectionsThatEnd, ForTheirSilenceAreTold) {
  Told t(Cores::kEmbedded, {.first_call_timeout_ms = 1});
  auto connection = t.connect();
  t.until_closed(1);
  EXPECT_EQ(t.ledger.only().ending->code, Errc::kShutdown);
  EXPECT_THAT(t.ledger.only().ending->text, HasSubstr("made no call in its first 1 ms"));
}

TEST(ConnectionsThatEnd, ForAProtocolBreachAreTold) {
  Told t;
  RawClient client(*t.ends.memory, t.ends.uri);
  auto pumped_until = [&](const std::function<bool()>& done) {
    t.until([&] {
      client.pump();
      return done();
    });
  };
  pumped_until([&] { return client.up(); });
  std::byte nothing{};  // a Read chunk with an invalid key
  client.send(RawCall{.xid = 1,
                      .procedure = kNote,
                      .lists = Words{1, 40} + segment(0x123457, 4096, &nothing) + Words{0, 0, 0}}
                  .message(kHere.program, kHere.version));
  pumped_until([&] { return t.ledger.closed() == 1; });
  EXPECT_EQ(t.ledger.only().ending->code, Errc::kConnectionLost);
  EXPECT_EQ(t.ledger.only().calls, 0u);
}

// The last of the calls that wait for a worker is entered before on_close, which waits for its
// entry but not for its end.
TEST(ConnectionsThatEnd, AreToldWhenTheLastHandlerWasEntered) {
  Told t(Cores::kWorkers, {.first_credits = 8});  // two workers
  auto connection = t.connect();
  uint64_t id = t.id_of(*connection);
  constexpr uint32_t kCalls = 6;
  std::vector<std::unique_ptr<EndingCall>> calls;
  for (uint32_t i = 0; i < kCalls; ++i) {
    calls.push_back(std::make_unique<EndingCall>(*connection));
    calls.back()->call.begin(kHere, kWait);
    calls.back()->submit();
  }
  t.until([&] { return t.ledger.at_gate == 2 && t.seen(id).in_progress == kCalls; });
  ASSERT_TRUE(t.ends.server->close(id, "now"));
  t.until([&] { return calls.back()->ended() == 1; });
  EXPECT_EQ(t.ledger.of(id).closed, 0) << "four are to be entered";
  t.ledger.gate = true;
  t.until_closed(1);
  EXPECT_EQ(t.ledger.of(id).calls, 1 + kCalls);
  EXPECT_EQ(t.ledger.of(id).late, 0u);
}

// The callback comes from the worker that enters the last call; no answer does.
TEST(ConnectionsThatEnd, AreToldWhenAWorkerEntersACallThatIsKept) {
  Told t(Cores::kWorkers);
  auto busy = t.connect();
  auto connection = t.connect();
  t.id_of(*busy);
  uint64_t id = t.id_of(*connection);
  EndingCall first(*busy), second(*busy), last(*connection);
  for (EndingCall* call : {&first, &second}) {
    call->call.begin(kHere, kWait);
    call->submit();
  }
  t.until([&] { return t.ledger.at_gate == 2; });
  last.call.begin(kHere, kHoldWork);
  last.submit();
  t.until([&] { return t.seen(id).in_progress == 1; });
  ASSERT_TRUE(t.ends.server->close(id, "now"));
  t.until([&] { return last.ended() == 1; });
  EXPECT_EQ(t.ledger.of(id).closed, 0);
  t.ledger.gate = true;
  t.until_closed(1);
  EXPECT_EQ(t.ledger.keeper.kept(), 1u);
  EXPECT_EQ(t.ledger.of(id).calls, 2u);
}

TEST(ConnectionsThatEnd, DoNotWaitForHandlersThatRun) {
  Told t(Cores::kWorkers);
  auto connection = t.connect();
  uint64_t id = t.id_of(*connection);
  EndingCall call(*connection);
  call.call.begin(kHere, kWait);
  call.submit();
  t.until([&] { return t.ledger.at_gate == 1; });
  connection.reset();
  t.until_closed(1);
  EXPECT_EQ(t.ledger.past_gate, 0u) << "it runs";
  EXPECT_EQ(t.ledger.of(id).late, 0u);
}

// What on_open may do.

TEST_P(ConnectionsOver, ThatAreNotWantedHearWhy) {
  Told t(Cores::kEmbedded, {}, GetParam());
  t.ledger.judge = [](ServerConnection&) { return fail(Errc::kLimit, "the house\x1b is full"); };
  auto refused = t.ends.client->connect(t.ends.uri);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kRefused);
  EXPECT_THAT(refused.error().message, HasSubstr("does not admit this client: the house? is full"));
  EXPECT_EQ(t.ledger.opened(), 0u);
  EXPECT_EQ(t.ends.server->stats()[Counter::kConnectionsRefused], 1u);
  EXPECT_EQ(t.ends.server->stats()[Counter::kConnections], 0u);
  // The Receives that a core's connections share exist from the first connection on.
  uint32_t before = t.ends.memory->audit_fitting(4096).available;
  t.ledger.judge = [](ServerConnection&) {
    return fail(Errc::kLimit, "a text " + std::string(1000, 'x'));
  };
  refused = t.ends.client->connect(t.ends.uri);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              testing::EndsWith(": a text " + std::string(38, 'x') + "..."));
  EXPECT_EQ(t.ends.memory->audit_fitting(4096).available, before) << "it took nothing";
  t.ledger.judge = nullptr;
  auto connection = t.connect();
  t.id_of(*connection);
}

// A connection that is refused takes no other connection's place; one that is accepted but finds no
// place is reported twice.
TEST(ConnectionsThatAreRefused, TakeNoOtherConnectionsPlace) {
  // A quarter of the 2048 buffers is kept for calls.
  Told t(Cores::kEmbedded,
         {.credits = 512, .first_credits = 512, .max_connections_per_client = 100});
  auto silent = t.connect();
  auto busy = t.connect();
  t.id_of(*busy);
  t.ledger.judge = [](ServerConnection&) { return fail(Errc::kPermission, "no"); };
  EXPECT_FALSE(t.ends.client->connect(t.ends.uri));
  EXPECT_EQ(t.ledger.closed(), 0u);
  EXPECT_TRUE(silent->alive());
  t.ledger.judge = nullptr;
  uint64_t refused_for_room = 0;
  std::vector<std::unique_ptr<ClientConnection>> more;
  while (refused_for_room == 0) {
    auto connection = t.ends.client->connect(t.ends.uri);
    if (connection) {
      more.push_back(std::move(*connection));
      t.id_of(*more.back());
    } else {
      refused_for_room = t.ends.server->stats()[Counter::kConnectionsRefused] - 1;
      EXPECT_THAT(connection.error().message, HasSubstr("no buffers for another"));
    }
    ASSERT_LT(more.size(), 10u);
  }
  EXPECT_EQ(t.ends.server->stats()[Counter::kClosedForRoom], 1u) << "the silent one";
  std::lock_guard lock(t.ledger.mutex);
  EXPECT_EQ(std::ranges::count_if(t.ledger.entries,
                                  [](const auto& e) {
                                    return e.second.ending &&
                                           e.second.ending->code == Errc::kNoMemory;
                                  }),
            1);
}

// A connection that waits until a silent one has made way can be closed, too.
TEST(ConnectionsThatWaitForRoom, CanBeClosed) {
  Told t(Cores::kEmbedded,
         {.credits = 512, .first_credits = 512, .max_connections_per_client = 100});
  std::vector<std::unique_ptr<RawClient>> silent;
  uint64_t waiting = 0;
  t.ledger.judge = [&](ServerConnection& connection) {
    waiting = connection.id();
    return Result<void>();
  };
  auto knock = [&] {
    silent.push_back(std::make_unique<RawClient>(*t.ends.memory, t.ends.uri, 1));
    waiting = 0;
    // A pass may end between the verdict and what follows from it: wait for that, too.
    t.until([&] {
      silent.back()->pump();
      return waiting != 0 &&
             (silent.back()->up() || t.ends.server->stats()[Counter::kClosedForRoom] != 0);
    });
  };
  while (t.ends.server->stats()[Counter::kClosedForRoom] == 0) {
    knock();
    ASSERT_LT(silent.size(), 10u);
  }
  EXPECT_EQ(t.seen(waiting).send_size, 0u);
  ASSERT_TRUE(t.ends.server->close(waiting, "changed our mind"));
  t.until([&] {
    for (auto& client : silent)
      client->pump();
    return silent.back()->down();
  });
  EXPECT_EQ(t.ledger.of(waiting).ending->text, "changed our mind");
  EXPECT_TRUE(silent.back()->refused());
}

// Events at any moment.

// A client that goes away after `passes` passes, with a call or two on their way.
TEST_P(ConnectionsOver, AreToldOnceWheneverTheyBreak) {
  Told t(Cores::kEmbedded, {}, GetParam());
  constexpr uint32_t kMoments = 60;
  auto pass = [&](RawClient& client) {
    for (uint32_t core = 0; core < t.ends.runtime->num_cores(); ++core)
      t.ends.runtime->poll(core);
    client.pump();
  };
  for (uint32_t moment = 0; moment < kMoments; ++moment) {
    auto client = std::make_unique<RawClient>(*t.ends.memory, t.ends.uri, 4);
    bool asked = false;
    for (uint32_t i = 0; i < moment && !client->down(); ++i) {
      pass(*client);
      if (client->up() && !std::exchange(asked, true)) {
        client->send(RawCall{.xid = 1, .procedure = moment % 2 == 0 ? kNote : kHold}.message(
            kHere.program, kHere.version));
        client->send(RawCall{.xid = 2, .procedure = kNote}.message(kHere.program, kHere.version));
      }
    }
    if (moment % 3 != 0)
      client->disconnect();
    client.reset();
    if (moment % 5 == 0)
      t.ledger.keeper.release();
  }
  t.ledger.keeper.release();
  t.until([&] {
    t.ledger.keeper.release();
    return t.ends.server->stats()[Counter::kConnections] == 0;
  });
  EXPECT_GT(t.ledger.opened(), 0u);
  EXPECT_GT(t.ends.server->stats()[Counter::kCallsReceived], 0u);
  EXPECT_EQ(t.ledger.closed(), t.ledger.opened());
  EXPECT_EQ(t.ledger.opened(), t.ends.server->stats()[Counter::kConnectionsAccepted] +
                                   t.ends.server->stats()[Counter::kConnectionsRefused]);
}

// A visitor may take its time: connections come and go meanwhile, and their memory is freed.
TEST_P(Connections, ComeAndGoWhileAVisitorTakesItsTime) {
  Told t(GetParam());
  auto stays = t.connect();
  auto goes = t.connect();
  const std::vector<uint64_t> before = {t.id_of(*stays), t.id_of(*goes)};
  std::atomic<bool> is_there = false, may_go_on = false;
  std::vector<uint64_t> seen;
  std::thread looker([&] {
    t.ends.server->visit([&](const ConnectionInfo& info) {
      seen.push_back(info.id);
      is_there = true;
      while (!may_go_on.load())
        std::this_thread::yield();
    });
  });
  t.until([&] { return is_there.load(); });
  auto comes = t.connect();
  EXPECT_NE(t.id_of(*comes), 0u);
  EXPECT_TRUE(t.ends.server->close(before[1], "meanwhile"));
  t.until_closed(1);
  t.until([&] { return t.ends.server->stats()[Counter::kConnections] == 2; });
  const base::GracePeriod freed;
  t.until([&] { return freed.over(); });
  may_go_on = true;
  looker.join();
  EXPECT_EQ(seen, before) << "as it was when they were looked at";
}

// For TSan: some threads look at connections and close them while these come, call and go.
TEST(ManyConnections, AreSeenAndClosedByOtherThreads) {
  Told t(Cores::kWorkers);
  auto stays = t.connect();
  const uint64_t always = t.id_of(*stays);
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> seen = 0, closed = 0;
  std::vector<std::thread> lookers;
  for (int i = 0; i < 2; ++i) {
    lookers.emplace_back([&] {
      while (!stop.load()) {
        uint64_t last = 0;
        int seen_always = 0;
        t.ends.server->visit([&](const ConnectionInfo& info) {
          EXPECT_GT(info.id, last);
          EXPECT_LE(info.replies, info.calls);
          EXPECT_EQ(info.peer.driver, "shm");
          last = info.id;
          ++seen;
          seen_always += info.id == always;
          if (info.calls >= 3 && info.id != always && info.id % 2 == 0)
            closed += t.ends.server->close(info.id, "enough").has_value();
        });
        EXPECT_EQ(seen_always, 1);
        std::this_thread::yield();
      }
    });
  }
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    auto connection = t.ends.client->connect(t.ends.uri);
    ASSERT_TRUE(connection) << connection.error().message;
    for (uint32_t i = 0; i < 20; ++i) {
      Call call(**connection);
      call.begin(kHere, kNote);
      call.expect_reply(8);
      if (call.submit_and_wait() != CallStatus::kOk)
        break;
      (void)(*connection)->info();
    }
  }
  t.until([&] { return t.ends.server->stats()[Counter::kConnections] == 1; });
  stop = true;
  for (std::thread& looker : lookers)
    looker.join();
  EXPECT_EQ(t.ledger.opened(), size_t{kRounds} + 1);
  EXPECT_GT(seen, 0u);
}

// The counts of a connection are in the sums exactly once, before and after it goes, whenever these
// are taken.
TEST(ManyConnections, AreSummedOnceWhileTheyComeAndGo) {
  Told t(Cores::kDedicated);
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> begun = 0, ended = 0, looks = 0, too_few = 0, too_many = 0;
  std::vector<std::thread> lookers, callers;
  for (int i = 0; i < 2; ++i) {
    lookers.emplace_back([&] {
      while (!stop.load()) {
        const uint64_t least = ended.load();
        const uint64_t calls = t.ends.server->stats()[Counter::kCallsReceived];
        too_few += calls < least;
        too_many += calls > begun.load();
        ++looks;
      }
    });
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        auto connection = t.ends.client->connect(t.ends.uri);
        ASSERT_TRUE(connection) << connection.error().message;
        for (int call = 0; call < 3; ++call) {
          ++begun;
          t.id_of(**connection);
          ++ended;
        }
      }
    });
  }
  for (std::thread& caller : callers)
    caller.join();
  stop = true;
  for (std::thread& looker : lookers)
    looker.join();
  EXPECT_EQ(too_few, 0u) << "of " << looks;
  EXPECT_EQ(too_many, 0u) << "of " << looks;
  EXPECT_EQ(t.ends.server->stats()[Counter::kCallsReceived], begun);
}

// More connections than one read section visits: each once, in order.
TEST(ManyConnections, AreVisitedInOrder) {
  Told t(Cores::kEmbedded, {.credits = 4, .max_connections_per_client = 0}, "shm", {.credits = 4});
  std::vector<std::unique_ptr<ClientConnection>> connections;
  constexpr size_t kMany = 70;
  for (size_t i = 0; i < kMany; ++i)
    connections.push_back(t.connect());
  std::vector<uint64_t> ids;
  t.ends.server->visit([&](const ConnectionInfo& info) { ids.push_back(info.id); });
  EXPECT_EQ(ids.size(), kMany);
  EXPECT_TRUE(std::ranges::is_sorted(ids));
  EXPECT_EQ(std::ranges::adjacent_find(ids), ids.end());
  // A visitor may close the connections that it sees.
  t.ends.server->visit([&](const ConnectionInfo& info) {
    EXPECT_TRUE(t.ends.server->close(info.id, "all of them"));
  });
  t.until_closed(kMany);
}

}  // namespace
}  // namespace rrdk::loopback
