// Options of a client that are refused, and the smallest that work.
#include "../server/wrong_options.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

const std::vector<Wrong<ClientOptions>> kOfClients = {
    {"one_segment", [](auto& o) { o.pad_write_chunks = o.one_segment = true; }},
    {"backward_credits", [](auto& o) { o.backward_credits = 0; }},
    {"backward_chunks",
     [](auto& o) {
       o.version2.backward_chunks = true;
       o.version2.properties = false;
     }},
    {"max_backward_chunk_bytes", [](auto& o) { o.version2.max_backward_chunk_bytes = 0; }},
    {"reconnect.first_delay_ms", [](auto& o) { o.reconnect.first_delay_ms = 0; }},
    {"reconnect.first_delay_ms",
     [](auto& o) { o.reconnect = {.first_delay_ms = 2, .max_delay_ms = 1}; }},
    {"retransmit", [](auto& o) { o.retransmit = true; }},
    {"keepalive_patience", [](auto& o) { o.keepalive_patience = 0; }},
    {"keepalive_binding",
     [](auto& o) {
       static constexpr Binding kNone = {.program = 1, .version = 1, .name = "", .procedures = {}};
       o.keepalive_binding = &kNone;
     }},
    {"rfc5666",
     [](auto& o) {
       o.rfc5666.enabled = true;
       o.version = RpcRdmaVersion::kTwo;
     }},
};

TEST(ClientOptions, ThatContradictAreRefusedByName) {
  SurvivalWorld world({});
  expect_refused<Client>(*world.runtime, kOfBoth<ClientOptions>);
  expect_refused<Client>(*world.runtime, kOfClients);
}

TEST(ClientOptions, TheLeastThatWorks) {
  SurvivalWorld world({.credits = 1,
                       .inline_size = 1024,
                       .max_call = 1024,
                       .max_reply = 1024,
                       .backward_credits = 1},
                      {.credits = 1,
                       .inline_size = 1024,
                       .max_call = 1024,
                       .max_reply = 1024,
                       .max_chunk_bytes = 1024,
                       .max_connections = 1,
                       .replay = {.entries = 0, .bytes = 0, .clients = 0}});
  world.connect();
  EndingCalls calls = submit(world, kEcho, 3);
  world.until([&] { return all_ended(calls); });
  for (const auto& call : calls)
    EXPECT_STREQ(to_string(call->call.status()), to_string(CallStatus::kOk));
}

// However many credits it has: Receives are posted with calls in flight.
TEST(Connections, TakeFewBuffersWhileTheyAreIdle) {
  constexpr uint32_t kFew = 20;
  SurvivalWorld world({.credits = 1024}, {.credits = 4});
  world.connect();
  const auto in_use = [&] {
    uint64_t bytes = 0;
    for (const PoolAudit& pool : world.memory->audit())
      bytes += uint64_t{pool.count - pool.available} * pool.buffer_size;
    return bytes;
  };
  const uint64_t before = in_use();
  std::vector<std::unique_ptr<ClientConnection>> idle;
  for (uint32_t i = 0; i < kFew; ++i)
    idle.push_back(world.client->connect(world.uri, SurvivalWorld::kClientCore).value());
  // Four Receives of the server's, one of ours, space for headers; and shared ones come in steps.
  EXPECT_LE(in_use() - before, (kFew * 8 + 128) * uint64_t{4096});
}

// The largest values have their meaning: times of weeks do not wrap to short ones, and counts above
// what is possible are no limit.
template <typename Options>
struct Largest {
  const char* named;
  std::function<void(Options&)> set;
};

