// Functions that do not wait: a connection from connect_start() to kClosed, with peers that are
// silent, refuse, go and come back, and name servers that do not answer; and how long a destructor
// waits.
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <tuple>

#include "base/addresses.h"
#include "base/internals.h"
#include "runtime/runtime_impl.h"
#include "survival_world.h"
#include "test/name_server.h"

namespace rrdk::loopback {
namespace {

using test::SilentName;

// The states that a connection has reported, in order. Written on the core's thread; read by others
// when no more are coming.
struct States {
  std::vector<ConnectionState> all;
  std::vector<Error> reasons;
  std::atomic<uint32_t> seen = 0;
  std::function<void(ClientConnection&, ConnectionState)> then;
  std::atomic<bool> closed = false;

  static void take(ClientConnection& connection, ConnectionState state, const Error* reason,
                   void* self) {
    auto& states = *static_cast<States*>(self);
    EXPECT_EQ(connection.state(), state);
    const bool with_reason = state != ConnectionState::kConnecting && state != ConnectionState::kUp;
    EXPECT_EQ(reason != nullptr, with_reason) << to_string(state);
    EXPECT_FALSE(states.closed) << to_string(state) << " after closed";
    states.all.push_back(state);
    states.reasons.push_back(reason != nullptr ? *reason : Error{});
    states.seen.fetch_add(1, std::memory_order_release);
    if (states.then)
      states.then(connection, state);
    if (state == ConnectionState::kClosed)
      states.closed.store(true, std::memory_order_release);
  }
  ConnectOptions options(int core = -1) {
    return {.core = core, .on_state = take, .argument = this};
  }
  bool has(ConnectionState state) const { return std::ranges::find(all, state) != all.end(); }
  const Error& last() const { return reasons.back(); }
};

using enum ConnectionState;
using StateList = std::vector<ConnectionState>;

std::string address_of(const std::string& scheme) {
  return scheme == "shm" ? "shm:" + socket_path() : "iwarp://127.0.0.1:0";
}

// A server, and one reactor that polls everything, unless there are dedicated cores.
struct Place : Ends {
  explicit Place(const std::string& scheme = "shm", Cores cores = Cores::kEmbedded,
                 const ClientOptions& client_options = {}, const ServerOptions& server_options = {})
      : Place(scheme, options_for(cores), client_options, server_options) {}
  Place(const std::string& scheme, const RuntimeOptions& runtime_options,
        const ClientOptions& client_options, const ServerOptions& server_options = {})
      : Ends(runtime_options, server_options, client_options,
             {{.binding = &kBinding, .procedures = kTable, .context = &keeper}},
             address_of(scheme)) {}
  ~Place() {
    keeper.join();
    keeper.release();
    connection.reset();
    end();
  }
  void start(const std::string& where, int core = -1) {
    auto started = client->connect_start(where, states.options(core));
    ASSERT_TRUE(started) << started.error().message;
    connection = std::move(*started);
  }
  void start() { start(uri); }
  void until_closed() {
    until([&] { return states.closed.load(std::memory_order_acquire); });
  }
  void until_seen(uint32_t count) {
    until([&] { return states.seen.load(std::memory_order_acquire) >= count; });
  }

