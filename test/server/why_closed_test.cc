// Why a connection ended is reported in four places: ServerOptions::on_close and
// ConnectOptions::on_state, ConnectionInfo, the log, and the statistics with their metrics. These
// agree for each way in which a connection can end.
#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <optional>

#include "../client/log_lines.h"
#include "../client/other_process.h"
#include "loopback.h"
#include "raw_client.h"
#include "rrdk/telemetry.h"

namespace rrdk::loopback {
namespace {

using testing::HasSubstr;

// Another process, with which its connection ends.
TEST(OtherProcess, Runs) {
  const char* uri = std::getenv(kUri);
  if (uri == nullptr)
    return;
  auto memory = make_memory();
  auto runtime = Runtime::create(*memory, {}).value();
  auto client = Client::create(*runtime).value();
  auto connection = client->connect(uri).value();
  open_window(*connection);
  say("connected");
  pause();
}

// The server's core does nothing while `silent`.
constexpr int kClientCore = 0;
constexpr uint32_t kServerCore = 1;

struct Place {
  Place(const std::string& scheme, ServerOptions server_options,
        const ClientOptions& client_options)
      : ends(options_for(Cores::kEmbedded), told(server_options), client_options,
             {{.binding = &kBinding, .procedures = kTable, .context = &keeper}},
             scheme == "shm" ? "shm:" + socket_path() : scheme + "://127.0.0.1:0") {
    set_log_level(LogLevel::kDebug);
  }
  ~Place() {
    set_log_level(before);
    keeper.join();
    keeper.release();
    raw.reset();
    connection.reset();
    ends.end();
  }

  ServerOptions told(ServerOptions options) {
    options.on_close = [](ServerConnection& which, const Ending& why, void* self) {
      auto& place = *static_cast<Place*>(self);
      EXPECT_FALSE(place.closed) << "it is told once";
      place.closed = why;
      place.seen_closed = which.info().ending;
    };
    options.connection_argument = this;
    return options;
  }
  static void on_state(ClientConnection& which, ConnectionState state, const Error* why,
                       void* self) {
    auto& place = *static_cast<Place*>(self);
    if (place.lost || (state != ConnectionState::kLost && state != ConnectionState::kClosed))
      return;
    place.lost = *why;
    place.seen_lost = which.info().ending;
  }

  void connect() {
    auto made = ends.client->connect(ends.uri,
                                     {.core = kClientCore, .on_state = on_state, .argument = this});
    ASSERT_TRUE(made) << made.error().message;
    connection = std::move(*made);
    open_window(*connection);
  }
  void connect_raw(uint32_t receives = 32) {
    raw = std::make_unique<RawClient>(*ends.memory, ends.uri, receives);
    until([this] { return raw->up(); });
  }
  void send(uint32_t xid, uint32_t procedure, const Words& arguments = {},
            const Words& lists = {0, 0, 0}) {
    raw->send(
        RawCall{.xid = xid, .procedure = procedure, .arguments = arguments, .lists = lists}.message(
            kBinding.program, kBinding.version));
  }
  void until(const std::function<bool()>& done) {
    wait_until(done, [this] {
      if (raw != nullptr)
        raw->pump();
      const uint32_t work = ends.runtime->poll(kClientCore);
      return work + (silent ? 0 : ends.runtime->poll(kServerCore));
    });
  }
  uint64_t id() {
    uint64_t found = 0;
    ends.server->visit([&](const ConnectionInfo& info) { found = info.id; });
    return found;
  }

