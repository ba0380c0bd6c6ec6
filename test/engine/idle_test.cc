// The memory that an idle connection takes, beside the Receives that it was granted.
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <vector>

#include "base/sanitizer.h"
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

constexpr size_t kConnections = 10'000;
// The bytes of the engine and of all that it has allocated.
constexpr uint64_t kMost = 4096;

uint64_t resident_bytes() {
  uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Answers each call at once.
struct Above final : Upcalls {
  void on_call(ServedCall& call) override {
    Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
    e.put_u32(call.xid);
    e.finish();
    call.connection().reply(call);
  }
  void on_call_ended(OutgoingCall&) override {}
  Memory* memory = nullptr;
};

class Idle : public testing::Test {
 protected:
  // If `called`, each connection has served a call since.
  uint64_t bytes_of_each(bool called) {
    EXPECT_TRUE(ensure_eal());
    const auto memory = Memory::create({.classes = {{1024, 16384}, {4096, 64}},
                                        .hugepages = HugepagePolicy::kNever,
                                        .numa_nodes = {},
                                        .prefault = true})
                            .value();
    above_.memory = memory.get();
    CallPool pool(*memory, 512);
    ReceiveQueue queue(*memory, 16384, 1024, ReceiveQueue::Users::kMany);
    const SharedOptions options(
        {.credits = 64,
         .first_credits = 1,
         .receive_size = 1024,
         .limits = {.versions = {.one = true, .two = proto::Wire::kDraft04}},
         .max_copied = 4096});
    ClientShare share;
    const mem::BorrowerRef borrower = mem::Borrower::create(*memory);
    FakeQueuePair keys;
    std::vector<std::unique_ptr<Connection>> connections;
    connections.reserve(kConnections);
    malloc_trim(0);  // so that memory freed by an earlier run is not reused unnoticed
    const uint64_t before = resident_bytes();
    for (size_t i = 0; i != kConnections; ++i) {
      connections.push_back(std::make_unique<Connection>(
          options,
          PerConnection{
              .borrower = borrower.get(), .client_share = &share, .shared_receives = &queue},
          *memory, pool, keys, above_));
      EXPECT_TRUE(connections.back()->prepare_receives());
      connections.back()->on_established({}, 16);
      if (called)
        call(*connections.back());
    }
    const uint64_t after = resident_bytes();
    for (const auto& connection : connections) {
      connection->on_disconnected();
      EXPECT_TRUE(connection->idle());
    }
    return (after - before) / kConnections;
  }

 private:
  static void call(Connection& connection) {
    const Bytes message = Wire{7, 1, 1, kMsg, 0, 0, 0, 7, 0};
    const fabric::ReceiveWr wr = *connection.receives().begin();
    connection.receives().pop_front(1);
    std::ranges::copy(message, wr.buffer.data);
    fabric::Completion done = {};
    done.wr_id = wr.wr_id;
    done.op = Op::kReceive;
    done.byte_length = static_cast<uint32_t>(message.size());
    connection.on_completions({&done, 1});
    ASSERT_EQ(connection.sends().size(), 1u);
    connection.sends().clear();
    connection.on_posted();
    ASSERT_FALSE(connection.busy());
  }

  Above above_;
};

TEST_F(Idle, ConnectionsTakeLittleMemory) {
#if RRDK_ASAN || RRDK_TSAN
  GTEST_SKIP() << "sanitizers need memory of their own";
#endif
  const uint64_t fresh = bytes_of_each(false);
  const uint64_t called = bytes_of_each(true);
  printf("bytes of an idle connection's engine: %lu, %lu once it has listed a Send; sizeof %zu\n",
         fresh, called, sizeof(Connection));
  EXPECT_LE(fresh, kMost);
  EXPECT_LE(called, kMost);
}

}  // namespace
}  // namespace rrdk::engine::test
