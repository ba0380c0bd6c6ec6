// Frames with one wrong field, for every field: each ends its own connection, with its own counter;
// and unusual frames that are valid.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "test/drivers/iwarp/raw_client.h"

namespace rrdk::iwarp::test {
namespace {

class Frames : public RawClient {
 protected:
  void expect_all_terminated(const std::vector<Offence>& offences) {
    for (const Offence& offence : offences) {
      expect_terminated(offence);
      if (HasFatalFailure())
        return;
      again();
    }
  }
  size_t received() {
    const auto done = completions();
    return static_cast<size_t>(std::ranges::count_if(done, [](const fabric::Completion& c) {
      return c.op == fabric::Op::kReceive && c.status == WcStatus::kSuccess;
    }));
  }
};

Bytes both(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
Bytes terminate(const Bytes& body, uint32_t number = 1, bool last = true,
                uint32_t queue = kTerminateQueue) {
  return fpdu({.last = last, .opcode = Opcode::kTerminate, .queue = queue, .number = number}, body);
}
Bytes read_frame(const SegmentHeader& header, size_t length = kReadRequestBody) {
  return fpdu(header, Bytes(length));
}
constexpr SegmentHeader kReadHeader{
    .last = true, .opcode = Opcode::kReadRequest, .queue = kReadQueue, .number = 1};

TEST_F(Frames, UntaggedMessagesAreHeldToTheirQueue) {
  connect();
  const Bytes some = payload(16);
  const auto send_to = [&](uint32_t queue) {
    return fpdu({.last = true, .opcode = Opcode::kSend, .queue = queue, .number = 1}, some);
  };
  SegmentHeader read = kReadHeader;
  read.queue = kSendQueue;
  expect_all_terminated({
      {"a Send among the Reads", send_to(kReadQueue), Cause::kInvalidQueue, "bad_queues"},
      {"a Send among the Terminates", send_to(kTerminateQueue), Cause::kInvalidQueue, "bad_queues"},
      {"a Send to queue 3", send_to(3), Cause::kInvalidQueue, "bad_queues"},
      {"a Send to the last queue", send_to(UINT32_MAX), Cause::kInvalidQueue, "bad_queues"},
      {"a Read Request among the Sends", read_frame(read), Cause::kInvalidQueue, "bad_queues"},
      {"a Terminate among the Sends", terminate({}, 1, true, kSendQueue), Cause::kInvalidQueue,
       "bad_queues"},
      {"a Write that is untagged",
       fpdu({.last = true, .opcode = Opcode::kWrite, .number = 1}, some), Cause::kUnexpectedOpcode,
       "bad_opcodes"},
      {"a Send that is tagged",
       fpdu({.tagged = true, .last = true, .opcode = Opcode::kSend, .stag = write_key_}, some),
       Cause::kUnexpectedOpcode, "bad_opcodes"},
  });
}

TEST_F(Frames, MessagesComeInOrderAndWithoutGaps) {
  connect();
  const Bytes some = payload(16);
  const Bytes begun = send(1, some, 0, /*last=*/false);
  expect_all_terminated({
      {"the same message twice", both(send(1, some), send(1, some)), Cause::kMessageNumber,
       "bad_numbers"},
      {"the last number there is", send(UINT32_MAX, some), Cause::kMessageNumber, "bad_numbers"},
      {"the next before its end", both(begun, send(2, some)), Cause::kMessageNumber, "bad_numbers"},
      {"a gap", both(begun, send(1, some, 17)), Cause::kMessageOffset, "bad_offsets"},
      {"an overlap", both(begun, send(1, some, 8)), Cause::kMessageOffset, "bad_offsets"},
      {"its beginning again", both(begun, begun), Cause::kMessageOffset, "bad_offsets"},
      {"an offset of everything", both(begun, send(1, some, UINT32_MAX)), Cause::kMessageOffset,
       "bad_offsets"},
      {"a byte too much in the end",
       both(send(1, payload(200), 0, /*last=*/false), send(1, payload(kReceiveSize - 199), 200)),
       Cause::kMessageTooLong, "messages_too_long"},
  });
}

TEST_F(Frames, ReadRequestsAndTerminatesAreOneSegmentOfTheirLength) {
  connect();
  SegmentHeader zero = kReadHeader;
  zero.number = 0;
  SegmentHeader second = kReadHeader;
  second.number = 2;
  SegmentHeader inside = kReadHeader;
  inside.offset = 4;
  SegmentHeader open = kReadHeader;
  open.last = false;
  expect_all_terminated({
      {"Read Request 0", read_frame(zero), Cause::kMessageNumber, "bad_numbers"},
      {"Read Request 2 first", read_frame(second), Cause::kMessageNumber, "bad_numbers"},
      {"Read Request 1 twice", both(read_frame(kReadHeader), read_frame(kReadHeader)),
       Cause::kMessageNumber, "bad_numbers"},
      {"a part of a Read Request", read_frame(inside), Cause::kMessageOffset, "bad_offsets"},
      {"a Read Request that goes on", read_frame(open), Cause::kCatastrophic, "bad_lengths"},
      {"an empty Read Request", read_frame(kReadHeader, 0), Cause::kCatastrophic, "bad_lengths"},
      {"a short Read Request", read_frame(kReadHeader, kReadRequestBody - 1), Cause::kCatastrophic,
       "bad_lengths"},
      {"a long Read Request", read_frame(kReadHeader, kReadRequestBody + 1), Cause::kCatastrophic,
       "bad_lengths"},
      {"the longest Read Request", read_frame(kReadHeader, kMaxUlpdu - kUntaggedHeader),
       Cause::kCatastrophic, "bad_lengths"},
      {"the second Terminate", terminate({}, 2), Cause::kMessageNumber, "bad_numbers"},
      {"a Terminate that goes on", terminate({}, 1, /*last=*/false), Cause::kCatastrophic,
       "bad_lengths"},
      {"a Terminate of a byte too much", terminate(Bytes(kMaxTerminate + 1)), Cause::kCatastrophic,
       "bad_lengths"},
  });
}

// Whatever a Terminate contains, the connection ends without an answer.
TEST_F(Frames, TerminatesOfAnyLengthAndContentEndTheConnection) {
  uint64_t count = 0;
  for (const std::byte fill : {std::byte{0}, std::byte{0xff}, std::byte{0x41}}) {
    for (uint32_t length = 0; length <= kMaxTerminate; length += length < 24 ? 1 : 7) {
      SCOPED_TRACE(length);
      connect();
      peer_.say(terminate(Bytes(length, fill)));
      ASSERT_TRUE(until([&] { return peer_.closed(); }));
      EXPECT_TRUE(peer_.got().empty());
      ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
      EXPECT_EQ(pair_.server.counter("terminates_received"), ++count);
      pair_.server.events.clear();
      pair_.server.completions.clear();
      qp_.reset();
      peer_ = RawPeer(pair_.uri);
    }
  }
  EXPECT_EQ(pair_.server.counter("terminates_sent"), 0u);
  connect();
}

TEST_F(Frames, OnlyAValidLocalKeyCanBeInvalidated) {
  connect();
  const auto kill = [](uint32_t key, uint32_t number = 1) {
    return fpdu({.last = true, .opcode = Opcode::kSendInvalidate, .stag = key, .number = number},
                payload(8));
  };
  Buffer foreign = fabric::test::test_memory().get(4096);
  const uint32_t foreign_key = pair_.expose(foreign.first(4096), Rights::kRemoteWrite);
  const auto expect_refused = [&](const char* what, const Bytes& bytes) {
    expect_terminated({what, bytes, Cause::kCannotInvalidate, "bad_invalidations"});
    again();
  };
  expect_refused("another connection's", kill(foreign_key));
  expect_refused("zero", kill(0));
  uint32_t reserved = 0;
  ASSERT_TRUE(qp_->reserve_keys(std::span(&reserved, 1)));
  expect_refused("without a meaning yet", kill(reserved));
  run(fabric::test::invalidate_wr(2, write_key_));
  expect_refused("dead", kill(write_key_));
  expect_refused("the same twice", both(kill(write_key_), kill(write_key_, 2)));
  // The other connection's key is still valid.
  Buffer from = fabric::test::test_memory().get(4096);
  EXPECT_EQ(pair_
                .run(fabric::test::access_wr(9, fabric::Op::kWrite, from.first(64), foreign_key,
                                             fabric::test::address_of(foreign.data())))
                .status,
            WcStatus::kSuccess);
}

// As many at once as were agreed on, of the same bytes, each into its own sink.
TEST_F(Frames, ReadsMayOverlap) {
  connect();
  std::copy_n(payload(4096).begin(), 4096, window().data);
  Bytes all;
  for (uint32_t i = 1; i != kReads + 1; ++i)
    all = both(std::move(all), read_request(i, {.sink_stag = i,
                                                .sink_offset = UINT64_MAX - 1,
                                                .length = 1000,
                                                .source_stag = read_key_,
                                                .source_offset = base() + i}));
  peer_.say(all);
  constexpr size_t kAnswer = kLengthField + kTaggedHeader + 1000 + kCrcField;
  ASSERT_TRUE(until([&] { return peer_.got().size() >= kReads * kAnswer; }));
  for (uint32_t i = 1; i != kReads + 1; ++i) {
    const auto answer = peer_.take_segment();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->header.stag, i);
    EXPECT_EQ(answer->header.offset, UINT64_MAX - 1);
    EXPECT_TRUE(std::equal(answer->payload.begin(), answer->payload.end(), window().data + i));
  }
  std::fill_n(window().data, 4096, std::byte{0x5a});
}

TEST_F(Frames, ReadsOfNothingCountAsReads) {
  connect();
  Bytes all;
  for (uint32_t i = 1; i != kReads + 2; ++i)
    all = both(std::move(all), read_request(i, {.sink_stag = i}));
  expect_terminated({"one too many", all, Cause::kNoBuffer, "read_overruns"});
}

// Our Reads would wait for ever.
TEST_F(Frames, APeerThatAllowsNoReadsIsAskedForNone) {
  MpaFrame asked = request();
  asked.ird = 0;
  connect(asked);
  EXPECT_EQ(qp_->reads_allowed(), 0u);
  const auto wr = fabric::test::access_wr(3, fabric::Op::kRead, memory_.first(64), 77, 1000);
  EXPECT_EQ(pair_.run(pair_.server, *qp_, wr).status, WcStatus::kRemoteAccess);
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  const fabric::Event event = pair_.server.take_event(EventType::kDisconnected);
  EXPECT_NE(event.ending.text.find("allows no RDMA Reads"), std::string::npos) << event.ending.text;
  EXPECT_EQ(pair_.server.counter("reads_denied"), 1u);
  EXPECT_EQ(pair_.server.counter("local_protection"), 0u);
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  EXPECT_TRUE(untouched());
}

// The initiator was to begin with an empty Send and does not: its messages are treated as messages.
TEST_F(Frames, OnlyTheFirstMessageSaysThatThePeerIsReady) {
  MpaFrame asked = request();
  asked.peer_to_peer = asked.rtr_send = true;
  connect(asked);
  ASSERT_TRUE(reply_->rtr_send);
  // The end of the first message has no bytes.
  peer_.say(send(1, payload(40), 0, /*last=*/false));
  peer_.say(send(1, {}, 40));
  peer_.say(send(2, {}));
  peer_.say(send(3, payload(8)));
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 3; }));
  const auto done = completions();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done[0].byte_length, 40u);
  EXPECT_EQ(done[1].byte_length, 0u);
  EXPECT_EQ(done[2].byte_length, 8u);
}