  const LogLevel before = log_level();
  LogLines log;
  Keeper keeper;
  std::optional<Ending> closed;   // as on_close says
  std::optional<Error> lost;      // as on_state says
  Ending seen_closed, seen_lost;  // and info() at that moment
  bool silent = false;
  Ends ends;
  std::unique_ptr<ClientConnection> connection;
  std::unique_ptr<RawClient> raw;
};

// A way to end a connection, and the expected reports.
struct Way {
  const char* name;
  EndedBy by;
  Errc code;
  std::optional<Refusal> refusal;
  const char* text;  // a part of the message
  void (*end)(Place& place);
  ServerOptions server = {};
  ClientOptions client = {};
  const char* only = nullptr;  // with this driver
};

void expect_one_line(Place& place, const std::string& whose, const Ending& ending) {
  int lines = 0, same = 0;
  for (const LogLevel level :
       {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo, LogLevel::kDebug}) {
    lines += place.log.count(level, whose, " ended: ");
    same += place.log.count(level, whose, " ended: " + ending.to_string());
  }
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(same, 1) << ending.to_string();
}

// The sample in the OpenMetrics text, or empty if there is no such sample.
std::string sample(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + " ");
  if (at == std::string::npos)
    return "";
  const size_t from = at + name.size() + 2;
  return metrics.substr(from, metrics.find('\n', from) - from);
}

void expect_counted(const Stats& stats, const Ending& ending, const std::string& metrics,
                    const std::string& of, const std::string& labels) {
  constexpr std::pair<EndedBy, Counter> kCounters[] = {
      {EndedBy::kPeer, Counter::kEndedByPeer},
      {EndedBy::kProgram, Counter::kEndedByProgram},
      {EndedBy::kLimit, Counter::kEndedByLimit},
      {EndedBy::kNetwork, Counter::kEndedByNetwork}};
  for (const auto& [by, counter] : kCounters) {
    const uint64_t count = by == ending.by ? 1 : 0;
    const std::string name = counter_info(counter)->name;
    EXPECT_EQ(name, std::string("ended_by_") + to_string(by));
    EXPECT_EQ(stats[counter], count) << name;
    EXPECT_EQ(sample(metrics, "rrdk_" + of + "_" + name + "_total" +
                                  (labels.empty() ? "" : "{" + labels + "}")),
              std::to_string(count))
        << name;
  }
  if (!ending.refusal)
    return;
  const uint64_t count = stats[*ending.refusal];
  EXPECT_GE(count, 1u);
  const std::string reason =
      std::string(counter_info(counter_of(*ending.refusal))->name).substr(std::strlen("refusal_"));
  EXPECT_EQ(sample(metrics, "rrdk_" + of + "_refusals_total{" + labels +
                                (labels.empty() ? "" : ",") + "reason=\"" + reason + "\"}"),
            std::to_string(count));
}

void expect_way(const Ending& ending, const Way& way) {
  EXPECT_EQ(ending.by, way.by) << to_string(ending.by);
  EXPECT_EQ(ending.code, way.code) << to_string(ending.code);
  EXPECT_EQ(ending.refusal, way.refusal);
  EXPECT_THAT(ending.text, HasSubstr(way.text));
}

class WhyClosed : public testing::TestWithParam<const char*> {
 protected:
  bool applies(const Way& way) const {
    return way.only == nullptr || std::strcmp(way.only, GetParam()) == 0;
  }
  void at_server(const Way& way) {
    SCOPED_TRACE(way.name);
    Place place(GetParam(), way.server, way.client);
    way.end(place);
    place.until([&] { return place.closed.has_value(); });
    const Ending& ending = *place.closed;
    expect_way(ending, way);
    EXPECT_EQ(place.seen_closed, ending);
    expect_one_line(place, "connection of ", ending);
    auto telemetry = must(Telemetry::create("why", {.servers = {place.ends.server.get()}}));
    expect_counted(place.ends.server->stats(), ending, telemetry->openmetrics(), "server",
                   "server=\"0\"");
    EXPECT_EQ(place.ends.server->stats()[Counter::kConnectionsEnded],
              ending.by == EndedBy::kPeer ? 1u : 0u);
  }
  void at_client(const Way& way) {
    SCOPED_TRACE(way.name);
    Place place(GetParam(), way.server, way.client);
    place.connect();
    way.end(place);
    place.until([&] { return place.lost.has_value(); });
    place.silent = false;
    const Ending ending = place.connection->info().ending;
    expect_way(ending, way);
    EXPECT_EQ(place.seen_lost, ending);
    EXPECT_EQ(place.lost->code, ending.code);
    EXPECT_EQ(place.lost->message, place.ends.uri + ": " + ending.text);
    EXPECT_EQ(place.connection->error()->message, place.lost->message);
    expect_one_line(place, "connection to " + place.ends.uri, ending);
    auto telemetry = must(Telemetry::create("why", {.clients = {place.connection.get()}}));
    expect_counted(place.connection->stats(), ending, telemetry->openmetrics(), "client", "");
  }
};

const Way kAtServer[] = {
    {"the peer closes",
     EndedBy::kPeer,
     Errc::kConnectionLost,
     {},
     "the peer closed the connection",
     [](Place& place) {
       place.connect();
       place.connection.reset();
     }},
    {"the peer dies",
     EndedBy::kPeer,
     Errc::kConnectionLost,
     {},
     "the ",
     [](Place& place) {
       Process other("client", place.ends.uri);
       std::thread killer([&] {
         other.wait_for("connected");
         other.kill_hard();
       });
       place.until([&] { return place.closed.has_value(); });
       killer.join();
     }},
    {"a message longer than its Receive", EndedBy::kPeer, Errc::kConnectionLost,
     Refusal::kMessageTooLong, "longer than",
     [](Place& place) {
       place.connect_raw();
       place.send(1, kEcho, Words(1200, 0));
     }},
    {"an RPC message that is no call", EndedBy::kPeer, Errc::kConnectionLost, Refusal::kNotACall,
     "neither call nor reply",
     [](Place& place) {
       place.connect_raw();
       place.raw->send({1, 1, 32, 0, 0, 0, 0, 1, 7, 2, 0, 0, 0});
     }},
    {"a key that was never bound", EndedBy::kPeer, Errc::kConnectionLost, Refusal::kAccessRefused,
     "access",
     [](Place& place) {
       static std::byte nothing{};
       place.connect_raw();
       place.send(1, kWrite, {}, Words{1, 40} + segment(0x123457, 4096, &nothing) + Words{0, 0, 0});
     }},
    {"calls beyond the credits",
     EndedBy::kPeer,
     Errc::kConnectionLost,
     Refusal::kCreditOverrun,
     "credits",
     [](Place& place) {
       place.connect_raw();
       for (uint32_t xid = 1; !place.closed; xid += 2) {  // one of every two is too many
         place.send(xid, kKeep);
         place.send(xid + 1, kKeep);
         place.until([&] { return place.closed || place.keeper.kept() == 2; });
         place.keeper.release();
         place.until([&] { return place.closed || place.raw->received.size() == xid + 1; });
       }
     },
     {.credits = 1, .first_credits = 1}},
    {"idle_timeout_ms",
     EndedBy::kLimit,
     Errc::kShutdown,
     {},
     "idle_timeout_ms",
     [](Place& place) { place.connect(); },
     {.idle_timeout_ms = 1}},
    {"first_call_timeout_ms",
     EndedBy::kLimit,
     Errc::kShutdown,
     {},
     "first_call_timeout_ms",
     [](Place& place) { place.connect_raw(); },
     {.first_call_timeout_ms = 1}},
    {"send_timeout_ms",
     EndedBy::kLimit,
     Errc::kTimeout,
     {},
     "send_timeout_ms",
     [](Place& place) {
       place.connect_raw(0);
       for (uint32_t xid = 1; xid <= 100; ++xid)
         place.send(xid, kRead, {0, 0, 2000});
     },
     {.private_receives = true, .send_timeout_ms = 20},
     {},
     "shm"},
    {"close()",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "the operator wants it",
     [](Place& place) {
       place.connect();
       EXPECT_TRUE(place.ends.server->close(place.id(), "the operator wants it"));
     }},
    {"drain()",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "Server::drain()",
     [](Place& place) {
       place.connect();
       place.ends.server->drain_start(60'000, nullptr, nullptr);
     }},
    {"a drain that takes too long",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "not drained in time",
     [](Place& place) {
       place.connect_raw();
       place.send(1, kKeep);
       place.until([&] { return place.keeper.kept() == 1; });
       place.ends.server->drain_start(1, nullptr, nullptr);
     }},
    {"drop()",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "dropped",
     [](Place& place) {
       place.connect_raw();
       place.send(1, kDropCall);
     }},
    {"close_start()",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "the server is closing",
     [](Place& place) {
       place.connect();
       place.ends.server->close_start(nullptr, nullptr);
     }},
};

const Way kAtClient[] = {
    {"close_start()",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "closed here",
     [](Place& place) { place.connection->close_start(); }},
    {"drain_start()",
     EndedBy::kProgram,
     Errc::kShutdown,
     {},
     "all calls had ended",
     [](Place& place) { place.connection->drain_start(60'000); }},
    {"the server closes",
     EndedBy::kPeer,
     Errc::kConnectionLost,
     {},
     "the peer closed the connection",
     [](Place& place) { EXPECT_TRUE(place.ends.server->close(place.id(), "not told")); }},
    {"keepalive_ms",
     EndedBy::kLimit,
     Errc::kTimeout,
     {},
     "keepalive",
     [](Place& place) { place.silent = true; },
     {},
     {.keepalive_ms = 3}},
    {"starved_ms",
     EndedBy::kPeer,
     Errc::kConnectionLost,
     Refusal::kNoAnswers,
     "held by a call that was given up",
     [](Place& place) {
       EndingCall call(*place.connection);
       call.begin(kKeep);
       call.call.set_timeout_ms(1);
       call.submit();
       place.until([&] { return call.ended() == 1; });
     },
     {},
     {.credits = 1, .lend_ms = 0, .starved_ms = 20}},
};

TEST_P(WhyClosed, TheServerTellsTheSameEverywhere) {
  for (const Way& way : kAtServer) {
    if (applies(way))
      at_server(way);
  }
}

TEST_P(WhyClosed, TheClientTellsTheSameEverywhere) {
  for (const Way& way : kAtClient) {
    if (applies(way))
      at_client(way);
  }
}

INSTANTIATE_TEST_SUITE_P(Drivers, WhyClosed, testing::Values("shm", "iwarp"),
                         [](const auto& driver) { return std::string(driver.param); });

TEST(Endings, InWords) {
  EXPECT_EQ(Ending{}.to_string(), "not ended");
  EXPECT_EQ((Ending{EndedBy::kLimit, Errc::kTimeout, {}, "it took none"}).to_string(),
            "it took none [limit]");
  EXPECT_EQ((Ending{EndedBy::kPeer, Errc::kConnectionLost, Refusal::kNoAnswers, "it is silent"})
                .to_string(),
            "it is silent [peer: no answers]");
}

}  // namespace
}  // namespace rrdk::loopback
