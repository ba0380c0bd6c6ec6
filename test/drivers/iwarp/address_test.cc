// Addresses and their options; and connections over IPv6, to names, with CRCs.
#include "drivers/iwarp/address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <filesystem>

#include "base/system.h"
#include "drivers/common/endpoint.h"
#include "drivers/iwarp/congestion.h"
#include "test/fabric/end.h"

namespace rrdk::iwarp::test {
namespace {

using fabric::EventType;
using fabric::WcStatus;
using fabric::test::Pair;

// Shows: BIND-02, BIND-14
TEST(Address, HasItsOptions) {
  const Address plain = parse_address("iwarp://10.0.0.1").value();
  EXPECT_EQ(plain.port, 20049);
  EXPECT_FALSE(plain.crc);
  EXPECT_EQ(plain.mpa_revision, 2);
  EXPECT_FALSE(plain.timeout);
  EXPECT_EQ(plain.silence, std::chrono::seconds(30));
  EXPECT_EQ(plain.congestion, "");
  const Address all =
      parse_address("iwarp://[fe80::1%lo]:99?crc=1&mpa=1&timeout=5&silence=60&congestion=vegas")
          .value();
  EXPECT_EQ(all.host, "fe80::1%lo");
  EXPECT_EQ(all.port, 99);
  EXPECT_TRUE(all.crc);
  EXPECT_EQ(all.mpa_revision, 1);
  EXPECT_EQ(all.timeout, std::chrono::seconds(5));
  EXPECT_EQ(all.silence, std::chrono::minutes(1));
  EXPECT_EQ(all.congestion, "vegas");
}

TEST(Address, NamesWhatIsWrong) {
  for (const char* uri : {"iwarp:", "iwarp://h/path", "iwarp://h?crc=2", "iwarp://h?crc",
                          "iwarp://h?mpa=0", "iwarp://h?mpa=3", "iwarp://h?timeout=0",
                          "iwarp://h?timeout=3601", "iwarp://h?timeout=5s", "iwarp://h?silence=2",
                          "iwarp://h?silence=3601", "iwarp://h?silence=", "iwarp://h?congestion=",
                          "iwarp://h?congestion=longer_than_linux_has", "iwarp://h?markers=1"}) {
    const auto bad = parse_address(uri);
    ASSERT_FALSE(bad) << uri;
    EXPECT_EQ(bad.error().code, Errc::kBadUri);
    EXPECT_EQ(bad.error().message.find(uri), std::string::npos) << bad.error().message;
  }
}

TEST(Address, OnlyNamesNeedAResolver) {
  for (const char* uri : {"iwarp://127.0.0.1", "iwarp://[::1]"})
    EXPECT_NE(find(uri, fabric::Names::kRefused).value(), nullptr) << uri;
  EXPECT_EQ(find("iwarp://localhost", fabric::Names::kRefused).value(), nullptr);
  EXPECT_NE(find("iwarp://localhost", fabric::Names::kLookedUp).value(), nullptr);
}

// A message and its bytes.
void expect_speaks(Pair& pair) {
  pair.post_receives(*pair.server_qp, 1);
  Buffer from = fabric::test::test_memory().get(4096);
  std::fill_n(from.data(), 3000, std::byte{0x33});
  EXPECT_EQ(pair.run(fabric::test::send_wr(1, {from.first(3000)})).status, WcStatus::kSuccess);
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == 1; }));
  EXPECT_EQ(std::memcmp(pair.receive_buffers.at(0).data(), from.data(), 3000), 0);
}

// The pair's first connection, through another address of the same listener.
void reconnect(Pair& pair, const std::string& uri) {
  pair.client_qp.reset();
  pair.server_qp.reset();
  pair.client.events.clear();
  pair.server.events.clear();
  pair.uri = uri;
  std::tie(pair.client_qp, pair.server_qp) = pair.connect();
}

