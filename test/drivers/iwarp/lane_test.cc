// The lane of a connection to a peer that may send anything: which messages are for it, and which
// are not.
#include "drivers/iwarp/lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>

#include "test/drivers/iwarp/raw_client.h"
#include "test/seed.h"

namespace rrdk::iwarp::test {
namespace {

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

class RawLane : public RawClient {
 protected:
  RawLane() { lane_user_ = &taker_; }
};

// Each reply is an FPDU like any other; none needs a Receive or leaves one behind.
TEST_F(RawLane, TakesAndAnswersMessagesWhereTheyLie) {
  for (const bool crc : {false, true}) {
    MpaFrame asked = request();
    asked.crc = crc;
    again(asked, /*receives=*/0);
    taker_.echoes = true;
    const auto message = [&](uint32_t number, uint32_t length) {
      return fpdu({.last = true, .opcode = Opcode::kSend, .number = number}, payload(length), crc);
    };
    const Bytes all = joined({message(1, 4), message(2, 200), message(3, 4096)});
    peer_.say(all);
    ASSERT_TRUE(until([&] { return peer_.got().size() >= all.size(); }));
    EXPECT_EQ(peer_.got(), all);
    EXPECT_EQ(taker_.got.size(), 3u);
    EXPECT_EQ(pair_.server.counter("rnr_waits"), 0u);
    taker_.got.clear();
  }
}

// Replies may be sent with what is posted in answer to a later message, but do not wait for that,
// since it may take its time.
TEST_F(RawLane, AnswersLeaveTogetherOrAlone) {
  taker_.echoes = true;
  taker_.wants = [](const Bytes& bytes) { return bytes.size() != 8; };
  for (const bool posts : {false, true}) {
    again();
    peer_.say(joined({send(1, payload(4)), send(2, payload(8))}));
    ASSERT_TRUE(until([&] { return !pair_.server.completions.empty(); }));
    std::ranges::copy(payload(12), memory_.data());
    const fabric::SendWr wr = fabric::test::send_wr(7, {memory_.first(12)});
    ASSERT_EQ(qp_->post_send({&wr, posts ? 1u : 0u}), posts ? 1u : 0u);
    const Bytes expected =
        posts ? joined({send(1, payload(4)), send(2, payload(12))}) : send(1, payload(4));
    ASSERT_TRUE(until([&] { return peer_.got().size() >= expected.size(); }));
    EXPECT_EQ(peer_.got(), expected);
    std::fill_n(memory_.data(), 12, std::byte{0x5a});
  }
}

// In whatever pieces it comes, and without a Receive that would keep its first part.
TEST_F(RawLane, WaitsForTheRestOfAMessage) {
  connect(request(), /*receives=*/0);
  for (std::byte byte : joined({send(1, payload(200)), send(2, payload(8))})) {
    peer_.say({byte});
    pair_.server.pump();
  }
  ASSERT_TRUE(until([&] { return taker_.got.size() == 2; }));
  EXPECT_EQ(taker_.got[0], payload(200));
  EXPECT_EQ(taker_.got[1], payload(8));
  EXPECT_EQ(pair_.server.counter("rnr_waits"), 0u);
  peer_.say(Bytes(40, std::byte{1}));
  peer_.finish();
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
}

// Data that TCP did not take is sent later, whole, in order, and before what is sent behind it.
TEST_F(RawLane, RepliesWaitForTcpInTheirOrder) {
  connect();
  peer_.take_little();
  peer_.say(send(1, payload(4)));
  ASSERT_TRUE(until([&] { return taker_.got.size() == 1; }));
  const auto text = [](uint32_t number) { return Bytes(1024, static_cast<std::byte>(number)); };
  fabric::Lane& lane = *qp_->lane();
  uint32_t sent = 0;
  for (std::byte* at; (at = lane.begin(1024)) != nullptr; lane.send(1024)) {
    ASSERT_LT(++sent, 100'000u);
    std::ranges::copy(text(sent), at);
  }
  lane.flush();
  std::ranges::copy(text(++sent), memory_.data());
  const fabric::SendWr wr = fabric::test::send_wr(7, {memory_.first(1024)});
  ASSERT_EQ(qp_->post_send({&wr, 1}), 1u);
  std::fill_n(memory_.data() + 1024, 1, std::byte{0x5a});
  for (uint32_t number = 1; number <= sent; ++number) {
    std::optional<RawPeer::Segment> segment;
    ASSERT_TRUE(until([&] { return (segment = peer_.take_segment()).has_value(); })) << number;
    ASSERT_EQ(segment->header.number, number);
    ASSERT_EQ(segment->payload, text(number));
  }
  EXPECT_GT(pair_.server.counter("tcp_waits"), 0u);
}

// The outcome of a stream of bytes.
struct Outcome {
  std::vector<Bytes> messages;
  uint32_t kills = 0;
  std::string ending;
  Bytes window;

  bool operator==(const Outcome&) const = default;
};

class Streams : public RawClient {
 protected:
  // Messages of all kinds, possibly followed by an error: a truncated message, or a wrong bit in
  // its header. A wrong length may mean different things: a lane takes messages that a Receive does
  // not.
  Bytes stream(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto any = [&](uint64_t values) { return static_cast<uint32_t>(random() % values); };
    Bytes all;
    const auto add = [&](const Bytes& bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); };
    uint32_t number = 1;
    for (uint32_t left = any(60); left != 0; --left) {
      const Bytes text = payload(any(3) == 0 ? any(kReceiveSize) : 4 * any(kReceiveSize / 4));
      switch (any(8)) {
        case 0:
          add(write(write_key_, base() + any(512), text));
          break;
        case 1: {
          const uint32_t half = any(text.size() + 1);
          add(send(number, Bytes(text.begin(), text.begin() + half), 0, /*last=*/false));
          add(send(number++, Bytes(text.begin() + half, text.end()), half));
          break;
        }
        case 2:
          if (any(8) == 0) {
            add(fpdu({.last = true,
                      .opcode = Opcode::kSendInvalidate,
                      .stag = read_key_,
                      .number = number++},
                     text));
            break;
          }
          [[fallthrough]];
        default:
          add(send(number++, text));
      }
    }
    const size_t end = all.size();
    add(send(number, payload(64)));
    if (any(2) == 0)
      all[end + kLengthField + any(kUntaggedHeader)] ^= static_cast<std::byte>(1u << any(8));
    else if (any(2) == 0)
      all.resize(end + any(80));
    return all;
  }

  Outcome outcome(uint64_t seed, fabric::LaneUser* user) {
    lane_user_ = user;
    again();
    std::fill_n(window().data, window().length, std::byte{0});
    Outcome outcome;
    taker_.on_taken = [&](const Bytes& message, uint32_t killed) {
      outcome.messages.push_back(message);
      outcome.kills += killed != 0;
    };
    const auto take = [&] {
      pair_.server.pump();
      for (const fabric::Completion& c : completions()) {
        if (c.op != fabric::Op::kReceive || c.status != WcStatus::kSuccess)
          continue;
        const std::byte* const at = inbox_.data() + c.wr_id * 1024;
        outcome.messages.emplace_back(at, at + c.byte_length);
        outcome.kills += c.has_invalidated;
        const fabric::ReceiveWr wr{c.wr_id,
                                   {inbox_.data() + c.wr_id * 1024, kReceiveSize, inbox_.region()}};
        (void)qp_->post_receive({&wr, 1});
      }
    };
    const Bytes all = stream(seed);
    std::mt19937_64 random(seed);
    for (size_t at = 0; at < all.size() && !pair_.server.has_event(EventType::kDisconnected);) {
      const size_t end = std::min<size_t>(all.size(), at + 1 + random() % 700);
      peer_.say(Bytes(all.begin() + static_cast<long>(at), all.begin() + static_cast<long>(end)));
      at = end;
      take();
    }
    peer_.finish();
    EXPECT_TRUE(until([&] {
      take();
      return pair_.server.has_event(EventType::kDisconnected);
    }));
    outcome.ending = pair_.server.take_event(EventType::kDisconnected).ending.text;
    outcome.window.assign(window().data, window().data + window().length);
    return outcome;
  }
};

// Takes messages in the lane, and in Receives those that the lane's user leaves.
TEST_F(Streams, HaveOneMeaningInLanesAndInReceives) {
  constexpr uint32_t kStreams = 150;
  const uint64_t seed = rrdk::test::run_seed();
  std::mt19937_64 random(seed);
  taker_.wants = [&](const Bytes&) { return random() % 8 != 0; };
  uint32_t refused = 0;
  for (uint32_t i = 0; i != kStreams; ++i) {
    const Outcome in_receives = outcome(seed + i, nullptr);
    const Outcome in_lanes = outcome(seed + i, &taker_);
    EXPECT_EQ(in_lanes.messages, in_receives.messages) << i;
    EXPECT_EQ(in_lanes.ending, in_receives.ending) << i;
    EXPECT_TRUE(in_lanes == in_receives) << i;
    refused += in_lanes.ending.find("broke the iWARP protocol") != std::string::npos;
  }
  EXPECT_GT(refused, kStreams / 20);
  EXPECT_GT(taker_.got.size(), kStreams);
  std::fill_n(window().data, window().length, std::byte{0x5a});
}

}  // namespace
}  // namespace rrdk::iwarp::test
