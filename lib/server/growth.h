// Room for Receives that grow (Version2ServerOptions::max_receive_size): which connections may, so
// that together they leave buffers of the larger size classes for calls. What a connection may have
// is set aside when its growth begins: its Receives take it one by one, as the smaller ones are
// used.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "rrdk/error.h"
#include "rrdk/memory.h"

namespace rrdk::server {

// One buffer in so many of a class that Receives use stays for calls and replies.
constexpr uint32_t kShareKeptForCalls = 4;

// Buffers of one class.
struct GrowthShare {
  uint32_t buffer_size = 0;
  uint32_t buffers = 0;
};
// What one connection has been granted, until it ends: Receives that shrink, or grow on, keep their
// buffers until the peer uses them.
using GrowthShares = std::vector<GrowthShare>;

// Any thread.
class Growth {
 public:
  // Receives have `bytes` before they grow.
  Growth(const Memory& memory, uint32_t bytes) : memory_(memory), bytes_(bytes) {}

  // `receives` of that size, for the connection that has `shares`. With an error nothing has
  // changed. Errors: kNoMemory.
  Result<void> take(uint32_t bytes, uint32_t receives, GrowthShares& shares);
  void give_back(GrowthShares& shares);

 private:
  const Memory& memory_;
  const uint32_t bytes_;
  std::mutex mutex_;
  GrowthShares taken_;  // one for each class
};

}  // namespace rrdk::server
