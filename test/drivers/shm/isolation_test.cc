// A peer, as client or server, cannot write where its keys do not allow it, keep memory that it
// made us take, keep others out, or suppress their wake-ups.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "test/drivers/shm/hostile_test.h"
#include "test/no_descriptors.h"

namespace rrdk::shm::test {
namespace {

using fabric::EventType;
using fabric::Op;
using fabric::Rights;
using fabric::WcStatus;
using fabric::test::access_wr;
using fabric::test::bind_wr;
using fabric::test::End;
using fabric::test::patience;
using fabric::test::pump_until;
using fabric::test::test_memory;

class Isolation : public HostileToBoth {};

// --- RDMA Writes, which their target makes ---

// Forged Writes to an end that has keys for the first 64 bytes of `memory`.
void expect_writes_refused(End& end, const std::function<std::unique_ptr<RawEnd>()>& connect) {
  Buffer memory = test_memory().get(4096);
  const uint64_t at = fabric::test::address_of(memory.data());
  struct Case {
    const char* what;
    const char* counter;
    Rights rights;
    uint64_t address;
    uint32_t length;
    RemoteSge sge;
    uint32_t key_change = 0;
    uint8_t num_sges = 1;
  };
  constexpr uint32_t kRegion = RawEnd::kRegion;
  const std::vector<Case> cases = {
      {"no such key", "refused_keys", Rights::kRemoteWrite, at, 8, {0, kRegion, 8}, 0x10000},
      {"a key for reading", "refused_rights", Rights::kRemoteRead, at, 8, {0, kRegion, 8}},
      {"before it", "refused_bounds", Rights::kRemoteWrite, at - 8, 8, {0, kRegion, 8}},
      {"past it", "refused_bounds", Rights::kRemoteWrite, at + 57, 8, {0, kRegion, 8}},
      {"elsewhere", "refused_bounds", Rights::kRemoteWrite, 0x1000, 8, {0, kRegion, 8}},
      {"endless", "refused_bounds", Rights::kRemoteWrite, at, UINT32_MAX, {0, kRegion, UINT32_MAX}},
      {"wrapping", "refused_bounds", Rights::kRemoteWrite, at + 8, UINT32_MAX - 7, {0, kRegion, 8}},
      {"of an unknown region", "bad_regions", Rights::kRemoteWrite, at, 8, {0, 99, 8}},
      {"less than it says", "bad_slots", Rights::kRemoteWrite, at, 16, {0, kRegion, 8}},
      {"more than it says", "bad_regions", Rights::kRemoteWrite, at, 8, {0, kRegion, 16}},
      {"many pieces", "bad_slots", Rights::kRemoteWrite, at, 8, {0, kRegion, 8}, 0, UINT8_MAX},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    std::fill_n(memory.data(), 4096, std::byte{0x5a});
    const std::unique_ptr<RawEnd> peer = connect();
    uint32_t key = 0;
    ASSERT_TRUE(peer->victim->reserve_keys(std::span(&key, 1)));
    const fabric::SendWr bind = bind_wr(1, key, memory.first(64), c.rights);
    ASSERT_EQ(peer->victim->post_send(std::span(&bind, 1)), 1u);
    const uint64_t before = end.counter(c.counter);
    peer->publish({.length = c.length,
                   .flags = kWrite,
                   .num_sges = c.num_sges,
                   .key = key ^ c.key_change,
                   .address = c.address,
                   .sges = {c.sge}});
    ASSERT_TRUE(pump_until({&end}, [&] { return end.has_event(EventType::kDisconnected); }));
    EXPECT_EQ(end.counter(c.counter), before + 1);
    EXPECT_TRUE(std::all_of(memory.data() + 64, memory.data() + 4096,
                            [](std::byte b) { return b == std::byte{0x5a}; }));
    end.events.clear();
    end.completions.clear();
  }
}

TEST_F(Isolation, ForgedWritesToAServerAreRefused) {
  expect_writes_refused(honest_.server, [&] {
    auto peer = std::make_unique<RawPeer>(honest_.server, honest_.uri);
    peer->establish();
    return peer;
  });
  expect_bystanders_unharmed();
}

TEST_F(Isolation, ForgedWritesToAClientAreRefused) {
  expect_writes_refused(client_, [&] {
    auto server = std::make_unique<RawServer>(client_, new_uri());
    server->establish();
    return server;
  });
}

// The memory of a closed peer may already contain something else.
TEST_F(Isolation, AMessageInTheMemoryOfAPeerThatHasClosedIsNotBelieved) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer inbox = test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
  peer.publish({.length = 8, .num_sges = 1, .sges = {RemoteSge{0, RawPeer::kRegion, 8}}});
  peer.mine.state->closed.store(static_cast<uint32_t>(CloseReason::kDisconnected));
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
  EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kFlushed);
}

