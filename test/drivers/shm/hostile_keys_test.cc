// Remote keys and a peer that breaks the protocol: our keys that it keeps, and its own keys that
// lead nowhere.
#include <algorithm>
#include <array>

#include "test/drivers/shm/hostile_test.h"

namespace rrdk::shm::test {
namespace {

using fabric::EventType;
using fabric::Op;
using fabric::WcStatus;
using fabric::test::access_wr;
using fabric::test::bind_wr;
using fabric::test::invalidate_wr;
using fabric::test::pump_until;
using fabric::test::test_memory;

using HostileKeys = Hostile;

// One of our keys, for the connection to `peer`.
uint32_t reserve_key(RawPeer& peer) {
  uint32_t key = 0;
  EXPECT_TRUE(peer.victim->reserve_keys(std::span(&key, 1)));
  return key;
}

// The peer keeps one of our keys in use for ever, and its socket open.
TEST_F(HostileKeys, KeysThatArePinnedAreGivenUp) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer buffer = test_memory().get(4096);
  const uint32_t key = reserve_key(peer);
  const fabric::SendWr bind = bind_wr(1, key, buffer.first(64), fabric::Rights::kRemoteRead);
  const fabric::SendWr invalidate = invalidate_wr(2, key);
  ASSERT_EQ(peer.victim->post_send(std::span(&bind, 1)), 1u);
  peer.mine.state->reading.store(key);
  ASSERT_EQ(peer.victim->post_send(std::span(&invalidate, 1)), 1u);
  expect_disconnected("stuck_readers");
}

TEST_F(HostileKeys, KeysThatLeadNowhereAreRefused) {
  struct Case {
    const char* what;
    uint32_t region;
    uint64_t offset;
    uint64_t length;
  };
  for (const Case& c : {Case{"unknown region", 99, 0, 64},
                        Case{"past the region", RawPeer::kRegion, RawPeer::kRegionBytes - 8, 64},
                        Case{"offset wraps", RawPeer::kRegion, UINT64_MAX - 4, 64},
                        Case{"endless", RawPeer::kRegion, 0, UINT64_MAX}}) {
    SCOPED_TRACE(c.what);
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    KeyEntry& entry = peer.mine.keys[5];
    entry.rights.store(static_cast<uint32_t>(fabric::Rights::kRemoteRead));
    entry.region.store(c.region);
    entry.offset.store(c.offset);
    entry.length.store(c.length);
    entry.address.store(0x1000);
    entry.key.store(0x15);
    Buffer buffer = test_memory().get(1 << 20);
    const uint32_t length = c.length == UINT64_MAX ? 1 << 20 : 32;
    const fabric::SendWr wr = access_wr(7, Op::kRead, buffer.first(length), 0x15, 0x1008);
    ASSERT_EQ(peer.victim->post_send(std::span(&wr, 1)), 1u);
    ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
    EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kRemoteAccess);
    expect_disconnected("bad_keys");
  }
}

// Keys for lists of runs, where the list, or what it names, is not what an honest peer shows.
TEST_F(HostileKeys, ListsThatLeadNowhereAreRefused) {
  constexpr uint32_t kRegion = RawPeer::kRegion;
  constexpr uint64_t kBytes = RawPeer::kRegionBytes;
  struct Case {
    const char* what;
    uint32_t runs;
    uint32_t region;
    uint64_t offset;  // of the list
    std::array<RemoteSge, 2> list;
  };
  constexpr RemoteSge kGood{100, kRegion, 32};
  for (const Case& c :
       {Case{"too many runs", fabric::kMaxKeyRuns + 1, kRegion, 0, {kGood, kGood}},
        Case{"endless", UINT32_MAX, kRegion, 0, {kGood, kGood}},
        Case{"list in an unknown region", 2, 99, 0, {kGood, kGood}},
        Case{"list past its region", 2, kRegion, kBytes - 16, {kGood, kGood}},
        Case{"list at an odd place", 2, kRegion, 4, {kGood, kGood}},
        Case{"list whose offset wraps", 2, kRegion, UINT64_MAX - 7, {kGood, kGood}},
        Case{"run in an unknown region", 2, kRegion, 0, {kGood, {0, 99, 32}}},
        Case{"run past its region", 2, kRegion, 0, {kGood, {kBytes - 8, kRegion, 32}}},
        Case{"run whose offset wraps", 2, kRegion, 0, {kGood, {UINT64_MAX - 4, kRegion, 32}}},
        Case{"runs shorter than the key", 2, kRegion, 0, {kGood, {0, kRegion, 31}}},
        Case{"empty runs", 2, kRegion, 0, {{{0, kRegion, 0}, {0, kRegion, 0}}}}}) {
    SCOPED_TRACE(c.what);
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    std::memcpy(peer.region.mapping.base(), c.list.data(), sizeof c.list);
    KeyEntry& entry = peer.mine.keys[5];
    entry.rights.store(static_cast<uint32_t>(fabric::Rights::kRemoteRead));
    entry.region.store(c.region);
    entry.runs.store(c.runs);
    entry.offset.store(c.offset);
    entry.length.store(64);
    entry.address.store(0x1000);
    entry.key.store(0x15);
    Buffer buffer = test_memory().get(4096);
    const fabric::SendWr wr = access_wr(7, Op::kRead, buffer.first(64), 0x15, 0x1000);
    ASSERT_EQ(peer.victim->post_send(std::span(&wr, 1)), 1u);
    ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
    EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kRemoteAccess);
    expect_disconnected("bad_keys");
  }
}

