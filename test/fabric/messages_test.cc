// Sends and Receives: what arrives, in which order, and what happens to messages that cannot
// arrive.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"
#include "test/seed.h"

namespace rrdk::fabric::test {
namespace {

class Messages : public testing::TestWithParam<FabricUnderTest> {};
INSTANTIATE_TEST_SUITE_P(Fabric, Messages, all_fabrics(), fabric_name);

void fill(std::byte* data, size_t length, uint32_t seed) {
  for (size_t i = 0; i < length; ++i)
    data[i] = static_cast<std::byte>(seed + i * 7 + (i >> 8));
}

bool filled(const std::byte* data, size_t length, uint32_t seed) {
  for (size_t i = 0; i < length; ++i)
    if (data[i] != static_cast<std::byte>(seed + i * 7 + (i >> 8)))
      return false;
  return true;
}

TEST_P(Messages, ArriveWholeInEverySize) {
  Pair pair(GetParam().new_uri());
  Buffer from = test_memory().get(1 << 20);
  const uint32_t inline_size = std::min(pair.client.device->capabilities().max_inline, 100000u);
  uint32_t seed = 0;
  for (const uint32_t size : {0u, 1u, 3u, 4u, 100u, inline_size - 1, inline_size, inline_size + 1,
                              1024u, 4095u, 4096u, 65536u, 1u << 20}) {
    fill(from.data(), size, ++seed);
    pair.post_receives(*pair.server_qp, 1, 1 << 20);
    const Buffer& to = pair.receive_buffers.back();
    EXPECT_EQ(pair.run(send_wr(size, {from.first(size)})).status, WcStatus::kSuccess);
    ASSERT_TRUE(pair.pump_until([&] { return !pair.server.completions.empty(); }));
    const Completion got = pair.server.take_completions().at(0);
    EXPECT_EQ(got.status, WcStatus::kSuccess);
    EXPECT_EQ(got.byte_length, size);
    EXPECT_FALSE(got.has_invalidated);
    EXPECT_TRUE(filled(to.data(), size, seed)) << size;
    pair.receive_buffers.clear();
  }
}

TEST_P(Messages, GatherTheirPieces) {
  Pair pair(GetParam().new_uri());
  const uint32_t most = pair.client.device->capabilities().max_sges;
  Buffer from = test_memory().get(1 << 20);
  fill(from.data(), 1 << 20, 3);
  for (const uint32_t piece : {1u, 4u, 16u, 17u, 100u, 4000u}) {
    pair.post_receives(*pair.server_qp, 1, 1 << 20);
    SendWr wr = send_wr(1, {});
    for (uint32_t i = 0; i < most; ++i)  // gaps of one byte between the pieces
      wr.sges[wr.num_sges++] = {from.data() + i * (piece + 1), piece, from.region()};
    EXPECT_EQ(pair.run(wr).status, WcStatus::kSuccess);
    ASSERT_TRUE(pair.pump_until([&] { return !pair.server.completions.empty(); }));
    EXPECT_EQ(pair.server.take_completions().at(0).byte_length, most * piece);
    for (uint32_t i = 0; i < most; ++i)
      EXPECT_EQ(std::memcmp(pair.receive_buffers.back().data() + i * piece, wr.sges[i].data, piece),
                0);
    pair.receive_buffers.clear();
  }
}

// Their memory is free when they are posted, and nothing is reported about them, not even a flush.
TEST_P(Messages, ThatAreCopiedLeaveTheirMemoryAtOnceAndAreNotReported) {
  constexpr uint32_t kCount = 1000;
  constexpr uint32_t kPosted = 32;
  Pair pair(GetParam().new_uri(), {.send_wrs = 16}, {.receive_wrs = 64});
  const uint32_t most = pair.can().max_copied;
  if (most == 0)
    GTEST_SKIP() << "this driver copies no Sends when they are posted";
  Buffer from = test_memory().get(1 << 20);
  const auto length_of = [most](uint32_t i) { return 4 + i % (most - 3); };
  const auto copied = [&](uint32_t i) {
    const uint32_t half = length_of(i) / 2;
    SendWr wr =
        send_wr(i, {from.first(half), {from.data() + half, length_of(i) - half, from.region()}});
    wr.signaled = false;
    wr.quiet = wr.copied = true;
    return wr;
  };
  uint32_t received = 0;
  pair.post_receives(*pair.server_qp, kPosted);
  for (uint32_t sent = 0; received < kCount;) {
    if (sent < kCount) {
      fill(from.data(), length_of(sent), sent);
      const SendWr wr = copied(sent);
      sent += pair.client_qp->post_send({&wr, 1});
      std::fill_n(from.data(), most, std::byte{0});
    }
    pair.client.pump();
    pair.server.pump();
    for (const Completion& got : pair.server.take_completions()) {
      ASSERT_EQ(got.status, WcStatus::kSuccess);
      ASSERT_EQ(got.byte_length, length_of(received));
      ASSERT_TRUE(filled(pair.receive_buffers[received].data(), got.byte_length, received));
      pair.receive_buffers[received++].reset();
      pair.post_receives(*pair.server_qp, 1);
    }
  }
  EXPECT_TRUE(pair.client.take_completions().empty());
  EXPECT_EQ(pair.run(send_wr(kCount, {from.first(4)})).wr_id, kCount);
  pair.client_qp->disconnect();
  const SendWr late = copied(0);
  pair.client_qp->post_send({&late, 1});
  EXPECT_EQ(pair.run(send_wr(kCount + 1, {from.first(4)})).wr_id, kCount + 1);
}

// While the peer keeps up, none is refused, so none has to be posted, however many there are.
TEST_P(Messages, ThatGoAtOnceAreRefusedOnlyWhilePeersAreBehind) {
  constexpr uint32_t kCount = 3000;
  Pair pair(GetParam().new_uri(), {.send_wrs = 16}, {.receive_wrs = 64});
  Buffer from = test_memory().get(1 << 20);
  const auto send = [&](uint32_t length, uint32_t i) {
    fill(from.data(), length, i);
    const MemorySpan bytes = from.first(length);
    const bool sent = pair.client_qp->send_now({&bytes, 1}, 0);
    std::fill_n(from.data(), length, std::byte{0});
    pair.client_qp->post_send({});
    return sent;
  };
  uint32_t received = 0;
  const auto take = [&] {
    pair.server.pump();
    for (const Completion& got : pair.server.take_completions()) {
      ASSERT_EQ(got.status, WcStatus::kSuccess);
      ASSERT_TRUE(filled(pair.receive_buffers[received].data(), got.byte_length, received));
      pair.receive_buffers[received++].reset();
      pair.post_receives(*pair.server_qp, 1);
    }
  };
  pair.post_receives(*pair.server_qp, 32);
  if (!send(4, 0))
    GTEST_SKIP() << "this driver sends nothing at once";
  const uint32_t most = pair.can().max_copied;
  uint32_t sent = 1;
  for (; sent < kCount; ++sent) {
    ASSERT_TRUE(send(sent % 3 == 0 ? 4 : most - sent % 64, sent)) << sent;
    ASSERT_TRUE(pair.pump_until([&] { return take(), received == sent + 1; }));
  }
  while (send(most, sent))
    ASSERT_LT(++sent, 2 * kCount) << "without bounds";
  ASSERT_TRUE(pair.pump_until([&] { return take(), received == sent; }));
  EXPECT_TRUE(send(most, sent));
  pair.client_qp->disconnect();
  EXPECT_FALSE(send(most, sent + 1)) << "the connection is over";
}

TEST_P(Messages, DoNotGoAtOnceBeforeThereIsAConnection) {
  End end(GetParam().new_uri());
  std::unique_ptr<QueuePair> qp = end.queue_pair();
  Buffer from = test_memory().get(4096);
  for (const uint32_t length : {4u, 200u, 1000u}) {
    const MemorySpan bytes = from.first(length);
    EXPECT_FALSE(qp->send_now({&bytes, 1}, 0));
  }
}

// Many messages of all lengths before the peer looks, with others between them: those without space
// are not taken, and wait for the peer.
TEST_P(Messages, ThatAreCopiedWaitForRoomAndStayInOrder) {
  constexpr uint32_t kCount = 2000;
  constexpr uint32_t kPosted = 64;
  Pair pair(GetParam().new_uri(), {.send_wrs = 32}, {.receive_wrs = kPosted});
  const uint32_t most = pair.can().max_copied;
  if (most == 0)
    GTEST_SKIP() << "this driver copies no Sends when they are posted";
  std::mt19937 random(static_cast<uint32_t>(rrdk::test::run_seed()));
  std::vector<uint32_t> lengths(kCount);
  for (uint32_t& length : lengths)
    length =
        static_cast<uint32_t>(random() % 4 == 0 ? random() % (most + 1) : most - random() % 200);
  Buffer from = test_memory().get(1 << 20);
  std::vector<Buffer> lent(kCount);
  const auto post = [&](uint32_t i) {
    const bool copied = i % 7 != 3;
    if (!copied)
      lent[i] = test_memory().get(most);
    const MemorySpan bytes = (copied ? from : lent[i]).first(lengths[i]);
    fill(bytes.data, bytes.length, i);
    SendWr wr = send_wr(i, {bytes});
    wr.signaled = !copied;
    wr.quiet = wr.copied = copied;
    const uint32_t taken = pair.client_qp->post_send({&wr, 1});
    if (taken != 0 && copied)
      std::fill_n(bytes.data, bytes.length, std::byte{0});
    return taken;
  };
  uint32_t received = 0;
  pair.post_receives(*pair.server_qp, kPosted);
  for (uint32_t sent = 0; received < kCount;) {
    for (uint32_t burst = static_cast<uint32_t>(random() % 60); burst != 0 && sent < kCount;
         --burst)
      sent += post(sent);
    pair.client.pump();
    for (const Completion& done : pair.client.take_completions()) {
      ASSERT_EQ(done.status, WcStatus::kSuccess);
      lent[done.wr_id].reset();
    }
    if (random() % 3 == 0)
      continue;
    pair.server.pump();
    for (const Completion& got : pair.server.take_completions()) {
      ASSERT_EQ(got.status, WcStatus::kSuccess);
      ASSERT_EQ(got.byte_length, lengths[received]);
      ASSERT_TRUE(filled(pair.receive_buffers[received].data(), got.byte_length, received));
      pair.receive_buffers[received++].reset();
      pair.post_receives(*pair.server_qp, 1);
    }
  }
}

// If TCP, for example, has no space, they wait with all their bytes, however many there are.
TEST_P(Messages, ThatAreCopiedWaitBehindLargeOnes) {
  constexpr uint32_t kLarge = 6;
  constexpr uint32_t kSmall = 40;
  Pair pair(GetParam().new_uri(), {.send_wrs = 64}, {.receive_wrs = 64});
  const uint32_t most = pair.can().max_copied;
  if (most == 0)
    GTEST_SKIP() << "this driver copies no Sends when they are posted";
  pair.post_receives(*pair.server_qp, kLarge, 1 << 20);
  pair.post_receives(*pair.server_qp, kSmall);
  Buffer large = test_memory().get(1 << 20);
  Buffer small = test_memory().get(most);
  const auto length_of = [most](uint32_t i) { return i < kLarge ? 1 << 20 : most - i; };
  for (uint32_t i = 0; i < kLarge + kSmall; ++i) {
    const bool copied = i >= kLarge;
    const MemorySpan bytes = (copied ? small : large).first(length_of(i));
    if (copied || i == 0)
      fill(bytes.data, bytes.length, i);
    SendWr wr = send_wr(i, {bytes});
    wr.signaled = !copied;
    wr.quiet = wr.copied = copied;
    while (pair.client_qp->post_send({&wr, 1}) == 0) {
      pair.client.pump();
      pair.server.pump();
    }
    if (copied)
      std::fill_n(bytes.data, bytes.length, std::byte{0});
  }
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == kLarge + kSmall; }));
  const std::vector<Completion> all = pair.server.take_completions();
  for (uint32_t i = 0; i < kLarge + kSmall; ++i) {
    ASSERT_EQ(all[i].byte_length, length_of(i)) << i;
    EXPECT_TRUE(filled(pair.receive_buffers[i].data(), length_of(i), i < kLarge ? 0 : i)) << i;
  }
}

