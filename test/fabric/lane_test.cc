// Lanes (lib/fabric/lane.h) of the drivers that have them: what both ends of a lane may rely on.
#include "fabric/lane.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/sanitizer.h"
#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"
#include "test/seed.h"

namespace rrdk::fabric::test {
namespace {

// RRDK_LANE_FACTOR: how much longer than usual the long tests take.
uint32_t factor() {
  const char* given = std::getenv("RRDK_LANE_FACTOR");
  return given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 0)) : 1;
}

// The vectors and the equivalent words load the same bytes at any address.
TEST(LoadOnce, IsTheSameByWords) {
  std::array<std::byte, 64> memory;
  for (size_t i = 0; i != memory.size(); ++i)
    memory[i] = static_cast<std::byte>(7 * i + 1);
  const auto same = [&]<typename Value>(Value) {
    for (size_t at = 0; at + sizeof(Value) <= memory.size(); ++at) {
      Value expected;
      std::memcpy(&expected, &memory[at], sizeof expected);
      const auto once = load_once<Value>(&memory[at]);
      EXPECT_EQ(std::memcmp(&once, &expected, sizeof once), 0) << sizeof once << " at " << at;
      if constexpr (sizeof(Value) >= sizeof(uint64_t)) {
        const auto by_words = load_once_by_words<Value>(&memory[at]);
        EXPECT_EQ(std::memcmp(&by_words, &expected, sizeof by_words), 0);
      }
    }
  };
  same(uint32_t{});
  same(uint64_t{});
  same(std::array<uint64_t, 2>{});
  same(std::array<uint32_t, 8>{});
}

TEST(LoadOnce, CopiesEachLengthExactly) {
  std::array<std::byte, 256> from, to;
  for (size_t i = 0; i != from.size(); ++i)
    from[i] = static_cast<std::byte>(i + 1);
  for (uint32_t length = 0; length <= 200; length += 4) {
    to.fill(std::byte{});
    copy_once(&to[8], &from[3], length);
    EXPECT_TRUE(std::equal(&to[8], &to[8 + length], &from[3])) << length;
    EXPECT_EQ(to[7], std::byte{});
    EXPECT_EQ(to[8 + length], std::byte{}) << length;
  }
}

// Messages are text here, with a length that is a multiple of 4. They begin with a number.
std::string text_of(uint32_t number, uint32_t length = 8) {
  std::string text(length, static_cast<char>('a' + number % 26));
  std::memcpy(text.data(), &number, sizeof number);
  return text;
}
uint32_t number_of(std::string_view text) {
  uint32_t number = 0;
  std::memcpy(&number, text.data(), sizeof number);
  return number;
}

bool say(Lane& lane, std::string_view text, uint32_t invalidate = 0) {
  std::byte* const place = lane.begin(static_cast<uint32_t>(text.size()));
  if (place == nullptr)
    return false;
  std::memcpy(place, text.data(), text.size());
  lane.send(static_cast<uint32_t>(text.size()), invalidate);
  return true;
}

// Takes the messages that it wants, which are all unless told otherwise.
struct Taker final : LaneUser {
  void on_burst(Lane& lane, uint32_t most) noexcept override {
    ++bursts;
    for (; looks && most != 0; --most) {
      const LaneMessage message = lane.peek();
      if (!message)
        return;
      std::string text(message.length(), '\0');
      message.copy(reinterpret_cast<std::byte*>(text.data()), 0, message.length());
      if (!wants(text))
        return;
      lane.take(message);
      got.push_back(text);
      invalidated.push_back(message.invalidated());
      then(lane, text);
    }
  }

  std::function<bool(std::string_view)> wants = [](std::string_view) { return true; };
  std::function<void(Lane&, std::string_view)> then = [](Lane&, std::string_view) {};
  std::vector<std::string> got;
  std::vector<uint32_t> invalidated;
  uint32_t bursts = 0;
  bool looks = true;
};

class Lanes : public testing::TestWithParam<FabricUnderTest> {
 protected:
  void SetUp() override {
    if (pair_.client_qp->lane() == nullptr)
      GTEST_SKIP() << "the driver for " << GetParam().name << " has no lanes";
    pair_.client_qp->set_lane_user(&client_);
    pair_.server_qp->set_lane_user(&server_);
  }

