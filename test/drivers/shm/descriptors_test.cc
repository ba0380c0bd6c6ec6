// Descriptors that take long to close, wherever a peer puts them: they delay no thread of ours.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <vector>

#include "drivers/shm/device.h"
#include "test/drivers/shm/hostile_test.h"
#include "test/no_descriptors.h"

namespace rrdk::shm::test {
namespace {

using fabric::EventType;
using fabric::test::pump_until;
using fabric::test::test_memory;

ptrdiff_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// A TCP connection whose close() waits for minutes, until its peer goes.
class SlowClose {
 public:
  SlowClose() {
    const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(listening.get(), address, size), 0);
    EXPECT_EQ(::listen(listening.get(), 1), 0);
    EXPECT_EQ(::getsockname(listening.get(), address, &size), 0);
    fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), address, size), 0);
    far_ = Fd(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger minutes{.l_onoff = 1, .l_linger = 600};
    EXPECT_EQ(::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &minutes, sizeof(minutes)), 0);
    const std::array<char, 65536> unread{};
    while (::send(fd.get(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
    }
  }
  // Puts it into the queue of a socket, puts that socket into the queue of another, and returns the
  // latter. Closing the latter closes all, and does not find the slow one.
  Fd wrapped() { return wrap(wrap(std::move(fd))); }
  // Puts it into a socket's queue; closing the socket closes it.
  void put_into(int sender) {
    const int slow = fd.get();
    EXPECT_EQ(send_message(sender, {}, std::span(&slow, 1)), SendResult::kSent);
    fd.reset();
  }

  // Whether the other end knows that the connection is over.
  bool is_reset() const {
    pollfd far = {far_.get(), 0, 0};
    return ::poll(&far, 1, 0) == 1 && (far.revents & POLLERR) != 0;
  }

  Fd fd;

 private:
  static Fd wrap(Fd inner) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd sender(ends[1]);
    const int slow = inner.get();
    EXPECT_EQ(send_message(sender.get(), {}, std::span(&slow, 1)), SendResult::kSent);
    return Fd(ends[0]);
  }

  Fd far_;
};

class Descriptors : public Hostile {
 protected:
  // A peer that sends a packet without meaning, with these descriptors.
  std::unique_ptr<RawPeer> send_junk(const std::vector<int>& fds) {
    auto peer = std::make_unique<RawPeer>(honest_.server, honest_.uri);
    std::array<char, CMSG_SPACE(253 * sizeof(int))> control{};
    char byte = 0;
    iovec piece{&byte, 1};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    EXPECT_EQ(::sendmsg(peer->socket.get(), &header, 0), 1);
    return peer;
  }
  void take_junk(const std::vector<int>& fds) {
    const auto peer = send_junk(fds);
    take_junk();
  }
  void take_junk() {
    const uint64_t before = refused_++;
    ASSERT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.counter("handshakes_refused") > before; }));
  }
  // Makes the server take a packet with a descriptor that takes long to close.
  void take_slow(SlowClose& slow) {
    Fd wrapped = slow.wrapped();
    const auto peer = send_junk({wrapped.get()});
    wrapped.reset();
    take_junk();
  }
  void expect_all_closed() {
    EXPECT_TRUE(pump_until({&honest_.server}, [&] { return open_descriptors() <= descriptors_; }));
  }

  // The first 64 bytes of the peer's region, at 0x1000.
  static void show_for_reading(RawPeer& peer, uint32_t region, uint32_t key) {
    KeyEntry& entry = peer.mine.keys[key & peer.mine.key_mask];
    entry.rights.store(static_cast<uint32_t>(fabric::Rights::kRemoteRead));
    entry.region.store(region);
    entry.length.store(64);
    entry.address.store(0x1000);
    entry.key.store(key);
  }

  const Fd null_{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const ptrdiff_t descriptors_ = open_descriptors();
};