TEST(Connection, WorksOverIpv6) {
  fabric::test::End probe("iwarp:");
  if (!probe.device->listen("iwarp://[::1]:0"))
    GTEST_SKIP() << "this machine has no IPv6 loopback";
  Pair pair("iwarp://[::1]:0");
  EXPECT_EQ(pair.client_qp->peer().to_string(),
            pair.uri.substr(std::string_view("iwarp://").size()));
  EXPECT_TRUE(pair.server_qp->peer().to_string().starts_with("[::1]:"));
  // Each end's own address is the peer address of the other.
  EXPECT_EQ(pair.client_qp->peer().local, pair.server_qp->peer().remote);
  EXPECT_EQ(pair.server_qp->peer().local, pair.client_qp->peer().remote);
  EXPECT_EQ(pair.client_qp->peer().driver, "iwarp");
  EXPECT_FALSE(pair.client_qp->peer().process);
  expect_speaks(pair);
}

TEST(Connection, HasCrcsWhenAskedForOne) {
  Pair pair("iwarp://127.0.0.1:0");
  reconnect(pair, pair.uri + "?crc=1");
  expect_speaks(pair);
}

TEST(Connection, NeedsNoRfc6581) {
  Pair pair("iwarp://127.0.0.1:0");
  reconnect(pair, pair.uri + "?mpa=1");
  expect_speaks(pair);
}

std::string congestion_of(int socket) {
  std::array<char, 16> name{};
  socklen_t length = name.size();
  return ::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0 ? name.data()
                                                                                      : "";
}

// The number of this process's connections from or to that address.
std::vector<std::string> congestions_of(const NetworkAddress& address) {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int socket = std::stoi(entry.path().filename());
    const Endpoint4Or6 far = far_end(socket);
    if (far.length == 0)
      continue;
    for (const Endpoint4Or6& end : {far, local_end(socket)})
      if (drivers::address_of(end) == address)
        all.push_back(congestion_of(socket));
  }
  return all;
}

base::Fd unconnected() {
  return base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

TEST(Connection, HasTheCongestionControlThatItsAddressNames) {
  for (const std::string name : {"reno", "bbr"}) {
    if (const auto probe = unconnected(); !set_congestion(probe.get(), name))
      continue;  // this kernel does not have it
    Pair pair("iwarp://127.0.0.1:0?congestion=" + name);
    reconnect(pair, pair.uri + "?congestion=" + name);
    EXPECT_EQ(congestions_of(pair.client_qp->peer().remote), (std::vector{name, name}));
    expect_speaks(pair);
  }
}

TEST(Connection, IsNotPacedOnOneHost) {
  const std::string usual = congestion_of(unconnected().get());
  Pair pair("iwarp://127.0.0.1:0");
  const auto all = congestions_of(pair.client_qp->peer().remote);
  ASSERT_EQ(all.size(), 2u);
  for (const std::string& its : all)
    EXPECT_TRUE(usual.starts_with("bbr") ? its == "cubic" || its == "reno" : its == usual) << its;
}

TEST(Connection, HasTheSystemsCongestionControlAcrossANetwork) {
  const base::Fd socket = unconnected();
  const std::string usual = congestion_of(socket.get());
  const auto at = [](const char* host) {
    return drivers::look_up(host, 1, fabric::Names::kRefused).value().endpoints.at(0);
  };
  set_congestion_of_host(socket.get(), at("10.0.0.1"), at("10.0.0.2"));
  EXPECT_EQ(congestion_of(socket.get()), usual);
  set_congestion_of_host(socket.get(), at("10.0.0.1"), at("10.0.0.1"));
  EXPECT_FALSE(congestion_of(socket.get()).starts_with("bbr"));
}

TEST(Connection, NamesTheCongestionControlsThatThereAre) {
  fabric::test::End end("iwarp:");
  const auto listener = end.device->listen("iwarp://127.0.0.1:0?congestion=nosuch");
  ASSERT_FALSE(listener);
  const auto qp = end.queue_pair();
  for (const Error& error :
       {listener.error(), end.connect_error(*qp, "iwarp://127.0.0.1:1?congestion=nosuch")}) {
    EXPECT_EQ(error.code, Errc::kUnsupported);
    EXPECT_NE(error.message.find("\"nosuch\""), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("tcp_available_congestion_control has: "), std::string::npos)
        << error.message;
  }
}

TEST(Connection, IsMadeToNames) {
  Pair pair("iwarp://127.0.0.1:0");
  const std::string port = pair.uri.substr(pair.uri.rfind(':'));
  reconnect(pair, "iwarp://localhost" + port);
  EXPECT_EQ(pair.client_qp->peer().to_string(), "127.0.0.1" + port);
  expect_speaks(pair);
}

// No address has answered yet.
TEST(Connection, IsGivenUpAtAnyTime) {
  Pair pair("iwarp://127.0.0.1:0");
  auto qp = pair.client.queue_pair();
  ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, {}));
  qp->disconnect();
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.has_event(EventType::kConnectFailed); }));
  auto dropped = pair.client.queue_pair();
  ASSERT_TRUE(pair.client.device->connect(*dropped, pair.uri, {}));
  dropped.reset();
  auto nobody = pair.client.queue_pair();
  EXPECT_EQ(pair.client.connect_error(*nobody, "iwarp://localhost:1").code, Errc::kNotFound);
}