  Lane& to_server() { return *pair_.client_qp->lane(); }
  Lane& to_client() { return *pair_.server_qp->lane(); }
  SendWr plain_wr(uint32_t length) {
    SendWr wr = send_wr(1, {buffer_.first(length)});
    wr.signaled = false;
    wr.quiet = wr.copied = true;
    return wr;
  }
  // Sends it the general way.
  void post(QueuePair& qp, std::string_view text, bool copied = true) {
    std::memcpy(buffer_.data(), text.data(), text.size());
    SendWr wr = plain_wr(static_cast<uint32_t>(text.size()));
    wr.copied = wr.quiet = copied;
    ASSERT_TRUE(pair_.pump_until([&] { return qp.post_send({&wr, 1}) == 1; }));
  }
  std::string received(const Completion& completion) const {
    return {reinterpret_cast<const char*>(pair_.receive_buffers[completion.wr_id].data()),
            completion.byte_length};
  }

  Pair pair_{GetParam().new_uri()};
  Taker client_;
  Taker server_;
  Buffer buffer_ = test_memory().get(8192);
};
INSTANTIATE_TEST_SUITE_P(Fabric, Lanes, all_fabrics(), fabric_name);

TEST_P(Lanes, CarryMessagesOfEachLengthBothWays) {
  const auto lengths = [&](const std::function<void(uint32_t)>& each) {
    for (uint32_t length = 4; length <= to_server().most(); length += length < 1200 ? 4 : 52)
      each(length);
  };
  lengths([&](uint32_t length) {
    const std::string there = text_of(length, length);
    const std::string back = text_of(length + 1, length);
    server_.then = [&](Lane& lane, std::string_view) { EXPECT_TRUE(say(lane, back)); };
    ASSERT_TRUE(pair_.pump_until([&] { return say(to_server(), there); }));
    to_server().flush();
    ASSERT_TRUE(pair_.pump_until([&] { return !client_.got.empty(); })) << length;
    EXPECT_EQ(server_.got, std::vector{there});
    EXPECT_EQ(client_.got, std::vector{back});
    server_.got.clear();
    client_.got.clear();
  });
  EXPECT_EQ(to_server().begin(to_server().most() + 4), nullptr);
  EXPECT_TRUE(pair_.client.completions.empty());
  EXPECT_TRUE(pair_.server.completions.empty());
}

// The core is told about work that brings no completions.
TEST_P(Lanes, CountMessagesTaken) {
  const uint64_t before = pair_.server.cq->lane_messages();
  for (uint32_t i = 0; i != 5; ++i)
    ASSERT_TRUE(say(to_server(), text_of(i)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == 5; }));
  EXPECT_EQ(pair_.server.cq->lane_messages(), before + 5);
}

// One direction of a connection, on which messages of all kinds are sent at random.
class MixedWay {
 public:
  MixedWay(QueuePair& sender, End& receiver, QueuePair& receiving, Taker& taker)
      : sender_(sender),
        receiver_(receiver),
        receiving_(receiving),
        taker_(taker),
        most_copied_(receiver.device->capabilities().max_copied) {
    for (size_t i = 0; i != kReceives; ++i)
      post_receive(i);
    taker.wants = [this](std::string_view) { return random_() % 8 != 0; };
    taker.then = [this](Lane&, std::string_view text) {
      ++in_lane;
      arrive(text);
      taker_.got.clear();
      taker_.invalidated.clear();
    };
  }