// The message for which the peer ends the connection says so, like any other, if it has not
// completed by then.
TEST_P(Messages, ThatAreCopiedReportWhatEndsTheConnection) {
  constexpr uint32_t kCount = 32;  // more than are done before the peer looks
  for (const bool copied : {false, true}) {
    Pair pair(GetParam().new_uri(), {.send_wrs = kCount / 2}, {.receive_wrs = kCount});
    if (pair.can().max_copied == 0 || !pair.acknowledges())
      GTEST_SKIP() << "this driver does not learn what became of Sends that it copied";
    Buffer from = test_memory().get(4096);
    pair.post_receives(*pair.server_qp, kCount - 1);
    pair.post_receives(*pair.server_qp, 1, 4);
    std::array<SendWr, kCount> wrs;
    for (SendWr& wr : wrs) {
      wr = send_wr(7, {from.first(8)});
      wr.signaled = false;
      wr.quiet = wr.copied = copied;
    }
    ASSERT_EQ(pair.client_qp->post_send(wrs), kCount);
    ASSERT_TRUE(pair.pump_until([&] { return pair.client.has_event(EventType::kDisconnected); }));
    ASSERT_TRUE(pair.pump_until([&] { return !pair.client.completions.empty(); }));
    const std::vector<Completion> reported = pair.client.take_completions();
    ASSERT_EQ(reported.size(), 1u);
    EXPECT_EQ(reported[0].status, WcStatus::kRemoteInvalid);
    EXPECT_EQ(reported[0].wr_id, 7u);
  }
}

