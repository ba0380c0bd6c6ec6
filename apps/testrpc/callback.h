// Calls from the server to its client: PERF_CALLBACK makes calls of the program PERF_CB
// (0x20005667, version 1), which clients offer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "rrdk/server.h"

namespace rrdk::testrpc {

// Returns the service that a client adds to its Client. Its handlers share nothing.
Service callback_service();

// The server's side: the calls of all PERF_CALLBACKs in progress. A PERF_CALLBACK allocates nothing
// if its connection has had that many in progress before.
class Callbacks {
 public:
  // Calls carry at most `max_size` bytes.
  explicit Callbacks(uint32_t max_size);
  ~Callbacks();

  // Called on the connection's poll core. Makes `count` calls that carry `size` bytes each, and
  // answers with the number of correct replies. Stops at the first call that fails.
  void start(ServerCall call, uint32_t count, uint32_t size);

  // Called when the server ends: before and after its destruction.
  void release();
  void clear();

 private:
  class Round;
  struct Way;

  Result<Way*> way_of(ServerCall& call);
  static void add_round(Way& way);

  std::vector<std::byte> data_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Way>> ways_;
};

}  // namespace rrdk::testrpc