  void send_one() {
    const auto any = [&](uint64_t values) { return static_cast<uint32_t>(random_() % values); };
    const std::string text = any(3) != 0 ? text_of(sent, 4 + 4 * any(any(5) == 0 ? 1000 : 60))
                                         : text_of(sent, 4 + any(any(5) == 0 ? kLongest - 4 : 300));
    if (text.size() % 4 == 0 && any(2) == 0) {
      sent += say(*sender_.lane(), text) ? 1 : 0;
      return;
    }
    // At most as many as there are parts are incomplete.
    const MemorySpan all = outbox_.first(kParts * kLongest);
    const MemorySpan part{all.data + posted_ % kParts * kLongest,
                          static_cast<uint32_t>(text.size()), all.region};
    std::memcpy(part.data, text.data(), text.size());
    SendWr wr = send_wr(1, {part});
    wr.signaled = any(2) == 0 || text.size() > most_copied_;
    wr.quiet = wr.copied = !wr.signaled;
    if (sender_.post_send({&wr, 1}) == 1) {
      ++sent;
      ++posted_;
    }
  }
  void take_completions() {
    for (const Completion& c : receiver_.take_completions()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      if (c.op != Op::kReceive)
        continue;
      arrive({reinterpret_cast<const char*>(inbox_.data()) + c.wr_id * kLongest, c.byte_length});
      post_receive(c.wr_id);
    }
  }

  uint32_t sent = 0;
  uint32_t arrived = 0;
  uint32_t in_lane = 0;
  bool in_order = true;

 private:
  static constexpr uint32_t kLongest = 8192;
  static constexpr uint32_t kParts = 128;
  static constexpr size_t kReceives = 16;

  void post_receive(uint64_t id) {
    const MemorySpan all = inbox_.first(kReceives * kLongest);
    const ReceiveWr wr{id, {all.data + id * kLongest, kLongest, all.region}};
    EXPECT_EQ(receiving_.post_receive({&wr, 1}), 1u);
  }
  void arrive(std::string_view text) {
    in_order = in_order && text == text_of(arrived, static_cast<uint32_t>(text.size()));
    ++arrived;
  }

  QueuePair& sender_;
  End& receiver_;
  QueuePair& receiving_;
  Taker& taker_;
  const uint32_t most_copied_;
  std::mt19937_64 random_{rrdk::test::run_seed()};
  Buffer outbox_ = test_memory().get(kParts * kLongest);
  Buffer inbox_ = test_memory().get(1 << 20);
  uint64_t posted_ = 0;
};

// Messages for the lane and others, in both directions, including some that the lane's user does
// not want: all arrive, once and in order.
TEST_P(Lanes, KeepTheOrderOfAllMessages) {
  const uint32_t messages = 30'000 * factor();
  MixedWay there(*pair_.client_qp, pair_.server, *pair_.server_qp, server_);
  MixedWay back(*pair_.server_qp, pair_.client, *pair_.client_qp, client_);
  std::mt19937_64 random(rrdk::test::run_seed());
  // A slow machine may take long for all, but not for each part.
  for (uint32_t goal = 10'000; goal <= messages; goal += 10'000) {
    ASSERT_TRUE(pair_.pump_until([&] {
      for (MixedWay* way : {&there, &back}) {
        for (uint64_t burst = random() % 20; burst != 0 && way->sent != messages; --burst)
          way->send_one();
        way->take_completions();
      }
      to_server().flush();
      to_client().flush();
      return !there.in_order || !back.in_order || (there.arrived >= goal && back.arrived >= goal);
    })) << "the goal was "
        << goal;
  }
  for (const MixedWay* way : {&there, &back}) {
    EXPECT_TRUE(way->in_order) << "message " << way->arrived;
    EXPECT_GT(way->in_lane, messages / 20);
    EXPECT_LT(way->in_lane, messages);
  }
}

TEST_P(Lanes, LeaveUntakenMessagesToReceives) {
  pair_.post_receives(*pair_.server_qp, 2);
  server_.wants = [](std::string_view text) { return number_of(text) != 1; };
  for (uint32_t i = 0; i != 2; ++i)
    ASSERT_TRUE(say(to_server(), text_of(i)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.completions.size() == 1; }));
  EXPECT_EQ(received(pair_.server.completions[0]), text_of(1));
  ASSERT_TRUE(say(to_server(), text_of(2)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == 2; }));
  EXPECT_EQ(server_.got, (std::vector{text_of(0), text_of(2)}));
  EXPECT_EQ(pair_.server.completions.size(), 1u);
}

