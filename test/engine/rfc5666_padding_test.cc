// RDMA_MSGP in RFC 5666's compatibility mode: doc/compat-rfc5666.md, Padding.
#include "engine/rfc5666/mode.h"
#include "pair.h"
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

class Padded : public Pair {
 protected:
  void connect(uint32_t align, uint32_t threshold = 64) {
    Pair::connect({.rfc5666 = {.enabled = true, .pad_threshold = threshold}},
                  {.rfc5666 = {.enabled = true, .align = align}});
    a->engine->take_config({4096, align, 16});
  }
  // Sends a call, and checks it at the other end. Returns where its items lay in the Send, modulo
  // 64.
  std::vector<uint32_t> offsets(const std::vector<Item>& items) {
    std::vector<uint32_t> found;
    b->handler = [&](ServedCall& call) {
      Decoder d(call.message);
      OpaquePadding padding = call.padding();
      d.expect_padding(padding);
      check(d, items);
      std::span<const Fragment> message = call.message;
      const std::byte* send = message[0].data + message[0].length - padding.send_length;
      d.get_u64();
      d.get_u32();
      for (const Item& item : items) {
        ItemView view = item.eligible ? d.get_item(1u << 20) : d.get_opaque(1u << 20);
        if (padding.align != 0)
          found.push_back(static_cast<uint32_t>(view.data() - send) % 64);
      }
      write(call.reply, call.xid, 1, {});
      b->engine->reply(call);
    };
    OutgoingCall call;
    write(call.message, 0, 0, items);
    a->engine->submit(call);
    run();
    EXPECT_EQ(call.status, CallStatus::kOk);
    return found;
  }
};

// Shows: V1-MSGP-04, V1-MSGP-07, V1-CCP-15
TEST_F(Padded, InlineDataIsAlignedAsTheServerAskedFor) {
  connect(64);
  EXPECT_EQ(offsets({{500, true}}), std::vector<uint32_t>{0});
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsgp);
  // The message follows the header's 36 bytes, and begins with the header's XID.
  const Bytes& bytes = a->qp.messages.front();
  EXPECT_EQ(word(bytes, 9), word(bytes, 0));
  EXPECT_EQ(offsets({{5, true}, {501, true}, {3}, {700, false, true}}).back(), 0u);
  EXPECT_EQ(sent_type(*a, 1), proto::MessageType::kMsgp);
  EXPECT_EQ(a->engine->counters().rfc5666_padded_calls, 2u);
  EXPECT_EQ(b->engine->counters().rfc5666_padded_calls, 2u);
}

// The padding begins at the threshold, not above it.
// Shows: V1-MSGP-05
TEST_F(Padded, DataAsLongAsTheThresholdIsPadded) {
  connect(64, 200);
  EXPECT_EQ(offsets({{200, true}}), std::vector<uint32_t>{0});
  EXPECT_TRUE(offsets({{199, true}}).empty()) << "goes as RDMA_MSG";
  EXPECT_EQ(sent_type(*a, 1), proto::MessageType::kMsg);
}

// Copied data is not padded, so the effective threshold is above its length.
TEST_F(Padded, CopiedDataIsNotTakenForPadded) {
  connect(64);
  EXPECT_EQ(offsets({{300}, {200, true}}), (std::vector<uint32_t>{})) << "not larger: RDMA_MSG";
  EXPECT_EQ(offsets({{300}, {400, true}}).back(), 0u);
}

// Shows: V1-MSGP-02, V1-CCP-16
TEST_F(Padded, OnlyAnAlignmentThatIsOneHasAnEffect) {
  for (uint32_t align : {0u, 1u, 3u, 4u, 48u, 8192u, UINT32_MAX}) {
    connect(align);
    EXPECT_TRUE(offsets({{500, true}}).empty());
    EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
    finish();
  }
  for (uint32_t align : {8u, 4096u}) {
    connect(align);
    offsets({{300, true}});
    bool fits = align == 8;  // the pad alone is almost as large as a Send
    EXPECT_EQ(sent_type(*a, 0), fits ? proto::MessageType::kMsgp : proto::MessageType::kMsg);
    finish();
  }
}

TEST_F(Padded, CallsWithChunksAndCallsThatDoNotFitGoAsBefore) {
  connect(64);
  EXPECT_TRUE(offsets({{500, true}, {3000, true}}).empty());
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
  EXPECT_EQ(b->qp.count(Op::kRead), 1u);
  uint32_t fills = 4096 - 28 - 16;
  EXPECT_TRUE(offsets({{fills, false, true}}).empty());
  EXPECT_EQ(sent_type(*a, 1), proto::MessageType::kMsg);
}

// A peer may state anything: an invalid alignment has no effect, and pads end with the message.
TEST(PaddingOfAPeer, IsSkippedWithinTheMessageOnly) {
  Bytes bytes(64);
  xdr::store_u32(&bytes[0], 4);
  const Fragment message = {bytes.data(), 64};
  for (uint32_t send_length : {64u, 1000u, 0u, UINT32_MAX}) {
    for (uint32_t threshold : {0u, 4u, 5u, UINT32_MAX}) {
      for (uint32_t align : {8u, 4096u}) {
        Decoder d({&message, 1});
        d.expect_padding({align, threshold, send_length});
        ItemView view = d.get_opaque(UINT32_MAX);
        EXPECT_TRUE(!d.ok() || view.size() == 4);
        EXPECT_LE(d.remaining(), 56u);
        EXPECT_TRUE(threshold <= 4 || d.remaining() == 56);
      }
    }
  }
  EXPECT_FALSE(is_alignment(0));
  EXPECT_FALSE(is_alignment(UINT32_MAX));
  EXPECT_FALSE(is_alignment(0x80000000));
}

}  // namespace
}  // namespace rrdk::engine::test