// Shows: V1-MEM-02
TEST_P(Messages, ArriveInOrder) {
  Pair pair(GetParam().new_uri(), {.send_wrs = 64}, {.receive_wrs = 64});
  constexpr uint32_t kCount = 5000;
  Buffer from = test_memory().get(1 << 20);
  uint32_t sent = 0;
  uint32_t received = 0;
  uint32_t completed = 0;
  constexpr uint32_t kPosted = 32;
  pair.post_receives(*pair.server_qp, kPosted);
  const auto may_send = [&] {
    return sent < kCount && sent - completed < 64 &&
           (pair.can().waits_for_receives || sent - received < kPosted);
  };
  while (received < kCount) {
    // Small and large messages in turn; a part of the buffer is written again only when its Send is
    // complete.
    SendWr wr = send_wr(
        sent, {{from.data() + (sent % 64) * 4096, sent % 3 == 0 ? 1000u : 4u, from.region()}});
    if (may_send()) {
      std::memcpy(wr.sges[0].data, &sent, sizeof(sent));
      sent += pair.client_qp->post_send(std::span(&wr, 1));
    }
    pair.client.pump();
    for (const Completion& c : pair.client.take_completions()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      ASSERT_EQ(c.wr_id, completed++);
    }
    pair.server.pump();
    for (const Completion& c : pair.server.take_completions()) {
      ASSERT_EQ(c.status, WcStatus::kSuccess);
      uint32_t number;
      std::memcpy(&number, pair.receive_buffers[c.wr_id].data(), sizeof(number));
      ASSERT_EQ(number, received++);
      const ReceiveWr again{c.wr_id, pair.receive_buffers[c.wr_id].span()};
      ASSERT_EQ(pair.server_qp->post_receive(std::span(&again, 1)), 1u);
    }
  }
  ASSERT_TRUE(
      pair.pump_until([&] { return completed + pair.client.completions.size() == kCount; }));
}