TEST_P(Lanes, NeverCarryLongMessagesOrLengthsNotMultiplesOfFour) {
  pair_.post_receives(*pair_.server_qp, 4, 8192);
  const std::vector<uint32_t> lengths = {5, 30, to_server().most() + 4, 8190};
  for (const uint32_t length : lengths)
    post(*pair_.client_qp, text_of(length, length), length <= pair_.can().max_copied);
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.completions.size() == lengths.size(); }));
  for (size_t i = 0; i != lengths.size(); ++i)
    EXPECT_EQ(pair_.server.completions[i].byte_length, lengths[i]);
  EXPECT_TRUE(server_.got.empty());
}

TEST_P(Lanes, AreFullUntilThePeerTakes) {
  for (const uint32_t length : {8u, 1000u}) {
    uint32_t sent = 0;
    while (say(to_server(), text_of(sent, length)))
      ASSERT_LT(++sent, 100'000u);
    EXPECT_GT(sent, 3u);
    EXPECT_FALSE(say(to_server(), text_of(sent, length)));
    to_server().flush();
    ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == sent; }));
    for (uint32_t i = 0; i != sent; ++i)
      ASSERT_EQ(server_.got[i], text_of(i, length));
    EXPECT_TRUE(say(to_server(), text_of(sent, length)));
    to_server().flush();
    ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == sent + 1; }));
    server_.got.clear();
  }
}

// A message that was begun is not visible until it is sent, and nothing else goes before it.
TEST_P(Lanes, HoldThePlaceOfAMessageThatWasBegun) {
  pair_.post_receives(*pair_.server_qp, 2);
  server_.wants = [](std::string_view text) { return number_of(text) != 1; };
  for (const uint32_t length : {8u, 1000u}) {
    std::byte* const place = to_server().begin(length);
    ASSERT_NE(place, nullptr);
    std::memset(place, 'x', length);
    const SendWr wr = plain_wr(8);
    EXPECT_EQ(to_server().begin(8), nullptr);
    EXPECT_EQ(pair_.client_qp->post_send({&wr, 1}), 0u);
    EXPECT_FALSE(pair_.client_qp->send_now(wr.spans(), 0));
    to_server().flush();
    for (int i = 0; i != 100; ++i)
      pair_.server.pump();
    EXPECT_EQ(server_.bursts, 0u);
    const std::string text = text_of(0, length);
    std::memcpy(place, text.data(), text.size());
    to_server().send(length);
    post(*pair_.client_qp, text_of(1));
    ASSERT_TRUE(pair_.pump_until([&] { return !pair_.server.completions.empty(); }));
    EXPECT_EQ(received(pair_.server.take_completions()[0]), text_of(1));
    EXPECT_EQ(server_.got, std::vector{text});
    server_.got.clear();
    server_.bursts = 0;
  }
  // Begun with more space than it needed.
  std::byte* const place = to_server().begin(4000);
  ASSERT_NE(place, nullptr);
  const std::string text = text_of(3, 12);
  std::memcpy(place, text.data(), text.size());
  to_server().send(static_cast<uint32_t>(text.size()));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return !server_.got.empty(); }));
  EXPECT_EQ(server_.got, std::vector{text});
}

TEST_P(Lanes, NeedNoReceives) {
  if (!pair_.can().waits_for_receives)
    GTEST_SKIP() << "a message without a Receive ends this device's connections";
  server_.wants = [](std::string_view text) { return number_of(text) != 2; };
  for (uint32_t i = 0; i != 4; ++i)
    ASSERT_TRUE(say(to_server(), text_of(i)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == 2; }));
  // The third waits for a Receive, and the fourth behind it. That keeps neither end awake.
  ASSERT_TRUE(pump_until({&pair_.server}, [&] { return pair_.server.cq->arm(); }));
  pair_.server.cq->disarm();
  EXPECT_EQ(server_.got.size(), 2u);
  pair_.post_receives(*pair_.server_qp, 1);
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == 3; }));
  ASSERT_EQ(pair_.server.completions.size(), 1u);
  EXPECT_EQ(received(pair_.server.completions[0]), text_of(2));
  EXPECT_EQ(server_.got[2], text_of(3));
}