  Keeper keeper;
  States states;
  std::unique_ptr<ClientConnection> connection;
};

struct Everywhere : testing::TestWithParam<std::tuple<const char*, Cores>> {
  const char* scheme() const { return std::get<0>(GetParam()); }
  Cores cores() const { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ways, Everywhere,
                         testing::Combine(testing::Values("shm", "iwarp"),
                                          testing::Values(Cores::kEmbedded, Cores::kDedicated,
                                                          Cores::kWorkers)));
struct OverEach : testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Drivers, OverEach, testing::Values("shm", "iwarp"));

TEST_P(Everywhere, CallsMadeAtOnceAreAnswered) {
  Place place(scheme(), cores());
  place.start();
  EndingCall ending(*place.connection);
  ending.begin(kEcho).put_opaque(std::span<const std::byte>());
  ending.submit();
  place.until([&] { return ending.ended() == 1; });
  EXPECT_STREQ(to_string(ending.call.status()), "ok");
  EXPECT_TRUE(place.connection->alive());
  place.connection->close_start();
  place.connection->close_start();
  place.until_closed();
  EXPECT_EQ(place.states.all, (StateList{kConnecting, kUp, kClosed}));
  EXPECT_EQ(place.states.last().code, Errc::kShutdown);
  EXPECT_EQ(place.connection->error()->code, Errc::kShutdown);
  EXPECT_FALSE(place.connection->alive());
}

TEST_P(Everywhere, ClosedWithCallsInFlightTheirCallbacksComeFirst) {
  Place place(scheme(), cores());
  place.start();
  EndingCall ending(*place.connection);
  ending.begin(kKeep);
  ending.submit();
  place.until([&] { return place.keeper.kept() == 1; });
  int ended_before = -1;
  place.states.then = [&](ClientConnection&, ConnectionState state) {
    if (state == kClosed)
      ended_before = ending.ended();
  };
  place.connection->close_start();
  place.until_closed();
  EXPECT_EQ(ended_before, 1);
  EXPECT_EQ(ending.call.status(), CallStatus::kShutdown);
  ending.begin(kEcho).put_u32(0);
  ending.submit();
  place.until([&] { return ending.ended() == 2; });
  EXPECT_EQ(ending.call.status(), CallStatus::kShutdown);
}

// The connection is destroyed in its own callback, in each state.
TEST_P(Everywhere, MayBeDestroyedInItsOwnCallback) {
  for (ConnectionState when : {kConnecting, kUp, kClosed}) {
    Place place(scheme(), cores());
    // If another thread polls, the callback may come before connect_start() has returned.
    std::atomic<bool> started = place.runtime->embedded();
    std::atomic<bool> gone = false;
    place.states.then = [&](ClientConnection& connection, ConnectionState state) {
      if (state != when)
        return;
      while (!started.load(std::memory_order_acquire))
        std::this_thread::yield();
      EXPECT_EQ(place.connection.get(), &connection);
      place.connection.reset();
      gone.store(true, std::memory_order_release);
    };
    place.start();
    if (when == kClosed)
      place.connection->close_start();
    started.store(true, std::memory_order_release);
    place.until([&] { return gone.load(std::memory_order_acquire); });
    place.until([&] { return place.server->stats()[Counter::kConnections] == 0; });
    EXPECT_EQ(place.states.all.back(), when);
  }
}

TEST_P(Everywhere, DestroyedInACallsCallbackOtherCallsEndAllTheSame) {
  Place place(scheme(), cores());
  place.start();
  place.until_seen(2);
  std::vector<std::unique_ptr<EndingCall>> kept;
  open_window(*place.connection);
  for (int i = 0; i < 3; ++i) {
    kept.push_back(std::make_unique<EndingCall>(*place.connection));
    kept.back()->begin(kKeep);
    kept.back()->submit();
  }
  place.until([&] { return place.keeper.kept() == 3; });
  Call call(*place.connection);
  call.begin(kBinding, 0);
  call.submit([](Call&, void* mine) { static_cast<Place*>(mine)->connection.reset(); }, &place);
  place.until([&] { return std::ranges::all_of(kept, [](auto& k) { return k->ended() == 1; }); });
  for (auto& each : kept)
    EXPECT_EQ(each->call.status(), CallStatus::kShutdown);
  place.keeper.release();
  place.until([&] { return place.server->stats()[Counter::kConnections] == 0; });
  EXPECT_FALSE(place.states.has(kClosed)) << "its program had let it go";
}

TEST(ConnectStart, MayBeCalledInACallback) {
  Place place;
  place.start();
  States of_second;
  std::unique_ptr<ClientConnection> second;
  place.states.then = [&](ClientConnection&, ConnectionState state) {
    if (state == kUp)
      second = place.client->connect_start(place.uri, of_second.options()).value();
  };
  place.until([&] { return of_second.has(kUp); });
  EXPECT_TRUE(second->alive());
}

TEST(ConnectStart, RefusesAtOnceWhatItNeverCould) {
  Place place;
  auto code = [&](const char* uri, int core = -1) {
    auto started = place.client->connect_start(uri, place.states.options(core));
    return started ? Errc::kSystem : started.error().code;
  };
  EXPECT_EQ(code("nonsense"), Errc::kBadUri);
  EXPECT_EQ(code("rdma://127.0.0.1"), Errc::kBadUri);
  EXPECT_EQ(code("iwarp://127.0.0.1/path"), Errc::kBadUri);
  EXPECT_EQ(code("shm:"), Errc::kBadUri);
  EXPECT_EQ(code("shm:/x", 2), Errc::kInvalidArgument);
  EXPECT_TRUE(place.states.all.empty());
}

// Peers that misbehave: they listen, and then do this.
class Listener {
 public:
  explicit Listener(const std::string& scheme) {
    if (scheme == "shm") {
      sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
      const std::string path = socket_path();
      std::memcpy(at.sun_path, path.data(), path.size());
      fd_ = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
      EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
      path_ = path;
      uri_ = "shm:" + path;
    } else {
      addrinfo hints{};
      hints.ai_flags = AI_NUMERICHOST;
      hints.ai_socktype = SOCK_STREAM;
      addrinfo* found = nullptr;
      EXPECT_EQ(::getaddrinfo("127.0.0.1", "0", &hints, &found), 0);
      fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
      EXPECT_EQ(::bind(fd_, found->ai_addr, found->ai_addrlen), 0);
      ::freeaddrinfo(found);
    }
    EXPECT_EQ(::listen(fd_, 16), 0);
    if (scheme != "shm") {
      sockaddr_storage at{};
      socklen_t length = sizeof(at);
      EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length), 0);
      char port[16];
      EXPECT_EQ(::getnameinfo(reinterpret_cast<sockaddr*>(&at), length, nullptr, 0, port,
                              sizeof(port), NI_NUMERICSERV),
                0);
      uri_ = std::string("iwarp://127.0.0.1:") + port;
    }
  }
  ~Listener() {
    ::close(fd_);
    if (!path_.empty())
      ::unlink(path_.c_str());
  }
  const std::string& uri() const { return uri_; }
  // A connection that has come, or waits until there is one.
  void accept_and_close() { ::close(::accept(fd_, nullptr, nullptr)); }

