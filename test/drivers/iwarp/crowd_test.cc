// Peers that come in numbers, take their time, or do not stop.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <vector>

#include "drivers/iwarp/device.h"
#include "test/drivers/iwarp/raw_client.h"

namespace rrdk::iwarp::test {
namespace {

using Crowd = RawClient;
using namespace std::chrono_literals;

Device& device_of(Pair& pair) {
  return static_cast<Device&>(*pair.server.device);
}

// What waits longest leaves; whoever sends its request is served.
TEST_F(Crowd, PeersThatNeverAskDoNotKeepOthersOut) {
  constexpr size_t kMost = 1024;
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit before = files;
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 8192);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  if (files.rlim_cur < 4096)
    GTEST_SKIP() << "only " << files.rlim_cur << " file descriptors";
  std::vector<RawPeer> silent;
  for (size_t i = 0; i != kMost + 100; ++i) {
    silent.emplace_back(pair_.uri);
    pair_.server.pump();
  }
  ASSERT_TRUE(until([&] { return pair_.server.counter("visitors_dropped") >= 100; }));
  EXPECT_LE(device_of(pair_).visitors().size(), kMost);
  peer_ = RawPeer(pair_.uri);
  connect();
  peer_.say(send(1, payload(8)));
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() == 1; }));
  silent.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(Crowd, ARequestHasSoMuchTime) {
  const Bytes frame = encode(request());
  peer_.say(Bytes(frame.begin(), frame.begin() + 10));
  ASSERT_TRUE(until([&] { return !device_of(pair_).visitors().empty(); }));
  const std::lock_guard lock(device_of(pair_).control().mutex());
  device_of(pair_).visitors().front()->on_tick(drivers::Clock::now() + 9s);
  EXPECT_EQ(device_of(pair_).visitors().size(), 1u);
  // What comes meanwhile gives it no more.
  peer_.say(Bytes(frame.begin() + 10, frame.begin() + 12));
  pair_.server.pump();
  device_of(pair_).visitors().front()->on_tick(drivers::Clock::now() + 11s);
  EXPECT_TRUE(device_of(pair_).visitors().empty());
  EXPECT_EQ(pair_.server.counter("handshakes_late"), 1u);
}

TEST_F(Crowd, WithoutFileDescriptorsPeersWaitAndNothingSpins) {
  peer_.say(Bytes(1));
  ASSERT_TRUE(until([&] { return !device_of(pair_).visitors().empty(); }));
  RawPeer waiting(pair_.uri);
  rlimit files{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  const rlimit none{0, files.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  // Whoever waits for nothing is dropped first; that leaves the limit where it is.
  const bool refused = until([&] { return pair_.server.counter("accept_failures") >= 2; });
  for (int i = 0; i != 100; ++i)
    pair_.server.pump();
  const uint64_t failures = pair_.server.counter("accept_failures");
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_TRUE(refused);
  EXPECT_LT(failures, 50u);
  EXPECT_EQ(pair_.server.counter("visitors_dropped"), 1u);
  ASSERT_TRUE(until([&] { return !device_of(pair_).visitors().empty(); }));
}

TEST_F(Crowd, NothingCountsAfterATerminate) {
  connect();
  std::array<std::byte, kMaxTerminate> body;
  const uint32_t length = encode(Terminate{.cause = Cause::kOutOfBounds}, body);
  const Bytes one =
      fpdu({.last = true, .opcode = Opcode::kTerminate, .queue = kTerminateQueue, .number = 1},
           Bytes(body.begin(), body.begin() + length));
  Bytes all = one;
  const Bytes late = write(write_key_, base(), payload(64));
  all.insert(all.end(), late.begin(), late.end());
  const Bytes message = send(1, payload(8));
  all.insert(all.end(), message.begin(), message.end());
  for (int i = 0; i != 1000; ++i)
    all.insert(all.end(), one.begin(), one.end());
  peer_.say(all);
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
  ASSERT_TRUE(until([&] { return peer_.closed(); }));
  EXPECT_TRUE(peer_.got().empty());  // and none is answered
  EXPECT_EQ(pair_.server.counter("terminates_received"), 1u);
  ASSERT_TRUE(until([&] { return pair_.server.completions.size() >= 4; }));
  for (const fabric::Completion& c : completions())
    EXPECT_EQ(c.status, WcStatus::kFlushed);
  EXPECT_TRUE(untouched());
}

// Its own fault, byte by byte: whatever is damaged, no damaged message is received.
TEST_F(Crowd, ADamagedByteIsFoundWhereverItIs) {
  MpaFrame asked = request();
  asked.crc = true;
  const Bytes good =
      fpdu({.last = true, .opcode = Opcode::kSend, .number = 1}, payload(21), /*crc=*/true);
  for (size_t i = 2; i != good.size(); ++i) {
    SCOPED_TRACE(i);
    connect(asked);
    Bytes bad = good;
    bad[i] ^= std::byte{0x20};
    const uint64_t before = pair_.server.counter("terminates_sent");
    peer_.say(bad);
    ASSERT_TRUE(until([&] { return peer_.closed(); }));
    EXPECT_EQ(pair_.server.counter("terminates_sent"), before + 1);
    ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
    for (const fabric::Completion& c : completions())
      EXPECT_TRUE(c.op != fabric::Op::kReceive || c.status != WcStatus::kSuccess);
    EXPECT_TRUE(untouched());
    pair_.server.events.clear();
    qp_.reset();
    peer_ = RawPeer(pair_.uri);
  }
  EXPECT_GE(pair_.server.counter("bad_crcs"), 21u);
  connect(asked);
}

}  // namespace
}  // namespace rrdk::iwarp::test
