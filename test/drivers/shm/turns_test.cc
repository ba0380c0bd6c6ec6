// How much one queue pair does before others, and its own peer, have their turn.
#include <array>
#include <cstring>
#include <vector>

#include "base/budget.h"
#include "test/drivers/shm/hostile_test.h"

namespace rrdk::shm::test {
namespace {

using fabric::Completion;
using fabric::Op;
using fabric::Rights;
using fabric::SendWr;
using fabric::WcStatus;
using fabric::test::access_wr;
using fabric::test::address_of;
using fabric::test::send_wr;
using fabric::test::test_memory;

// Replies, each with data that is written and a message behind it.
class Turns : public testing::Test {
 protected:
  static constexpr uint32_t kReplies = 8;
  static constexpr uint32_t kBytes = 64 << 10;

  Turns() {
    key_ = pair_.expose(sink_.first(kBytes), Rights::kRemoteWrite);
    // The server knows the client's memory from here on.
    EXPECT_EQ(pair_.run(write()).status, WcStatus::kSuccess);
    pair_.deliver({source_.first(8)});
    pair_.post_receives(*pair_.server_qp, kReplies);
    pair_.server.completions.clear();
  }

  SendWr write() {
    return access_wr(1, Op::kWrite, source_.first(kBytes), key_, address_of(sink_.data()));
  }
  void reply(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      const std::array<SendWr, 2> wrs = {write(), send_wr(2, {source_.first(8)})};
      ASSERT_EQ(pair_.client_qp->post_send(wrs), wrs.size());
    }
  }
  // The messages that one poll of the server brings.
  uint32_t take() {
    std::array<Completion, 64> out;
    const uint32_t count = pair_.server.cq->poll(out);
    for (const Completion& one : std::span(out).first(count))
      EXPECT_EQ(one.status, WcStatus::kSuccess);
    return count;
  }

  fabric::test::Pair pair_{new_uri()};
  Buffer source_ = test_memory().get(kBytes);
  Buffer sink_ = test_memory().get(kBytes);
  uint32_t key_ = 0;
};

TEST_F(Turns, TakeTwoWritesOfAPeerThatIsAhead) {
  reply(kReplies);
  EXPECT_EQ(take(), 2u);
  EXPECT_EQ(take(), 2u);
  EXPECT_EQ(take(), 2u);
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 0u);
}

// The peer can make the next one while the first is copied.
TEST_F(Turns, TakeOneWriteOfAPeerThatIsNot) {
  reply(2);
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 1u);
}

// As if it were one long Write.
TEST_F(Turns, TakeAllWritesOfAReply) {
  for (uint32_t i = 0; i < 5; ++i) {
    const SendWr wr = write();
    ASSERT_EQ(pair_.client_qp->post_send({&wr, 1}), 1u);
  }
  reply(2);
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 1u);
}

// Many short runs take time although they have few bytes.
TEST_F(Turns, CountTheRunsOfAList) {
  constexpr uint16_t kRuns = 1024;
  std::vector<MemorySpan> runs;
  for (uint32_t i = 0; i != kRuns; ++i)
    runs.push_back({source_.data() + size_t{i} * 2, 1, source_.region()});
  Buffer list = test_memory().get(sizeof(MemorySpan) * kRuns);
  std::memcpy(list.data(), runs.data(), sizeof(MemorySpan) * kRuns);
  uint32_t key = 0;
  ASSERT_TRUE(pair_.server_qp->reserve_keys({&key, 1}));
  SendWr bind =
      fabric::test::bind_wr(1, key, list.first(sizeof(MemorySpan) * kRuns), Rights::kRemoteRead);
  bind.runs = kRuns;
  ASSERT_EQ(pair_.run(pair_.server, *pair_.server_qp, bind).status, WcStatus::kSuccess);

  base::Count passes;
  base::Budget budget(1, passes);
  pair_.client.cq->set_budget(budget);
  const SendWr read = access_wr(2, Op::kRead, sink_.first(kRuns), key, address_of(list.data()));
  const std::array<SendWr, 3> reads = {read, read, read};
  for (int pass = 0; pass != 3; ++pass, ++passes)
    EXPECT_EQ(pair_.client_qp->post_send(reads), 1u) << "in one pass";
  pair_.client.cq->set_budget(base::Budget::none());
}

}  // namespace
}  // namespace rrdk::shm::test