 private:
  int fd_ = -1;
  std::string path_;
  std::string uri_;
};

// One thread, one core: a peer that accepts and then stays silent does not delay anything else.
TEST_P(OverEach, ASilentPeerDoesNotDelayOthers) {
  Listener silent(GetParam());
  Place place(GetParam(), RuntimeOptions{}, {.connect_timeout_ms = 3'600'000});
  place.start(silent.uri());
  EndingCall waiting(*place.connection);
  waiting.begin(kEcho).put_u32(0);
  waiting.submit();
  EndingCall impatient(*place.connection);
  impatient.begin(kEcho).put_u32(0);
  impatient.call.set_timeout_ms(5);
  impatient.submit();

  States others;
  auto other = place.client->connect_start(place.uri, others.options()).value();
  Repeating load(*other, kEcho);
  load.again();
  place.until([&] { return load.good > 100 && impatient.ended() == 1; });
  EXPECT_EQ(impatient.call.status(), CallStatus::kTimeout);
  EXPECT_EQ(waiting.ended(), 0);
  EXPECT_EQ(place.states.all, (StateList{kConnecting}));
  EXPECT_FALSE(place.connection->error());

  place.connection->close_start();
  place.until_closed();
  EXPECT_EQ(waiting.ended(), 1);
  EXPECT_EQ(waiting.call.status(), CallStatus::kShutdown);
  EXPECT_EQ(place.states.last().code, Errc::kShutdown);
  other->close_start();
  place.until([&] { return others.closed.load(); });
}