TEST_F(Descriptors, InAnInvalidPacketAreClosedEvenIfTheyLinger) {
  SlowClose slow;
  std::vector<int> fds(200, null_.get());
  fds.front() = slow.fd.get();
  auto peer = send_junk(fds);
  slow.fd.reset();  // the one on its way is the last
  take_junk();
  peer.reset();
  for (int i = 0; i < 3; ++i)
    take_junk(std::vector<int>(200, null_.get()));
  EXPECT_TRUE(pump_until({&honest_.server},
                         [&] { return open_descriptors() <= descriptors_ + 1; }));  // the far end
}

TEST_F(Descriptors, InUnreadPacketsAreClosedEvenIfTheyLinger) {
  SlowClose slow;
  auto peer = send_junk({null_.get()});  // costs the peer its connection
  const int unread = slow.fd.get();
  ASSERT_EQ(send_message(peer->socket.get(), {}, std::span(&unread, 1)), SendResult::kSent);
  slow.fd.reset();  // the one on its way is the last
  take_junk();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
}

// An empty packet looks like the end of the socket.
TEST_F(Descriptors, BehindAnEmptyPacketAreClosedEvenIfTheyLinger) {
  SlowClose slow;
  {
    Fd peer = connect_socket(parse_address(honest_.uri).value().path).value();
    pollfd hello = {peer.get(), POLLIN, 0};
    ASSERT_TRUE(pump_until({&honest_.server}, [&] { return ::poll(&hello, 1, 0) == 1; }));
    const int unread = slow.fd.get();
    ASSERT_EQ(::send(peer.get(), "", 0, 0), 0);
    ASSERT_EQ(send_message(peer.get(), {}, std::span(&unread, 1)), SendResult::kSent);
    slow.fd.reset();
  }
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
}

// A user's visitors wait while many descriptors of that user do: none is sent away.
TEST_F(Descriptors, InManyPacketsAtOnceCostNoHonestVisitor) {
  constexpr int kPackets = 60;
  std::vector<std::unique_ptr<RawPeer>> junk;
  for (int i = 0; i < kPackets; ++i)
    junk.push_back(send_junk(std::vector<int>(250, null_.get())));
  RawPeer honest(honest_.server, honest_.uri);
  ASSERT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.counter("handshakes_refused") >= kPackets; }));
  honest.establish();
  EXPECT_EQ(honest_.server.counter("visitors_refused"), 0u);
  EXPECT_EQ(honest_.server.counter("visitors_dropped"), 0u);
  junk.clear();
  expect_bystanders_unharmed();
}

TEST_F(Descriptors, ThatTakeLongToCloseHoldUpNoOthers) {
  SlowClose slow;
  take_slow(slow);
  take_junk(std::vector<int>(200, null_.get()));
  constexpr int kLeft = 2;  // the far end, and the socket in whose queue the slow one waits
  EXPECT_TRUE(
      pump_until({&honest_.server}, [&] { return open_descriptors() <= descriptors_ + kLeft; }));
}

// A user with several such descriptors is not accepted until they are closed; its existing
// connections continue.
TEST_F(Descriptors, ThatDoNotCloseKeepOnlyTheirUserOut) {
  {
    std::vector<SlowClose> slow(8);
    for (SlowClose& s : slow)
      take_slow(s);
    take_junk(std::vector<int>(200, null_.get()));
    // Visitors that stay: leaving visitors would be descriptors to close, too. Only a few at a
    // time: it takes a while to know that a close is stuck.
    std::vector<Fd> visitors;
    ASSERT_TRUE(pump_until({&honest_.server}, [&] {
      visitors.push_back(connect_socket(parse_address(honest_.uri).value().path).value());
      for (int i = 0; i < 10000; ++i)
        honest_.server.pump();
      return honest_.server.counter("visitors_refused") > 0;
    }));
    expect_bystanders_unharmed();
  }
  expect_all_closed();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] {
    RawPeer peer(honest_.server, honest_.uri);
    honest_.server.pump();
    return peer.receive(MessageType::kReject).kind == Received::Kind::kNothing;
  }));
}

