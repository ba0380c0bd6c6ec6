// Sleeping on the wake-up descriptor instead of polling: no wake-up may be lost.
#include <poll.h>
#include <sched.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/clock.h"
#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"
#include "test/seed.h"

namespace rrdk::fabric::test {
namespace {

class WakeUp : public testing::TestWithParam<FabricUnderTest> {};
INSTANTIATE_TEST_SUITE_P(Fabric, WakeUp, all_fabrics(), fabric_name);

int patience_ms() {
  return static_cast<int>(std::chrono::milliseconds(patience()).count());
}

bool readable(int fd, int timeout_ms = 0) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, timeout_ms) == 1;
}

bool becomes_readable(int fd) {
  return readable(fd, patience_ms());
}

bool either_readable(int a, int b) {
  std::array<pollfd, 2> both = {pollfd{a, POLLIN, 0}, pollfd{b, POLLIN, 0}};
  return ::poll(both.data(), both.size(), patience_ms()) > 0;
}

// Polls; sleeps until woken if nothing has come. Returns false if nothing came for far too long.
bool sleep_until_completion(CompletionQueue& cq, std::span<Completion> out) {
  for (;;) {
    if (cq.poll(out.first(1)) != 0)
      return true;
    if (!cq.arm())
      continue;
    const bool woken = becomes_readable(cq.wake_fd());
    cq.disarm();
    if (!woken)
      return false;
  }
}

TEST_P(WakeUp, ArmSaysWhenThereIsSomethingAlready) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 1);
  Buffer buffer = test_memory().get(4096);
  const SendWr wr = send_wr(1, {buffer.first(8)});
  ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  ASSERT_TRUE(pair.pump_until([&] { return !pair.client.completions.empty(); }));
  ASSERT_TRUE(pair.pump_until([&] { return !pair.server.completions.empty(); }));
  // Nothing is left on either side.
  ASSERT_TRUE(pair.server.cq->arm());
  EXPECT_FALSE(readable(pair.server.cq->wake_fd()));
  pair.post_receives(*pair.server_qp, 1);
  ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  EXPECT_TRUE(becomes_readable(pair.server.cq->wake_fd()));
  pair.server.cq->disarm();
  EXPECT_FALSE(readable(pair.server.cq->wake_fd()));
  EXPECT_FALSE(pair.server.cq->arm());
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == 2; }));
  // Not only after it was asleep: this one comes while the connection is being polled.
  pair.post_receives(*pair.server_qp, 1);
  ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  EXPECT_TRUE(!pair.server.cq->arm() || becomes_readable(pair.server.cq->wake_fd()));
}

// A driver may notice messages on a connection that is polled for long by other means than on one
// that was asleep.
TEST_P(WakeUp, ComesAlsoAfterLongPolling) {
  constexpr int kMany = 2000;
  Pair pair(GetParam().new_uri(), {}, {.receive_wrs = 16});
  Buffer buffer = test_memory().get(4096);
  const SendWr wr = send_wr(1, {buffer.first(8)});
  pair.post_receives(*pair.server_qp, 16);
  for (size_t received = 1; received != 4; ++received) {
    for (int i = 0; i != kMany; ++i)
      pair.server.pump();
    ASSERT_TRUE(pair.server.cq->arm());
    EXPECT_FALSE(readable(pair.server.cq->wake_fd()));
    ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
    EXPECT_TRUE(becomes_readable(pair.server.cq->wake_fd()));
    pair.server.cq->disarm();
    ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == received; }));
  }
  // It does not sleep when it comes, but did before.
  for (int i = 0; i != kMany; ++i)
    pair.server.pump();
  ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  EXPECT_TRUE(!pair.server.cq->arm() || becomes_readable(pair.server.cq->wake_fd()));
  pair.server.cq->disarm();
  for (int i = 0; i != kMany; ++i)
    pair.server.pump();
  pair.client_qp->disconnect();
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kDisconnected); }));
}

TEST_P(WakeUp, AMessageWithoutAReceiveDoesNotKeepAwake) {
  Pair pair(GetParam().new_uri());
  if (!pair.can().waits_for_receives)
    GTEST_SKIP() << "a message without a Receive ends this device's connections";
  Buffer buffer = test_memory().get(4096);
  const SendWr wr = send_wr(1, {buffer.first(8)});
  ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  for (int i = 0; i < 10; ++i)
    pair.server.pump();
  EXPECT_TRUE(pair.server.cq->arm());
  pair.server.cq->disarm();
  pair.post_receives(*pair.server_qp, 1);
  ASSERT_TRUE(pair.pump_until([&] { return !pair.server.completions.empty(); }));
}

TEST_P(WakeUp, ASleepingSenderLearnsOfItsCompletion) {
  Pair pair(GetParam().new_uri());
  Buffer buffer = test_memory().get(4096);
  const SendWr wr = send_wr(1, {buffer.first(4096)});
  ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  pair.client.pump();
  if (!pair.acknowledges())
    return;  // it is complete already
  ASSERT_TRUE(pump_until({&pair.client}, [&] { return pair.client.cq->arm(); }));
  EXPECT_FALSE(readable(pair.client.cq->wake_fd()));
  pair.post_receives(*pair.server_qp, 1);
  ASSERT_TRUE(pump_until({&pair.server}, [&] { return !pair.server.completions.empty(); }));
  EXPECT_TRUE(becomes_readable(pair.client.cq->wake_fd()));
  pair.client.cq->disarm();
}