TEST_P(OverEach, ASilentPeerIsGivenUpInTime) {
  Listener silent(GetParam());
  Place place(GetParam(), RuntimeOptions{}, {.connect_timeout_ms = 20});
  place.start(silent.uri());
  EndingCall waiting(*place.connection);
  waiting.begin(kEcho).put_u32(0);
  waiting.submit();
  place.until_closed();
  EXPECT_EQ(place.states.all, (StateList{kConnecting, kClosed}));
  EXPECT_EQ(place.states.last().code, Errc::kTimeout);
  EXPECT_NE(place.states.last().message.find(silent.uri() + ": no answer within 20 ms"),
            std::string::npos)
      << place.states.last().message;
  EXPECT_EQ(waiting.ended(), 1);
  EXPECT_EQ(waiting.call.status(), CallStatus::kConnectionLost);
}

TEST_P(OverEach, APeerThatClosesAtOnceIsNotAServer) {
  Listener rude(GetParam());
  Place place(GetParam(), RuntimeOptions{}, {});
  place.start(rude.uri());
  std::thread closes([&] { rude.accept_and_close(); });
  place.until_closed();
  closes.join();
  EXPECT_EQ(place.states.all, (StateList{kConnecting, kClosed}));
  EXPECT_EQ(place.states.last().code, Errc::kConnectionLost);
}

TEST(ConnectStart, TheStateReportsAnAddressWithoutAListener) {
  Place place;
  for (const char* uri :
       {"shm:/tmp/rrdk-nobody.sock", "iwarp://127.0.0.1:1", "iwarp://no.test:1"}) {
    test::set_name("no.test", {});
    States states;
    auto connection = place.client->connect_start(uri, states.options()).value();
    place.until([&] { return states.closed.load(); });
    EXPECT_EQ(states.last().code, Errc::kNotFound);
    EXPECT_EQ(states.last().message.find(uri), 0u) << states.last().message;
    EXPECT_EQ(states.last().message.find(uri, 1), std::string::npos) << states.last().message;
    auto waited = place.client->connect(uri);
    ASSERT_FALSE(waited);
    EXPECT_EQ(waited.error().message, states.last().message);
  }
}

TEST(ConnectStart, AServerThatRefusesIsToldByTheState) {
  Place place("shm", Cores::kEmbedded, {},
              {.on_open = [](ServerConnection&, void*) -> Result<void> {
                return fail(Errc::kPermission, "not today");
              }});
  place.start();
  place.until_closed();
  EXPECT_EQ(place.states.last().code, Errc::kRefused);
  EXPECT_NE(place.states.last().message.find("not today"), std::string::npos);
}

// A name server that does not answer does not affect numeric addresses and deadlines.
TEST(ConnectStart, AnUnansweredNameLookupDelaysNothingElse) {
  SilentName name("here.test");
  Place place("iwarp", RuntimeOptions{}, {});
  auto hasty = Client::create(*place.runtime, {.connect_timeout_ms = 50}).value();
  place.connection = hasty->connect_start("iwarp://here.test", place.states.options()).value();
  place.until([&] { return name.asked() == 1; });
  States others;
  auto other = place.client->connect_start(place.uri, others.options()).value();
  Repeating load(*other, kEcho);
  load.again();
  place.until([&] { return load.good > 100; });
  place.until_closed();
  EXPECT_EQ(place.states.last().code, Errc::kTimeout);
  EXPECT_NE(place.states.last().message.find("name server"), std::string::npos);
  // Closed without waiting for the answer, and destroyed.
  States closing;
  auto closed = place.client->connect_start("iwarp://here.test", closing.options()).value();
  place.until([&] { return closing.seen == 1; });
  closed->close_start();
  place.until([&] { return closing.closed.load(); });
  closed.reset();
  EXPECT_EQ(name.asked(), 1) << "a thread is at the first one";
  other->close_start();
  place.until([&] { return others.closed.load(); });
}