// A user may return without looking: that counts as a refusal as well.
TEST_P(Lanes, LetTheReceiverSleepWhoseUserDoesNotLook) {
  if (!pair_.can().waits_for_receives)
    GTEST_SKIP() << "a message without a Receive ends this device's connections";
  server_.looks = false;
  ASSERT_TRUE(say(to_server(), text_of(1)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return server_.bursts != 0; }));
  ASSERT_TRUE(pump_until({&pair_.server}, [&] { return pair_.server.cq->arm(); }));
  pair_.server.cq->disarm();
  pair_.post_receives(*pair_.server_qp, 1);
  ASSERT_TRUE(pair_.pump_until([&] { return !pair_.server.completions.empty(); }));
  EXPECT_EQ(received(pair_.server.completions[0]), text_of(1));
  server_.bursts = 0;
  ASSERT_TRUE(say(to_server(), text_of(2)));
  to_server().flush();
  EXPECT_TRUE(pair_.pump_until([&] { return server_.bursts != 0; }))
      << "the next one is shown again";
  server_.looks = true;
  EXPECT_TRUE(pair_.pump_until([&] { return server_.got == std::vector{text_of(2)}; }));
}

TEST_P(Lanes, WaitWhileReceivesAreHeld) {
  if (!pair_.can().holds_receives || pair_.can().max_shared_receives == 0)
    GTEST_SKIP() << "this driver does not hold Receives";
  Pair shared(GetParam().new_uri(), {}, {}, /*server_srq=*/true);
  shared.server_qp->set_lane_user(&server_);
  shared.server_qp->hold_receives(true);
  ASSERT_TRUE(say(*shared.client_qp->lane(), text_of(1)));
  shared.client_qp->lane()->flush();
  ASSERT_TRUE(test::pump_until({&shared.server}, [&] { return shared.server.cq->arm(); }));
  shared.server.cq->disarm();
  EXPECT_EQ(server_.bursts, 0u);
  shared.server_qp->hold_receives(false);
  EXPECT_TRUE(shared.pump_until([&] { return server_.got == std::vector{text_of(1)}; }));
}

TEST_P(Lanes, KillTheKeyThatAMessageInvalidates) {
  for (const uint32_t length : {8u, 1000u}) {
    for (const bool wanted : {true, false}) {
      Pair pair(GetParam().new_uri());
      pair.server_qp->set_lane_user(&server_);
      server_.got.clear();
      server_.invalidated.clear();
      server_.wants = [&](std::string_view) { return wanted; };
      pair.post_receives(*pair.server_qp, 1);
      Buffer window = test_memory().get(4096);
      const uint32_t key = pair.expose(window.first(64), Rights::kRemoteRead);
      const SendWr read =
          access_wr(1, Op::kRead, buffer_.first(64), key, address_of(window.data()));
      EXPECT_EQ(pair.run(read).status, WcStatus::kSuccess);
      ASSERT_TRUE(say(*pair.client_qp->lane(), text_of(7, length), key));
      pair.client_qp->lane()->flush();
      ASSERT_TRUE(pair.pump_until(
          [&] { return wanted ? !server_.got.empty() : !pair.server.completions.empty(); }));
      if (wanted) {
        EXPECT_EQ(server_.got[0], text_of(7, length));
        EXPECT_EQ(server_.invalidated[0], key);
      } else {
        EXPECT_EQ(pair.server.completions[0].byte_length, length);
        EXPECT_TRUE(pair.server.completions[0].has_invalidated);
        EXPECT_EQ(pair.server.completions[0].invalidated_key, key);
      }
      EXPECT_EQ(pair.run(read).status, WcStatus::kRemoteAccess);
    }
  }
}