TEST_F(Frames, RequestsMayHaveAllBitsAndAsMuchPrivateDataAsMpaHas) {
  // Revision 2, reserved and reject bits set, depths of all ones, 508 bytes behind them.
  MpaFrame asked = request();
  asked.peer_to_peer = asked.rtr_send = asked.rtr_write = asked.rtr_read = true;
  asked.crc = asked.rejected = true;
  asked.ird = asked.ord = kMpaAnyDepth;
  asked.private_data = payload(kMpaMaxPrivate - kMpaEnhanced);
  Bytes bytes = encode(asked);
  bytes[16] |= std::byte{0x0f};
  peer_.say(bytes);
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kConnectRequest); }));
  {
    const fabric::Event event = pair_.server.take_event(EventType::kConnectRequest);
    EXPECT_TRUE(std::ranges::equal(event.request->private_data(), asked.private_data));
  }
  asked.private_data.push_back(std::byte{1});
  peer_ = RawPeer(pair_.uri);
  peer_.shake(asked);
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  EXPECT_EQ(pair_.server.counter("handshakes_refused"), 1u);
}

// The peer has sent half of a message and stays: no turn is spent on it, and it only holds memory
// of its own.
TEST_F(Frames, AnIncompleteMessageDoesNotBlockTheOtherDirection) {
  connect();
  const Bytes bytes = send(1, payload(100));
  peer_.say(Bytes(bytes.begin(), bytes.begin() + 60));
  for (int i = 0; i != 50; ++i)
    pair_.server.pump();
  pair_.post_receives(*pair_.server_qp, 1);
  EXPECT_EQ(pair_.run(fabric::test::send_wr(1, {memory_.first(100)})).status, WcStatus::kSuccess);
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
  EXPECT_EQ(received(), 0u);
  peer_.say(Bytes(bytes.begin() + 60, bytes.end()));
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
  EXPECT_EQ(received(), 1u);
}

}  // namespace
}  // namespace rrdk::iwarp::test
