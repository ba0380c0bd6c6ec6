// How large a Send may be: the sizes that the ends exchanged when they connected (RFC 8797), and
// the defaults of each version; and what ends with its header.
#include "pair.h"
#include "proto/codec.h"

namespace rrdk::engine::test {
namespace {

using proto::MessageType;

struct Spoken {
  Speaks speaks = Speaks::kOne;
  proto::Wire draft = proto::Wire::kDraft04;
  bool known = true;  // to the server
};
constexpr Spoken kOne;
constexpr Spoken kTwo00 = {Speaks::kTwo, proto::Wire::kDraft00};
constexpr Spoken kTwo04 = {Speaks::kTwo, proto::Wire::kDraft04};

class Thresholds : public Pair {
 protected:
  Thresholds() : Pair({{4096, 1024}, {16384, 256}, {65536, 32}}) {}

  // An end that takes no part in the exchange neither sends nor reads sizes.
  void connect(const Spoken& spoken, ConnectionOptions client, ConnectionOptions server,
               bool exchange = true) {
    if (a != nullptr)
      finish();
    client.role = Role::kRequester;
    client.speaks = spoken.speaks;
    client.limits.versions.two = server.limits.versions.two = spoken.draft;
    if (!spoken.known)
      server.limits.versions.two.reset();
    // Only the sizes exchanged at first count here; draft-00 has no properties to announce.
    client.properties = server.properties = spoken.draft == proto::Wire::kDraft00;
    calls = 0;
    client.chunk_threshold = server.chunk_threshold = 1u << 20;
    a = std::make_unique<End>(client, *memory, *pool);
    b = std::make_unique<End>(server, *memory, *pool);
    a->qp.remote = &b->qp;
    b->qp.remote = &a->qp;
    a->engine->on_established(exchange ? b->engine->private_data() : proto::PrivateData{}, 16);
    b->engine->on_established(exchange ? a->engine->private_data() : proto::PrivateData{}, 16);
    call(100, 100);  // the first one is of at most 1024 bytes in version 2
  }
  // One call with `arguments` plain bytes, answered with `results` bytes.
  void call(uint32_t arguments, uint32_t results) {
    OutgoingCall call;
    ++calls;
    serve({{arguments}}, {{results}});
    write(call.message, 0, 0, {{arguments}});
    call.max_reply = 16 + results;
    a->engine->submit(call);
    run();
    ASSERT_EQ(a->ended.size(), 1u);
    a->ended.clear();
    ASSERT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
    check(Decoder(call.reply, call.placed), {{results}});
    call.release();
  }
  static uint32_t length_of(const fabric::SendWr& wr) {
    uint32_t length = 0;
    for (const MemorySpan& sge : wr.spans())
      length += sge.length;
    return length;
  }
  static uint32_t last_send(const End& end) {
    for (size_t i = end.qp.log.size(); i-- != 0;) {
      const fabric::SendWr& wr = end.qp.log[i];
      if (wr.op == fabric::Op::kSend || wr.op == fabric::Op::kSendInvalidate)
        return length_of(wr);
    }
    return 0;
  }
  // Whether the last call, which has no other chunk, offered a Reply chunk.
  bool offers_reply_chunk() const {
    const auto& last = *std::ranges::find(a->qp.log.rbegin(), a->qp.log.rend(), fabric::Op::kSend,
                                          &fabric::SendWr::op);
    const size_t word = (proto::min_header(wire()) - 4) / 4;
    return xdr::load_u32(last.sges[0].data + 4 * word) == 1;
  }
  // The largest Send in each direction, found with messages that just fit and messages that just do
  // not.
  void expect_largest(uint32_t call_bytes, uint32_t reply_bytes) {
    const uint32_t fixed = proto::min_header(wire()) + 16;
    for (uint32_t more : {0u, 4u}) {
      call(call_bytes - fixed + more, 100);
      EXPECT_EQ(last_send(*a) == call_bytes, more == 0) << last_send(*a);
      EXPECT_LE(last_send(*a), call_bytes);
      call(100, reply_bytes - fixed + more);
      EXPECT_EQ(last_send(*b) == reply_bytes, more == 0) << last_send(*b);
      EXPECT_LE(last_send(*b), reply_bytes);
      EXPECT_EQ(offers_reply_chunk(), more != 0);
    }
  }
  proto::Wire wire() const { return a->engine->version() == 1 ? proto::Wire::kVersion1 : draft_; }
  static size_t sends(const End& end) {
    return end.qp.count(fabric::Op::kSend) + end.qp.count(fabric::Op::kSendInvalidate);
  }
  proto::Wire draft_ = proto::Wire::kDraft04;
  size_t calls = 0;
};

// Both ends use the same number, although each has different sizes.
// Shows: PD-09, PD-10, PD-23, V1-INLINE-09, EXP-15
TEST_F(Thresholds, AreTheSmallerOfWhatOneSendsAndTheOtherReceives) {
  connect(kOne, {.send_size = 8192, .receive_size = 2048},
          {.send_size = 8192, .receive_size = 4096});
  expect_largest(4096, 2048);
  for (int i = 0; i < 1000; ++i)
    call(100, 100);
  expect_largest(4096, 2048);
}

// Shows: PD-24
TEST_F(Thresholds, AreThoseOfTheirConnection) {
  for (uint32_t receive_size : {4096u, 1024u, 3072u}) {
    connect(kOne, {.receive_size = receive_size}, {.receive_size = receive_size});
    expect_largest(receive_size, receive_size);
  }
}

// Shows: PD-25
TEST_F(Thresholds, AreTheDefaultsWhereOneEndKnowsNoExchange) {
  for (bool exchange : {false, true}) {
    connect(kOne, {}, {}, exchange);
    expect_largest(exchange ? 4096 : 1024, exchange ? 4096 : 1024);
    call(20000, 20000);
  }
}

// In draft-00 no message announces a size, and all messages are calls and replies. In draft-04
// neither end announces a property here, so each assumes the other's defaults.
// Shows: PD-41, V2X-09, V2D0-INL-03, V2D0-INL-04, V2D4-PROP-18, V2D4-NEG-14
TEST_F(Thresholds, Version2HasItsOwn) {
  for (const Spoken& spoken : {kTwo00, kTwo04}) {
    draft_ = spoken.draft;
    connect(spoken, {}, {});
    expect_largest(4096, 4096);
    connect(spoken, {.send_size = 8192, .receive_size = 8192},
            {.send_size = 8192, .receive_size = 8192});
    expect_largest(4096, 4096);
    if (spoken.draft == proto::Wire::kDraft00) {
      EXPECT_EQ(sends(*a), calls);
      EXPECT_EQ(sends(*b), calls);
    }
  }
}

// From version 2's size to version 1's, since the server knows no other version.
// Shows: V2D0-INL-04, V2D4-NEG-14
TEST_F(Thresholds, GoDownWithTheVersion) {
  for (proto::Wire draft : {proto::Wire::kDraft00, proto::Wire::kDraft04}) {
    connect({Speaks::kAuto, draft, false}, {}, {}, false);
    EXPECT_EQ(a->engine->version(), 1u);
    expect_largest(1024, 1024);
    EXPECT_FALSE(a->engine->wants_disconnect());
    EXPECT_FALSE(b->engine->wants_disconnect());
  }
}

// Shows: PD-29, PD-32
TEST_F(Thresholds, AnEndThatCannotInvalidateDoesNotSayThatItCan) {
  // The client must have keys that can be invalidated, and the server must be able to invalidate
  // them.
  for (const bool client_takes : {false, true}) {
    for (const bool server_sends : {false, true}) {
      connect(kOne, {.sends_invalidations = false, .takes_invalidations = client_takes},
              {.sends_invalidations = server_sends, .takes_invalidations = false});
      EXPECT_EQ(proto::encode(a->engine->private_data())[5], std::byte{client_takes});
      EXPECT_EQ(proto::encode(b->engine->private_data())[5], std::byte{server_sends});
      call(8000, 100);
      EXPECT_EQ(b->qp.count(fabric::Op::kSendInvalidate), client_takes && server_sends ? 1u : 0u);
    }
  }
}

// Shows: V2D0-HDR-08, V2D4-HDR-09
TEST_F(Thresholds, NothingFollowsALongMessagesHeader) {
  for (const Spoken& spoken : {kOne, kTwo00, kTwo04}) {
    connect(spoken, {}, {});
    call(8000, 8000);
    for (const End* end : {a.get(), b.get()}) {
      const fabric::SendWr& wr = *std::find_if(
          end->qp.log.rbegin(), end->qp.log.rend(), [](const fabric::SendWr& candidate) {
            return candidate.op == fabric::Op::kSend || candidate.op == fabric::Op::kSendInvalidate;
          });
      Bytes bytes;
      for (const MemorySpan& sge : wr.spans())
        bytes.insert(bytes.end(), sge.data, sge.data + sge.length);
      proto::Header header;
      proto::Decoded decoded =
          proto::decode(bytes, end == a.get() ? proto::Direction::kCall : proto::Direction::kReply,
                        {.versions = {.two = spoken.draft}}, header);
      EXPECT_EQ(decoded.verdict, proto::Verdict::kOk);
      EXPECT_EQ(header.type, MessageType::kNoMsg);
      EXPECT_EQ(decoded.header_length, bytes.size());
    }
  }
}

}  // namespace
}  // namespace rrdk::engine::test