TEST_P(Messages, WaitForALateReceive) {
  Pair pair(GetParam().new_uri());
  if (!pair.can().waits_for_receives)
    GTEST_SKIP() << "a message without a Receive ends this device's connections";
  Buffer from = test_memory().get(4096);
  fill(from.data(), 4096, 9);
  std::vector<SendWr> wrs = {send_wr(0, {from.first(10)}), send_wr(1, {from.first(4096)})};
  ASSERT_EQ(pair.client_qp->post_send(wrs), 2u);
  for (int i = 0; i < 3000; ++i) {
    pair.client.pump();
    pair.server.pump();
  }
  EXPECT_TRUE(pair.server.completions.empty());
  EXPECT_TRUE(pair.counted("rnr_waits", 1));
  pair.post_receives(*pair.server_qp, 2);
  ASSERT_TRUE(pair.pump_until(
      [&] { return pair.server.completions.size() == 2 && pair.client.completions.size() == 2; }));
  EXPECT_EQ(pair.server.completions[0].byte_length, 10u);
  EXPECT_EQ(pair.server.completions[1].byte_length, 4096u);
  EXPECT_TRUE(filled(pair.receive_buffers[1].data(), 4096, 9));
}

TEST_P(Messages, BatchesAreTakenAsFarAsThereIsRoom) {
  constexpr uint32_t kSends = 40;
  Pair few(GetParam().new_uri(), {.send_wrs = 16}, {.receive_wrs = 8});
  Buffer buffer = test_memory().get(4096);
  std::vector<ReceiveWr> receives(2 * kSends, ReceiveWr{0, buffer.first(4096)});
  EXPECT_EQ(few.server_qp->post_receive(receives), 8u);
  // One Receive for each message on fabrics that need one.
  Pair many(GetParam().new_uri(), {.send_wrs = 16}, {.receive_wrs = kSends});
  Pair& pair = few.can().waits_for_receives ? few : many;
  EXPECT_EQ(many.server_qp->post_receive(receives), kSends);
  std::vector<SendWr> sends;
  for (uint64_t i = 0; i < kSends; ++i)
    sends.push_back(send_wr(i, {buffer.first(2000)}));
  const uint32_t first = pair.client_qp->post_send(sends);
  EXPECT_EQ(first, 16u);
  EXPECT_EQ(pair.client_qp->post_send(std::span(sends).subspan(first)), 0u);
  uint32_t posted = first;
  uint64_t completed = 0;
  uint64_t received = 0;
  ASSERT_TRUE(pair.pump_until([&] {
    posted += pair.client_qp->post_send(std::span(sends).subspan(posted));
    for (const Completion& c : pair.client.take_completions())
      EXPECT_EQ(c.wr_id, completed++);
    for ([[maybe_unused]] const Completion& c : pair.server.take_completions()) {
      ++received;
      pair.server_qp->post_receive(std::span(receives).first(1));
    }
    return completed == kSends && received == kSends;
  }));
}

