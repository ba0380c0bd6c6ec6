// RFC 5666's compatibility mode, as the engine is told of it. doc/compat-rfc5666.md.
#pragma once

#include <cstdint>

namespace rrdk::xprt {

struct Rfc5666Options {
  bool enabled = false;
  uint32_t max_reads = 16;  // RDMA Reads of the peer's that can be served at once
  // A requester's.
  uint32_t pad_threshold = 64;
  bool read_replies = false;  // no room is offered for results
  // A responder's.
  uint32_t align = 0;  // what it advises; 0: nothing
  uint32_t exposed_replies = 32;
  uint64_t exposed_bytes = 32u << 20;
  uint64_t total_exposed_bytes = 64u << 20;  // of all peers of the Memory
  uint64_t done_wait_ns = 5'000'000'000;
};

}  // namespace rrdk::xprt
