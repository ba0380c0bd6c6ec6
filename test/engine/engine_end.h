// One end of a connection under test: an engine, its fake queue pair, and an upper layer of
// lambdas.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "engine/connection.h"
#include "engine/served_call.h"
#include "fake_fabric.h"
#include "rrdk/eal.h"
#include "rrdk/memory.h"
#include "rrdk/xdr.h"

namespace rrdk::engine::test {

inline Bytes pattern(size_t length, uint32_t seed) {
  Bytes bytes(length);
  for (size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + seed * 71 + (i >> 8)) & 0xff);
  return bytes;
}

inline Bytes flatten(std::span<const Fragment> fragments) {
  Bytes bytes;
  for (const Fragment& f : fragments)
    bytes.insert(bytes.end(), f.data, f.data + f.length);
  return bytes;
}

struct End final : Upcalls {
  End(const ConnectionOptions& wanted, Memory& memory_, CallPool& pool,
      const PerConnection& own = {})
      : memory(memory_), options(wanted) {
    qp.depth = wanted.send_wrs;
    PerConnection its = own;
    its.client_share = &share;
    engine = std::make_unique<Connection>(options, its, memory_, pool, qp, *this);
    EXPECT_TRUE(engine->prepare_receives());
    qp.post(*engine);
  }

  void on_call(ServedCall& call) override {
    ++calls;
    if (handler)
      handler(call);
    else
      held.push_back(&call);
  }
  void on_call_ended(OutgoingCall& call) override {
    ended.push_back(&call);
    if (on_ended)
      on_ended(call);
  }

  bool may_grow(uint32_t, uint32_t) override { return grows; }
  void on_access_failed(uint32_t xid) override { failed.push_back(xid); }
  bool failed_before(uint32_t xid) override {
    ++asked;
    return std::ranges::find(failed_earlier, xid) != failed_earlier.end();
  }

  // Executes and delivers until nothing moves.
  bool run() {
    bool moved = false;
    for (bool again = true; again;) {
      qp.post(*engine);
      again = qp.execute_one();
      again |= qp.deliver(*engine, qp.receive_completions, 32);
      again |= qp.deliver(*engine, qp.send_completions, 32);
      again |= !engine->sends().empty() || !engine->receives().empty();
      moved |= again;
    }
    return moved;
  }
  void disconnect() {
    qp.fail();
    qp.disconnected = true;
    engine->on_disconnected();
    run();
  }

  Memory& memory;
  const SharedOptions options;
  ClientShare share;
  FakeQueuePair qp;
  std::unique_ptr<Connection> engine;
  std::function<void(ServedCall&)> handler;
  std::function<void(OutgoingCall&)> on_ended;
  bool grows = true;  // whether larger Receives may be taken
  uint64_t calls = 0;
  std::vector<ServedCall*> held;  // calls not answered yet, if there is no handler
  std::vector<OutgoingCall*> ended;
  std::vector<uint32_t> failed;          // XIDs passed to on_access_failed()
  std::vector<uint32_t> failed_earlier;  // XIDs for which failed_before() returns true
  uint32_t asked = 0;                    // for such
};

// Memory and a pool; both must be whole when a test ends.
class EngineTest : public testing::Test {
 protected:
  explicit EngineTest(std::vector<SizeClass> classes = {{4096, 1024}, {16384, 64}, {65536, 32}}) {
    EXPECT_TRUE(ensure_eal());
    auto made = Memory::create({.classes = std::move(classes),
                                .hugepages = HugepagePolicy::kNever,
                                .numa_nodes = {},
                                .prefault = false});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    memory = std::move(*made);
    pool = std::make_unique<CallPool>(*memory, 512);
  }
  void TearDown() override {
    EXPECT_EQ(pool->available(), pool->capacity());
    pool.reset();
    EXPECT_TRUE(memory->whole());
  }

  std::unique_ptr<Memory> memory;
  std::unique_ptr<CallPool> pool;
};

}  // namespace rrdk::engine::test