// --- the wake-up socket ---

// A packet there wakes the sleeper, which does not use the packet's content.
TEST_F(Descriptors, InWakeUpsHoldUpNoPoll) {
  SlowClose slow;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  slow.put_into(peer.peer.wake_socket.get());
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return honest_.server.cq->arm(); }));
  honest_.server.cq->disarm();
  EXPECT_EQ(honest_.server.counter("bad_wake_ups"), 1u);
  pollfd woken = {honest_.server.cq->wake_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&woken, 1, 0), 0);  // and it is not woken by that peer again
  ASSERT_EQ(::send(peer.peer.wake_socket.get(), "", 1, 0), 1);
  EXPECT_EQ(::poll(&woken, 1, 0), 0);
  expect_bystanders_unharmed();
  peer.victim.reset();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
}

TEST_F(Descriptors, InUnreadWakeUpsHoldUpNoQueuePairsEnd) {
  SlowClose slow;
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  slow.put_into(peer.peer.wake_socket.get());
  peer.victim.reset();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
  expect_bystanders_unharmed();
}

// A datagram socket whose other end is gone discards its queue when it is sent to; so wake-ups are
// sent in a way that does not.
TEST_F(Descriptors, InThePeersOwnWakeUpSocketHoldUpNoRing) {
  SlowClose slow;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Fd far(ends[1]);
  slow.put_into(far.get());
  far.reset();
  RawPeer peer(honest_.server, honest_.uri);
  peer.wake = Fd(ends[0]);
  peer.establish();
  peer.wake.reset();
  reinterpret_cast<DoorbellPage*>(peer.doorbells.mapping.base())->sleeping.store(1);
  peer.mine.state->wants.store(kWantsMessages);
  Buffer buffer = test_memory().get(4096);
  const fabric::SendWr wr = fabric::test::send_wr(1, {buffer.first(10)});
  ASSERT_EQ(peer.victim->post_send(std::span(&wr, 1)), 1u);
  peer.victim->disconnect();  // which rings, too
  EXPECT_GE(honest_.server.counter("doorbells"), 1u);
  expect_bystanders_unharmed();
  peer.victim.reset();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
}

// --- if there is no place for them ---

// The kernel closes descriptors for which the process has no place, in the thread that takes the
// packet.
TEST_F(Descriptors, ThatFindNoPlaceHoldUpNoOthers) {
  SlowClose slow;
  RawPeer peer(honest_.server, honest_.uri);
  pollfd hello = {peer.socket.get(), POLLIN, 0};
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return ::poll(&hello, 1, 0) == 1; }));
  {
    const Fd wrapped = slow.wrapped();
    const std::array<int, 2> fds = {null_.get(), wrapped.get()};
    ASSERT_EQ(peer.send({}, fds), SendResult::kSent);
  }
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest_free = ::dup(null_.get());
  ::close(lowest_free);
  const rlimit one_more{static_cast<rlim_t>(lowest_free) + 1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
  take_junk();
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  expect_bystanders_unharmed();
}

// A region that a peer shows meanwhile is learnt when there is a descriptor again, and so is a
// message there: it is no error.
TEST_F(Descriptors, ThatAreLackingForAMomentEndNoConnection) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  Buffer inbox = test_memory().get(4096);
  const fabric::ReceiveWr receive{1, inbox.span()};
  ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
  constexpr uint32_t kLate = 9;
  for (const bool by_message : {false, true}) {
    SCOPED_TRACE(by_message ? "found out by a message" : "found out by itself");
    const uint32_t region = kLate + by_message;
    const uint64_t before = honest_.server.counter("no_descriptors");
    {
      const rrdk::test::NoDescriptors now;
      ASSERT_EQ(peer.send_region(peer.region.fd.get(), region, 4096), SendResult::kSent);
      if (by_message) {
        peer.publish({.length = 8, .num_sges = 1, .sges = {RemoteSge{0, region, 8}}});
        std::array<fabric::Completion, 4> completions;
        EXPECT_EQ(honest_.server.cq->poll(completions), 0u);
      }
      EXPECT_TRUE(pump_until({&honest_.server},
                             [&] { return honest_.server.counter("no_descriptors") > before; }));
      for (int i = 0; i < 1000; ++i)
        honest_.server.pump();
      EXPECT_TRUE(honest_.server.completions.empty());
    }
    if (!by_message)
      peer.publish({.length = 8, .num_sges = 1, .sges = {RemoteSge{0, region, 8}}});
    ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
    EXPECT_EQ(honest_.server.completions.front().status, fabric::WcStatus::kSuccess);
    EXPECT_EQ(honest_.server.counter("no_descriptors"), before + 1);
    honest_.server.completions.clear();
    ASSERT_EQ(peer.victim->post_receive(std::span(&receive, 1)), 1u);
  }
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 0u);
  EXPECT_EQ(honest_.server.counter("bad_regions"), 0u);
}