TEST_P(Messages, CanBePolledOneAtATime) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 8);
  Buffer from = test_memory().get(4096);
  std::vector<SendWr> sends(8, send_wr(1, {from.first(8)}));
  ASSERT_EQ(pair.client_qp->post_send(sends), 8u);
  std::array<Completion, 1> out;
  uint32_t got = 0;
  const auto limit = std::chrono::steady_clock::now() + patience();
  while (got < 8 && std::chrono::steady_clock::now() < limit)
    got += pair.server.cq->poll(out);
  EXPECT_EQ(got, 8u);
  EXPECT_EQ(pair.server.cq->poll({}), 0u);
}

TEST_P(Messages, UnsignaledSendsSayNothing) {
  Pair pair(GetParam().new_uri(), {.send_wrs = 8});
  pair.post_receives(*pair.server_qp, 32);
  Buffer from = test_memory().get(4096);
  for (uint64_t i = 0; i < 32; ++i) {
    SendWr wr = send_wr(i, {from.first(i % 2 == 0 ? 10 : 3000)});
    wr.signaled = i % 4 == 3;
    ASSERT_TRUE(pair.pump_until([&] { return pair.client_qp->post_send(std::span(&wr, 1)) == 1; }));
  }
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.completions.size() == 8; }));
  for (const Completion& c : pair.client.completions)
    EXPECT_EQ(c.wr_id % 4, 3u);
}

TEST_P(Messages, LongerThanTheReceiveEndTheConnection) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 2, 1024);
  Buffer from = test_memory().get(4096);
  const WcStatus sent = pair.run(send_wr(1, {from.first(1025)})).status;
  // Some devices do not tell the sender the reason.
  if (pair.can().counts_causes || sent != WcStatus::kRemoteOperation) {
    EXPECT_EQ(sent, pair.acknowledges() ? WcStatus::kRemoteInvalid : WcStatus::kSuccess);
  }
  ASSERT_TRUE(pair.pump_until([&] {
    return pair.server.completions.size() == 2 && pair.server.has_event(EventType::kDisconnected) &&
           pair.client.has_event(EventType::kDisconnected);
  }));
  EXPECT_EQ(pair.server.completions[0].status, WcStatus::kLocalLength);
  EXPECT_EQ(pair.server.completions[1].status, WcStatus::kFlushed);
}