// Wherever the Write went, its data are there when the message behind it is seen.
TEST_P(Lanes, PlaceWritesInFrontOfTheirMessage) {
  constexpr uint32_t kBytes = 4096;
  Buffer sink = test_memory().get(kBytes);
  const uint32_t key = pair_.expose(sink.first(kBytes), Rights::kRemoteWrite);
  uint32_t wrong = 0;
  server_.then = [&](Lane&, std::string_view text) {
    const auto expected = static_cast<std::byte>(number_of(text));
    wrong += sink.data()[0] != expected || sink.data()[kBytes - 1] != expected ? 1 : 0;
  };
  for (uint32_t i = 1; i != 50; ++i) {
    std::memset(buffer_.data(), static_cast<int>(i), kBytes);
    const SendWr write =
        access_wr(i, Op::kWrite, buffer_.first(kBytes), key, address_of(sink.data()));
    ASSERT_EQ(pair_.client_qp->post_send({&write, 1}), 1u);
    ASSERT_TRUE(say(to_server(), text_of(i, i % 2 == 0 ? 8 : 1000)));
    to_server().flush();
    ASSERT_TRUE(pair_.pump_until(
        [&] { return server_.got.size() == i && pair_.client.completions.size() == i; }));
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_TRUE(pair_.server.completions.empty());
}

// The user of the other end may take its time with each message.
TEST_P(Lanes, TellOfAWriteThatWasPlacedBeforeItsMessageIsTaken) {
  if (!to_server().can_write())
    GTEST_SKIP() << "the driver for " << GetParam().name << " has no Writes in its lanes";
  constexpr uint32_t kBytes = 4096;
  Buffer sink = test_memory().get(kBytes);
  const uint32_t key = pair_.expose(sink.first(kBytes), Rights::kRemoteWrite);
  EXPECT_FALSE(to_server().untaken().any);
  std::vector<uint64_t> progress;
  server_.wants = [&](std::string_view) {
    const Lane::Untaken untaken = to_server().untaken();
    progress.push_back(untaken.progress);
    EXPECT_EQ(untaken.any, progress.size() == 1) << "of two Writes";
    return true;
  };
  for (uint32_t i = 1; i != 3; ++i) {
    const std::array source = {buffer_.first(kBytes)};
    ASSERT_TRUE(to_server().write(source, key, address_of(sink.data())));
    ASSERT_TRUE(say(to_server(), text_of(i)));
  }
  to_server().flush();
  EXPECT_TRUE(to_server().untaken().any);
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == 2; }));
  EXPECT_FALSE(to_server().untaken().any);
  EXPECT_TRUE(pair_.server.completions.empty());
}

class LanesWithWrites : public Lanes {
 protected:
  void SetUp() override {
    Lanes::SetUp();
    if (!IsSkipped() && !to_server().can_write())
      GTEST_SKIP() << "the driver for " << GetParam().name << " has no Writes in its lanes";
  }
  // Runs of odd lengths, with a byte between them, of which the last comes first in memory.
  std::vector<MemorySpan> runs(uint32_t count) {
    std::vector<MemorySpan> spans;
    uint32_t at = kSource;
    for (uint32_t i = 0; i != count; ++i) {
      const uint32_t length = 1 + i % 40;
      at -= length + 1;
      spans.push_back({source_.data() + at, length, source_.region()});
      for (uint32_t k = 0; k != length; ++k)
        expected_.push_back(source_.data()[at + k] = static_cast<std::byte>(i + k));
    }
    return spans;
  }
  bool arrived() const {
    return std::equal(expected_.begin(), expected_.end(), sink_.data()) &&
           sink_.data()[expected_.size()] == std::byte{};
  }

  static constexpr uint32_t kSource = 1 << 16;
  Buffer source_ = test_memory().get(kSource);
  Buffer sink_ = test_memory().get(kSource);
  std::vector<std::byte> expected_;
};
INSTANTIATE_TEST_SUITE_P(Fabric, LanesWithWrites, all_fabrics(), fabric_name);

TEST_P(LanesWithWrites, WriteManySpansAsOne) {
  const uint32_t key = pair_.expose(sink_.first(kSource), Rights::kRemoteWrite);
  for (const uint32_t count : {2u, 14u, 15u, 28u, 29u, 300u, 1024u}) {
    std::memset(sink_.data(), 0, kSource);
    expected_.clear();
    server_.then = [&](Lane&, std::string_view) { EXPECT_TRUE(arrived()) << count; };
    ASSERT_TRUE(to_server().write(runs(count), key, address_of(sink_.data()))) << count;
    ASSERT_TRUE(say(to_server(), text_of(count)));
    to_server().flush();
    ASSERT_TRUE(pair_.pump_until([&] { return !server_.got.empty(); }));
    server_.got.clear();
    EXPECT_FALSE(to_server().untaken().any);
  }
}

