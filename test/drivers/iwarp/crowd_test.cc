// Peers that come in large numbers, are slow, or never stop.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <list>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "../../client/log_lines.h"
#include "drivers/iwarp/device.h"
#include "test/drivers/iwarp/raw_client.h"
#include "test/no_descriptors.h"

namespace rrdk::iwarp::test {
namespace {

using Crowd = RawClient;
using namespace std::chrono_literals;

Device& device_of(Pair& pair) {
  return static_cast<Device&>(*pair.server.device);
}

// As many peers of each kind as a device lets wait.
constexpr size_t kMost = 1024;

// While it lives there are descriptors for both ends of many connections, if the system allows
// that.
struct ManyFiles {
  ManyFiles() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
    before = now;
    now.rlim_cur = std::min<rlim_t>(now.rlim_max, 8192);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &now), 0);
  }
  ~ManyFiles() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0); }
  ManyFiles(const ManyFiles&) = delete;
  ManyFiles& operator=(const ManyFiles&) = delete;

  rlimit now{}, before{};
};

// The peer that has waited longest is dropped; a peer that sends its request is served.
TEST_F(Crowd, PeersThatNeverAskDoNotKeepOthersOut) {
  const ManyFiles files;
  if (files.now.rlim_cur < 4096)
    GTEST_SKIP() << "only " << files.now.rlim_cur << " file descriptors";
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
}

// An IPv4 address of this machine other than the loopback's, or empty.
std::string other_address() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0)
    return {};
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    const bool is_other = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_other && one->ifa_addr != nullptr && one->ifa_addr->sa_family == AF_INET)
      found = drivers::host_of(drivers::endpoint_of(one->ifa_addr));
  }
  ::freeifaddrs(all);
  return found;
}

// A host with many addresses counts as one: it takes no place from another host, however slow that
// is.
TEST_F(Crowd, AFloodFromManyAddressesOfAHostCostsOnlyThatHostItsPlaces) {
  const std::string other = other_address();
  if (other.empty())
    GTEST_SKIP() << "this machine has no IPv4 address but its loopback";
  const ManyFiles files;
  if (files.now.rlim_cur < 4096)
    GTEST_SKIP() << "only " << files.now.rlim_cur << " file descriptors";
  peer_ = RawPeer(pair_.uri, other);
  std::vector<RawPeer> flood;
  for (size_t i = 0; i != kMost + 100; ++i) {
    flood.emplace_back(pair_.uri,
                       "127.1." + std::to_string(i / 200) + "." + std::to_string(1 + i % 200));
    pair_.server.pump();
  }
  ASSERT_TRUE(until([&] { return pair_.server.counter("visitors_dropped") >= 100; }));
  connect();
}

TEST(OldestOfMost, BreaksTiesBetweenOwnersByAge) {
  using Visitor = std::pair<char, int>;  // its owner, and a number
  const auto goes = [](const std::list<Visitor>& visitors) {
    return drivers::oldest_of_most(visitors, &Visitor::first).second;
  };
  EXPECT_EQ(goes({{'c', 1}, {'a', 2}, {'b', 3}}), 1);
  EXPECT_EQ(goes({{'c', 1}, {'b', 2}, {'a', 3}, {'a', 4}, {'b', 5}}), 2);
  EXPECT_EQ(goes({{'c', 1}, {'b', 2}, {'a', 3}, {'a', 4}}), 3);
}

// Such a peer is never among those whose places others may take.
TEST_F(Crowd, ARequestThatIsThereIsTakenAtOnce) {
  RawPeer early(pair_.uri);
  early.shake(request());
  while (!early.has_arrived())
    std::this_thread::yield();
  ASSERT_TRUE(pair_.pump_until([&] {
    EXPECT_LE(device_of(pair_).visitors().size(), 1u) << "beside the test's own";
    return pair_.server.has_event(EventType::kConnectRequest);
  }));
}

