// Peers that do not speak iWARP as they should: each is told why, counted and left, and nobody else
// notices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "test/drivers/iwarp/raw_peer.h"
#include "test/fabric/end.h"

namespace rrdk::iwarp::test {
namespace {

using fabric::EventType;
using fabric::Rights;
using fabric::WcStatus;
using fabric::test::End;
using fabric::test::Pair;

constexpr uint32_t kReceiveSize = 256;
constexpr uint32_t kReads = 4;

MpaFrame request() {
  return {.revision = 2, .enhanced = true, .ird = 16, .ord = 16};
}

Bytes payload(size_t length) {
  Bytes bytes(length);
  for (size_t i = 0; i != length; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

Bytes send(uint32_t number, const Bytes& bytes, uint32_t offset = 0, bool last = true) {
  return fpdu({.last = last, .opcode = Opcode::kSend, .offset = offset, .number = number}, bytes);
}

Bytes write(uint32_t stag, uint64_t at, const Bytes& bytes) {
  return fpdu({.tagged = true, .last = true, .opcode = Opcode::kWrite, .stag = stag, .offset = at},
              bytes);
}

// A server with a well-behaved client of its own, and a raw one.
class RawClient : public testing::Test {
 protected:
  RawClient() : pair_("iwarp://127.0.0.1:0"), peer_(pair_.uri) {
    for (size_t i = 0; i != memory_.capacity(); ++i)
      memory_.data()[i] = std::byte{0x5a};
  }
  ~RawClient() override {
    // The other connection goes on.
    pair_.post_receives(*pair_.server_qp, 1);
    EXPECT_EQ(pair_.run(fabric::test::send_wr(1, {memory_.first(100)})).status, WcStatus::kSuccess);
    qp_.reset();
  }

  bool until(const std::function<bool()>& done) {
    return pair_.pump_until([&] {
      peer_.pull();
      return done();
    });
  }
  // Our end of the connection, established, with Receives and two keys.
  void connect(const MpaFrame& asked = request(), uint32_t receives = 4) {
    peer_.shake(asked);
    ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kConnectRequest); }));
    fabric::Event event = pair_.server.take_event(EventType::kConnectRequest);
    qp_ = event.request
              ->create_queue_pair({.cq = pair_.server.cq.get(), .reads = kReads, .owner = this})
              .value();
    for (uint32_t i = 0; i != receives; ++i) {
      const fabric::ReceiveWr wr{i, {inbox_.data() + i * 1024, kReceiveSize, inbox_.region()}};
      ASSERT_EQ(qp_->post_receive(std::span(&wr, 1)), 1u);
    }
    ASSERT_TRUE(event.request->accept(*qp_, {}));
    ASSERT_TRUE(until([&] { return !peer_.got().empty(); }));
    reply_ = peer_.take_reply();
    ASSERT_TRUE(reply_);
    ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kEstablished); }));
    (void)pair_.server.take_event(EventType::kEstablished);
    std::array<uint32_t, 2> keys;
    ASSERT_TRUE(qp_->reserve_keys(keys));
    read_key_ = keys[0];
    write_key_ = keys[1];
    run(fabric::test::bind_wr(100, read_key_, window(), Rights::kRemoteRead));
    run(fabric::test::bind_wr(101, write_key_, window(), Rights::kRemoteWrite));
  }
  MemorySpan window() const { return {memory_.data() + 4096, 4096, memory_.region()}; }
  uint64_t base() const { return fabric::test::address_of(window().data); }
  void run(const fabric::SendWr& wr) {
    EXPECT_EQ(pair_.run(pair_.server, *qp_, wr).status, WcStatus::kSuccess);
  }
  bool untouched() const {
    return std::all_of(memory_.data(), memory_.data() + 3 * 4096,
                       [](std::byte b) { return b == std::byte{0x5a}; });
  }
  std::vector<fabric::Completion> completions() {
    std::vector<fabric::Completion> ours;
    for (const fabric::Completion& c : pair_.server.take_completions())
      if (c.owner == this)
        ours.push_back(c);
    return ours;
  }

  struct Offence {
    const char* what;
    Bytes bytes;
    Cause cause;
    const char* counter;
  };
  // The peer is told, our end ends with all Receives flushed, and one counter moved.
  void expect_terminated(const Offence& offence) {
    SCOPED_TRACE(offence.what);
    const uint64_t before = pair_.server.counter(offence.counter);
    peer_.say(offence.bytes);
    ASSERT_TRUE(until([&] { return peer_.closed(); }));
    const auto last = peer_.take_segment();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->header.opcode, Opcode::kTerminate);
    EXPECT_EQ(last->header.queue, kTerminateQueue);
    EXPECT_EQ(decode_terminate(last->payload).cause, offence.cause)
        << describe(decode_terminate(last->payload).cause);
    EXPECT_EQ(pair_.server.counter(offence.counter), before + 1);
    ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
    EXPECT_TRUE(untouched());
  }
  // A fresh connection.
  void again() {
    pair_.server.events.clear();
    pair_.server.completions.clear();
    qp_.reset();
    peer_ = RawPeer(pair_.uri);
    connect();
  }

  Pair pair_;
  RawPeer peer_;
  Buffer memory_ = fabric::test::test_memory().get(1 << 20);
  Buffer inbox_ = fabric::test::test_memory().get(1 << 16);
  std::unique_ptr<fabric::QueuePair> qp_;
  std::optional<MpaFrame> reply_;
  uint32_t read_key_ = 0;
  uint32_t write_key_ = 0;
};

