// A client's options that can not be had, and the least that can.
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
  Endings calls = submit(world, kEcho, 3);
  world.until([&] { return all_ended(calls); });
  for (const auto& call : calls)
    EXPECT_STREQ(to_string(call->call.status()), to_string(CallStatus::kOk));
}

}  // namespace
}  // namespace rrdk::loopback