TEST(ConnectStart, ANameIsLookedUpForEachAttempt) {
  Place place("iwarp", RuntimeOptions{}, {});
  test::set_name("here.test", {"127.0.0.1"});
  const std::string port = place.uri.substr(place.uri.rfind(':'));
  place.start("iwarp://here.test" + port);
  place.until_seen(2);
  EXPECT_EQ(place.states.all, (StateList{kConnecting, kUp}));
  EXPECT_EQ(place.connection->info().peer.to_string(), "127.0.0.1" + port);
}

// More unanswered names than there are threads for look-ups.
TEST(ConnectStart, NamesThatAreNotAnsweredHoldUpNoOther) {
  Place place("iwarp", RuntimeOptions{}, {});
  const std::string port = place.uri.substr(place.uri.rfind(':'));
  const auto hasty = Client::create(*place.runtime, {.connect_timeout_ms = 400}).value();
  std::vector<std::unique_ptr<SilentName>> names;
  std::vector<std::unique_ptr<ClientConnection>> dead;
  const auto add_dead = [&] {
    const std::string name = "dead" + std::to_string(names.size()) + ".test";
    names.push_back(std::make_unique<SilentName>(name));
    dead.push_back(place.client->connect_start("iwarp://" + name + port).value());
    place.until([&] { return names.back()->asked() == 1; });
  };
  // One thread is left, for a name that is answered.
  while (names.size() != runtime::Searches::kMostNames - 1)
    add_dead();
  test::set_name("live.test", {"127.0.0.1"});
  const auto live = place.client->connect_start("iwarp://live.test" + port).value();
  place.until([&] { return live->state() == kUp; });
  add_dead();
  // None is left: connections that need no name server need no thread.
  if (!base::needs_name_server("localhost")) {
    const auto local = place.client->connect_start("iwarp://localhost" + port).value();
    place.until([&] { return local->state() == kUp || local->state() == kClosed; });
    EXPECT_EQ(local->state(), kUp) << local->error()->message;
  }
  // The time of a name that has to wait counts from when its search begins.
  test::set_name("late.test", {"127.0.0.1"});
  const auto late = hasty->connect_start("iwarp://late.test" + port).value();
  Listener silent("iwarp");
  const auto timed_out = hasty->connect_start(silent.uri()).value();
  place.until([&] { return timed_out->state() == kClosed; });
  EXPECT_EQ(late->state(), kConnecting);
  EXPECT_EQ(test::times_asked("late.test"), 0);
  names.clear();
  place.until([&] { return late->state() != kConnecting; });
  EXPECT_EQ(late->state(), kUp) << late->error()->message;
}

// With a thread that waits for the resolver, it would never end.
TEST(ConnectStart, ARuntimeEndsWithoutTheNameServersAnswer) {
  SilentName name("here.test");
  {
    auto memory = make_memory();
    auto runtime = Runtime::create(*memory).value();
    auto client = Client::create(*runtime).value();
    auto connection = client->connect_start("iwarp://here.test:1").value();
    wait_until([&] { return name.asked() == 1; }, [&] { return runtime->poll(); });
  }
  EXPECT_EQ(name.asked(), 1);
}

// The error names the limit that ended it, and the option that set it.
TEST(ConnectStart, TheTimeThatItMayTakeIsOne) {
  Place place("iwarp", RuntimeOptions{}, {.connect_timeout_ms = 50});
  Listener silent("iwarp");
  const auto error_of = [&](const std::string& uri) {
    const auto connection = place.client->connect_start(uri).value();
    place.until([&] { return connection->state() == kClosed; });
    EXPECT_EQ(connection->error()->code, Errc::kTimeout);
    return connection->error()->message;
  };
  EXPECT_EQ(error_of(silent.uri()), silent.uri() + ": no answer within 50 ms (connect_timeout_ms)");
  const std::string longer = silent.uri() + "?timeout=1";
  EXPECT_EQ(error_of(longer), longer + ": no answer within 1000 ms (timeout= of the address)");
}