TEST_F(RawClient, RequestsThatAreNoneAreRefused) {
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
    EXPECT_EQ(pair_.server.counter("handshakes_refused"), ++refused);
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

TEST_F(RawClient, WhatBreaksTheProtocolIsTerminated) {
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
      {"a length below its header's", too_short, Cause::kCatastrophic, "bad_headers"},
      {"another DDP", ddp, Cause::kUntaggedDdpVersion, "bad_headers"},
      {"another RDMAP", rdmap, Cause::kRdmapVersion, "bad_headers"},
      {"an unknown opcode", opcode, Cause::kUnexpectedOpcode, "bad_headers"},
      {"a queue for nothing", fpdu(stray, some), Cause::kInvalidQueue, "bad_headers"},
      {"a message number too high", send(2, some), Cause::kMessageNumber, "bad_headers"},
      {"a message number of zero", send(0, some), Cause::kMessageNumber, "bad_headers"},
      {"a message that begins in its middle", send(1, some, 16), Cause::kMessageOffset,
       "bad_headers"},
      {"a message longer than its Receive", send(1, payload(kReceiveSize + 1)),
       Cause::kMessageTooLong, "messages_too_long"},
      {"an answer to no Read", fpdu(answer, some), Cause::kTaggedInvalidStag, "bad_responses"},
      {"an invalidation of no key", fpdu(kill, some), Cause::kCannotInvalidate,
       "bad_invalidations"},
  };
  for (const Offence& offence : offences) {
    expect_terminated(offence);
    again();
  }
}

TEST_F(RawClient, AccessesOutsideTheKeysAreTerminated) {
  connect();
  const Bytes some = payload(16);
  const auto read = [&](uint32_t stag, uint64_t at, uint32_t length) {
    return read_request(
        1, {.sink_stag = 5, .length = length, .source_stag = stag, .source_offset = at});
  };
  struct Case {
    const char* what;
    std::function<Bytes()> bytes;
    Cause cause;
    const char* counter;
  };
  const Case cases[] = {
      {"a Write to a key that is none", [&] { return write(0x1234567, base(), some); },
       Cause::kTaggedInvalidStag, "refused_keys"},
      {"a Write with the key for reading", [&] { return write(read_key_, base(), some); },
       Cause::kAccessRights, "refused_rights"},
      {"a Write before the window", [&] { return write(write_key_, base() - 1, some); },
       Cause::kTaggedOutOfBounds, "refused_bounds"},
      {"a Write across its end", [&] { return write(write_key_, base() + 4081, some); },
       Cause::kTaggedOutOfBounds, "refused_bounds"},
      {"a Write at the end of the address space",
       [&] { return write(write_key_, UINT64_MAX - 3, some); }, Cause::kTaggedOutOfBounds,
       "refused_bounds"},
      {"a Read of a key that is none", [&] { return read(77, base(), 4); }, Cause::kInvalidStag,
       "refused_keys"},
      {"a Read with the key for writing", [&] { return read(write_key_, base(), 4); },
       Cause::kAccessRights, "refused_rights"},
      {"a Read beyond the window", [&] { return read(read_key_, base(), 4097); },
       Cause::kOutOfBounds, "refused_bounds"},
      {"a Read that wraps around", [&] { return read(read_key_, base(), UINT32_MAX); },
       Cause::kOutOfBounds, "refused_bounds"},
  };
  for (const Case& one : cases) {
    expect_terminated({one.what, one.bytes(), one.cause, one.counter});
    again();
  }
}

