// A client that must survive its server: the server can be taken away and come back, its calls can
// be kept for as long as a test likes, and its core can fall silent.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "../server/loopback.h"
#include "log_lines.h"

namespace rrdk::loopback {

// What the server does with calls: records their XIDs, and keeps the calls while `holding`.
struct Gate {
  bool holding = false;
  std::vector<ServerCall> held;
  std::vector<Handler> handlers;  // those that are held
  std::vector<uint32_t> xids;     // in the order in which calls came

  template <void (*handler)(ServerCall, void*)>
  static void pass(ServerCall call, void* context) {
    auto& self = *static_cast<Gate*>(context);
    self.xids.push_back(call.xid());
    if (!self.holding)
      return handler(std::move(call), nullptr);
    self.held.push_back(std::move(call));
    self.handlers.push_back(handler);
  }
  void answer() {
    handlers.clear();
    for (ServerCall& call : std::exchange(held, {}))
      std::move(call).reply();
  }
  // Answers the calls as if they had not been held.
  void answer_well() {
    std::vector<Handler> by = std::exchange(handlers, {});
    size_t i = 0;
    for (ServerCall& call : std::exchange(held, {}))
      by[i++](std::move(call), nullptr);
  }
  // Closes the connection: its calls are no longer answered.
  void drop() {
    handlers.clear();
    for (ServerCall& call : std::exchange(held, {}))
      std::move(call).drop();
  }
};

inline constexpr Procedure kGateTable[] = {{kEcho, Gate::pass<echo>},
                                           {kRead, Gate::pass<read>},
                                           {kWrite, Gate::pass<write>},
                                           {kKeep, Gate::pass<empty_result>}};

// One thread polls both: the client's core and the server's.
struct SurvivalWorld {
  static constexpr int kClientCore = 0;
  static constexpr uint32_t kServerCore = 1;

  explicit SurvivalWorld(const ClientOptions& client_options,
                         const ServerOptions& server_options_in = {})
      : server_options(server_options_in),
        memory(make_memory()),
        runtime(Runtime::create(*memory, {.embedded_cores = 2}).value()),
        client(Client::create(*runtime, client_options).value()) {
    server_options.first_credits = server_options.credits;  // its gate holds calls
    start_server();
  }
  ~SurvivalWorld() {
    connection.reset();
    stop_server();
    client.reset();
    runtime.reset();
    EXPECT_TRUE(memory->whole());
  }

  void start_server() {
    server = Server::create(*runtime, server_options).value();
    EXPECT_TRUE(
        server->add_service({.binding = &kBinding, .procedures = kGateTable, .context = &gate}));
    auto listening = server->listen(uri);
    ASSERT_TRUE(listening) << listening.error().message;
  }
  void stop_server() {
    gate.holding = false;
    gate.drop();
    server.reset();
  }
  // The server is a new one now, and the connection, if there was one, is lost.
  void restart_server() {
    stop_server();
    start_server();
  }
  void connect() {
    auto made = client->connect(uri, kClientCore);
    // A connect_timeout_ms that suits the test can be too short for a busy machine.
    while (!made && made.error().code == Errc::kTimeout)
      made = client->connect(uri, kClientCore);
    ASSERT_TRUE(made) << made.error().message;
    connection = std::move(*made);
  }

  uint32_t poll_client() { return runtime->poll(kClientCore); }
  uint32_t poll_all() { return poll_client() + runtime->poll(kServerCore); }
  // Polls until `done()`; fails the test after a long time.
  void until(const std::function<bool()>& done, bool silent_server = false) {
    wait_until(done, [&] { return silent_server ? poll_client() : poll_all(); });
  }
  void until_silent(const std::function<bool()>& done) { until(done, true); }
  // All held calls lose their connection.
  void break_connection() {
    gate.drop();
    until([&] { return !connection->alive(); });
  }
  Stats stats() { return connection->stats(); }

  Gate gate;
  ServerOptions server_options;
  std::string uri = "shm:" + socket_path();
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Client> client;
  std::unique_ptr<Server> server;
  std::unique_ptr<ClientConnection> connection;
};

inline ReconnectOptions at_once() {
  return {.enabled = true, .first_delay_ms = 1, .max_delay_ms = 2};
}
// The first delay is longer than any test.
inline ReconnectOptions some_day() {
  return {.enabled = true, .first_delay_ms = 3'600'000, .max_delay_ms = 3'600'000};
}

using EndingCalls = std::vector<std::unique_ptr<EndingCall>>;

inline EndingCalls submit(SurvivalWorld& world, uint32_t procedure, int count,
                          std::optional<bool> retransmit = {}) {
  EndingCalls endings;
  for (int i = 0; i < count; ++i) {
    endings.push_back(std::make_unique<EndingCall>(*world.connection));
    Encoder& args = endings.back()->begin(procedure);
    if (procedure == kEcho)
      args.put_opaque(std::span<const std::byte>());
    if (retransmit)
      endings.back()->call.set_retransmit(*retransmit);
    endings.back()->submit();
  }
  return endings;
}

inline bool all_ended(const EndingCalls& endings) {
  return std::ranges::all_of(endings, [](const auto& e) { return e->ended() == 1; });
}

inline void expect_status(const EndingCalls& endings, CallStatus status) {
  for (const auto& ending : endings) {
    EXPECT_EQ(ending->ended(), 1);
    EXPECT_STREQ(to_string(ending->call.status()), to_string(status));
  }
}

}  // namespace rrdk::loopback