// A reactor whose server begins to listen is not delayed either.
TEST(ConnectStart, ResolvingAListenAddressDelaysNothingElse) {
  Place place("iwarp", RuntimeOptions{}, {});
  auto server = Server::create(*place.runtime).value();
  std::atomic<bool> told = false;
  std::optional<SilentName> name(std::in_place, "here.test");
  server->listen_start(
      "iwarp://here.test:0",
      [](Result<std::string>&& uri, void* argument) {
        EXPECT_TRUE(uri);
        static_cast<std::atomic<bool>*>(argument)->store(true);
      },
      &told);
  place.until([&] { return name->asked() == 1; });
  place.start();
  Repeating load(*place.connection, kEcho);
  load.again();
  place.until([&] { return load.good > 100; });
  EXPECT_FALSE(told);
  name.reset();
  place.until([&] { return told.load(); });
  place.connection->close_start();
  place.until_closed();
}

// One look-up at a time, however many attempts there are.
TEST(ConnectStart, AttemptsDoNotPileUpBehindAName) {
  Place place("iwarp", RuntimeOptions{}, {.connect_timeout_ms = 300, .reconnect = at_once()});
  test::set_name("here.test", {"127.0.0.1"});
  place.start("iwarp://here.test" + place.uri.substr(place.uri.rfind(':')));
  place.until_seen(2);
  {
    SilentName name("here.test");
    place.server->visit([&](const ConnectionInfo& seen) {
      EXPECT_TRUE(place.server->close(seen.id, "the test wants it"));
    });
    place.until([&] { return place.connection->stats()[Counter::kAttemptsFailed] >= 3; });
    EXPECT_EQ(name.asked(), 1);
  }
  place.until([&] { return place.states.all.back() == kUp; });
}

TEST(States, AreReportedWhenAConnectionIsLostAndComesBack) {
  SurvivalWorld world({.reconnect = at_once()});
  States states;
  world.connection = world.client->connect_start(world.uri, states.options(0)).value();
  world.until([&] { return states.seen == 2; });
  world.stop_server();
  world.until([&] { return states.seen >= 5; });  // and at least one failed attempt
  EXPECT_TRUE(world.connection->reconnecting());
  world.start_server();
  world.until([&] { return states.all.back() == kUp; });
  StateList expected(states.all.size(), kReconnecting);
  expected[0] = kConnecting;
  expected[1] = kUp;
  expected[2] = kLost;
  expected.back() = kUp;
  EXPECT_EQ(states.all, expected);
  EXPECT_EQ(states.reasons[2].code, Errc::kConnectionLost);
  EXPECT_EQ(states.reasons[3].message, states.reasons[2].message);
  EXPECT_EQ(states.reasons[4].code, Errc::kNotFound);
  world.connection->close_start();
  world.until([&] { return states.closed.load(); });
  EXPECT_EQ(states.last().code, Errc::kShutdown);
}

TEST(States, AreReportedWhenAConnectionIsLostForGood) {
  SurvivalWorld world({});
  States states;
  world.connection = world.client->connect_start(world.uri, states.options(0)).value();
  world.until([&] { return states.seen == 2; });
  world.stop_server();
  world.until([&] { return states.closed.load(); });
  EXPECT_EQ(states.all, (StateList{kConnecting, kUp, kLost, kClosed}));
  EXPECT_EQ(states.last().code, Errc::kConnectionLost);
  world.connection->close_start();  // changes nothing
  EndingCalls endings = submit(world, kEcho, 1);
  world.until([&] { return all_ended(endings); });
  EXPECT_EQ(states.seen, 4u);
}

TEST(States, GivenUpWhileItReconnects) {
  SurvivalWorld world(
      {.reconnect = {.enabled = true, .first_delay_ms = 1, .max_delay_ms = 2, .give_up_ms = 30}});
  States states;
  world.connection = world.client->connect_start(world.uri, states.options(0)).value();
  world.until([&] { return states.seen == 2; });
  world.stop_server();
  world.until([&] { return states.closed.load(); });
  EXPECT_EQ(states.last().code, Errc::kTimeout);
  EXPECT_NE(states.last().message.find("given up"), std::string::npos);
}