// A copied Send that was refused because the peer takes nothing.
TEST_P(WakeUp, ASleepingSenderLearnsThatMoreIsTaken) {
  Pair pair(GetParam().new_uri(), {.send_wrs = 16});
  const uint32_t most = pair.can().max_copied;
  if (most == 0)
    GTEST_SKIP() << "this driver copies no Sends when they are posted";
  Buffer buffer = test_memory().get(4096);
  SendWr wr = send_wr(1, {buffer.first(most)});
  wr.signaled = false;
  wr.quiet = wr.copied = true;
  ASSERT_TRUE(pump_until({&pair.client}, [&] { return pair.client.cq->arm(); }));
  pair.client.cq->disarm();
  for (uint32_t refused = 0; refused < 10;)
    refused = pair.client_qp->post_send({&wr, 1}) != 0 ? 0 : refused + 1;
  if (!pair.client.cq->arm()) {
    ASSERT_TRUE(pump_until({&pair.client}, [&] { return pair.client.cq->arm(); }));
  }
  EXPECT_FALSE(readable(pair.client.cq->wake_fd()));
  pair.post_receives(*pair.server_qp, 1);
  while (!readable(pair.client.cq->wake_fd())) {
    ASSERT_TRUE(pump_until({&pair.server}, [&] {
      return !pair.server.completions.empty() || readable(pair.client.cq->wake_fd());
    }));
    for (const Completion& got : pair.server.take_completions()) {
      pair.receive_buffers[got.wr_id].reset();
      pair.post_receives(*pair.server_qp, 1);
    }
  }
  pair.client.cq->disarm();
  EXPECT_TRUE(pump_until({&pair.client}, [&] { return pair.client_qp->post_send({&wr, 1}) == 1; }));
}

TEST_P(WakeUp, TheEndOfThePeerWakes) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 1);
  for (int i = 0; i < 10; ++i)
    pair.server.pump();
  ASSERT_TRUE(pair.server.cq->arm());
  pair.client_qp->disconnect();
  // Either may be the first: some drivers see it on the data path; with others the flush begins
  // when the control path has noticed it.
  while (!pair.server.has_event(EventType::kDisconnected) || pair.server.completions.empty()) {
    ASSERT_TRUE(either_readable(pair.server.cq->wake_fd(), pair.server.device->event_fd()));
    do {
      pair.server.cq->disarm();
      pair.server.pump();
    } while (!pair.server.cq->arm());
  }
}

TEST_P(WakeUp, EventsMakeTheEventDescriptorReadable) {
  Pair pair(GetParam().new_uri());
  auto qp = pair.client.queue_pair();
  for (int i = 0; i < 100; ++i) {
    pair.client.pump();
    pair.server.pump();
  }
  EXPECT_FALSE(readable(pair.server.device->event_fd()));
  ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, {}));
  // Connecting has several steps, each with an event at the client.
  EXPECT_TRUE(pump_until({&pair.client}, [&] { return readable(pair.server.device->event_fd()); }));
}

// Pins the calling thread to the CPU with this number among those that it may use.
void pin_to(uint32_t number) {
  cpu_set_t all;
  CPU_ZERO(&all);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(all), &all), 0);
  number %= static_cast<uint32_t>(CPU_COUNT(&all));
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || number-- != 0)
      continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    return;
  }
}

// Two threads answer each other and sleep in between, with small and large messages in turn. They
// run on their own CPUs, with pauses that let each message meet its receiver at another point on
// its way to sleep.
TEST_P(WakeUp, IsNeverLost) {
  const uint32_t rounds = emulated() ? 2000 : 20000;
  constexpr uint64_t kLongestPauseNs = 12000;
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 8);
  pair.post_receives(*pair.client_qp, 8);
  Buffer ping = test_memory().get(4096);
  Buffer pong = test_memory().get(4096);
  std::atomic<bool> failed{false};
  const auto play = [&](End& end, QueuePair& qp, const Buffer& buffer, bool first) {
    Completion out{};
    uint32_t sends = 0;
    std::mt19937_64 random(rrdk::test::run_seed() + (first ? 1 : 0));
    pin_to(first ? 0 : 1);
    const auto send = [&] {
      const uint64_t until = base::Tsc::now_ns() + random() % kLongestPauseNs;
      while (base::Tsc::now_ns() < until) {
      }
      const SendWr wr = send_wr(sends, {buffer.first(sends % 3 == 0 ? 1000u : 8u)});
      ++sends;
      failed = failed || qp.post_send(std::span(&wr, 1)) != 1;
    };
    if (first)
      send();
    for (uint32_t received = 0; received < rounds && !failed;) {
      if (!sleep_until_completion(*end.cq, std::span(&out, 1)) ||
          out.status != WcStatus::kSuccess) {
        failed = true;
      } else if (out.op == Op::kReceive) {
        ++received;
        const ReceiveWr again{out.wr_id, pair.receive_buffers[out.wr_id].first(4096)};
        failed = failed || qp.post_receive(std::span(&again, 1)) != 1;
        if (sends < rounds)
          send();
      }
    }
  };
  std::thread one([&] { play(pair.client, *pair.client_qp, ping, true); });
  std::thread other([&] { play(pair.server, *pair.server_qp, pong, false); });
  one.join();
  other.join();
  EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace rrdk::fabric::test
