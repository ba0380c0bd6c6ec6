// How much one queue pair does before others, and its own peer, have their turn.
#include <array>

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

}  // namespace
}  // namespace rrdk::shm::test