// A Write that is refused by its sender is not begun.
TEST_P(LanesWithWrites, ShowNothingOfSpansThatAreNotAllInOurMemory) {
  const uint32_t key = pair_.expose(sink_.first(kSource), Rights::kRemoteWrite);
  std::memset(sink_.data(), 0, kSource);
  std::array<std::byte, 8> heap;
  for (const MemorySpan& bad : {MemorySpan{heap.data(), heap.size(), source_.region()},
                                MemorySpan{source_.data(), 0, source_.region()}}) {
    std::vector<MemorySpan> spans = runs(40);
    spans.back() = bad;
    EXPECT_FALSE(to_server().write(spans, key, address_of(sink_.data())));
  }
  EXPECT_FALSE(to_server().untaken().any);
  ASSERT_TRUE(say(to_server(), text_of(1)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == 1; }));
  EXPECT_TRUE(std::all_of(sink_.data(), sink_.data() + kSource,
                          [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_P(LanesWithWrites, TakeNoMoreSpansThanThereIsRoomFor) {
  const uint32_t key = pair_.expose(sink_.first(kSource), Rights::kRemoteWrite);
  const std::vector<MemorySpan> spans = runs(300);
  uint32_t taken = 0;
  while (to_server().write(spans, key, address_of(sink_.data())) && say(to_server(), text_of(0)))
    ASSERT_LT(++taken, 1000u);
  EXPECT_GT(taken, 0u);
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return server_.got.size() == taken; }));
  EXPECT_TRUE(arrived());
  EXPECT_TRUE(to_server().write(spans, key, address_of(sink_.data())));
}

TEST_P(Lanes, EndTheConnectionForAnInvalidKey) {
  pair_.post_receives(*pair_.server_qp, 1);
  ASSERT_TRUE(say(to_server(), text_of(1), 0x1234'5678));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.client.has_event(EventType::kDisconnected); }));
  EXPECT_TRUE(server_.got.empty());
}

// Without a Receive, and although the sender is gone before the receiver looks.
TEST_P(Lanes, DeliverMessagesSentBeforeTheEnd) {
  for (uint32_t i = 0; i != 5; ++i)
    ASSERT_TRUE(say(to_server(), text_of(i)));
  to_server().flush();
  pair_.client_qp->disconnect();
  EXPECT_EQ(pair_.client_qp->lane(), nullptr);
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  EXPECT_EQ(server_.got.size(), 5u);
}

// The sender of messages that were taken in the burst that ends the connection learns that they
// arrived.
TEST_P(Lanes, AcknowledgeMessagesTakenBeforeTheEnd) {
  if (!pair_.acknowledges())
    GTEST_SKIP() << "Writes complete without the peer's acknowledgement here";
  Buffer sink = test_memory().get(4096);
  const uint32_t key = pair_.expose(sink.first(64), Rights::kRemoteWrite);
  server_.then = [&](Lane&, std::string_view) { pair_.server_qp->disconnect(); };
  const SendWr write = access_wr(1, Op::kWrite, buffer_.first(64), key, address_of(sink.data()));
  ASSERT_EQ(pair_.client_qp->post_send({&write, 1}), 1u);
  ASSERT_TRUE(say(to_server(), text_of(1)));
  to_server().flush();
  ASSERT_TRUE(pump_until({&pair_.server}, [&] { return !server_.got.empty(); }));
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.client.has_event(EventType::kDisconnected); }));
  ASSERT_EQ(pair_.client.completions.size(), 1u);
  EXPECT_EQ(pair_.client.completions[0].status, WcStatus::kSuccess);
}