// The receiver has them, and either end disconnects before the sender has looked.
TEST_P(Messages, ThatWereReceivedAreNotReportedFlushed) {
  for (const bool sender_ends : {false, true}) {
    Pair pair(GetParam().new_uri());
    if (!pair.acknowledges())
      GTEST_SKIP() << "Sends complete without the peer's acknowledgement here";
    if (sender_ends && !pair.can().counts_causes)
      return;  // the device's acknowledgement may still be on its way
    constexpr uint32_t kSends = 4;
    pair.post_receives(*pair.server_qp, kSends - 1);
    Buffer from = test_memory().get(4096);
    const std::vector<SendWr> sends(kSends, send_wr(1, {from.first(4096)}));
    ASSERT_EQ(pair.client_qp->post_send(sends), kSends);
    ASSERT_TRUE(test::pump_until({&pair.server},
                                 [&] { return pair.server.completions.size() == kSends - 1; }));
    (sender_ends ? pair.client_qp : pair.server_qp)->disconnect();
    ASSERT_TRUE(pair.pump_until([&] { return pair.client.completions.size() == kSends; }));
    for (uint32_t i = 0; i != kSends - 1; ++i)
      EXPECT_EQ(pair.client.completions[i].status, WcStatus::kSuccess) << i;
    EXPECT_NE(pair.client.completions[kSends - 1].status, WcStatus::kSuccess);
  }
}

// Even if the event is handled before the completion queue is polled.
TEST_P(Messages, SentBeforeTheEndAreReceived) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.client_qp, 16);
  Buffer from = test_memory().get(4096);
  std::vector<SendWr> sends(8, send_wr(1, {from.first(8)}));
  ASSERT_EQ(pair.server_qp->post_send(sends), 8u);
  ASSERT_TRUE(
      test::pump_until({&pair.server}, [&] { return pair.server.completions.size() == 8; }));
  pair.server_qp->disconnect();
  for (int i = 0; i < 100; ++i) {
    for (const Event& event : pair.client.device->poll_events(16)) {
      if (event.type == EventType::kDisconnected)
        pair.client_qp->disconnect();
    }
  }
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.completions.size() == 16; }));
  for (size_t i = 0; i < 16; ++i)
    EXPECT_EQ(pair.client.completions[i].status, i < 8 ? WcStatus::kSuccess : WcStatus::kFlushed);
}

