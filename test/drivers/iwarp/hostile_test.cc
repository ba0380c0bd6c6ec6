// Peers that violate the iWARP protocols: each is told why, counted and disconnected, and no other
// connection notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "test/drivers/iwarp/raw_client.h"

namespace rrdk::iwarp::test {
namespace {

TEST_F(RawClient, InvalidRequestsAreRefused) {
  const auto refusals = [&] {
    return pair_.server.counter("handshakes_refused") + pair_.server.counter("handshakes_cut") +
           pair_.server.counter("markers_refused");
  };
  MpaFrame markers = request();
  markers.markers = true;
  Bytes revision3 = encode(request());
  revision3[17] = std::byte{3};
  Bytes huge = encode(request());
  huge[18] = std::byte{0x7f};
  Bytes text(64, std::byte{'x'});
  peer_.finish();
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  uint64_t refused = 1;
  for (const Bytes& bytes : {text, revision3, huge, encode(markers), Bytes(5)}) {
    peer_ = RawPeer(pair_.uri);
    peer_.say(bytes);
    if (bytes.size() == 5)
      peer_.finish();
    ASSERT_TRUE(until([&] { return peer_.closed(); }));
    EXPECT_EQ(refusals(), ++refused);
    EXPECT_FALSE(pair_.server.has_event(EventType::kConnectRequest));
  }
}

TEST_F(RawClient, EveryRequestByteMayComeAlone) {
  MpaFrame frame = request();
  frame.private_data = payload(40);
  for (std::byte byte : encode(frame)) {
    peer_.say({byte});
    pair_.server.pump();
  }
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kConnectRequest); }));
  const fabric::Event event = pair_.server.take_event(EventType::kConnectRequest);
  EXPECT_TRUE(std::ranges::equal(event.request->private_data(), frame.private_data));
}

TEST_F(RawClient, ReadDepthsAreWhatBothCanDo) {
  MpaFrame asked = request();
  asked.ird = 2;
  asked.ord = 100;
  connect(asked);
  EXPECT_EQ(reply_->ird, kReads);
  EXPECT_EQ(reply_->ord, 2);
  EXPECT_EQ(qp_->reads_allowed(), 2u);
}

TEST_F(RawClient, ReadyToReceiveMessagesAreChosenAndTaken) {
  for (int kind : {0, 1, 2}) {
    MpaFrame asked = request();
    asked.peer_to_peer = true;
    asked.rtr_write = kind == 0;
    asked.rtr_read = kind == 1;
    asked.rtr_send = kind == 2;
    connect(asked);
    EXPECT_TRUE(reply_->peer_to_peer);
    EXPECT_EQ(reply_->rtr_write, kind == 0);
    EXPECT_EQ(reply_->rtr_read, kind == 1);
    EXPECT_EQ(reply_->rtr_send, kind == 2);
    // Nothing is sent before it has come.
    const fabric::SendWr wr = fabric::test::send_wr(7, {memory_.first(8)});
    ASSERT_EQ(qp_->post_send(std::span(&wr, 1)), 1u);
    for (int i = 0; i != 100; ++i)
      pair_.server.pump();
    peer_.pull();
    EXPECT_TRUE(peer_.got().empty());
    peer_.say(kind == 0   ? write(0, 0, {})
              : kind == 1 ? read_request(1, {.sink_stag = 77})
                          : send(1, {}));
    peer_.say(send(kind == 2 ? 2 : 1, payload(10)));
    ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 2; }));
    const auto done = completions();
    const auto received = std::ranges::find(done, fabric::Op::kReceive, &fabric::Completion::op);
    ASSERT_NE(received, done.end());
    EXPECT_EQ(received->byte_length, 10u);
    ASSERT_TRUE(until([&] { return peer_.got().size() >= 32u; }));
    if (kind == 1) {
      const auto answer = peer_.take_segment();
      ASSERT_TRUE(answer);
      EXPECT_EQ(answer->header.opcode, Opcode::kReadResponse);
      EXPECT_EQ(answer->header.stag, 77u);
    }
    const auto sent = peer_.take_segment();
    ASSERT_TRUE(sent);
    EXPECT_EQ(sent->header.opcode, Opcode::kSend);
    qp_.reset();
    pair_.server.events.clear();
    peer_ = RawPeer(pair_.uri);
  }
}

TEST_F(RawClient, MessagesInAnyPiecesArriveWhole) {
  connect(request(), 3);
  // Byte by byte; cut by the sender; and two in one piece.
  const Bytes whole = payload(201);
  for (std::byte byte : send(1, whole)) {
    peer_.say({byte});
    pair_.server.pump();
  }
  peer_.say(send(2, Bytes(whole.begin(), whole.begin() + 50), 0, false));
  Bytes two = send(2, Bytes(whole.begin() + 50, whole.end()), 50);
  const Bytes third = send(3, whole);
  two.insert(two.end(), third.begin(), third.end());
  peer_.say(two);
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 3; }));
  for (const fabric::Completion& c : completions()) {
    EXPECT_EQ(c.status, WcStatus::kSuccess);
    EXPECT_EQ(c.byte_length, whole.size());
    EXPECT_EQ(std::memcmp(inbox_.data() + c.wr_id * 1024, whole.data(), whole.size()), 0);
  }
}