TEST_P(Lanes, EndWithTheConnectionInTheMiddleOfABurst) {
  std::byte* begun = nullptr;
  server_.then = [&](Lane& lane, std::string_view text) {
    if (number_of(text) != 2)
      return;
    begun = lane.begin(8);
    pair_.server_qp->disconnect();
    lane.send(8);
    EXPECT_EQ(lane.begin(8), nullptr);
    EXPECT_FALSE(lane.peek());
  };
  for (uint32_t i = 0; i != 6; ++i)
    ASSERT_TRUE(say(to_server(), text_of(i)));
  to_server().flush();
  ASSERT_TRUE(pair_.pump_until([&] {
    return pair_.server.has_event(EventType::kDisconnected) &&
           pair_.client.has_event(EventType::kDisconnected);
  }));
  EXPECT_NE(begun, nullptr);
  EXPECT_EQ(server_.got.size(), 3u);
  EXPECT_EQ(client_.bursts, 0u);
  const uint32_t bursts = server_.bursts;
  for (int i = 0; i != 100; ++i)
    pair_.server.pump();
  EXPECT_EQ(server_.bursts, bursts);
}

// Two threads answer each other through their lanes and sleep in between, with pauses that let each
// message meet its receiver at another point on its way to sleep.
TEST_P(Lanes, WakeASleepingReceiver) {
  const uint32_t rounds = 20'000 * factor();
  constexpr uint64_t kLongestPauseNs = 12'000;
  std::atomic<bool> failed = false;
  const auto play = [&](End& end, QueuePair& qp, Taker& taker, uint32_t first) {
    std::mt19937_64 random(rrdk::test::run_seed() + first);
    uint32_t seen = 0;
    taker.then = [&](Lane& lane, std::string_view text) {
      const uint64_t until = base::Tsc::now_ns() + random() % kLongestPauseNs;
      while (base::Tsc::now_ns() < until) {
      }
      failed = failed || number_of(text) != 2 * seen + first ||
               !say(lane, text_of(number_of(text) + 1, number_of(text) % 5 == 0 ? 1000 : 8));
      taker.got.clear();
      ++seen;
    };
    if (first == 1) {
      failed = failed || !say(*qp.lane(), text_of(0));
      qp.lane()->flush();
    }
    const auto patience_ms = static_cast<int>(std::chrono::milliseconds(patience()).count());
    std::array<Completion, 4> none;
    while (seen != rounds && !failed) {
      failed = failed || end.cq->poll(none) != 0;
      if (seen == rounds || !end.cq->arm())
        continue;
      pollfd wake{end.cq->wake_fd(), POLLIN, 0};
      failed = failed || ::poll(&wake, 1, patience_ms) != 1;
      end.cq->disarm();
    }
  };
  std::thread one([&] { play(pair_.client, *pair_.client_qp, client_, 1); });
  std::thread other([&] { play(pair_.server, *pair_.server_qp, server_, 0); });
  one.join();
  other.join();
  EXPECT_FALSE(failed);
}

// From now on any system call except exit_group() ends this process.
bool allow_no_system_calls() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(code), .filter = code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Between two ends that do not sleep.
TEST_P(Lanes, MakeNoSystemCalls) {
  if (GetParam().name != std::string_view("shm"))
    GTEST_SKIP() << "system calls are what this fabric is made of";
  if (RRDK_ASAN || RRDK_TSAN)
    GTEST_SKIP() << "sanitizers make system calls of their own";
  constexpr int kNoFilters = 77;
  struct Echo final : LaneUser {
    void on_burst(Lane& lane, uint32_t most) noexcept override {
      for (; most != 0; --most) {
        const LaneMessage message = lane.peek();
        std::byte* const reply = message ? lane.begin(message.length()) : nullptr;
        if (reply == nullptr)
          return;
        message.copy(reply, 0, message.length());
        lane.take(message);
        lane.send(message.length());
        ++count;
      }
    }
    uint64_t count = 0;
  };
  Echo one, other;
  pair_.client_qp->set_lane_user(&one);
  pair_.server_qp->set_lane_user(&other);
  const auto polls = [&](uint64_t until) {
    std::array<Completion, 4> none;
    for (int i = 0; i != 100'000 && other.count < until; ++i) {
      pair_.server.cq->poll(none);
      pair_.client.cq->poll(none);
    }
  };
  ASSERT_TRUE(say(to_server(), text_of(1)));
  ASSERT_TRUE(say(to_server(), text_of(1, 1000)));
  to_server().flush();
  polls(10);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!allow_no_system_calls())
      ::_exit(kNoFilters);
    polls(1000);
    ::_exit(other.count >= 1000 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoFilters)
    GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace rrdk::fabric::test