// Stops a thread wherever it is: it stays in a signal handler, and leaves the CPU to the thread
// that will release it.
std::atomic<bool> is_stopped = false;
std::atomic<bool> may_go_on = false;
void stop_here(int) {
  is_stopped = true;
  while (!may_go_on) {
    const timespec nap{.tv_sec = 0, .tv_nsec = 50'000};
    ::nanosleep(&nap, nullptr);
  }
}

// The message comes, and its sender goes, between one instruction of the receiver's poll and the
// next.
TEST_P(Messages, PollingAtAnyMomentLosesNoneSentBeforeTheEnd) {
  struct sigaction stops{}, before{};
  stops.sa_handler = stop_here;
  ASSERT_EQ(::sigaction(SIGUSR1, &stops, &before), 0);
  Pair pair(GetParam().new_uri());
  Buffer from = test_memory().get(4096);
  Buffer to = test_memory().get(4096);
  std::mt19937_64 random(rrdk::test::run_seed());
  const int rounds = emulated() ? 5 : 300;
  for (int round = 0; round != rounds; ++round) {
    auto [leaves, left] = pair.connect();
    const ReceiveWr receive = {0, to.first(4096)};
    ASSERT_EQ(left->post_receive(std::span(&receive, 1)), 1u);
    is_stopped = may_go_on = false;
    std::atomic<bool> has_ended = false;
    Completion first{};
    first.status = WcStatus::kPeerLost;
    const auto receive_one = [&] {
      // The signal comes to this thread soon after it has begun to poll.
      sigevent here{};
      here.sigev_notify = SIGEV_THREAD_ID;
      here.sigev_signo = SIGUSR1;
      here._sigev_un._tid = ::gettid();
      timer_t timer;
      ASSERT_EQ(::timer_create(CLOCK_MONOTONIC, &here, &timer), 0) << std::strerror(errno);
      itimerspec soon{};
      soon.it_value.tv_nsec = static_cast<long>(2000 + random() % 10000);
      ASSERT_EQ(::timer_settime(timer, 0, &soon, nullptr), 0);
      while (pair.server.cq->poll(std::span(&first, 1)) == 0) {
      }
      ::timer_delete(timer);
    };
    std::thread receiver([&] {
      receive_one();
      has_ended = true;
    });
    while (!is_stopped && !has_ended)
      std::this_thread::yield();
    const SendWr wr = send_wr(1, {from.first(8)});
    EXPECT_EQ(leaves->post_send(std::span(&wr, 1)), 1u);
    EXPECT_TRUE(test::pump_until({&pair.client}, [&] { return !pair.client.completions.empty(); }));
    leaves->disconnect();
    may_go_on = true;
    receiver.join();
    ASSERT_TRUE(is_stopped) << "round " << round << ": the receiver ended before its signal";
    ASSERT_EQ(first.status, WcStatus::kSuccess)
        << "round " << round << ", " << to_string(first.status) << "; at the sender: "
        << to_string(pair.client.completions.empty() ? WcStatus::kPeerLost
                                                     : pair.client.completions[0].status);
    pair.client.completions.clear();
    ASSERT_TRUE(pair.pump_until([&] {
      return pair.client.has_event(EventType::kDisconnected) &&
             pair.server.has_event(EventType::kDisconnected);
    }));
    pair.client.events.clear();
    pair.server.events.clear();
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

// Both are there when the receiver polls for the first time, and another connection keeps it busy.
TEST_P(Messages, AnEndRightBehindAMessageIsSeen) {
  constexpr uint32_t kBusy = 200;
  Pair pair(GetParam().new_uri());
  int name = 7;
  auto [leaves, left] = pair.connect({}, {.owner = &name});
  pair.post_receives(*left, 2);
  Buffer from = test_memory().get(4096);
  Buffer to = test_memory().get(4096);
  const SendWr wr = send_wr(1, {from.first(8)});
  const ReceiveWr receive = {0, to.first(4096)};
  ASSERT_EQ(leaves->post_send(std::span(&wr, 1)), 1u);
  ASSERT_TRUE(test::pump_until({&pair.client}, [&] { return !pair.client.completions.empty(); }));
  leaves->disconnect();
  ASSERT_TRUE(test::pump_until({&pair.client},
                               [&] { return pair.client.has_event(EventType::kDisconnected); }));
  // A guest's kernel takes its own time to report the end, however many messages pass meanwhile.
  const auto limit = std::chrono::steady_clock::now() + patience();
  const auto may_go_by = [&](uint32_t messages) {
    return emulated() ? std::chrono::steady_clock::now() < limit : messages < kBusy;
  };
  for (uint32_t i = 0; may_go_by(i) && !pair.server.has_event(EventType::kDisconnected); ++i) {
    ASSERT_EQ(pair.server_qp->post_receive(std::span(&receive, 1)), 1u);
    ASSERT_TRUE(pair.pump_until([&] { return pair.client_qp->post_send(std::span(&wr, 1)) == 1; }));
    const size_t before = pair.server.completions.size();
    ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() > before; }));
  }
  ASSERT_TRUE(pair.server.has_event(EventType::kDisconnected));
  EXPECT_EQ(pair.server.take_event(EventType::kDisconnected).owner, &name);
  auto its_own = std::ranges::find(pair.server.completions, &name, &Completion::owner);
  ASSERT_NE(its_own, pair.server.completions.end());
  EXPECT_EQ(its_own->status, WcStatus::kSuccess);
}