// Which addresses belong to one host, and with which an address shares limits.
TEST(Identity, IdentifiesHostsAndTheirNetworks) {
  auto at = [](const char* host) {
    return drivers::look_up(host, 1, fabric::Names::kRefused).value().endpoints.front();
  };
  auto is_one = [&](const char* a, const char* b) {
    return drivers::identity_of(at(a)) == drivers::identity_of(at(b));
  };
  auto is_group = [&](const char* a, const char* b) {
    return drivers::group_of(at(a)) == drivers::group_of(at(b));
  };
  EXPECT_TRUE(is_one("10.0.0.1", "::ffff:10.0.0.1")) << "whichever socket it came to";
  EXPECT_FALSE(is_one("10.0.0.1", "10.0.0.2"));
  EXPECT_FALSE(is_group("10.0.0.1", "10.0.0.2"));
  EXPECT_FALSE(is_group("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
  EXPECT_FALSE(is_one("2001:db8:0:1::1", "2001:db8:0:1::2"));
  EXPECT_TRUE(is_group("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
  EXPECT_FALSE(is_group("2001:db8:0:1::1", "2001:db8:0:2::1"));
  EXPECT_FALSE(is_group("fe80::1", "fe80::2")) << "a link is no site";
  EXPECT_FALSE(is_group("::1", "::2"));
  EXPECT_FALSE(is_group("::2", "10.0.0.1"));
}

// Which network peers come from, however many addresses they have there.
TEST(Identity, IdentifiesOrigins) {
  auto at = [](const char* host) {
    return drivers::look_up(host, 1, fabric::Names::kRefused).value().endpoints.front();
  };
  auto origin = [&](const char* near, const char* far, uint32_t prefix = 24) {
    return drivers::origin_of(at(near), at(far), prefix);
  };
  constexpr const char* kFour = "10.9.9.9";
  constexpr const char* kSix = "2001:db8:9::9";
  EXPECT_EQ(origin(kFour, "10.0.0.1"), origin(kFour, "10.0.0.255"));
  EXPECT_EQ(origin(kFour, "10.0.0.1"), origin(kSix, "::ffff:10.0.0.2"));
  EXPECT_NE(origin(kFour, "10.0.0.1"), origin(kFour, "10.0.1.1"));
  EXPECT_NE(origin(kFour, "10.0.0.1", 32), origin(kFour, "10.0.0.2", 32));
  EXPECT_EQ(origin(kFour, "10.0.0.1", 1), origin(kFour, "100.0.0.2", 1));
  EXPECT_EQ(origin(kSix, "2001:db8:0:1::1"), origin(kSix, "2001:db8:0:1:ffff::2"));
  EXPECT_NE(origin(kSix, "2001:db8:0:1::1"), origin(kSix, "2001:db8:0:2::1"));
  EXPECT_EQ(origin("fe80::9", "fe80::1"), origin("fe80::9", "fe80::2"));
  // All of these are this host.
  const fabric::Identity here = origin("127.0.0.1", "127.0.0.1");
  EXPECT_TRUE(here.known());
  EXPECT_EQ(origin("127.0.0.1", "127.200.3.4"), here);
  EXPECT_EQ(origin("::1", "::1"), here);
  EXPECT_EQ(origin("::1", "::ffff:127.0.0.9"), here);
  EXPECT_EQ(origin(kFour, kFour), here);
  EXPECT_EQ(origin(kSix, kSix), here);
  EXPECT_NE(origin(kFour, "10.9.9.8"), here);
}

}  // namespace
}  // namespace rrdk::iwarp::test