TEST_F(RawClient, AKeyThatDiesUnderAWriteIsNotWrittenAnyMore) {
  connect();
  const Bytes bytes = write(write_key_, base(), payload(4000));
  peer_.say(Bytes(bytes.begin(), bytes.begin() + 1016));
  ASSERT_TRUE(until([&] { return window().data[999] != std::byte{0x5a}; }));
  run(fabric::test::invalidate_wr(5, write_key_));
  std::fill_n(window().data, 4096, std::byte{0x5a});
  peer_.say(Bytes(bytes.begin() + 1016, bytes.end()));
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  const auto last = peer_.take_segment();
  ASSERT_TRUE(last);
  EXPECT_EQ(decode_terminate(last->payload).cause, Cause::kTaggedInvalidStag);
  EXPECT_EQ(pair_.server.counter("refused_keys"), 1u);
  EXPECT_TRUE(untouched());
}

TEST_F(RawClient, AKeyThatDiesUnderAReadIsNotReadAnyMore) {
  connect();
  // Reads until TCP is full: nobody takes the answers.
  Buffer large = fabric::test::test_memory().get(1 << 20);
  std::fill_n(large.data(), 1 << 20, std::byte{1});
  uint32_t key = 0;
  ASSERT_TRUE(qp_->reserve_keys(std::span(&key, 1)));
  run(fabric::test::bind_wr(1, key, large.first(1 << 20), Rights::kRemoteRead));
  uint32_t asked = 0;
  while (pair_.server.counter("tcp_waits") == 0 && asked < 200) {
    if (asked < kReads)
      peer_.say(read_request(++asked, {.sink_stag = 5,
                                       .length = 1 << 20,
                                       .source_stag = key,
                                       .source_offset = fabric::test::address_of(large.data())}));
    pair_.server.pump();
    if (asked == kReads && ++asked > 150)
      break;
  }
  if (pair_.server.counter("tcp_waits") == 0)
    GTEST_SKIP() << "TCP took " << kReads << " MiB without filling up";
  run(fabric::test::invalidate_wr(5, key));
  std::fill_n(large.data(), 1 << 20, std::byte{2});
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  EXPECT_EQ(std::ranges::count(peer_.got(), std::byte{2}) < 100, true);
  for (auto segment = peer_.take_segment(); segment; segment = peer_.take_segment()) {
    if (segment->header.opcode != Opcode::kReadResponse) {
      EXPECT_EQ(segment->header.opcode, Opcode::kTerminate);
      EXPECT_EQ(decode_terminate(segment->payload).cause, Cause::kInvalidStag);
      EXPECT_EQ(decode_terminate(segment->payload).segment.queue, kReadQueue);
      continue;
    }
    EXPECT_TRUE(
        std::ranges::all_of(segment->payload, [](std::byte b) { return b == std::byte{1}; }));
  }
}

TEST_F(RawClient, MoreReadsThanWereAgreedOnAreTerminated) {
  connect();
  Bytes many;
  for (uint32_t i = 1; i != kReads + 3; ++i) {
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
  connect(asked);
  EXPECT_TRUE(reply_->crc);
  const SegmentHeader header{.last = true, .opcode = Opcode::kSend, .number = 1};
  peer_.say(fpdu(header, payload(33), /*crc=*/true));
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
  EXPECT_EQ(completions().at(0).byte_length, 33u);
  Bytes wrong = fpdu({.last = true, .opcode = Opcode::kSend, .number = 2}, payload(33), true);
  wrong[40] ^= std::byte{1};
  expect_terminated({"a flipped bit", wrong, Cause::kMpaCrc, "bad_crcs"});
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
  EXPECT_NE(event.reason.find("outside the STag's bounds"), std::string::npos) << event.reason;
  EXPECT_EQ(pair_.server.counter("terminates_received"), 1u);
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

// Our own Sends find out about the end before our Receives do.
TEST_F(RawClient, WhatCameBeforeAResetIsReceived) {
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
