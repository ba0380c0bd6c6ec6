// A server with a well-behaved client, and a raw client that may misbehave.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/lane.h"
#include "test/drivers/iwarp/raw_peer.h"
#include "test/fabric/end.h"

namespace rrdk::iwarp::test {

using fabric::EventType;
using fabric::Rights;
using fabric::WcStatus;
using fabric::test::End;
using fabric::test::Pair;

constexpr uint32_t kReceiveSize = 256;
constexpr uint32_t kReads = 4;

inline MpaFrame request() {
  return {.revision = 2, .enhanced = true, .ird = 16, .ord = 16};
}

inline Bytes payload(size_t length) {
  Bytes bytes(length);
  for (size_t i = 0; i != length; ++i)
    bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

inline Bytes send(uint32_t number, const Bytes& bytes, uint32_t offset = 0, bool last = true) {
  return fpdu({.last = last, .opcode = Opcode::kSend, .offset = offset, .number = number}, bytes);
}

inline Bytes write(uint32_t stag, uint64_t at, const Bytes& bytes) {
  return fpdu({.tagged = true, .last = true, .opcode = Opcode::kWrite, .stag = stag, .offset = at},
              bytes);
}

// Takes messages from its lane, as many as it wants, and may send them back.
struct Taker final : fabric::LaneUser {
  void on_burst(fabric::Lane& lane, uint32_t most) noexcept override {
    for (; most != 0; --most) {
      const fabric::LaneMessage message = lane.peek();
      if (!message)
        return;
      Bytes bytes(message.length());
      message.copy(bytes.data(), 0, message.length());
      if (!wants(bytes))
        return;
      if (echoes) {
        std::byte* const reply = lane.begin(message.length());
        if (reply == nullptr)
          return;
        std::copy(bytes.begin(), bytes.end(), reply);
        lane.send(message.length());
      }
      lane.take(message);
      on_taken(bytes, message.invalidated());
      got.push_back(std::move(bytes));
    }
  }

  bool echoes = false;
  std::function<bool(const Bytes&)> wants = [](const Bytes&) { return true; };
  std::function<void(const Bytes&, uint32_t)> on_taken = [](const Bytes&, uint32_t) {};
  std::vector<Bytes> got;
};

class RawClient : public testing::Test {
 protected:
  RawClient() : pair_("iwarp://127.0.0.1:0"), peer_(pair_.uri) {
    for (size_t i = 0; i != memory_.capacity(); ++i)
      memory_.data()[i] = std::byte{0x5a};
  }
  ~RawClient() override {
    // The other connection continues.
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
    qp_->set_lane_user(lane_user_);
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
  // The peer gets a Terminate with this cause, one counter changes, our end is disconnected, and no
  // memory was written.
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
  void again(const MpaFrame& asked = request(), uint32_t receives = 4) {
    pair_.server.events.clear();
    pair_.server.completions.clear();
    qp_.reset();
    peer_ = RawPeer(pair_.uri);
    connect(asked, receives);
  }

  Pair pair_;
  RawPeer peer_;
  Buffer memory_ = fabric::test::test_memory().get(1 << 20);
  Buffer inbox_ = fabric::test::test_memory().get(1 << 16);
  Taker taker_;
  fabric::LaneUser* lane_user_ = nullptr;  // for each connection, if it is to have one
  std::unique_ptr<fabric::QueuePair> qp_;
  std::optional<MpaFrame> reply_;
  uint32_t read_key_ = 0;
  uint32_t write_key_ = 0;
};

}  // namespace rrdk::iwarp::test