// A key of the peer's is shown as in use while we read through it, and not for longer.
TEST_F(Isolation, ThePeerSeesByWhichKeyItIsRead) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  constexpr uint32_t kKey = 0x15;
  constexpr uint32_t kBytes = 1 << 20;
  ASSERT_EQ(peer.send_region(sealed_memfd(kBytes, kRegionSeals).get(), 8, kBytes),
            SendResult::kSent);
  KeyEntry& entry = peer.mine.keys[kKey % RawPeer::kGeometry.keys];
  entry.rights.store(static_cast<uint32_t>(Rights::kRemoteRead));
  entry.region.store(8);
  entry.length.store(kBytes);
  entry.key.store(kKey);
  std::atomic<bool> seen = false;
  std::atomic<bool> over = false;
  std::thread watcher([&] {
    while (!over && !seen)
      seen = peer.theirs.state->reading.load() == kKey;
  });
  Buffer buffer = test_memory().get(kBytes);
  const fabric::SendWr wr = access_wr(7, Op::kRead, buffer.first(kBytes), kKey, 0);
  EXPECT_TRUE(pump_until({&honest_.server}, [&] {
    EXPECT_LE(peer.victim->post_send(std::span(&wr, 1)), 1u);
    return seen.load();
  }));
  over = true;
  watcher.join();
  EXPECT_EQ(peer.theirs.state->reading.load(), 0u);
}

// --- places ---

TEST_F(Isolation, TheOldestVisitorMakesRoomForANewOne) {
  const std::string path = parse_address(honest_.uri).value().path;
  std::vector<Fd> silent;
  for (int i = 0; i < 256; ++i) {
    silent.push_back(connect_socket(path).value());
    honest_.server.pump();
  }
  EXPECT_EQ(honest_.server.counter("visitors_dropped"), 0u);
  RawPeer peer(honest_.server, honest_.uri);  // has not sent anything yet either
  for (int i = 0; i < 100; ++i)
    honest_.server.pump();
  EXPECT_EQ(honest_.server.counter("visitors_dropped"), 1u);
  char byte = 0;
  while (::recv(silent.front().get(), &byte, 1, MSG_DONTWAIT) > 0) {
  }
  EXPECT_EQ(::recv(silent.front().get(), &byte, 1, MSG_DONTWAIT), 0);
  peer.establish();
  expect_bystanders_unharmed();
}

// Without descriptors for another connection a listener waits, and does not spin.
TEST_F(Isolation, AcceptingPausesWhenThereAreNoDescriptorsLeft) {
  const Fd waiting = connect_socket(parse_address(honest_.uri).value().path).value();
  const auto start = std::chrono::steady_clock::now();
  {
    const rrdk::test::NoDescriptors now;
    EXPECT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.counter("accept_failures") != 0; }));
    for (int i = 0; i < 3000; ++i)
      honest_.server.pump();
  }
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_LE(honest_.server.counter("accept_failures"),
            1 + static_cast<uint64_t>(took / std::chrono::milliseconds(100)));
  Message hello;
  EXPECT_TRUE(pump_until({&honest_.server}, [&] {
    return ::recv(waiting.get(), &hello, sizeof(hello), MSG_DONTWAIT) > 0;
  }));
}

// --- wake-ups ---

TEST_F(Isolation, AWakeUpSocketThatIsShutDownHarmsNoOthers) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  ASSERT_EQ(::shutdown(peer.peer.wake_socket.get(), SHUT_RDWR), 0);
  honest_.post_receives(*honest_.server_qp, 1);
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return honest_.server.cq->arm(); }));
  Buffer buffer = test_memory().get(4096);
  const fabric::SendWr wr = fabric::test::send_wr(1, {buffer.first(10)});
  ASSERT_EQ(honest_.client_qp->post_send(std::span(&wr, 1)), 1u);
  pollfd woken = {honest_.server.cq->wake_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&woken, 1, static_cast<int>(patience() / std::chrono::milliseconds(1))), 1);
  honest_.server.cq->disarm();
  EXPECT_EQ(::poll(&woken, 1, 0), 0);
}

}  // namespace
}  // namespace rrdk::shm::test
