// Peers that break the protocol. Each loses its connection, is counted, and disturbs no other
// connection.
#include "test/drivers/shm/hostile_test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

namespace rrdk::shm::test {
namespace {

using fabric::Completion;
using fabric::EventType;
using fabric::WcStatus;
using fabric::test::pump_until;
using fabric::test::send_wr;
using fabric::test::test_memory;

TEST_F(Hostile, HandshakesAreRefused) {
  struct Case {
    const char* what;
    std::function<void(RawPeer&)> act;
  };
  const auto spoilt = [](auto spoil) {
    return [spoil](RawPeer& p) {
      Message m = p.connect_message();
      spoil(m);
      p.send(m, p.descriptors());
    };
  };
  const auto with_segment = [](std::function<Fd()> make) {
    return [make](RawPeer& p) {
      const Fd bad = make();
      p.send(p.connect_message(),
             std::array<int, 3>{bad.get(), p.doorbells.fd.get(), p.wake.get()});
    };
  };
  const auto with_wake = [](Fd (*make)()) {
    return [make](RawPeer& p) {
      const Fd bad = make();
      p.send(p.connect_message(),
             std::array<int, 3>{p.segment.fd.get(), p.doorbells.fd.get(), bad.get()});
    };
  };
  const std::vector<Case> cases = {
      {"magic", spoilt([](Message& m) { m.magic ^= 1; })},
      {"type", spoilt([](Message& m) { m.type = static_cast<MessageType>(99); })},
      {"type of the other end", spoilt([](Message& m) { m.type = MessageType::kAccept; })},
      {"no slots", spoilt([](Message& m) { m.slots = 0; })},
      {"odd slots", spoilt([](Message& m) { m.slots = 15; })},
      {"many slots", spoilt([](Message& m) { m.slots = 1u << 31; })},
      {"more slots than memory", spoilt([](Message& m) { m.slots = 8192; })},
      {"no keys", spoilt([](Message& m) { m.keys = 0; })},
      {"many keys", spoilt([](Message& m) { m.keys = 1u << 31; })},
      {"no copies", spoilt([](Message& m) { m.copies = 0; })},
      {"odd copies", spoilt([](Message& m) { m.copies = 4095; })},
      {"many copies", spoilt([](Message& m) { m.copies = 1u << 31; })},
      {"endless copies", spoilt([](Message& m) { m.copies = uint64_t{1} << 32 | 4096; })},
      {"more copies than memory", spoilt([](Message& m) { m.copies = kMaxCopies; })},
      {"doorbell", spoilt([](Message& m) { m.doorbell_bit = kMaxQueuePairs; })},
      {"private data", spoilt([](Message& m) { m.private_length = 57; })},
      {"a region before it was accepted",
       [](RawPeer& p) {
         p.send_region(p.region.fd.get(), RawPeer::kRegion, RawPeer::kRegionBytes);
       }},
      {"no descriptors", [](RawPeer& p) { p.send(p.connect_message(), {}); }},
      {"too few descriptors",
       [](RawPeer& p) { p.send(p.connect_message(), std::array<int, 1>{p.segment.fd.get()}); }},
      {"unsealed segment", with_segment([] { return plain_memfd(1 << 20); })},
      {"small segment", with_segment([] { return sealed_memfd(4096, kRegionSeals); })},
      {"segment that its owner can punch holes into",
       with_segment([] { return sealed_memfd(1 << 20, kSizeSeals | F_SEAL_SEAL); })},
      {"segment that can grow",
       with_segment([] { return sealed_memfd(1 << 20, kRegionSeals & ~F_SEAL_GROW); })},
      {"segment with holes",
       with_segment([] { return sealed_memfd(1 << 20, kRegionSeals, 0, true); })},
      {"doorbells with holes",
       [](RawPeer& p) {
         const Fd bad = sealed_memfd(kDoorbellBytes, kSizeSeals, 0, true);
         p.send(p.connect_message(),
                std::array<int, 3>{p.segment.fd.get(), bad.get(), p.wake.get()});
       }},
      {"segment is a socket", with_segment([] { return Fd(::socket(AF_UNIX, SOCK_STREAM, 0)); })},
      {"unsealed doorbells",
       [](RawPeer& p) {
         const Fd bad = plain_memfd(kDoorbellBytes);
         p.send(p.connect_message(),
                std::array<int, 3>{p.segment.fd.get(), bad.get(), p.wake.get()});
       }},
      {"wake-up by TCP", with_wake([] { return Fd(::socket(AF_INET, SOCK_STREAM, 0)); })},
      {"wake-up by datagrams", with_wake([] { return Fd(::socket(AF_UNIX, SOCK_DGRAM, 0)); })},
      {"wake-up by a stream", with_wake([] { return Fd(::socket(AF_UNIX, SOCK_STREAM, 0)); })},
      {"wake-up by a file", with_wake([] { return plain_memfd(1); })},
      {"more descriptors than a message has",
       [](RawPeer& p) {
         std::array<int, 4> many;
         many.fill(p.wake.get());
         p.send(p.connect_message(), many);
       }},
      {"short packet", [](RawPeer& p) { ::send(p.socket.get(), "hello", 5, 0); }},
      {"long packet",
       [](RawPeer& p) {
         const std::array<char, 4000> junk{};
         ::send(p.socket.get(), junk.data(), junk.size(), 0);
       }},
      {"nothing but an end", [](RawPeer& p) { ::shutdown(p.socket.get(), SHUT_WR); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    RawPeer peer(honest_.server, honest_.uri);
    c.act(peer);
    expect_refused(peer);
  }
  expect_bystanders_unharmed();
}

TEST_F(Hostile, ClientsOfAnotherVersionAreCounted) {
  RawPeer peer(honest_.server, honest_.uri);
  Message m = peer.connect_message();
  --m.version;
  peer.send(m, peer.descriptors());
  ASSERT_TRUE(
      pump_until({&honest_.server}, [&] { return honest_.server.counter("other_versions") == 1; }));
  EXPECT_EQ(peer.receive(MessageType::kReject).kind, Received::Kind::kEnd);
}

TEST_F(Hostile, SilenceIsRefused) {
  const auto hasty = honest_.server.device->listen(new_uri() + "?timeout=1").value();
  RawPeer peer(honest_.server, hasty->uri());
  expect_refused(peer);
}

TEST_F(Hostile, SlotsAreRefused) {
  const auto inline_slot = [](uint32_t length) {
    Forged s;
    s.flags = kInline;
    s.length = length;
    return s;
  };
  const auto far_slot = [](uint32_t length, std::initializer_list<RemoteSge> sges) {
    Forged s;
    s.length = length;
    s.num_sges = static_cast<uint8_t>(sges.size());
    std::ranges::copy(sges, s.sges.begin());
    return s;
  };
  const auto copied_slot = [](uint32_t length, uint64_t at) {
    Forged s;
    s.flags = kCopied;
    s.length = length;
    s.address = at;
    return s;
  };
  constexpr uint32_t kRegion = RawPeer::kRegion;
  constexpr uint64_t kBytes = RawPeer::kRegionBytes;
  constexpr uint32_t kCopies = RawPeer::kGeometry.copies;
  struct Case {
    const char* what;
    Forged slot;
    const char* counter;
  };
  Forged many = far_slot(8, {{0, kRegion, 8}});
  many.num_sges = UINT8_MAX;
  Forged foreign_key = inline_slot(8);
  foreign_key.flags |= kInvalidate;
  foreign_key.key = 0x12345;
  Forged no_key = foreign_key;
  no_key.key = 0;
  const std::vector<Case> cases = {
      {"inline too long", inline_slot(Slot::kMaxInline + 1), "bad_slots"},
      {"inline endless", inline_slot(UINT16_MAX), "bad_slots"},
      {"more than the copies", copied_slot(kCopies + 1, 0), "bad_slots"},
      {"past the copies", copied_slot(8, kCopies - 7), "bad_slots"},
      {"behind the copies", copied_slot(8, kCopies), "bad_slots"},
      {"wrapping copies", copied_slot(8, UINT64_MAX - 3), "bad_slots"},
      {"endless copies", copied_slot(UINT32_MAX, 0), "bad_slots"},
      {"copied, too long for the Receive", copied_slot(2049, 0), "messages_too_long"},
      {"many pieces", many, "bad_slots"},
      {"less than it says", far_slot(16, {{0, kRegion, 8}}), "bad_slots"},
      {"nothing of what it says", far_slot(16, {}), "bad_slots"},
      {"more than it says", far_slot(8, {{0, kRegion, 8}, {0, kRegion, 8}}), "bad_regions"},
      {"unknown region", far_slot(8, {{0, 99, 8}}), "bad_regions"},
      {"no region", far_slot(8, {{0, kNoWireId, 8}}), "bad_regions"},
      {"past the region", far_slot(8, {{kBytes - 7, kRegion, 8}}), "bad_regions"},
      {"far past the region", far_slot(8, {{kBytes + 1, kRegion, 8}}), "bad_regions"},
      {"wrapping", far_slot(8, {{UINT64_MAX - 3, kRegion, 8}}), "bad_regions"},
      {"lengths that add up to zero",
       far_slot(0, {{0, kRegion, 0x80000000u}, {0, kRegion, 0x80000000u}}), "bad_regions"},
      {"too long for the Receive", far_slot(8192, {{0, kRegion, 8192}}), "messages_too_long"},
      {"an invalid key", foreign_key, "bad_invalidations"},
      {"key zero", no_key, "bad_invalidations"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    Buffer inbox = test_memory().get(4096);
    std::fill_n(inbox.data(), 4096, std::byte{0x5a});
    const fabric::ReceiveWr receive{1, inbox.first(2048)};
    ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
    const uint64_t before = honest_.server.counter(c.counter);
    peer.publish(c.slot);
    expect_disconnected(c.counter);
    EXPECT_EQ(honest_.server.counter(c.counter), before + 1);
    EXPECT_TRUE(std::all_of(inbox.data() + 2048, inbox.data() + 4096,
                            [](std::byte b) { return b == std::byte{0x5a}; }));
  }
}

TEST_F(Hostile, HonestSlotsOfTheRawPeerAreTaken) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer inbox = test_memory().get(4096);
  const std::array<fabric::ReceiveWr, 2> receives = {fabric::ReceiveWr{1, inbox.first(2048)},
                                                     fabric::ReceiveWr{2, inbox.first(2048)}};
  ASSERT_EQ(peer.victim->post_receive(receives), 2u);
  Forged slot;
  slot.length = 8;
  slot.num_sges = 1;
  slot.sges[0] = {RawPeer::kRegionBytes - 8, RawPeer::kRegion, 8};
  peer.region.mapping.base()[RawPeer::kRegionBytes - 1] = std::byte{9};
  peer.publish(slot);
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
  EXPECT_EQ(honest_.server.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(inbox.data()[7], std::byte{9});
}

TEST_F(Hostile, RingNumbersAreRefused) {
  for (const uint32_t number : {2u, 17u, UINT32_MAX}) {
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    peer.mine.slot(0).word.store({.sequence = number, .length = 0, .flags = 0, .num_sges = 0});
    expect_disconnected("bad_slots");
  }
}

// Region packets of a connected peer that no honest peer sends; they must not cost more than an
// honest one's either.
TEST_F(Hostile, RegionChangesAreRefused) {
  struct Case {
    const char* what;
    std::function<void(RawPeer&)> act;
  };
  const auto region_with_id = [](RawPeer& p, uint32_t id) {
    return p.send_region(p.region.fd.get(), id, RawPeer::kRegionBytes);
  };
  const auto range = [](uint64_t length, uint64_t offset) {
    return [=](RawPeer& p) { p.send_region(p.region.fd.get(), 8, length, offset); };
  };
  const auto file = [](std::function<Fd()> make) {
    return [make](RawPeer& p) { p.send_region(make().get(), 8, 4096); };
  };
  const std::vector<Case> cases = {
      {"an unknown region ends",
       [](RawPeer& p) {
         Message m{.type = MessageType::kRegionGone};
         m.region = 99;
         p.send(m, {});
       }},
      {"a region ends twice",
       [](RawPeer& p) {
         Message m{.type = MessageType::kRegionGone};
         m.region = RawPeer::kRegion;
         p.send(m, {});
         p.send(m, {});
       }},
      {"the end of a region comes with descriptors",
       [](RawPeer& p) {
         Message m{.type = MessageType::kRegionGone};
         m.region = RawPeer::kRegion;
         const int fd = p.region.fd.get();
         p.send(m, std::span(&fd, 1));
       }},
      {"a known region", [&](RawPeer& p) { region_with_id(p, RawPeer::kRegion); }},
      {"too many regions",
       [&](RawPeer& p) {
         for (uint32_t i = 1000; i <= 1000 + kMaxPeerRegions; ++i)
           pump_until({&honest_.server}, [&] { return region_with_id(p, i) != SendResult::kFull; });
       }},
      {"a region without memory",
       [](RawPeer& p) {
         Message m = p.region_message();
         m.region = 8;
         p.send(m, {});
       }},
      {"region id", [&](RawPeer& p) { region_with_id(p, kNoWireId); }},
      {"empty region", range(0, 0)},
      {"long region", range(1 << 20, 0)},
      {"endless region", range(UINT64_MAX, 0)},
      {"region past the end", range(RawPeer::kRegionBytes, 4096)},
      {"region wraps", range(8192, UINT64_MAX - 4095)},
      {"a region that can shrink",
       file([] { return sealed_memfd(4096, F_SEAL_GROW | F_SEAL_FUTURE_WRITE); })},
      {"a region that can lose its pages",
       file([] { return sealed_memfd(4096, kSizeSeals | F_SEAL_SEAL); })},
      {"a region that can grow",
       file([] { return sealed_memfd(4096, kRegionSeals & ~F_SEAL_GROW); })},
      {"a region with holes", file([] { return sealed_memfd(8192, kRegionSeals, 0, true); })},
      {"a region that cannot be read", file([] {
         const Fd memory = sealed_memfd(4096, kRegionSeals);
         const std::string path = "/proc/self/fd/" + std::to_string(memory.get());
         return Fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
       })},
      {"a region that is no memory",
       file([] { return Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC)); })},
      {"hello", [](RawPeer& p) { p.send(Message{}, {}); }},
      {"a handshake", [](RawPeer& p) { p.send(p.connect_message(), p.descriptors()); }},
      {"nonsense", [](RawPeer& p) { ::send(p.socket.get(), "hello", 5, 0); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    const uint64_t before = honest_.server.counter("broken_sockets");
    c.act(peer);
    expect_disconnected("broken_sockets");
    EXPECT_EQ(honest_.server.counter("broken_sockets"), before + 1);
  }
}

// A flood of allowed packets does not keep others from their turn.
TEST_F(Hostile, FloodsOfRegionsTakeTurns) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  const std::array<int, 1> fds = {peer.region.fd.get()};
  Message come = peer.region_message();
  Message gone{.type = MessageType::kRegionGone};
  come.region = gone.region = 8;
  for (int i = 0; i < 2000; ++i) {
    pump_until({&honest_.server}, [&] { return peer.send(come, fds) != SendResult::kFull; });
    pump_until({&honest_.server}, [&] { return peer.send(gone, {}) != SendResult::kFull; });
  }
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 0u);
  expect_bystanders_unharmed();
}

TEST_F(Hostile, ConsumedCountsAreRefused) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer buffer = test_memory().get(4096);
  const fabric::SendWr wr = send_wr(42, {buffer.first(4096)});
  ASSERT_EQ(peer.victim->post_send(std::span(&wr, 1)), 1u);
  peer.mine.state->consumed.store(2);
  expect_disconnected("bad_consumed");
}

// Only accept() tells the application: an event would reach a queue pair that the application has
// already given up.
TEST_F(Hostile, APeerThatIsGoneBeforeItIsAcceptedMakesNoEvent) {
  RawPeer peer(honest_.server, honest_.uri);
  ASSERT_EQ(peer.send(peer.connect_message(), peer.descriptors()), SendResult::kSent);
  ASSERT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.has_event(EventType::kConnectRequest); }));
  fabric::Event event = honest_.server.take_event(EventType::kConnectRequest);
  peer.socket.reset();
  fabric::QueuePairOptions options;
  options.cq = honest_.server.cq.get();
  auto qp = event.request->create_queue_pair(options).value();
  EXPECT_FALSE(event.request->accept(*qp, {}));
  qp->disconnect();
  for (int i = 0; i < 100; ++i)
    honest_.server.pump();
  EXPECT_TRUE(honest_.server.events.empty());
  expect_bystanders_unharmed();
}