TEST_P(Messages, SharedReceiveQueueServesAll) {
  Pair pair(GetParam().new_uri(), {}, {}, /*server_srq=*/true);
  int one = 1;
  int two = 2;
  auto a = pair.connect({}, {.srq = pair.server.srq.get(), .owner = &one});
  auto b = pair.connect({}, {.srq = pair.server.srq.get(), .owner = &two});
  Buffer from = test_memory().get(4096);
  Buffer to = test_memory().get(1 << 20);
  // Both have a message before there is a Receive.
  const SendWr wr = send_wr(1, {from.first(500)});
  const auto send_both = [&] {
    ASSERT_EQ(a.first->post_send(std::span(&wr, 1)), 1u);
    ASSERT_EQ(b.first->post_send(std::span(&wr, 1)), 1u);
  };
  if (pair.can().waits_for_receives)
    send_both();
  for (int i = 0; i < 3000; ++i)
    pair.server.pump();
  EXPECT_TRUE(pair.server.completions.empty());
  std::vector<ReceiveWr> receives;
  for (uint64_t i = 0; i < 4; ++i)
    receives.push_back({i, {to.data() + i * 4096, 4096, to.region()}});
  ASSERT_EQ(pair.server.srq->post(receives), 4u);
  if (!pair.can().waits_for_receives)
    send_both();
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == 2; }));
  EXPECT_NE(pair.server.completions[0].owner, pair.server.completions[1].owner);
  // Memory that one connection gives back is used by another.
  a.second->disconnect();
  ASSERT_EQ(b.first->post_send(std::vector<SendWr>(2, wr)), 2u);
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == 4; }));
  EXPECT_EQ(pair.server.completions[3].owner, &two);
  std::set<uint64_t> used;
  for (const Completion& completion : pair.server.completions)
    used.insert(completion.wr_id);
  EXPECT_EQ(used.size(), 4u);
}

TEST_P(Messages, IdleConnectionsAreServedWhenTheySpeak) {
  Pair pair(GetParam().new_uri(), {}, {}, /*server_srq=*/true);
  constexpr size_t kCount = 200;
  std::vector<std::unique_ptr<QueuePair>> clients;
  std::vector<std::unique_ptr<QueuePair>> servers;
  std::vector<size_t> names(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    auto [c, s] =
        pair.connect({.send_wrs = 4, .receive_wrs = 4, .keys = 4},
                     {.srq = pair.server.srq.get(), .send_wrs = 4, .keys = 4, .owner = &names[i]});
    clients.push_back(std::move(c));
    servers.push_back(std::move(s));
  }
  Buffer buffer = test_memory().get(4096);
  const std::vector<ReceiveWr> receives(8, ReceiveWr{0, buffer.first(4096)});
  // Long enough that all are polled only when their doorbells ring.
  std::array<Completion, 4> none;
  for (int i = 0; i < 2500; ++i)
    ASSERT_EQ(pair.server.cq->poll(none), 0u);
  for (size_t step = 0; step < 2 * kCount; ++step) {
    const size_t i = step * 37 % kCount;
    ASSERT_EQ(pair.server.srq->post(std::span(receives).first(1)), 1u);
    const SendWr wr = send_wr(i, {buffer.first(16)});
    ASSERT_EQ(clients[i]->post_send(std::span(&wr, 1)), 1u);
    ASSERT_TRUE(pair.pump_until([&] { return !pair.server.completions.empty(); }));
    ASSERT_EQ(pair.server.take_completions().at(0).owner, &names[i]);
  }
}

TEST_P(Messages, BothWaysAtOnce) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 8);
  pair.post_receives(*pair.client_qp, 8);
  Buffer from = test_memory().get(4096);
  const std::vector<SendWr> wrs(8, send_wr(7, {from.first(3000)}));
  ASSERT_EQ(pair.client_qp->post_send(wrs), 8u);
  ASSERT_EQ(pair.server_qp->post_send(wrs), 8u);
  ASSERT_TRUE(pair.pump_until([&] {
    return pair.server.completions.size() == 16 && pair.client.completions.size() == 16;
  }));
  for (const Completion& c : pair.client.completions)
    EXPECT_EQ(c.status, WcStatus::kSuccess);
}

}  // namespace
}  // namespace rrdk::fabric::test