const std::vector<Largest<ClientOptions>> kLargestOfClients = {
    {"credits", [](auto& o) { o.credits = 4096; }},
    {"max_call", [](auto& o) { o.max_call = 1u << 30; }},
    {"max_reply", [](auto& o) { o.max_reply = 1u << 30; }},
    {"connect_timeout_ms", [](auto& o) { o.connect_timeout_ms = UINT32_MAX; }},
    {"call_timeout_ms", [](auto& o) { o.call_timeout_ms = UINT32_MAX; }},
    {"lend_ms", [](auto& o) { o.lend_ms = UINT32_MAX; }},
    {"starved_ms", [](auto& o) { o.starved_ms = UINT32_MAX; }},
    {"chunk_threshold", [](auto& o) { o.chunk_threshold = UINT32_MAX; }},
    {"reconnect",
     [](auto& o) {
       o.reconnect = {.enabled = true,
                      .first_delay_ms = UINT32_MAX,
                      .max_delay_ms = UINT32_MAX,
                      .give_up_ms = UINT32_MAX};
     }},
    {"keepalive_ms", [](auto& o) { o.keepalive_ms = UINT32_MAX; }},
    {"keepalive_patience",
     [](auto& o) {
       o.keepalive_ms = 1;
       o.keepalive_patience = UINT32_MAX;
     }},
    {"backward_credits", [](auto& o) { o.backward_credits = 4096; }},
    {"version2.version_memory_ms",
     [](auto& o) {
       o.version = RpcRdmaVersion::kAuto;
       o.version2.version_memory_ms = UINT32_MAX;
     }},
    {"version2.max_backward_chunk_bytes",
     [](auto& o) { o.version2.max_backward_chunk_bytes = UINT64_MAX; }},
    {"rfc5666",
     [](auto& o) {
       o.rfc5666 = {.enabled = true, .max_reads = UINT32_MAX, .pad_threshold = UINT32_MAX};
     }},
};

const std::vector<Largest<ServerOptions>> kLargestOfServers = {
    {"first_credits", [](auto& o) { o.first_credits = UINT32_MAX; }},
    {"max_reply", [](auto& o) { o.max_reply = 1u << 30; }},
    {"max_chunk_bytes", [](auto& o) { o.max_chunk_bytes = UINT64_MAX; }},
    {"backward_credits", [](auto& o) { o.backward_credits = 4096; }},
    {"backward_timeout_ms", [](auto& o) { o.backward_timeout_ms = UINT32_MAX; }},
    {"backward_lend_ms", [](auto& o) { o.backward_lend_ms = UINT32_MAX; }},
    {"max_connections", [](auto& o) { o.max_connections = UINT32_MAX; }},
    {"max_connections_per_client", [](auto& o) { o.max_connections_per_client = UINT32_MAX; }},
    {"first_call_timeout_ms", [](auto& o) { o.first_call_timeout_ms = UINT32_MAX; }},
    {"idle_timeout_ms", [](auto& o) { o.idle_timeout_ms = UINT32_MAX; }},
    {"send_timeout_ms", [](auto& o) { o.send_timeout_ms = UINT32_MAX; }},
    {"replay.bytes", [](auto& o) { o.replay.bytes = UINT32_MAX; }},
    {"replay.clients", [](auto& o) { o.replay.clients = UINT32_MAX; }},
    {"replay.max_reply",
     [](auto& o) { o.replay = {.bytes = UINT32_MAX, .max_reply = UINT32_MAX}; }},
    {"replay.window_ms", [](auto& o) { o.replay.window_ms = UINT32_MAX; }},
    {"rfc5666",
     [](auto& o) {
       o.rfc5666 = {.enabled = true,
                    .max_reads = UINT32_MAX,
                    .exposed_bytes = UINT64_MAX,
                    .total_exposed_bytes = UINT64_MAX,
                    .done_timeout_ms = UINT32_MAX};
     }},
};

void expect_to_work(const char* named, const ClientOptions& of_client,
                    const ServerOptions& of_server) {
  SCOPED_TRACE(named);
  SurvivalWorld world(of_client, of_server);
  world.connect();
  for (int times = 0; times < 3; ++times) {
    EndingCalls calls = submit(world, kEcho, 3);
    world.until([&] { return all_ended(calls); });
    for (const auto& call : calls)
      EXPECT_STREQ(to_string(call->call.status()), to_string(CallStatus::kOk));
  }
  EXPECT_TRUE(world.connection->alive());
}

TEST(ClientOptions, TheLargestThatThereAre) {
  for (const auto& largest : kLargestOfClients) {
    ClientOptions options;
    largest.set(options);
    expect_to_work(largest.named, options, {});
  }
}

TEST(ServerOptions, TheLargestThatThereAre) {
  for (const auto& largest : kLargestOfServers) {
    ServerOptions options;
    largest.set(options);
    expect_to_work(largest.named, {}, options);
  }
}

}  // namespace
}  // namespace rrdk::loopback
