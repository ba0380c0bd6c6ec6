// Requests for another Receive Buffer Size of the peer's, as a program makes them of a connection
// of either role, and what became of them (rrdk/receive_sizes.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "rrdk/receive_sizes.h"
#include "runtime/link.h"
#include "xprt/link.h"

namespace rrdk::runtime {

class SizeRequests {
 public:
  // Any thread: one is made.
  void ask() noexcept { asked_.fetch_add(1, std::memory_order_relaxed); }
  // The core: one ended without a message to the peer.
  void refuse() noexcept { refused_.fetch_add(1, std::memory_order_relaxed); }

  // Any thread. `counters` are the connection's, of all its links.
  rrdk::ReceiveSizes report(const Link::ReceiveSizes& now, const xprt::Counters& counters) const {
    const uint64_t refused = refused_.load(std::memory_order_relaxed);
    return {.own = now.own,
            .peer = now.peer,
            .asked = asked_.load(std::memory_order_relaxed),
            .ended = counters.size_requests_ended + refused,
            .refused = counters.size_requests_refused + refused,
            .own_changes = counters.size_changes,
            .peer_changes = counters.peer_size_changes};
  }

 private:
  std::atomic<uint64_t> asked_ = 0;
  std::atomic<uint64_t> refused_ = 0;
};

}  // namespace rrdk::runtime
