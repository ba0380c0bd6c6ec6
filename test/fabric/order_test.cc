// Work requests take effect in the order in which they were posted, whatever other requests are
// between them.
#include <algorithm>
#include <optional>
#include <vector>

#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"

namespace rrdk::fabric::test {
namespace {

// Which of several requests are signaled.
enum class Reports : uint8_t { kNone, kAll, kEveryOther };

bool is_reported(Reports which, uint32_t i) {
  return which == Reports::kAll || (which == Reports::kEveryOther && i % 2 == 1);
}

class Order : public testing::TestWithParam<FabricUnderTest> {
 protected:
  static constexpr uint32_t kDepth = 16;  // of the client's send queue
  static constexpr uint32_t kSends = kDepth / 2;

  Order() : pair_(GetParam().new_uri(), {.send_wrs = kDepth}, {.receive_wrs = 2 * kSends}) {
    pair_.post_receives(*pair_.server_qp, 2 * kSends);
    write_key_ = pair_.expose(theirs_.first(4096), Rights::kRemoteWrite);
    read_key_ = pair_.expose({theirs_.data() + 4096, 4096, theirs_.region()}, Rights::kRemoteRead);
    pair_.server.completions.clear();
  }

  MemorySpan slot(const Buffer& of, uint64_t i) const {
    return {of.data() + (i % kDepth) * sizeof(uint64_t), sizeof(uint64_t), of.region()};
  }
  // Posted in as few parts as the queue allows.
  void post(std::span<const SendWr> wrs) {
    ASSERT_TRUE(pair_.pump_until([&] {
      wrs = wrs.subspan(pair_.client_qp->post_send(wrs));
      return wrs.empty();
    }));
  }
  // A request that does not reach the peer: a key is bound, then invalidated.
  void post_local(bool signaled) {
    SendWr wr;
    if (bound_) {
      wr = invalidate_wr(next_id_++, *bound_);
      dead_.push_back(*bound_);
      bound_.reset();
    } else {
      uint32_t key = 0;
      ASSERT_TRUE(pair_.client_qp->reserve_keys({&key, 1}));
      bound_ = pair_.client_qp->name_key(key, ours_.first(4096), Rights::kRemoteRead);
      wr = bind_wr(next_id_++, *bound_, ours_.first(4096), Rights::kRemoteRead);
    }
    wr.signaled = signaled;
    post({&wr, 1});
  }
  // Writes, Reads, and Sends that each carry the next number; the last one is reported.
  std::vector<SendWr> remote_requests(Reports reports) {
    std::vector<SendWr> wrs;
    for (uint32_t i = 0; i != kDepth; ++i) {
      SendWr wr = send_wr(next_id_++, {slot(ours_, i)});
      if (i % 4 == 0) {
        wr = access_wr(wr.wr_id, Op::kWrite, slot(ours_, i + 1), write_key_,
                       address_of(slot(theirs_, i).data));
      } else if (i % 4 == 2) {
        MemorySpan sink = ours_.first(i % 8 == 2 ? 0 : 8);
        sink.data += 8192;
        wr = access_wr(wr.wr_id, Op::kRead, sink, read_key_, address_of(theirs_.data() + 4096));
      } else {
        std::memcpy(wr.sges[0].data, &next_number_, sizeof(next_number_));
        ++next_number_;
      }
      wr.signaled = is_reported(reports, i) || i == kDepth - 1;
      wrs.push_back(wr);
    }
    return wrs;
  }
  // Each Send has the next number, and the Write before it has been placed.
  void take_messages() {
    for (const Completion& c : pair_.server.take_completions()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      uint64_t number = 0;
      std::memcpy(&number, pair_.receive_buffers[c.wr_id].data(), sizeof(number));
      ASSERT_EQ(number, received_);
      if (number % 2 == 0) {
        uint64_t written = 0;
        std::memcpy(&written, slot(theirs_, number % kSends * 2).data, sizeof(written));
        ASSERT_EQ(written, number) << "a Send has overtaken a Write";
      }
      ++received_;
      const ReceiveWr again{c.wr_id, pair_.receive_buffers[c.wr_id].span()};
      ASSERT_EQ(pair_.server_qp->post_receive({&again, 1}), 1u);
    }
  }
  void take_reports() {
    for (const Completion& c : pair_.client.take_completions()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      ASSERT_GE(c.wr_id, next_report_);
      next_report_ = c.wr_id + 1;
    }
  }