// No thread is kept busy looking for one.
TEST_F(Descriptors, ThatAreLackingAreLookedForNowAndThen) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  const rrdk::test::NoDescriptors now;
  ASSERT_EQ(peer.send_region(peer.region.fd.get(), 9, 4096), SendResult::kSent);
  EXPECT_TRUE(
      pump_until({&honest_.server}, [&] { return honest_.server.counter("no_descriptors") != 0; }));
  epoll_event event;  // poll() needs a place for one
  EXPECT_TRUE(pump_until({&honest_.server}, [&] {
    return ::epoll_wait(honest_.server.device->event_fd(), &event, 1, 0) == 0;
  }));
  EXPECT_FALSE(honest_.server.has_event(EventType::kDisconnected));
}

// The data path may be the first to find a free descriptor again.
TEST_F(Descriptors, ThatAReadFindsAgainLeaveTheSocketToBeRead) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  constexpr uint32_t kLate = 9, kKey = 0x15;
  show_for_reading(peer, kLate, kKey);
  {
    const rrdk::test::NoDescriptors now;
    ASSERT_EQ(peer.send_region(peer.region.fd.get(), kLate, 4096), SendResult::kSent);
    EXPECT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.counter("no_descriptors") != 0; }));
  }
  Buffer buffer = test_memory().get(4096);
  const fabric::SendWr read =
      fabric::test::access_wr(7, fabric::Op::kRead, buffer.first(32), kKey, 0x1000);
  ASSERT_EQ(peer.victim->post_send(std::span(&read, 1)), 1u);
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return !honest_.server.completions.empty(); }));
  EXPECT_EQ(honest_.server.completions.front().status, fabric::WcStatus::kSuccess);
  ASSERT_EQ(::send(peer.socket.get(), "", 1, 0), 1);  // costs the peer its connection
  expect_disconnected("broken_sockets");
}

// A packet that brings descriptors where no honest peer sends any is not waited for.
TEST_F(Descriptors, ThatAreLackingForNonsenseAreNoExcuse) {
  RawPeer visitor(honest_.server, honest_.uri);
  pollfd hello = {visitor.socket.get(), POLLIN, 0};
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return ::poll(&hello, 1, 0) == 1; }));
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  fabric::test::End client{honest_.uri};
  RawServer server(client, new_uri());
  server.receive(MessageType::kConnect);
  const rrdk::test::NoDescriptors now;
  ASSERT_EQ(visitor.send_region(visitor.region.fd.get(), 9, 4096), SendResult::kSent);
  ASSERT_EQ(peer.send(peer.connect_message(), peer.descriptors()), SendResult::kSent);
  ASSERT_EQ(server.send_region(server.region.fd.get(), 9, 4096), SendResult::kSent);
  EXPECT_TRUE(pump_until({&honest_.server}, [&] {
    return honest_.server.has_event(EventType::kDisconnected) &&
           honest_.server.counter("handshakes_refused") == 1;
  }));
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 1u);
  EXPECT_EQ(peer.theirs.state->closed.load(), static_cast<uint32_t>(CloseReason::kProtocol));
  EXPECT_EQ(honest_.server.counter("no_descriptors"), 0u);
  EXPECT_EQ(honest_.server.counter("accept_failures"), 0u);
  EXPECT_TRUE(pump_until({&client}, [&] { return client.has_event(EventType::kConnectFailed); }));
  EXPECT_EQ(client.take_event(EventType::kConnectFailed).ending.code, Errc::kNotAPeer);
}

