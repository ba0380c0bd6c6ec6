// Servers that violate the iWARP protocols, to our client.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <functional>

#include "drivers/iwarp/address.h"
#include "drivers/iwarp/queue_pair.h"
#include "test/drivers/iwarp/raw_client.h"

namespace rrdk::iwarp::test {
namespace {

class RawServer : public testing::Test {
 protected:
  RawServer() : client_("iwarp:") {
    const Endpoint4Or6 any = endpoint_at("iwarp://127.0.0.1:0");
    listening_ = base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(listening_.get(), any.get(), any.length), 0);
    EXPECT_EQ(::listen(listening_.get(), 8), 0);
    uri_ = "iwarp://" + to_text(local_end(listening_.get()));
  }
  ~RawServer() override { qp_.reset(); }

  bool until(const std::function<bool()>& done) {
    return fabric::test::pump_until({&client_}, [&] {
      peer_.pull();
      return done();
    });
  }
  // Our client has sent its request.
  void ask(const std::string& options = "") {
    qp_.reset();
    client_.events.clear();
    client_.completions.clear();
    qp_ = client_.queue_pair({.reads = 4, .owner = this});
    ASSERT_TRUE(client_.device->connect(*qp_, uri_ + options, {}));
    peer_ = RawPeer(base::Fd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    ASSERT_TRUE(until([&] {
      asked_ = peer_.take_frame(MpaKind::kRequest);
      return asked_.has_value();
    }));
  }
  void answer(const MpaFrame& reply) {
    peer_.say(encode(reply));
    ASSERT_TRUE(until([&] { return client_.has_event(EventType::kEstablished); }));
  }
  static MpaFrame reply() {
    return {.kind = MpaKind::kReply, .revision = 2, .enhanced = true, .ird = 4, .ord = 4};
  }
  fabric::Event expect_failed(EventType type) {
    EXPECT_TRUE(until([&] { return client_.has_event(type); }));
    return client_.take_event(type);
  }
  void expect_terminated(Cause cause, const char* counter) {
    ASSERT_TRUE(until([&] { return peer_.closed(); }));
    std::optional<RawPeer::Segment> last;
    while (auto next = peer_.take_segment())
      last = std::move(next);
    ASSERT_TRUE(last);
    EXPECT_EQ(last->header.opcode, Opcode::kTerminate);
    EXPECT_EQ(decode_terminate(last->payload).cause, cause);
    EXPECT_GE(client_.counter(counter), 1u);
    (void)expect_failed(EventType::kDisconnected);
  }
  Bytes response(uint32_t stag, uint64_t at, size_t length, bool last = true) {
    return fpdu(
        {.tagged = true, .last = last, .opcode = Opcode::kReadResponse, .stag = stag, .offset = at},
        payload(length));
  }

  End client_;
  base::Fd listening_;
  std::string uri_;
  RawPeer peer_{base::Fd()};
  std::unique_ptr<fabric::QueuePair> qp_;
  std::optional<MpaFrame> asked_;
};

TEST_F(RawServer, InvalidRepliesEndTheAttempt) {
  Bytes huge = encode(reply());
  huge[18] = std::byte{0x40};
  Bytes revision = encode(reply());
  revision[17] = std::byte{9};
  Bytes cut = encode(reply());
  cut[19] = std::byte{2};
  MpaFrame markers = reply();
  markers.markers = true;
  for (const Bytes& bytes :
       {Bytes(64, std::byte{'x'}), huge, revision, cut, encode(markers), encode(request())}) {
    ask();
    peer_.say(bytes);
    (void)expect_failed(EventType::kConnectFailed);
  }
  ask();
  peer_.finish();
  EXPECT_EQ(expect_failed(EventType::kConnectFailed).ending.code, Errc::kConnectionLost);
}

// The server offers a Write or a Read of zero bytes. The answer that says that the Read was made
// must also have zero bytes. The URI's port leads to a listening TCP socket.
// Shows: BIND-07
TEST_F(RawServer, TheReadOfNothingIsAnsweredWithNothing) {
  MpaFrame frame = reply();
  frame.peer_to_peer = frame.rtr_read = true;
  for (const Bytes& bytes : {response(0, 0, 4), response(1, 0, 0, /*last=*/false)}) {
    ask();
    answer(frame);
    peer_.say(bytes);
    expect_terminated(Cause::kTaggedInvalidStag, "bad_responses");
  }
  ask();
  answer(frame);
  peer_.say(response(0, 0, 0));
  peer_.say(response(0, 0, 0));  // once
  expect_terminated(Cause::kTaggedInvalidStag, "bad_responses");
}

TEST_F(RawServer, ResponsesAreHeldToTheirRead) {
  Buffer room = fabric::test::test_memory().get(4096);
  std::fill_n(room.data(), 4096, std::byte{0x5a});
  const auto read = [&] {
    const fabric::SendWr wr =
        fabric::test::access_wr(3, fabric::Op::kRead, room.first(100), 77, 1000);
    ASSERT_EQ(qp_->post_send(std::span(&wr, 1)), 1u);
    ASSERT_TRUE(until([&] { return peer_.got().size() >= 52; }));
  };
  struct Case {
    const char* what;
    Bytes bytes;
  };
  for (const Case& one :
       {Case{"to another STag", response(2, 0, 100)}, Case{"at another offset", response(1, 1, 99)},
        Case{"too long", response(1, 0, 101)}, Case{"too short", response(1, 0, 99)},
        Case{"that does not end", response(1, 0, 100, /*last=*/false)},
        Case{"nothing that ends it", response(1, 0, 0)}}) {
    SCOPED_TRACE(one.what);
    ask();
    answer(reply());
    read();
    peer_.say(one.bytes);
    expect_terminated(Cause::kTaggedInvalidStag, "bad_responses");
    ASSERT_TRUE(until([&] { return client_.completions.size() == 1; }));
    EXPECT_NE(client_.completions[0].status, WcStatus::kSuccess);
    EXPECT_TRUE(std::all_of(room.data(), room.data() + 4096,
                            [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}

// The data received for a Read in flight is visible, to the byte.
TEST_F(RawServer, DataOfAReadCountsAsItComes) {
  ask();
  answer(reply());
  const Buffer room = fabric::test::test_memory().get(4096);
  const fabric::SendWr wr =
      fabric::test::access_wr(3, fabric::Op::kRead, room.first(100), 77, 1000);
  ASSERT_EQ(qp_->post_send({&wr, 1}), 1u);
  ASSERT_TRUE(until([&] { return peer_.got().size() >= 52; }));
  EXPECT_EQ(qp_->read_bytes(), 0u);
  peer_.say(response(1, 0, 40, /*last=*/false));
  EXPECT_TRUE(until([&] { return qp_->read_bytes() == 40; }));
  const Bytes rest = response(1, 40, 60);
  const size_t half = rest.size() - 30 - 4;  // without the CRC field and half of the data
  peer_.say(Bytes(rest.begin(), rest.begin() + half));
  EXPECT_TRUE(until([&] { return qp_->read_bytes() == 70; }));
  EXPECT_TRUE(client_.completions.empty());
  peer_.say(Bytes(rest.begin() + half, rest.end()));
  EXPECT_TRUE(until([&] { return client_.completions.size() == 1; }));
  EXPECT_EQ(client_.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(qp_->read_bytes(), 100u);
}

// The server's IRD (RFC 6581 section 4): a further Read waits here until an earlier one is
// answered.
TEST_F(RawServer, IsAskedForNoMoreReadsAtOnceThanItServes) {
  constexpr uint32_t kAll = 9;
  for (const uint16_t depth : {uint16_t{1}, uint16_t{3}}) {
    ask();
    MpaFrame frame = reply();
    frame.ird = depth;
    answer(frame);
    EXPECT_EQ(qp_->reads_allowed(), depth);
    const Buffer room = fabric::test::test_memory().get(4096);
    for (uint32_t i = 0; i != kAll; ++i) {
      const fabric::SendWr wr =
          fabric::test::access_wr(i, fabric::Op::kRead, room.first(100), 77, 1000);
      ASSERT_EQ(qp_->post_send({&wr, 1}), 1u);
    }
    uint32_t asked = 0;
    const auto take_requests = [&] {
      while (const auto segment = peer_.take_segment()) {
        if (segment->header.opcode == Opcode::kReadRequest) {
          EXPECT_EQ(segment->header.number, ++asked);
        }
      }
    };
    for (uint32_t answered = 0; answered != kAll; ++answered) {
      const uint32_t due = std::min<uint32_t>(kAll, answered + depth);
      ASSERT_TRUE(until([&] {
        take_requests();
        return asked >= due;
      }));
      for (int i = 0; i != 50; ++i) {
        client_.pump();
        peer_.pull();
      }
      take_requests();
      ASSERT_EQ(asked, due);
      peer_.say(response(answered + 1, 0, 100));
    }
    ASSERT_TRUE(until([&] { return client_.completions.size() == kAll; }));
    for (const fabric::Completion& c : client_.completions)
      EXPECT_EQ(c.status, WcStatus::kSuccess);
  }
}

TEST_F(RawServer, IsAskedAsItUnderstands) {
  ask();
  EXPECT_EQ(asked_->revision, 2);
  EXPECT_TRUE(asked_->enhanced);
  EXPECT_FALSE(asked_->crc);
  ask("?mpa=1&crc=1");
  EXPECT_EQ(asked_->revision, 1);
  EXPECT_FALSE(asked_->enhanced);
  EXPECT_TRUE(asked_->crc);
  answer({.kind = MpaKind::kReply, .revision = 1, .crc = true});
  const Buffer from = fabric::test::test_memory().get(4096);
  const fabric::SendWr wr = fabric::test::send_wr(7, {from.first(8)});
  ASSERT_EQ(qp_->post_send(std::span(&wr, 1)), 1u);
  ASSERT_TRUE(until([&] { return peer_.got().size() >= 32; }));
  EXPECT_EQ(peer_.take_segment()->header.opcode, Opcode::kSend);
}

TEST_F(RawServer, HasATimeLimitToAnswer) {
  ask("?timeout=5");
  auto& qp = static_cast<QueuePair&>(*qp_);
  qp.on_tick(drivers::Clock::now() + std::chrono::seconds(4));
  EXPECT_TRUE(client_.device->poll_events(1).empty());
  // A part of the answer does not extend the time.
  const Bytes frame = encode(reply());
  peer_.say(Bytes(frame.begin(), frame.begin() + 10));
  ASSERT_TRUE(until([&] { return peer_.has_arrived(); }));
  qp.on_tick(drivers::Clock::now() + std::chrono::seconds(6));
  const fabric::Event event = expect_failed(EventType::kConnectFailed);
  EXPECT_EQ(event.ending.code, Errc::kTimeout);
  EXPECT_NE(event.ending.text.find("no answer"), std::string::npos) << event.ending.text;
}

}  // namespace
}  // namespace rrdk::iwarp::test