// The sleeper's flag that it sleeps, and the bells that were rung, belong to its user alone.
TEST_F(Hostile, TheDoorbellsOfOtherUsersAreOutOfReach) {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can connect as another user";
  ASSERT_EQ(::chmod(parse_address(honest_.uri).value().path.c_str(), 0777), 0);
  ASSERT_EQ(::seteuid(kNobody), 0);
  RawPeer peer(honest_.server, honest_.uri);
  ASSERT_EQ(::seteuid(0), 0);
  peer.establish();
  auto* page = reinterpret_cast<DoorbellPage*>(peer.peer.doorbell_page.base());
  Buffer buffer = test_memory().get(4096);
  std::array<Completion, 8> out;
  fabric::CompletionQueue& cq = *honest_.server.cq;
  honest_.post_receives(*honest_.server_qp, 1);
  for (int i = 0; i < 3000; ++i)
    cq.poll(out);
  ASSERT_TRUE(cq.arm());
  page->sleeping.store(0);
  const fabric::SendWr wr = send_wr(1, {buffer.first(10)});
  ASSERT_EQ(honest_.client_qp->post_send(std::span(&wr, 1)), 1u);
  for (auto& word : page->words)
    word.store(0);
  page->summary.store(0);
  pollfd wake{cq.wake_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&wake, 1, 0), 1) << "the sleeper is not woken";
  cq.disarm();
  EXPECT_EQ(cq.poll(out), 1u) << "it does not see why";
}