// A peer that dies meanwhile is gone; a peer whose region finds no place for long is told why.
TEST_F(Descriptors, ThatAreLackingForLongEndTheConnection) {
  for (const bool dies : {true, false}) {
    SCOPED_TRACE(dies ? "the peer dies" : "the peer stays");
    RawPeer peer(honest_.server, honest_.uri);
    peer.establish();
    const rrdk::test::NoDescriptors now;
    const uint64_t before = honest_.server.counter("no_descriptors");
    ASSERT_EQ(peer.send_region(peer.region.fd.get(), 9, 4096), SendResult::kSent);
    EXPECT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.counter("no_descriptors") > before; }));
    if (dies)
      peer.socket.reset();
    EXPECT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.has_event(EventType::kDisconnected); }));
    const std::string reason = honest_.server.take_event(EventType::kDisconnected).ending.text;
    EXPECT_EQ(reason.find("RLIMIT_NOFILE") == std::string::npos, dies) << reason;
    EXPECT_EQ(honest_.server.counter("peers_lost"), 1u);
  }
  EXPECT_EQ(honest_.server.counter("broken_sockets"), 0u);
}

// A Read does not wait.
TEST_F(Descriptors, ThatAreLackingForAReadAreNoFaultOfThePeer) {
  RawPeer peer(honest_.server, honest_.uri);
  peer.establish();
  constexpr uint32_t kLate = 9, kKey = 0x15;
  show_for_reading(peer, kLate, kKey);
  Buffer buffer = test_memory().get(4096);
  const rrdk::test::NoDescriptors now;
  ASSERT_EQ(peer.send_region(peer.region.fd.get(), kLate, 4096), SendResult::kSent);
  const fabric::SendWr read =
      fabric::test::access_wr(7, fabric::Op::kRead, buffer.first(32), kKey, 0x1000);
  ASSERT_EQ(peer.victim->post_send(std::span(&read, 1)), 1u);
  EXPECT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.has_event(EventType::kDisconnected); }));
  const std::string reason = honest_.server.take_event(EventType::kDisconnected).ending.text;
  EXPECT_NE(reason.find("RLIMIT_NOFILE"), std::string::npos) << reason;
  EXPECT_EQ(honest_.server.counter("bad_keys"), 0u);
}

// This process lacks them; the server does not break the protocol.
TEST_F(Descriptors, ThatAreLackingForAServersMemoryAreNamed) {
  fabric::test::End client{honest_.uri};
  RawServer server(client, new_uri());
  server.receive(MessageType::kConnect);
  const rrdk::test::NoDescriptors now;
  ASSERT_EQ(server.send(server.offer(MessageType::kAccept), server.descriptors()),
            SendResult::kSent);
  EXPECT_TRUE(pump_until({&client}, [&] { return client.has_event(EventType::kConnectFailed); }));
  const fabric::Event event = client.take_event(EventType::kConnectFailed);
  EXPECT_EQ(event.ending.code, Errc::kSystem);
  EXPECT_NE(event.ending.text.find("RLIMIT_NOFILE"), std::string::npos) << event.ending.text;
}

// A client whose request finds no place is not to blame either.
TEST_F(Descriptors, ThatAreLackingForARequestAreNoFaultOfThePeer) {
  RawPeer peer(honest_.server, honest_.uri);
  pollfd hello = {peer.socket.get(), POLLIN, 0};
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return ::poll(&hello, 1, 0) == 1; }));
  const rrdk::test::NoDescriptors now;
  ASSERT_EQ(peer.send(peer.connect_message(), peer.descriptors()), SendResult::kSent);
  EXPECT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.counter("accept_failures") != 0; }));
  EXPECT_EQ(honest_.server.counter("handshakes_refused"), 0u);
}

