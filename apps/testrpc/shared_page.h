// What the two processes of --self share besides the URI: a page made before the fork.
#pragma once

#include <atomic>
#include <cstdint>

#include "gaps.h"
#include "machine_limits.h"
#include "noise.h"

namespace rrdk::testrpc {

struct SharedPage {
  // The client pings and the server's poll loop answers: the round trip between their two cores.
  apps::PingLine line;
  // The server's counters of what its steady state must not do. `registrations` is updated before
  // the last answer to a ping.
  alignas(64) std::atomic<uint64_t> allocations{0};
  std::atomic<uint64_t> registrations{0};
  std::atomic<uint64_t> preemptions{0};  // likewise
  ThreadState server;                    // likewise, and read only after that answer
  GapLog gaps;                           // of the server's thread
  // Set by the client: the server is to end and to report.
  alignas(64) std::atomic<bool> stop{false};
};

// How the server of --self ended; sent through the pipe as raw bytes.
struct ServerReport {
  bool pools_whole;
  bool capture_whole;
  uint64_t calls;
  uint64_t rejected;
};

}  // namespace rrdk::testrpc