// Otherwise each segment would need its own system call, and a poll makes only a few.
TEST_F(RawClient, SmallSegmentsOfALargeMessageAreTakenTogether) {
  constexpr uint32_t kSegments = 40;
  connect();
  Bytes all;
  for (uint32_t i = 0; i != kSegments; ++i) {
    const Bytes one = fpdu({.tagged = true,
                            .last = i + 1 == kSegments,
                            .opcode = Opcode::kWrite,
                            .stag = write_key_,
                            .offset = base() + i},
                           payload(1000));
    all.insert(all.end(), one.begin(), one.end());
  }
  const Bytes message = send(1, payload(10));
  all.insert(all.end(), message.begin(), message.end());
  peer_.say(all);
  std::array<fabric::Completion, 8> out;
  uint32_t received = 0;
  for (int i = 0; i != 100'000 && window().data[0] == std::byte{0x5a}; ++i)
    received = pair_.server.cq->poll(out);
  EXPECT_EQ(received, 1u);
  const Bytes last = payload(1000);
  EXPECT_EQ(std::memcmp(window().data + kSegments - 1, last.data(), last.size()), 0);
}

TEST_F(RawClient, ProtocolViolationsAreTerminated) {
  connect();
  const Bytes some = payload(16);
  Bytes too_short = send(1, {});
  too_short[1] = std::byte{17};
  Bytes ddp = send(1, some);
  ddp[2] = std::byte{0x42};
  Bytes rdmap = send(1, some);
  rdmap[3] = std::byte{0x83};
  Bytes opcode = send(1, some);
  opcode[3] = std::byte{0x4c};
  const SegmentHeader stray{.last = true, .opcode = Opcode::kSend, .queue = 5, .number = 1};
  const SegmentHeader answer{
      .tagged = true, .last = true, .opcode = Opcode::kReadResponse, .stag = 1};
  SegmentHeader kill{.last = true, .opcode = Opcode::kSendInvalidate, .stag = 99, .number = 1};
  const Offence offences[] = {
      {"a length below its header's", too_short, Cause::kCatastrophic, "bad_lengths"},
      {"another DDP", ddp, Cause::kUntaggedDdpVersion, "bad_versions"},
      {"another RDMAP", rdmap, Cause::kRdmapVersion, "bad_versions"},
      {"an unknown opcode", opcode, Cause::kUnexpectedOpcode, "bad_opcodes"},
      {"a queue for nothing", fpdu(stray, some), Cause::kInvalidQueue, "bad_queues"},
      {"a message number too high", send(2, some), Cause::kMessageNumber, "bad_numbers"},
      {"a message number of zero", send(0, some), Cause::kMessageNumber, "bad_numbers"},
      {"a message that begins in its middle", send(1, some, 16), Cause::kMessageOffset,
       "bad_offsets"},
      {"a message longer than its Receive", send(1, payload(kReceiveSize + 1)),
       Cause::kMessageTooLong, "messages_too_long"},
      {"an answer to no Read", fpdu(answer, some), Cause::kTaggedInvalidStag, "bad_responses"},
      {"an invalidation of no key", fpdu(kill, some), Cause::kCannotInvalidate,
       "bad_invalidations"},
  };
  for (fabric::LaneUser* const user :
       {static_cast<fabric::LaneUser*>(nullptr), static_cast<fabric::LaneUser*>(&taker_)}) {
    lane_user_ = user;
    again();
    for (const Offence& offence : offences) {
      expect_terminated(offence);
      again();
    }
  }
  EXPECT_TRUE(taker_.got.empty());
}

TEST_F(RawClient, MoreReadsThanWereAgreedOnAreTerminated) {
  connect();
  Bytes many;
  for (uint32_t i = 1; i != kReads + 2; ++i) {
    const Bytes one = read_request(
        i, {.sink_stag = i, .length = 4096, .source_stag = read_key_, .source_offset = base()});
    many.insert(many.end(), one.begin(), one.end());
  }
  peer_.say(many);
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  EXPECT_EQ(pair_.server.counter("read_overruns"), 1u);
}

TEST_F(RawClient, CrcsAreCheckedWhenAgreedOn) {
  MpaFrame asked = request();
  asked.crc = true;
  for (fabric::LaneUser* const user :
       {static_cast<fabric::LaneUser*>(nullptr), static_cast<fabric::LaneUser*>(&taker_)}) {
    lane_user_ = user;
    again(asked);
    EXPECT_TRUE(reply_->crc);
    const SegmentHeader header{.last = true, .opcode = Opcode::kSend, .number = 1};
    peer_.say(fpdu(header, payload(33), /*crc=*/true));
    ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
    EXPECT_EQ(completions().at(0).byte_length, 33u);
    Bytes wrong = fpdu({.last = true, .opcode = Opcode::kSend, .number = 2}, payload(32), true);
    wrong[40] ^= std::byte{1};
    expect_terminated({"a flipped bit", wrong, Cause::kMpaCrc, "bad_crcs"});
  }
  EXPECT_TRUE(taker_.got.empty());
}

TEST_F(RawClient, ATerminateEndsTheConnectionWithItsReason) {
  connect();
  std::array<std::byte, kMaxTerminate> body;
  const uint32_t length = encode(Terminate{.cause = Cause::kOutOfBounds}, body);
  peer_.say(
      fpdu({.last = true, .opcode = Opcode::kTerminate, .queue = kTerminateQueue, .number = 1},
           Bytes(body.begin(), body.begin() + length)));
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  const fabric::Event event = pair_.server.take_event(EventType::kDisconnected);
  EXPECT_NE(event.ending.text.find("outside the STag's bounds"), std::string::npos)
      << event.ending.text;
  EXPECT_EQ(pair_.server.counter("terminates_received"), 1u);
}

// The request of ours that the peer refuses had completed: only the Terminate reports the refusal.
TEST_F(RawClient, ATerminateSaysWhetherAnAccessWasRefused) {
  const SegmentHeader of_write{.tagged = true, .last = true, .opcode = Opcode::kWrite};
  const SegmentHeader of_response{.tagged = true, .last = true, .opcode = Opcode::kReadResponse};
  const SegmentHeader of_read{
      .last = true, .opcode = Opcode::kReadRequest, .queue = kReadQueue, .number = 1};
  const SegmentHeader of_send{.last = true, .opcode = Opcode::kSendInvalidate, .number = 1};
  struct Case {
    Terminate terminate;
    bool refused;
  };
  for (const auto& [terminate, refused] : {
           Case{{Cause::kTaggedInvalidStag, true, 30, of_write}, true},
           Case{{Cause::kTaggedOutOfBounds, true, 30, of_write}, true},
           Case{{Cause::kAccessRights, true, 30, of_write}, true},
           Case{{Cause::kCannotInvalidate, true, 30, of_send}, false},
           Case{{Cause::kCannotInvalidate}, false},
           Case{{Cause::kTaggedInvalidStag}, true},
           Case{{Cause::kTaggedInvalidStag, true, 30, of_response}, false},
           Case{{Cause::kInvalidStag, true, 46, of_read}, false},
           Case{{Cause::kTaggedDdpVersion, true, 30, of_write}, false},
           Case{{Cause::kMessageTooLong, true, 30, of_send}, false},
           Case{{Cause::kLocalCatastrophic}, false},
       }) {
    SCOPED_TRACE(describe(terminate.cause));
    connect();
    std::array<std::byte, kMaxTerminate> body;
    const uint32_t length = encode(terminate, body);
    peer_.say(
        fpdu({.last = true, .opcode = Opcode::kTerminate, .queue = kTerminateQueue, .number = 1},
             Bytes(body.begin(), body.begin() + length)));
    ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
    EXPECT_EQ(pair_.server.take_event(EventType::kDisconnected).ending.refusal.has_value(),
              refused);
    qp_.reset();
    peer_ = RawPeer(pair_.uri);
  }
  connect();
}

TEST_F(RawClient, TheEndInTheMiddleOfAMessageIsALoss) {
  connect();
  const Bytes bytes = send(1, payload(100));
  peer_.say(Bytes(bytes.begin(), bytes.begin() + 60));
  pair_.server.pump();
  peer_.finish();
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  EXPECT_EQ(pair_.server.counter("peers_lost"), 1u);
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 4; }));
  for (const fabric::Completion& c : completions())
    EXPECT_EQ(c.status, WcStatus::kFlushed);
}

TEST_F(RawClient, AResetIsALoss) {
  connect();
  peer_.reset();
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  EXPECT_EQ(pair_.server.counter("peers_lost"), 1u);
}

// Our Sends notice the end before our Receives do.
TEST_F(RawClient, MessagesBeforeAResetAreReceived) {
  connect();
  peer_.say(send(1, payload(100)));
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
  (void)completions();
  peer_.say(send(2, payload(50)));
  peer_.reset();
  const fabric::SendWr wr = fabric::test::send_wr(7, {memory_.first(64)});
  ASSERT_EQ(qp_->post_send(std::span(&wr, 1)), 1u);
  ASSERT_EQ(qp_->post_send(std::span(&wr, 1)), 1u);
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 5; }));
  size_t received = 0;
  for (const fabric::Completion& c : completions())
    received += c.op == fabric::Op::kReceive && c.status == WcStatus::kSuccess;
  EXPECT_EQ(received, 1u);
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  EXPECT_EQ(pair_.server.counter("peers_lost"), 1u);
}

}  // namespace
}  // namespace rrdk::iwarp::test