// Silent visitors hold the descriptors that it lacks: they are dropped, and the one that asks is
// not, however old it is.
TEST_F(Descriptors, ThatSilentVisitorsHoldAreForOneThatAsks) {
  constexpr int kSilent = 20;
  const std::string path = parse_address(honest_.uri).value().path;
  const auto greeted = [&](int socket) {
    pollfd hello = {socket, POLLIN, 0};
    return pump_until({&honest_.server}, [&] { return ::poll(&hello, 1, 0) == 1; });
  };
  RawPeer peer(honest_.server, honest_.uri);
  ASSERT_TRUE(greeted(peer.socket.get()));
  std::vector<Fd> silent;
  for (int i = 0; i < kSilent; ++i)
    ASSERT_TRUE(greeted(silent.emplace_back(connect_socket(path).value()).get()));
  {
    const rrdk::test::NoDescriptors now;
    ASSERT_EQ(peer.send(peer.connect_message(), peer.descriptors()), SendResult::kSent);
    EXPECT_TRUE(pump_until({&honest_.server}, [&] {
      return honest_.server.counter("visitors_dropped") >= kConnectDescriptors;
    }));
  }
  ASSERT_TRUE(pump_until({&honest_.server},
                         [&] { return honest_.server.has_event(EventType::kConnectRequest); }));
  EXPECT_EQ(honest_.server.counter("accept_failures"), 1u);
  EXPECT_EQ(honest_.server.counter("handshakes_refused"), 0u);
  const fabric::Event event = honest_.server.take_event(EventType::kConnectRequest);
  const auto accepted = event.request->create_queue_pair({.cq = honest_.server.cq.get()}).value();
  ASSERT_TRUE(event.request->accept(*accepted, {}));
  EXPECT_EQ(peer.receive(MessageType::kAccept).kind, Received::Kind::kMessage);
}

// If no visitor holds them, the application is told; and a peer that goes is not waited for.
TEST_F(Descriptors, ThatAreLackingForARequestAreAskedFor) {
  RawPeer peer(honest_.server, honest_.uri);
  pollfd hello = {peer.socket.get(), POLLIN, 0};
  ASSERT_TRUE(pump_until({&honest_.server}, [&] { return ::poll(&hello, 1, 0) == 1; }));
  const rrdk::test::NoDescriptors now;
  ASSERT_EQ(peer.send(peer.connect_message(), peer.descriptors()), SendResult::kSent);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(pump_until({&honest_.server},
                           [&] { return honest_.server.has_event(EventType::kShortage); }));
    EXPECT_EQ(honest_.server.take_event(EventType::kShortage).listener, honest_.listener.get());
  }
  peer.socket.reset();
  auto& device = static_cast<Device&>(*honest_.server.device);
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return device.visitors().empty(); }));
}

// The users of connecting visitors are unknown before these are accepted.
TEST_F(Descriptors, FromUnacceptedVisitorsDoNotDelayTheListenersEnd) {
  SlowClose slow;
  const std::string uri = new_uri();
  auto listener = honest_.server.device->listen(uri).value();
  {
    const Fd visitor = connect_socket(parse_address(uri).value().path).value();
    slow.put_into(visitor.get());
  }
  listener.reset();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
}

// --- the threads that close them ---

// However many packets are queued before it.
TEST_F(Descriptors, BehindManyPacketsAreClosedEvenIfTheyLinger) {
  SlowClose slow;
  auto peer = send_junk({null_.get()});
  constexpr int kPackets = 2000;
  const int room = 8 << 20;
  if (::setsockopt(peer->socket.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)) != 0)
    GTEST_SKIP() << "needs CAP_NET_ADMIN, or another net.core.wmem_max";
  for (int i = 0; i < kPackets; ++i)
    ASSERT_EQ(::send(peer->socket.get(), "", 0, MSG_DONTWAIT), 0);
  slow.put_into(peer->socket.get());
  take_junk();
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return slow.is_reset(); }));
}