  Pair pair_;
  Buffer ours_ = test_memory().get(1 << 20);
  Buffer theirs_ = test_memory().get(1 << 20);
  uint32_t write_key_ = 0;
  uint32_t read_key_ = 0;
  std::optional<uint32_t> bound_;
  std::vector<uint32_t> dead_;
  uint64_t next_id_ = 0;
  uint64_t next_report_ = 0;
  uint64_t next_number_ = 0;
  uint64_t received_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Fabric, Order, all_fabrics(), fabric_name);

// As many requests as fill the send queue follow any number of requests that do not reach the peer.
TEST_P(Order, IsThatOfPostingHoweverManyLocalRequestsWentBefore) {
  constexpr Reports kAll[] = {Reports::kNone, Reports::kAll, Reports::kEveryOther};
  for (const Reports local : kAll) {
    for (const Reports remote : kAll) {
      for (uint32_t before = 0; before <= kDepth; before += emulated() ? kDepth / 2 : 1) {
        SCOPED_TRACE(testing::Message()
                     << before << " local requests, reported: " << static_cast<int>(local)
                     << ", others: " << static_cast<int>(remote));
        for (uint32_t i = 0; i != before; ++i)
          ASSERT_NO_FATAL_FAILURE(post_local(is_reported(local, i)));
        const uint64_t due = received_ + kSends;
        ASSERT_NO_FATAL_FAILURE(post(remote_requests(remote)));
        ASSERT_TRUE(pair_.pump_until([&] {
          take_messages();
          take_reports();
          return HasFatalFailure() || (received_ == due && next_report_ == next_id_);
        }));
        ASSERT_FALSE(HasFatalFailure());
        for (const uint32_t key : std::exchange(dead_, {}))
          pair_.client_qp->release_key(key);
      }
    }
  }
}

// More than the sockets between the two ends hold: the sender is stopped in the middle of a
// message, again and again.
TEST_P(Order, HoldsForMoreThanThereIsRoomForOnTheWay) {
  constexpr uint32_t kSize = 1 << 20;
  constexpr uint32_t kMessages = 64;
  constexpr uint32_t kPosted = 8;
  Pair pair(GetParam().new_uri(), {.send_wrs = kMessages}, {.receive_wrs = kPosted});
  Buffer body = test_memory().get(kSize);
  Buffer numbers = test_memory().get(4096);
  for (uint32_t i = 0; i != kSize; ++i)
    body.data()[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  const bool waits = pair.can().waits_for_receives;
  if (!waits)
    pair.post_receives(*pair.server_qp, kPosted, kSize);
  for (uint32_t i = 0; i != (waits ? kMessages : kPosted); ++i) {
    std::memcpy(numbers.data() + i * 8, &i, sizeof(i));
    const SendWr wr =
        send_wr(i, {{numbers.data() + i * 8, 8, numbers.region()}, body.first(kSize - 8 - i)});
    ASSERT_EQ(pair.client_qp->post_send({&wr, 1}), 1u);
    pair.client.pump();
  }
  for (const Counter& counter : pair.client.device->counters()) {
    if (counter.name == "tcp_waits") {
      EXPECT_NE(counter.value, 0u);
    }
  }
  if (waits)
    pair.post_receives(*pair.server_qp, kPosted, kSize);
  uint32_t received = 0;
  ASSERT_TRUE(pair.pump_until([&] {
    for (const Completion& c : pair.server.take_completions()) {
      EXPECT_EQ(c.status, WcStatus::kSuccess);
      const Buffer& got = pair.receive_buffers[c.wr_id];
      uint32_t number = 0;
      std::memcpy(&number, got.data(), sizeof(number));
      EXPECT_EQ(number, received);
      EXPECT_EQ(c.byte_length, kSize - received);
      EXPECT_EQ(std::memcmp(got.data() + 8, body.data(), kSize - 8 - received), 0);
      ++received;
      const ReceiveWr again{c.wr_id, got.first(kSize)};
      pair.server_qp->post_receive({&again, 1});
    }
    return HasFailure() || received == (waits ? kMessages : kPosted);
  }));
}

}  // namespace
}  // namespace rrdk::fabric::test