TEST_F(Crowd, ARequestHasATimeLimit) {
  const Bytes frame = encode(request());
  peer_.say(Bytes(frame.begin(), frame.begin() + 10));
  ASSERT_TRUE(until([&] { return !device_of(pair_).visitors().empty(); }));
  const std::lock_guard lock(device_of(pair_).control().mutex());
  device_of(pair_).visitors().front()->on_tick(drivers::Clock::now() + 9s);
  EXPECT_EQ(device_of(pair_).visitors().size(), 1u);
  // Data that arrives meanwhile does not extend the time.
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
  loopback::LogLines log;
  uint64_t failures = 0;
  {
    const rrdk::test::NoDescriptors now;
    // A peer that waits for nothing is dropped first; the limit stays the same.
    EXPECT_TRUE(until([&] { return pair_.server.counter("accept_failures") >= 2; }));
    for (int i = 0; i != 100; ++i)
      pair_.server.pump();
    failures = pair_.server.counter("accept_failures");
  }
  EXPECT_GE(log.count(LogLevel::kWarning, "connections wait to be accepted", "RLIMIT_NOFILE"), 1);
  EXPECT_LT(failures, 50u);
  EXPECT_TRUE(pair_.server.has_event(fabric::EventType::kShortage));
  EXPECT_EQ(pair_.server.counter("visitors_dropped"), 1u);
  ASSERT_TRUE(until([&] { return !device_of(pair_).visitors().empty(); }));
}

// The peer reads nothing and never closes: neither data not sent yet nor its silence keeps the
// socket open.
TEST_F(Crowd, APeerThatStaysAfterItsOwnFaultIsLetGo) {
  for (const bool is_full : {false, true}) {
    SCOPED_TRACE(is_full ? "with bytes that it does not take" : "with all that there was to say");
    connect();
    Buffer large = fabric::test::test_memory().get(1 << 20);
    uint32_t key = 0;
    ASSERT_TRUE(qp_->reserve_keys({&key, 1}));
    run(fabric::test::bind_wr(1, key, large.first(1 << 20), Rights::kRemoteRead));
    if (is_full) {
      peer_.take_little();
      for (uint32_t i = 1; i != kReads + 1; ++i)
        peer_.say(read_request(i, {.sink_stag = 5,
                                   .length = 1 << 20,
                                   .source_stag = key,
                                   .source_offset = fabric::test::address_of(large.data())}));
      ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.counter("tcp_waits") != 0; }));
    }
    peer_.say(send(7, payload(8)));
    ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
    EXPECT_EQ(device_of(pair_).partings().size(), 1u);
    ASSERT_TRUE(pair_.pump_until([&] { return device_of(pair_).partings().empty(); }));
    pair_.server.events.clear();
    qp_.reset();
    peer_ = RawPeer(pair_.uri);
  }
  connect();
}

// There is always another Read from the peer to answer; our own requests have their turns in
// between.
TEST_F(Crowd, APeerThatNeverStopsReadingDoesNotKeepUsFromSending) {
  constexpr uint32_t kSize = 16 << 20;  // more than TCP takes
  constexpr uint32_t kMostAnswers = 2 * kReads;
  connect();
  RegisteredMemory large = fabric::test::test_memory().allocate(kSize).value();
  uint32_t key = 0;
  ASSERT_TRUE(qp_->reserve_keys({&key, 1}));
  run(fabric::test::bind_wr(1, key, large.span(0, kSize), Rights::kRemoteRead));
  uint32_t asked = 0;
  const auto ask = [&] {
    peer_.say(read_request(++asked, {.sink_stag = 5,
                                     .length = kSize,
                                     .source_stag = key,
                                     .source_offset = fabric::test::address_of(large.data())}));
  };
  for (uint32_t i = 0; i != kReads; ++i)
    ask();
  ASSERT_TRUE(pair_.pump_until([&] { return pair_.server.counter("tcp_waits") != 0; }));
  const fabric::SendWr wr = fabric::test::send_wr(7, {memory_.first(64)});
  ASSERT_EQ(qp_->post_send({&wr, 1}), 1u);
  uint32_t answers = 0;
  bool sent = false;
  ASSERT_TRUE(until([&] {
    while (const auto segment = peer_.take_segment()) {
      sent = sent || segment->header.opcode == Opcode::kSend;
      if (segment->header.opcode == Opcode::kReadResponse && segment->header.last) {
        ++answers;
        ask();
      }
    }
    return sent || answers >= kMostAnswers;
  }));
  EXPECT_TRUE(sent);
  qp_.reset();  // before its memory
}