// A socket can be made to bring a descriptor of its sender's process with each packet.
TEST_F(Descriptors, PidfdsOfSendersAreClosedToo) {
  constexpr int kPassPidfd = 76;  // SO_PASSPIDFD, which the C library does not know yet
  {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd socket(ends[0]);
    const Fd sender(ends[1]);
    const int on = 1;
    if (::setsockopt(socket.get(), SOL_SOCKET, kPassPidfd, &on, sizeof(on)) != 0)
      GTEST_SKIP() << "Linux before 6.5 knows no SO_PASSPIDFD";
    for (int i = 0; i < 100; ++i)
      ASSERT_EQ(::send(sender.get(), "", 1, 0), 1);
    take_junk({socket.get()});
  }
  take_junk(std::vector<int>(10, null_.get()));
  expect_all_closed();
}

// pthread_create() fails as it does when the system has no thread left.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_getattr_default_np(&before_);
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST_F(Descriptors, AreClosedByTheThreadsThatThereAre) {
  take_junk({null_.get()});
  expect_all_closed();  // by a thread, which now waits
  {
    std::vector<SlowClose> slow(3);
    {
      const NoThreads none;
      std::vector<Fd> wrapped;
      std::vector<int> fds;
      for (SlowClose& s : slow)
        fds.push_back(wrapped.emplace_back(s.wrapped()).get());
      const auto peer = send_junk(fds);
      wrapped.clear();
      take_junk();
      take_junk({null_.get()});
      expect_bystanders_unharmed();
    }
  }
  take_junk({null_.get()});
  expect_all_closed();
}

// The end of a socket is readable until it is closed: meanwhile it is not polled.
TEST_F(Descriptors, ThatDoNotCloseCauseNoWakeUps) {
  std::vector<SlowClose> slow(6);
  for (SlowClose& s : slow) {
    RawPeer peer(honest_.server, honest_.uri);
    Fd wrapped = s.wrapped();
    const int fd = wrapped.get();
    ASSERT_EQ(::send(peer.socket.get(), "", 1, 0), 1);  // costs the peer its connection
    ASSERT_EQ(send_message(peer.socket.get(), {}, std::span(&fd, 1)), SendResult::kSent);
    wrapped.reset();  // before the server has it: the last one to close it waits
    take_junk();
  }
  pollfd events = {honest_.server.device->event_fd(), POLLIN, 0};
  EXPECT_TRUE(pump_until({&honest_.server}, [&] { return ::poll(&events, 1, 0) == 0; }));
}

// A descriptor that cannot take long to close has its own thread, and takes no place of those that
// may.
TEST_F(Descriptors, ThatDoNotCloseDoNotDelayThoseThatDo) {
  std::vector<SlowClose> slow(8);
  for (SlowClose& s : slow)
    take_slow(s);
  take_junk(std::vector<int>(200, null_.get()));
  const auto visit = [&] { return connect_socket(parse_address(honest_.uri).value().path); };
  std::vector<Fd> stay;
  ASSERT_TRUE(pump_until({&honest_.server}, [&] {
    stay.push_back(visit().value());
    for (int i = 0; i < 10000; ++i)
      honest_.server.pump();
    return honest_.server.counter("visitors_refused") > 0;
  }));
  constexpr uint64_t kVisits = 3000;
  const uint64_t before = honest_.server.counter("visitors_refused");
  for (uint64_t i = 1; i <= kVisits; ++i) {
    const Fd visitor = visit().value();
    ASSERT_TRUE(pump_until({&honest_.server}, [&] {
      return honest_.server.counter("visitors_refused") >= before + i;
    })) << i;
  }
  expect_bystanders_unharmed();
}

}  // namespace
}  // namespace rrdk::shm::test
