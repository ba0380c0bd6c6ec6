// One end of a test: a device with a completion queue, and the events and completions that came.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/device.h"
#include "rrdk/memory.h"

namespace rrdk::fabric::test {

// An emulated machine is slow, especially at making processes.
bool emulated();
// How long something may take.
std::chrono::seconds patience();

// Memory for all tests of this process.
Memory& test_memory();

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

struct End {
  explicit End(const std::string& uri, Memory& memory = test_memory());

  // Takes completions and events, one batch of each.
  void pump();
  // The oldest event of a type, removed; the test fails if there is no such event.
  Event take_event(EventType type);
  bool has_event(EventType type) const;
  // Why connecting fails where no one listens, at once or by an event.
  Error connect_error(QueuePair& qp, const std::string& uri);
  // All completions that have come so far, removed.
  std::vector<Completion> take_completions();
  uint64_t counter(std::string_view name) const;
  // Events and completions that were not taken, and all counters, in one line.
  std::string state() const;
  std::unique_ptr<QueuePair> queue_pair(QueuePairOptions options = {});

  std::unique_ptr<Device> device;
  std::unique_ptr<CompletionQueue> cq;
  std::unique_ptr<SharedReceiveQueue> srq;
  std::vector<Completion> completions;
  std::vector<Event> events;
};

// Pumps all `ends` until `done`. Returns false, with a test failure, if that takes too long.
bool pump_until(std::initializer_list<End*> ends, const std::function<bool()>& done);

// Work requests in one line.
SendWr send_wr(uint64_t id, std::initializer_list<MemorySpan> spans);
SendWr access_wr(uint64_t id, Op op, MemorySpan local, uint32_t key, uint64_t address);
SendWr bind_wr(uint64_t id, uint32_t key, MemorySpan span, Rights rights);
SendWr invalidate_wr(uint64_t id, uint32_t key);
inline uint64_t address_of(const void* p) {
  return reinterpret_cast<uintptr_t>(p);
}

// A client and a server in this thread, connected.
struct Pair {
  explicit Pair(const std::string& uri, QueuePairOptions client_options = {},
                QueuePairOptions server_options = {}, bool server_srq = false);
  ~Pair();

  bool pump_until(const std::function<bool()>& done) {
    return test::pump_until({&client, &server}, done);
  }
  // Another connection between the two ends.
  std::pair<std::unique_ptr<QueuePair>, std::unique_ptr<QueuePair>> connect(
      QueuePairOptions client_options = {}, QueuePairOptions server_options = {});
  // Posts one request at the client, or at `qp` of `end`, and returns its completion.
  Completion run(const SendWr& wr);
  Completion run(End& end, QueuePair& qp, const SendWr& wr);
  // Sends `spans` from the client and returns when the server has received it.
  void deliver(std::initializer_list<MemorySpan> spans);
  // Posts the Write `wr` at the client and returns when its data are at the server. A Write that
  // succeeded is only known to have been sent (iWARP); a Send behind it arrives after it.
  void write(const SendWr& wr);
  void post_receives(QueuePair& qp, uint32_t count, uint32_t size = 4096);
  // Whether a refused Send or Write fails (Capabilities::acknowledges).
  bool acknowledges() const { return client.device->capabilities().acknowledges; }
  const Capabilities& can() const { return client.device->capabilities(); }
  // The sum of both ends: refusals are counted where they are decided.
  uint64_t counter(std::string_view name) const {
    return client.counter(name) + server.counter(name);
  }
  // Whether `name` counts `times`, where drivers count why they refuse (counts_causes).
  bool counted(std::string_view name, uint64_t times) const {
    return !can().counts_causes || counter(name) == times;
  }
  // A key at the server for `span`, bound.
  uint32_t expose(MemorySpan span, Rights rights);

  std::string uri;
  End client;
  End server;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<QueuePair> client_qp;
  std::unique_ptr<QueuePair> server_qp;
  std::vector<Buffer> receive_buffers;  // wr_id of post_receives() is the index here
};

}  // namespace rrdk::fabric::test