// To find a list's runs, the reader looks at what the peer has shown by now, and that may take the
// list's own region away.
TEST_F(HostileKeys, AListMayGoWhileItsRunsAreLookedUp) {
  constexpr uint32_t kRuns = 9;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  const std::array<RemoteSge, 2> list = {{{0, kRuns, 32}, {64, kRuns, 32}}};
  std::memcpy(peer.region.mapping.base(), list.data(), sizeof list);
  KeyEntry& entry = peer.mine.keys[5];
  entry.rights.store(static_cast<uint32_t>(fabric::Rights::kRemoteRead));
  entry.region.store(RawPeer::kRegion);
  entry.length.store(64);
  entry.address.store(0x1000);
  entry.key.store(0x15);
  Buffer buffer = test_memory().get(4096);
  const fabric::SendWr wr = access_wr(7, Op::kRead, buffer.first(64), 0x15, 0x1000);
  const auto read = [&] {
    honest_.server.completions.clear();
    ASSERT_EQ(peer.victim->post_send(std::span(&wr, 1)), 1u);
    ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
    EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kSuccess);
  };
  read();  // the list itself, as bytes: now the reader knows its region
  EXPECT_EQ(std::memcmp(buffer.data(), list.data(), sizeof list), 0);
  entry.runs.store(2);
  Message gone{.type = MessageType::kRegionGone};
  gone.region = RawPeer::kRegion;
  ASSERT_EQ(peer.send(gone, {}), SendResult::kSent);
  ASSERT_EQ(peer.send_region(sealed_memfd(4096, kRegionSeals).get(), kRuns, 4096),
            SendResult::kSent);
  read();
  EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + 64,
                          [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_F(HostileKeys, AKeyIsNotReusedWhileThePeerHoldsIt) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer buffer = test_memory().get(4096);
  const uint32_t key = reserve_key(peer);
  const std::array<fabric::SendWr, 2> wrs = {
      bind_wr(1, key, buffer.first(100), fabric::Rights::kRemoteWrite), invalidate_wr(2, key)};
  ASSERT_EQ(peer.victim->post_send(std::span(wrs).first(1)), 1u);
  const KeyEntry& entry = peer.theirs.keys[key & peer.theirs.key_mask];
  EXPECT_EQ(entry.key.load(), key);
  peer.mine.state->reading.store(key);
  ASSERT_EQ(peer.victim->post_send(std::span(wrs).last(1)), 1u);
  for (int i = 0; i < 3000; ++i)
    honest_.server.pump();
  EXPECT_EQ(honest_.server.completions.size(), 1u);  // the bind
  EXPECT_EQ(entry.key.load(), 0u);
  peer.mine.state->reading.store(0);
  ASSERT_TRUE(
      pump_until({&honest_.server}, [&] { return honest_.server.completions.size() == 2; }));
  EXPECT_EQ(honest_.server.completions[1].status, WcStatus::kSuccess);
}

TEST_F(HostileKeys, TheEndIsToldOnlyWhenThePeerHoldsNoKey) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  peer.mine.state->reading.store(3);
  peer.victim->disconnect();
  for (int i = 0; i < 3000; ++i)
    honest_.server.pump();
  EXPECT_FALSE(honest_.server.has_event(EventType::kDisconnected));
  peer.socket.reset();  // as its death does
  ASSERT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.has_event(EventType::kDisconnected); }));
}

}  // namespace
}  // namespace rrdk::shm::test