// TCP takes nothing for a while, cuts messages at any byte, and then takes everything. Copied
// Sends, whose memory was reused at once, long Sends and Writes arrive whole and in order, and each
// requested completion is reported once.
TEST_F(Crowd, QueuedDataArrivesWholeAndInOrder) {
  constexpr uint32_t kWritten = 70'000;
  constexpr uint32_t kLong = 5'000;
  constexpr uint32_t kMostMessages = 3'000;
  for (const bool crc : {false, true}) {
    SCOPED_TRACE(crc ? "with CRCs" : "without CRCs");
    MpaFrame asked = request();
    asked.crc = crc;
    connect(asked);
    peer_.take_little();
    peer_.say(fpdu({.tagged = true, .last = true, .opcode = Opcode::kWrite}, {}, crc));
    const Bytes pattern = payload(kWritten);
    std::ranges::copy(pattern, memory_.data());
    const auto fill_of = [](uint32_t i) { return static_cast<std::byte>(i * 31 + 1); };
    const auto length_of = [](uint32_t i) { return i * 37 % 257; };
    std::byte* const scratch = memory_.data() + 100'000;
    const uint64_t full = pair_.server.counter("tcp_waits");
    uint32_t posted = 0;
    uint32_t left = 60;  // messages behind what fills TCP: less than the queue holds
    while (left != 0 && posted != kMostMessages) {
      const uint32_t i = posted;
      fabric::SendWr wr = fabric::test::send_wr(i, {memory_.first(kLong)});
      wr.signaled = i % 6 == 4;
      if (i % 3 == 0) {
        wr.copied = true;
        wr.sges[0] = {scratch, length_of(i), memory_.region()};
        std::fill_n(scratch, length_of(i), fill_of(i));
      } else if (i % 3 == 2) {
        wr = fabric::test::access_wr(i, fabric::Op::kWrite, memory_.first(kWritten), 9, i);
        wr.signaled = i % 6 == 5;
      }
      if (qp_->post_send({&wr, 1}) == 0) {
        pair_.server.pump();
        continue;
      }
      std::fill_n(scratch, 256, std::byte{0});
      ++posted;
      left -= pair_.server.counter("tcp_waits") != full;
    }
    ASSERT_EQ(left, 0u) << "TCP is never full";

    uint32_t taken = 0;  // whole messages
    Bytes message;
    ASSERT_TRUE(until([&] {
      while (const auto segment = peer_.take_segment()) {
        if (segment->header.opcode == Opcode::kWrite) {
          EXPECT_EQ(taken % 3, 2u);
          EXPECT_EQ(segment->header.offset, taken + message.size());
        } else {
          EXPECT_EQ(segment->header.number, taken / 3 * 2 + taken % 3 + 1);
          EXPECT_EQ(segment->header.offset, message.size());
        }
        message.insert(message.end(), segment->payload.begin(), segment->payload.end());
        if (!segment->header.last)
          continue;
        const Bytes expected =
            taken % 3 == 0
                ? Bytes(length_of(taken), fill_of(taken))
                : Bytes(pattern.begin(), pattern.begin() + (taken % 3 == 1 ? kLong : kWritten));
        EXPECT_TRUE(message == expected) << "message " << taken;
        message.clear();
        ++taken;
      }
      return taken == posted || HasFailure();
    }));
    EXPECT_EQ(taken, posted);
    uint32_t next = 4;
    for (const fabric::Completion& done : completions()) {
      EXPECT_EQ(done.status, WcStatus::kSuccess);
      EXPECT_EQ(done.wr_id, next);
      next += next % 6 == 4 ? 1 : 5;
    }
    EXPECT_GE(next, posted);
    // The end comes while some Sends are in progress; copied Sends are not reported.
    peer_.finish();
    ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kDisconnected); }));
    pair_.server.events.clear();
    pair_.server.completions.clear();
    qp_.reset();
    peer_ = RawPeer(pair_.uri);
  }
  connect();
}

// On both the connecting and the accepting side, the system ends connections that a dead peer or a
// cut cable leaves behind when nothing is in progress. Otherwise Silence decides: TCP's own limit
// would also end the connection to a stopped process.
TEST(Sockets, GiveUpOnAPeerThatIsSilent) {
  const Pair pair("iwarp://127.0.0.1:0?silence=90");
  std::multiset<int> idle;
  for (int fd = 0; fd != 1024; ++fd) {
    tcp_info info{};
    socklen_t length = sizeof(info);
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
        info.tcpi_state != TCP_ESTABLISHED)
      continue;
    const auto option = [fd](int level, int name) {
      int value = 0;
      socklen_t size = sizeof(value);
      EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0);
      return value;
    };
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    idle.insert(option(IPPROTO_TCP, TCP_KEEPIDLE));
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), option(IPPROTO_TCP, TCP_KEEPIDLE));
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 2);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  }
  EXPECT_EQ(idle, (std::multiset{10, 30})) << "the client's, and the server's of 90 s in all";
}

