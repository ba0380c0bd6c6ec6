// Looks after the connections of one core: ends those that are idle, or take no replies, for longer
// than the server's options allow. Costs nothing per call: it compares what the engine counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/poll_core.h"
#include "server/server_link.h"

namespace rrdk::server {

class Sweeper final : public runtime::Chore {
 public:
  // The core's thread.
  void add(ServerLink& link) { links_.push_back(&link); }
  void remove(ServerLink& link) { std::erase(links_, &link); }
  void look(uint64_t now_ns) override {
    if (now_ns < next_ns_)
      return;
    next_ns_ = now_ns + period_ns_;
    for (ServerLink* link : links_)
      link->check_timeouts(now_ns);
  }

  // Between looks; before the first of them.
  void set_period(uint64_t ns) noexcept { period_ns_ = ns; }

 private:
  std::vector<ServerLink*> links_;
  uint64_t period_ns_ = 0;
  uint64_t next_ns_ = 0;
};

}  // namespace rrdk::server