TEST(States, ClosedBetweenTwoAttempts) {
  SurvivalWorld world({.reconnect = some_day()});
  States states;
  world.connection = world.client->connect_start(world.uri, states.options(0)).value();
  world.until([&] { return states.seen == 2; });
  world.stop_server();
  world.until([&] { return states.all.back() == kReconnecting; });
  EndingCalls endings = submit(world, kEcho, 3);
  world.connection->close_start();
  world.until([&] { return states.closed.load(); });
  expect_status(endings, CallStatus::kShutdown);
  EXPECT_EQ(states.last().code, Errc::kShutdown);
}

struct Drains : testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, Drains,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(Drains, FinishCallsInFlightAndTakeNoMore) {
  Place place("shm", GetParam());
  place.start();
  EndingCall kept(*place.connection);
  kept.begin(kKeep);
  kept.submit();
  place.until([&] { return place.keeper.kept() == 1; });
  place.connection->drain_start(60'000);
  place.until([&] { return !place.connection->alive(); });
  EndingCall late(*place.connection);
  late.begin(kEcho).put_u32(0);
  late.submit();
  place.until([&] { return late.ended() == 1; });
  EXPECT_EQ(late.call.status(), CallStatus::kShutdown);
  EXPECT_FALSE(place.states.closed);
  place.keeper.release();
  place.until_closed();
  EXPECT_EQ(kept.ended(), 1);
  EXPECT_EQ(kept.call.status(), CallStatus::kOk);
  EXPECT_EQ(place.states.all, (StateList{kConnecting, kUp, kClosed}));
  EXPECT_EQ(place.states.last().code, Errc::kShutdown);
}

TEST_P(Drains, EndWhenTimeIsUp) {
  Place place("shm", GetParam());
  place.start();
  place.until_seen(2);
  EXPECT_EQ(place.client->connect(place.uri).value()->drain(60'000), 0u);
  EndingCall kept(*place.connection);
  kept.begin(kKeep);
  kept.submit();
  place.until([&] { return place.keeper.kept() == 1; });
  EXPECT_EQ(place.connection->drain(1), 1u);
  EXPECT_TRUE(place.states.closed);
  EXPECT_EQ(kept.call.status(), CallStatus::kShutdown);
  EXPECT_EQ(place.states.last().code, Errc::kTimeout);
  EXPECT_NE(place.states.last().message.find("1 calls had not ended within 1 ms"),
            std::string::npos);
}

TEST(DrainOfALost, ACallThatWaitsForAServerMayEnd) {
  SurvivalWorld world({.reconnect = at_once()});
  States states;
  world.connection = world.client->connect_start(world.uri, states.options(0)).value();
  world.until([&] { return states.seen == 2; });
  world.stop_server();
  world.until([&] { return states.all.back() == kReconnecting; });
  EndingCalls endings = submit(world, kEcho, 2);
  world.connection->drain_start(60'000);
  world.until([&] { return world.stats()[Counter::kAttemptsFailed] >= 3; });
  world.start_server();
  world.until([&] { return states.closed.load(); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_EQ(states.last().code, Errc::kShutdown);
}

constexpr uint64_t kPatienceNs = 5'000'000'000;

// The core is not polled: the connection's destructor gives up, and the rest is destroyed when the
// core is polled.
TEST(Bounded, TheDestructorOnAnUnpolledCore) {
  LogLines log;
  Place place("shm", RuntimeOptions{}, {});
  place.start();
  place.until_seen(2);
  Internals::of(*place.runtime).patience_ns = 1'000'000;
  std::atomic<bool> polled = false, let_go = false;
  std::thread other([&] {
    place.runtime->poll();
    polled = true;
    polled.notify_one();
    let_go.wait(false);
  });
  polled.wait(false);
  place.connection.reset();
  Internals::of(*place.runtime).patience_ns = kPatienceNs;
  EXPECT_EQ(log.count(LogLevel::kError, "~ClientConnection()", "no thread has polled core 0"), 1);
  EXPECT_EQ(place.server->stats()[Counter::kConnections], 1u);
  let_go = true;
  let_go.notify_one();
  other.join();
  place.until([&] { return log.count(LogLevel::kInfo, "left of a ClientConnection") == 1; });
  EXPECT_FALSE(place.states.has(kClosed));
}

TEST(Bounded, ACallsDestructorOnAnUnpolledCore) {
  LogLines log;
  Place place("shm", RuntimeOptions{}, {});
  place.start();
  place.until_seen(2);
  auto call = std::make_unique<EndingCall>(*place.connection);
  call->begin(kKeep);
  call->submit();
  place.until([&] { return place.keeper.kept() == 1; });
  Internals::of(*place.runtime).patience_ns = 1'000'000;
  std::atomic<bool> polled = false, let_go = false;
  std::thread other([&] {
    place.runtime->poll();
    polled = true;
    polled.notify_one();
    let_go.wait(false);
  });
  polled.wait(false);
  call.reset();
  Internals::of(*place.runtime).patience_ns = kPatienceNs;
  let_go = true;
  let_go.notify_one();
  other.join();
  EXPECT_EQ(log.count(LogLevel::kError, "~Call() waits"), 1);
  place.until([&] { return place.connection->stats()[Counter::kCallsInFlight] == 0; });
}

// Captures, begun and ended by a reactor.
TEST(Captures, BeginAndEndWithoutWaiting) {
  Place place("shm", RuntimeOptions{}, {});
  place.start();
  struct Told {
    std::optional<Result<void>> started;
    std::optional<CaptureCounts> counts;
  } told;
  auto begin = [&](const std::string& file) {
    told.started.reset();
    place.runtime->start_capture(
        file, {},
        [](Result<void>&& started, void* mine) {
          static_cast<Told*>(mine)->started = std::move(started);
        },
        &told);
    place.until([&] { return told.started.has_value(); });
  };
  const std::string file = "/tmp/rrdk-test-" + std::to_string(getpid()) + ".pcapng";
  begin("/nonexistent/x.pcapng");
  EXPECT_FALSE(*told.started);
  begin(file);
  ASSERT_TRUE(*told.started) << told.started->error().message;
  open_window(*place.connection);
  place.runtime->stop_capture(
      [](const CaptureCounts& counts, void* mine) { static_cast<Told*>(mine)->counts = counts; },
      &told);
  place.until([&] { return told.counts.has_value(); });
  EXPECT_GE(told.counts->captured, 4u);
  EXPECT_EQ(told.counts->lost, 0u);
  ::unlink(file.c_str());
}

// Threads of the Runtime besides its cores: from when on there are some.
std::vector<std::string> names_of_threads() {
  std::vector<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    names.push_back(name);
  }
  return names;
}

TEST(HelperThread, IsThereFromTheFirstThingThatMayBlock) {
  auto count = [](const char* name) { return std::ranges::count(names_of_threads(), name); };
  {
    auto memory = make_memory();
    auto runtime = Runtime::create(*memory).value();
    auto client = Client::create(*runtime).value();
    States states;
    auto connection = client->connect_start("shm:/tmp/rrdk-nobody.sock", states.options()).value();
    wait_until([&] { return states.closed.load(); }, [&] { return runtime->poll(); });
    EXPECT_EQ(count("rrdk-aside"), 0);
    wait_until([&] { return count("rrdk-find") == 0; }, [&] { return runtime->poll(); });
    std::atomic<bool> ran = false;
    ASSERT_TRUE(runtime->run_aside(
        [](void* argument) { static_cast<std::atomic<bool>*>(argument)->store(true); }, &ran));
    wait_until([&] { return ran.load(); }, [&] { return runtime->poll(); });
    EXPECT_EQ(count("rrdk-aside"), 1);
  }
  EXPECT_EQ(count("rrdk-aside"), 0);
}

}  // namespace
}  // namespace rrdk::loopback