// It asks to connect and is gone: our reply is not even acknowledged. test/netns/testrpc.sh cuts a
// link while calls are in progress.
TEST_F(Crowd, AHostThatGoesDuringTheHandshakeIsGivenUp) {
  const auto impatient = pair_.server.device->listen("iwarp://127.0.0.1:0?silence=3").value();
  peer_ = RawPeer(impatient->uri());
  peer_.shake(request());
  ASSERT_TRUE(until([&] { return pair_.server.has_event(EventType::kConnectRequest); }));
  const fabric::Event asked = pair_.server.take_event(EventType::kConnectRequest);
  peer_.go_dark();
  qp_ = asked.request->create_queue_pair({.cq = pair_.server.cq.get()}).value();
  ASSERT_TRUE(asked.request->accept(*qp_, {}));
  ASSERT_TRUE(until([&] {
    std::this_thread::sleep_for(5ms);  // leaves the CPU to others
    return pair_.server.has_event(EventType::kDisconnected);
  }));
  EXPECT_EQ(pair_.server.take_event(EventType::kDisconnected).ending.text,
            "the peer's host does not answer any more");
  EXPECT_TRUE(device_of(pair_).partings().empty()) << "it is not waited for";
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

// Each byte is damaged in turn: no damaged message is received.
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

// Reads that a peer takes as fast as they come are answered in turns: others are polled in between.
TEST_F(Crowd, APeerThatTakesAllThatItReadsDoesNotKeepTheCore) {
  constexpr uint32_t kSize = 16 << 20;
  constexpr uint64_t kMostAtOnce = 16 << 20;  // data that TCP had from earlier turns, too
  connect();
  RegisteredMemory large = fabric::test::test_memory().allocate(kSize).value();
  uint32_t key = 0;
  ASSERT_TRUE(qp_->reserve_keys({&key, 1}));
  run(fabric::test::bind_wr(1, key, large.span(0, kSize), Rights::kRemoteRead));
  for (uint32_t i = 1; i != kReads + 1; ++i)
    peer_.say(read_request(i, {.sink_stag = 5,
                               .length = kSize,
                               .source_stag = key,
                               .source_offset = fabric::test::address_of(large.data())}));
  std::atomic<uint64_t> taken = 0;
  std::thread taking([&] {
    while (taken < uint64_t{kReads} * kSize && !peer_.closed())
      taken += peer_.discard();
  });
  uint64_t most = 0;
  EXPECT_TRUE(pair_.pump_until([&] {
    const uint64_t before = taken;
    pair_.server.pump();
    most = std::max(most, taken - before);
    return taken >= uint64_t{kReads} * kSize;
  }));
  taking.join();
  EXPECT_LE(most, kMostAtOnce);
  qp_.reset();  // before its memory: TCP's bytes include headers, so not all has been sent
}

// Each may take its time to close, without a cost for others.
TEST_F(Crowd, PeersThatDoNotCloseDoNotKeepOthersFromTheirAnswer) {
  const ManyFiles files;
  if (files.now.rlim_cur < 4096)
    GTEST_SKIP() << "only " << files.now.rlim_cur << " file descriptors";
  MpaFrame refused = request();
  refused.markers = true;
  std::vector<RawPeer> staying;
  for (size_t i = 0; i != kMost + 100; ++i) {
    staying.emplace_back(pair_.uri);
    staying.back().shake(refused);
    ASSERT_TRUE(pair_.pump_until([&] {
      staying.back().pull();
      return !staying.back().got().empty() || staying.back().closed();
    }));
    ASSERT_TRUE(staying.back().take_reply()) << i;
  }
  EXPECT_LE(device_of(pair_).partings().size(), kMost);
  connect();
}

// The peer counts for its user's connections, however soon it has gone.
TEST_F(Crowd, APeerThatResetsIsKnownAllTheSame) {
  RawPeer gone(pair_.uri);
  pair_.server.pump();
  gone.shake(request());
  gone.reset();
  ASSERT_TRUE(pair_.pump_until([&] {
    return pair_.server.has_event(EventType::kConnectRequest) ||
           pair_.server.counter("handshakes_cut") != 0;
  }));
  if (!pair_.server.has_event(EventType::kConnectRequest))
    GTEST_SKIP() << "the reset came first";
  const fabric::Event event = pair_.server.take_event(EventType::kConnectRequest);
  EXPECT_EQ(event.request->peer().remote.host, "127.0.0.1");
  EXPECT_NE(event.request->identity(), fabric::Identity{});
}

}  // namespace
}  // namespace rrdk::iwarp::test
