// Options of a server that are refused. For the smallest that work, see client/options_test.cc.
#include "loopback.h"
#include "wrong_options.h"

namespace rrdk::loopback {
namespace {

const std::vector<Wrong<ServerOptions>> kOfServers = {
    {"max_chunk_bytes", [](auto& o) { o.max_chunk_bytes = 0; }},
    {"max_chunk_bytes", [](auto& o) { o.max_chunk_bytes = 1023; }},
    {"versions", [](auto& o) { o.versions = {.one = false, .two = false}; }},
    {"max_connections", [](auto& o) { o.max_connections = 0; }},
    {"replay.entries", [](auto& o) { o.replay.entries = 65537; }},
    {"replay.clients", [](auto& o) { o.replay.clients = 0; }},
    {"replay.bytes", [](auto& o) { o.replay = {.bytes = 1000, .max_reply = 2000}; }},
    {"largest buffers", [](auto& o) { o.inline_size = 131072; }},
    {"max_call is 8388609, and a call has at most 128 buffers of 65536",
     [](auto& o) { o.max_call = 128 * 65536 + 1; }},
    {"max_receive_size is 131072, and the largest buffers",
     [](auto& o) { o.version2.max_receive_size = 131072; }},
    {"backward_credits",
     [](auto& o) {
       o.rfc5666.enabled = true;
       o.backward_credits = 1;
     }},
};

TEST(ServerOptions, ThatContradictAreRefusedByName) {
  auto memory = Memory::create({.classes = {{4096, 256}, {65536, 16}}}).value();
  auto runtime = Runtime::create(*memory, {}).value();
  expect_refused<Server>(*runtime, kOfBoth<ServerOptions>);
  expect_refused<Server>(*runtime, kOfServers);
}

}  // namespace
}  // namespace rrdk::loopback