// A page goes with its user's last connection; otherwise many users, one after the other, would end
// up sharing one page.
TEST_F(Hostile, DoorbellsGoWithTheLastConnectionOfTheirUser) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "only root can connect as another user";
  ASSERT_EQ(::chmod(parse_address(honest_.uri).value().path.c_str(), 0777), 0);
  const auto connect_as = [&](uid_t user) {
    EXPECT_EQ(::seteuid(user), 0);
    auto peer = std::make_unique<RawPeer>(honest_.server, honest_.uri);
    EXPECT_EQ(::seteuid(0), 0);
    peer->establish();
    return peer;
  };
  const auto page = [](const std::unique_ptr<RawPeer>& peer) {
    return reinterpret_cast<DoorbellPage*>(peer->peer.doorbell_page.base());
  };
  for (uid_t user = 1000; user < 1200; ++user)
    connect_as(user);
  auto alice = connect_as(2000);
  auto bob = connect_as(2001);
  page(alice)->words[60].store(1);
  EXPECT_EQ(page(bob)->words[60].load(), 0u) << "two users share a page";
  auto alices_second = connect_as(2000);
  alice.reset();
  auto alices_third = connect_as(2000);
  page(alices_second)->words[61].store(1);
  EXPECT_EQ(page(alices_third)->words[61].load(), 1u) << "the page went before its last connection";
  alices_second.reset();
  alices_third.reset();
  page(bob)->summary.store(1);
  EXPECT_FALSE(honest_.server.cq->arm()) << "a page that is in use is not looked at";
  expect_bystanders_unharmed();
}

TEST_F(Hostile, ScribblingOnTheDoorbellsIsHarmless) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  auto* page = reinterpret_cast<DoorbellPage*>(peer.peer.doorbell_page.base());
  for (auto& word : page->words)
    word.store(UINT64_MAX);
  page->summary.store(UINT64_MAX);
  for (int i = 0; i < 10; ++i)
    honest_.server.pump();
  expect_bystanders_unharmed();
  // Even if it takes away the doorbells of others, their messages arrive.
  Buffer buffer = test_memory().get(4096);
  std::array<Completion, 8> out;
  for (int i = 0; i < 3000; ++i)
    honest_.server.cq->poll(out);
  honest_.post_receives(*honest_.server_qp, 1);
  const fabric::SendWr wr = send_wr(1, {buffer.first(10)});
  ASSERT_EQ(honest_.client_qp->post_send(std::span(&wr, 1)), 1u);
  for (auto& word : page->words)
    word.store(0);
  page->summary.store(0);
  honest_.server.completions.clear();
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
}

}  // namespace
}  // namespace rrdk::shm::test
