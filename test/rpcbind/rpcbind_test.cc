// Lookups in an rpcbind controlled by the test, entries in it, the addresses made from its answers,
// and calls over TCP to such a server.
#include "rrdk/rpcbind.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/system.h"
#include "rrdk/log.h"
#include "rrdk/tcp_call.h"
#include "rrdk/xdr.h"
#include "test/name_server.h"

namespace rrdk {
namespace {

constexpr RpcService kService = {0x20005700, 1};

using Words = std::vector<uint32_t>;

// The bytes of an XDR string: its length, the text, pad.
Words text(std::string_view s) {
  Words words(1 + (s.size() + 3) / 4);
  words[0] = static_cast<uint32_t>(s.size());
  std::memcpy(&words[1], s.data(), s.size());
  for (size_t i = 1; i < words.size(); ++i)
    words[i] = __builtin_bswap32(words[i]);
  return words;
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Words entry(const RpcService& service, std::string_view netid, std::string_view address) {
  return Words{1, service.program, service.version} + text(netid) + text(address) +
         text("superuser");
}

constexpr uint32_t kLast = 1u << 31;

// Serves one connection on its own thread: `serve` gets the socket, and the calls' first words.
class Directory {
 public:
  using Serve = std::function<void(Directory&)>;
  // At the loopback address of IPv6, or at this IPv4 address, and at this port.
  explicit Directory(Serve serve, bool v6 = false, in_addr_t v4 = INADDR_LOOPBACK,
                     uint16_t wanted = 0)
      : listener_(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage at{};
    at.ss_family = v6 ? AF_INET6 : AF_INET;
    if (v6)
      reinterpret_cast<sockaddr_in6&>(at).sin6_addr = in6addr_loopback;
    else
      reinterpret_cast<sockaddr_in&>(at).sin_addr.s_addr = htonl(v4);
    reinterpret_cast<sockaddr_in&>(at).sin_port = htons(wanted);  // where sockaddr_in6 has it, too
    socklen_t length = v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), length), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &length);
    port = ntohs(v6 ? reinterpret_cast<sockaddr_in6&>(at).sin6_port
                    : reinterpret_cast<sockaddr_in&>(at).sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      socket_ = base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket_)  // a caller came
        serve(*this);
      socket_.reset();
    });
  }
  ~Directory() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // no caller came
    thread_.join();
  }

  // The next call, whole; empty if the caller has left.
  Words hear() {
    Words mark(1);
    if (::recv(socket_.get(), mark.data(), 4, MSG_WAITALL) != 4)
      return {};
    Words call((ntohl(mark[0]) & ~kLast) / 4);
    ::recv(socket_.get(), call.data(), call.size() * 4, MSG_WAITALL);
    for (uint32_t& word : call)
      word = ntohl(word);
    return call;
  }
  bool say(Words words) {
    for (uint32_t& word : words)
      word = htonl(word);
    return ::send(socket_.get(), words.data(), words.size() * 4, MSG_NOSIGNAL) > 0;
  }
  bool answer(uint32_t xid, const Words& results) {
    Words reply = Words{xid, 1, 0, 0, 0, 0} + results;
    return say(Words{kLast | static_cast<uint32_t>(4 * reply.size())} + reply);
  }

  uint16_t port = 0;

 private:
  base::Fd listener_;
  base::Fd socket_;
  std::thread thread_;
};

Result<uint16_t> look_up(const Directory& directory, uint32_t timeout_ms = 20'000) {
  return rpcbind_lookup(kService,
                        {.host = "127.0.0.1", .port = directory.port, .timeout_ms = timeout_ms});
}

Errc error_of(const Result<uint16_t>& result) {
  return result ? Errc{-1} : result.error().code;
}

// Shows: BIND-10
TEST(UniversalAddress, GoesThereAndBack) {
  EXPECT_EQ(to_universal_address("10.0.0.1", 20049).value(), "10.0.0.1.78.81");
  EXPECT_EQ(to_universal_address("::1", 20049).value(), "::1.78.81");
  EXPECT_EQ(to_universal_address("fe80::1%eth0", 7).value(), "fe80::1.0.7");
  for (const char* host : {"0.0.0.0", "192.168.1.255", "::", "fe80::1:2"}) {
    for (uint16_t port : std::initializer_list<uint16_t>{0, 1, 255, 256, 20049, 65535}) {
      auto back = parse_universal_address(to_universal_address(host, port).value());
      ASSERT_TRUE(back);
      EXPECT_EQ(back->host, host);
      EXPECT_EQ(back->port, port);
    }
  }
}

TEST(UniversalAddress, RejectsOtherForms) {
  for (const char* wrong : {"", ".", "..", "1.2", "10.0.0.1", "10.0.0.1.78", "10.0.0.1.78.256",
                            "10.0.0.1.78.-1", "10.0.0.1.78.", "10.0.0.1..81", "host.78.81",
                            "10.0.0.1.78.81.", "10.0.0.1.78.81 ", "::1.78.x", "/run/rpcbind.sock"})
    EXPECT_FALSE(parse_universal_address(wrong)) << wrong;
  EXPECT_FALSE(to_universal_address("localhost", 1));
  EXPECT_FALSE(rpcbind_set(kService, "localhost", 1));
}

// Shows: BIND-01 BIND-11
TEST(Netid, IsThatOfTheAddressFamily) {
  EXPECT_STREQ(rpcbind_netid("10.0.0.1"), "rdma");
  EXPECT_STREQ(rpcbind_netid("0.0.0.0"), "rdma");
  EXPECT_STREQ(rpcbind_netid("::1"), "rdma6");
  EXPECT_STREQ(rpcbind_netid("fe80::1%eth0"), "rdma6");
}

const Words kList =
    entry({100003, 3}, "rdma", "0.0.0.0.78.81") + entry(kService, "tcp", "0.0.0.0.0.111") +
    entry({kService.program, 2}, "rdma", "0.0.0.0.1.1") + entry(kService, "rdma", "0.0.0.0.29.47") +
    entry(kService, "rdma6", "::.29.48") + Words{0};

TEST(Lookup, FindsTheEntryOfItsNetid) {
  Words call;
  Directory directory([&](Directory& d) {
    call = d.hear();
    d.answer(call[0], kList);
  });
  EXPECT_EQ(look_up(directory).value(), 29 * 256 + 47);
  EXPECT_EQ(Words(call.begin() + 1, call.end()), (Words{0, 2, 100000, 4, 4, 0, 0, 0, 0}));
}

TEST(Lookup, FindsThatOfIpv6) {
  Directory directory([&](Directory& d) { d.answer(d.hear().at(0), kList); }, /*v6=*/true);
  auto port = rpcbind_lookup(kService, {.host = "::1", .port = directory.port});
  EXPECT_EQ(port.value(), 29 * 256 + 48);
}

TEST(Lookup, FallsBackToVersionThree) {
  Directory directory([&](Directory& d) {
    uint32_t xid = d.hear().at(0);
    d.say({kLast | 32, xid, 1, 0, 0, 0, 2 /*PROG_MISMATCH*/, 2, 3});
    Words call = d.hear();
    EXPECT_EQ(call.at(4), 3u);
    d.answer(call[0], kList);
  });
  EXPECT_EQ(look_up(directory).value(), 29 * 256 + 47);
}

TEST(Lookup, TakesAnswersInFragments) {
  Directory directory([&](Directory& d) {
    uint32_t xid = d.hear().at(0);
    Words reply = Words{xid, 1, 0, 0, 0, 0} + kList;
    for (uint32_t word : reply)
      d.say({4, word});
    d.say({kLast});
  });
  EXPECT_EQ(look_up(directory).value(), 29 * 256 + 47);
}

TEST(Lookup, NamesTheUnlistedService) {
  Directory directory([&](Directory& d) {
    d.answer(d.hear().at(0), entry(kService, "tcp", "0.0.0.0.0.111") + Words{0});
  });
  Result<uint16_t> port = look_up(directory);
  ASSERT_FALSE(port);
  EXPECT_EQ(port.error().code, Errc::kNotFound);
  EXPECT_NE(
      port.error().message.find("does not list program 536893184 version 1 under rdma or rdma6"),
      std::string::npos)
      << port.error().message;
}

struct Elsewhere {
  const char* host;
  const char* netid;
  const char* address;
  const char* found;  // null: not
};

// The rpcbind is reached over IPv6, and the service only over IPv4, or through an address that the
// name does not have.
TEST(Lookup, FindsAServiceOfTheOtherFamily) {
  test::set_name("both.test", {"::1", "127.0.0.1"});
  for (const Elsewhere& c : {Elsewhere{"both.test", "rdma", "0.0.0.0.29.47", "127.0.0.1:7471"},
                             Elsewhere{"both.test", "rdma", "127.0.0.1.29.47", "127.0.0.1:7471"},
                             Elsewhere{"both.test", "rdma", "10.1.2.3.29.47", "127.0.0.1:7471"},
                             Elsewhere{"both.test", "rdma6", "::.29.47", "[::1]:7471"},
                             Elsewhere{"::1", "rdma", "10.1.2.3.29.47", "10.1.2.3:7471"},
                             Elsewhere{"::1", "rdma", "127.0.0.1.29.47", nullptr},
                             Elsewhere{"::1", "rdma", "0.0.0.0.29.47", nullptr}}) {
    SCOPED_TRACE(std::string(c.host) + " " + c.address);
    Directory directory(
        [&](Directory& d) {
          d.answer(d.hear().at(0), entry(kService, c.netid, c.address) + Words{0});
        },
        /*v6=*/true);
    const Result<HostAndPort> at =
        rpcbind_locate(kService, {.host = c.host, .port = directory.port});
    EXPECT_EQ(at.has_value(), c.found != nullptr);
    if (at)
      EXPECT_EQ(at->to_string(), c.found);
    else
      EXPECT_NE(at.error().message.find("under rdma alone, and ::1 has no such address"),
                std::string::npos)
          << at.error().message;
  }
}

TEST(Lookup, IsRefusedWithoutAListener) {
  base::Fd bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<sockaddr*>(&at), length), 0);
  ::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&at), &length);
  auto port = rpcbind_lookup(kService, {.host = "127.0.0.1", .port = ntohs(at.sin_port)});
  EXPECT_EQ(error_of(port), Errc::kRefused);
}

struct Wrong {
  const char* name;
  Errc error;
  Directory::Serve serve;
};
void PrintTo(const Wrong& wrong, std::ostream* out) {
  *out << wrong.name;
}

struct Hostile : testing::TestWithParam<Wrong> {};

TEST_P(Hostile, IsRefused) {
  Directory directory(GetParam().serve);
  EXPECT_EQ(error_of(look_up(directory)), GetParam().error);
}

void answer_with(Directory& d, const Words& results) {
  d.answer(d.hear().at(0), results);
}

INSTANTIATE_TEST_SUITE_P(
    Rpcbind, Hostile,
    testing::Values(
        Wrong{"ClosesAtOnce", Errc::kConnectionLost, [](Directory&) {}},
        Wrong{"ClosesInTheMiddle", Errc::kConnectionLost,
              [](Directory& d) { d.say({kLast | 100, d.hear().at(0), 1}); }},
        Wrong{"OtherXid", Errc::kNotAPeer,
              [](Directory& d) { d.answer(d.hear().at(0) + 1, Words{0}); }},
        Wrong{"NoReply", Errc::kNotAPeer,
              [](Directory& d) { d.say({kLast | 8, d.hear().at(0), 0}); }},
        Wrong{"Denies", Errc::kRefused,
              [](Directory& d) { d.say({kLast | 20, d.hear().at(0), 1, 1, 1, 5}); }},
        Wrong{"NothingBehindTheHeader", Errc::kNotAPeer, [](Directory& d) { answer_with(d, {}); }},
        Wrong{"CutEntry", Errc::kNotAPeer,
              [](Directory& d) { answer_with(d, {1, kService.program}); }},
        Wrong{"NoEndOfTheList", Errc::kNotAPeer,
              [](Directory& d) { answer_with(d, entry(kService, "rdma", "0.0.0.0.1.1")); }},
        Wrong{"MoreBehindTheList", Errc::kNotAPeer, [](Directory& d) { answer_with(d, {0, 0}); }},
        Wrong{"LongString", Errc::kNotAPeer,
              [](Directory& d) { answer_with(d, Words{1, 1, 1, 0xfffffffc}); }},
        Wrong{"BadAddress", Errc::kNotFound,
              [](Directory& d) { answer_with(d, entry(kService, "rdma", "nowhere") + Words{0}); }},
        Wrong{"LongRecord", Errc::kNotAPeer,
              [](Directory& d) { d.say({kLast | 0x7fffffff, d.hear().at(0)}); }},
        Wrong{"EmptyFragments", Errc::kNotAPeer,
              [](Directory& d) {
                d.hear();
                while (d.say({0})) {
                }
              }},
        Wrong{"EndlessFragments", Errc::kNotAPeer,
              [](Directory& d) {
                d.hear();
                Words half(1 + (1 << 14), 0);
                half[0] = 4 << 14;
                while (d.say(half)) {
                }
              }}),
    [](const auto& hostile) { return std::string(hostile.param.name); });

// Neither silence nor a word now and then extends the time that was given.
TEST(Lookup, EndsInTime) {
  for (bool drips : {false, true}) {
    Directory directory([drips](Directory& d) {
      d.hear();
      if (!drips)
        return void(d.hear());
      while (d.say({4, 0})) {  // short fragments, as fast as they are taken
      }
    });
    EXPECT_EQ(error_of(look_up(directory, 50)), Errc::kTimeout) << drips;
  }
}

Result<std::vector<std::byte>> call(const Directory& server, uint32_t timeout_ms = 20'000,
                                    uint32_t longest_reply = 1024) {
  TcpArguments args;
  args.put_u32(7);
  args.put_string("/data");
  return call_over_tcp({.host = "127.0.0.1",
                        .port = server.port,
                        .program = 100005,
                        .version = 3,
                        .procedure = 1,
                        .args = args,
                        .timeout_ms = timeout_ms,
                        .longest_reply = longest_reply});
}

TEST(TcpCall, CallsAsThisUserAndReturnsTheResults) {
  Words heard;
  Directory server([&](Directory& d) {
    heard = d.hear();
    d.answer(heard.at(0), {5, 6});
  });
  auto results = call(server);
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_EQ(results->size(), 8u);
  EXPECT_EQ(xdr::load_u32(results->data()), 5u);
  EXPECT_EQ(xdr::load_u32(results->data() + 4), 6u);
  EXPECT_EQ(Words(heard.begin() + 1, heard.begin() + 7), (Words{0, 2, 100005, 3, 1, 1}));
  const size_t name_words = (heard.at(9) + 3) / 4;  // of AUTH_SYS's machine
  EXPECT_EQ(heard.at(7), 20 + 4 * name_words);
  EXPECT_EQ(Words(heard.begin() + 10 + name_words, heard.end()),
            (Words{geteuid(), getegid(), 0, 0, 0, 7, 5, 0x2f646174, 0x61000000}));
}

TEST(TcpCall, SaysWhereAndWhy) {
  struct Case {
    Words reply;  // behind the XID
    Errc error;
    const char* why;
  };
  for (const Case& c : {Case{{1, 0, 0, 0, 1}, Errc::kUnsupported, "program unavailable"},
                        Case{{1, 0, 0, 0, 2, 1, 2}, Errc::kUnsupported, "program version mismatch"},
                        Case{{1, 0, 0, 0, 3}, Errc::kUnsupported, "procedure unavailable"},
                        Case{{1, 0, 0, 0, 5}, Errc::kRefused, "system error"},
                        Case{{1, 1, 1, 5}, Errc::kPermission, "authentication"},
                        Case{{1, 0, 0, 0, 6}, Errc::kNotAPeer, "does not send an RPC reply"},
                        Case{{0, 0, 0, 0, 0}, Errc::kNotAPeer, "does not send an RPC reply"}}) {
    Directory server([&](Directory& d) {
      const Words reply = Words{d.hear().at(0)} + c.reply;
      d.say(Words{kLast | static_cast<uint32_t>(4 * reply.size())} + reply);
    });
    auto results = call(server);
    ASSERT_FALSE(results) << c.why;
    EXPECT_EQ(results.error().code, c.error) << results.error().message;
    const std::string where =
        "program 100005 at 127.0.0.1 port " + std::to_string(server.port) + ": ";
    EXPECT_EQ(results.error().message.find(where), 0u) << results.error().message;
    EXPECT_NE(results.error().message.find(c.why), std::string::npos) << results.error().message;
  }
}

TEST(TcpCall, TakesNoMoreThanWasAgreed) {
  for (uint32_t longest : {28u, 32u}) {
    Directory server([](Directory& d) { d.answer(d.hear().at(0), {1, 2}); });
    EXPECT_EQ(call(server, 20'000, longest).has_value(), longest == 32) << longest;
  }
}

TEST(TcpCall, EndsInTime) {
  Directory silent([](Directory& d) {
    d.hear();
    d.hear();
  });
  auto results = call(silent, 50);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kTimeout);
  Directory closing([](Directory& d) { d.hear(); });
  results = call(closing);
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kConnectionLost);
}

// An address where SYNs get no answer: a listener whose queue is full.
class DarkPlace {
 public:
  DarkPlace(in_addr_t v4, uint16_t port) {
    at_.sin_family = AF_INET;
    at_.sin_addr.s_addr = htonl(v4);
    at_.sin_port = htons(port);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at_), sizeof(at_)), 0);
    EXPECT_EQ(::listen(listener_.get(), 0), 0);
    bool connected = true;
    for (int i = 0; i < 16 && connected; ++i) {
      base::Fd& guest = guests_.emplace_back(::socket(AF_INET, kStream | SOCK_NONBLOCK, 0));
      (void)::connect(guest.get(), reinterpret_cast<sockaddr*>(&at_), sizeof(at_));
      pollfd entry = {.fd = guest.get(), .events = POLLOUT, .revents = 0};
      connected = ::poll(&entry, 1, 100) == 1;
    }
    EXPECT_FALSE(connected) << "it accepts every connection";
  }

 private:
  static constexpr int kStream = SOCK_STREAM | SOCK_CLOEXEC;
  sockaddr_in at_ = {};
  base::Fd listener_{::socket(AF_INET, kStream, 0)};
  std::vector<base::Fd> guests_;
};

// The first of a name's addresses must not use up the time of the second one.
TEST(TcpCall, ComesToTheAddressThatAnswers) {
  Directory server([](Directory& d) { d.answer(d.hear().at(0), {5}); }, false, INADDR_LOOPBACK + 2);
  const DarkPlace dark(INADDR_LOOPBACK + 1, server.port);
  test::set_name("dark-first.test", {"127.0.0.2", "127.0.0.3"});
  auto results = call_over_tcp({.host = "dark-first.test",
                                .port = server.port,
                                .program = 100005,
                                .version = 3,
                                .args = {}});
  EXPECT_TRUE(results) << results.error().message;
}

// The first of a name's addresses takes the question and never answers, as a stopped process does.
TEST(Lookup, ComesToTheAddressThatAnswers) {
  Directory stopped(
      [](Directory& d) {
        d.hear();
        d.hear();
      },
      false, INADDR_LOOPBACK + 1);
  Directory directory([](Directory& d) { d.answer(d.hear().at(0), kList); }, false,
                      INADDR_LOOPBACK + 2, stopped.port);
  test::set_name("stopped-first.test", {"127.0.0.2", "127.0.0.3"});
  auto at = rpcbind_locate(
      kService, {.host = "stopped-first.test", .port = stopped.port, .timeout_ms = 4000});
  ASSERT_TRUE(at) << at.error().message;
  EXPECT_EQ(at->to_string(), "127.0.0.3:7471");
}

TEST(TcpCall, IsMadeAtTheNextAddressWhenOneDoesNotAnswer) {
  for (bool another : {true, false}) {
    Directory closing([](Directory& d) { d.hear(); }, false, INADDR_LOOPBACK + 1);
    std::optional<Directory> server;
    if (another)
      server.emplace([](Directory& d) { d.answer(d.hear().at(0), {5}); }, false,
                     INADDR_LOOPBACK + 2, closing.port);
    test::set_name("closing-first.test", {"127.0.0.2", "127.0.0.3"});
    auto results = call_over_tcp({.host = "closing-first.test",
                                  .port = closing.port,
                                  .program = 100005,
                                  .version = 3,
                                  .args = {}});
    EXPECT_EQ(results.has_value(), another) << (results ? "" : results.error().message);
    if (!results) {  // not because the other one refuses
      EXPECT_EQ(results.error().code, Errc::kConnectionLost) << results.error().message;
    }
  }
}

TEST(TcpCall, EndsInTimeWhenNoAddressAnswers) {
  const auto silent = [](Directory& d) {
    d.hear();
    d.hear();
  };
  Directory one(silent, false, INADDR_LOOPBACK + 1);
  Directory other(silent, false, INADDR_LOOPBACK + 2, one.port);
  test::set_name("stopped.test", {"127.0.0.2", "127.0.0.3"});
  auto results = call_over_tcp({.host = "stopped.test",
                                .port = one.port,
                                .program = 1,
                                .version = 1,
                                .args = {},
                                .timeout_ms = 50});
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kTimeout) << results.error().message;
}

TEST(TcpCall, IsRefusedWhenAllAddressesRefuse) {
  uint16_t port = 0;
  {
    Directory closed([](Directory&) {});
    port = closed.port;
  }
  test::set_name("refused.test", {"127.0.0.2", "127.0.0.3"});
  auto results =
      call_over_tcp({.host = "refused.test", .port = port, .program = 1, .version = 1, .args = {}});
  ASSERT_FALSE(results);
  EXPECT_EQ(results.error().code, Errc::kRefused) << results.error().message;
}

// This host's rpcbind: a list of one service's entries.
class FakeRpcbind {
 public:
  struct Kept {
    std::string address, owner;
    bool operator==(const Kept&) const = default;
  };
  using List = std::map<std::string, Kept>;  // by netid

  FakeRpcbind() {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    options.socket.copy(at.sun_path, sizeof(at.sun_path) - 1);
    ::unlink(at.sun_path);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    thread_ = std::thread([this] {
      while (base::Fd caller{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)}) {
        while (serve(caller.get())) {
        }
      }
    });
  }
  ~FakeRpcbind() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
    ::unlink(options.socket.c_str());
  }

  List list() {
    const std::lock_guard lock(mutex_);
    return list_;
  }
  void set_list(List list) {
    const std::lock_guard lock(mutex_);
    list_ = std::move(list);
  }
  // Returns when the condition holds, which is checked after each call.
  void wait_until(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex_);
    called_.wait(lock, holds);
  }

  RpcbindListingOptions options = {
      .look_again_ms = 0,
      .socket = testing::TempDir() + "rrdk-rpcbind-" + std::to_string(::getpid()) + ".sock"};
  // With the list locked, as wait_until() does.
  List list_;
  int dumps_ = 0;
  int sets_to_refuse_ = 0;

 private:
  static std::string string_at(const Words& words, size_t& at) {
    std::string bytes;
    const size_t length = words.at(at++);
    for (size_t i = 0; i < (length + 3) / 4; ++i) {
      const uint32_t word = htonl(words.at(at++));
      bytes.append(reinterpret_cast<const char*>(&word), 4);
    }
    return bytes.substr(0, length);
  }

  Words results_of(const Words& call) {
    constexpr size_t kArguments = 10;  // behind AUTH_NONE, twice
    constexpr uint32_t kSet = 1, kUnset = 2;
    const std::lock_guard lock(mutex_);
    called_.notify_all();
    if (call.at(5) != kSet && call.at(5) != kUnset) {
      ++dumps_;
      Words words;
      for (const auto& [netid, kept] : list_)
        words = words + Words{1, kService.program, kService.version} + text(netid) +
                text(kept.address) + text(kept.owner);
      return words + Words{0};
    }
    EXPECT_EQ(call.at(kArguments), kService.program);
    size_t at = kArguments + 2;
    const std::string netid = string_at(call, at);
    const std::string address = string_at(call, at);
    if (call.at(5) == kUnset) {
      list_.erase(netid);
      return {1};
    }
    if (sets_to_refuse_ != 0 && sets_to_refuse_-- != 0)
      return {0};
    return {list_.emplace(netid, Kept{address, "superuser"}).second};
  }

  bool serve(int caller) {
    uint32_t mark = 0;
    if (::recv(caller, &mark, 4, MSG_WAITALL) != 4)
      return false;
    Words call((ntohl(mark) & ~kLast) / 4);
    ::recv(caller, call.data(), call.size() * 4, MSG_WAITALL);
    for (uint32_t& word : call)
      word = ntohl(word);
    Words reply = Words{call.at(0), 1, 0, 0, 0, 0} + results_of(call);
    reply = Words{kLast | static_cast<uint32_t>(4 * reply.size())} + reply;
    for (uint32_t& word : reply)
      word = htonl(word);
    return ::send(caller, reply.data(), reply.size() * 4, MSG_NOSIGNAL) > 0;
  }

  base::Fd listener_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::mutex mutex_;
  std::condition_variable called_;
  std::thread thread_;
};

const FakeRpcbind::List kOurs = {{"rdma", {"10.0.0.1.29.47", "superuser"}}};
const FakeRpcbind::List kAnothers = {{"rdma", {"10.0.0.1.29.48", "superuser"}}};

std::unique_ptr<RpcbindListing> enter(FakeRpcbind& rpcbind, const std::string& host = "10.0.0.1") {
  auto listing = RpcbindListing::enter(kService, host, 29 * 256 + 47, rpcbind.options);
  EXPECT_TRUE(listing) << listing.error().message;
  return listing ? std::move(*listing) : nullptr;
}

TEST(Listing, LastsAsLongAsItsObject) {
  FakeRpcbind rpcbind;
  rpcbind.set_list(kAnothers);  // of a process that died
  auto listing = enter(rpcbind);
  EXPECT_EQ(rpcbind.list(), kOurs);
  listing.reset();
  EXPECT_TRUE(rpcbind.list().empty());
}

TEST(Listing, IsUnderBothNetidsWhereBothFamiliesAreServed) {
  std::ifstream file("/proc/sys/net/ipv6/bindv6only");
  int only_v6 = 1;
  if (!(file >> only_v6) || only_v6 != 0)
    GTEST_SKIP() << "sockets at :: have no IPv4 clients here";
  FakeRpcbind rpcbind;
  auto listing = enter(rpcbind, "::");
  EXPECT_EQ(rpcbind.list(), (FakeRpcbind::List{{"rdma", {"0.0.0.0.29.47", "superuser"}},
                                               {"rdma6", {"::.29.47", "superuser"}}}));
  listing.reset();
  EXPECT_TRUE(rpcbind.list().empty());
}

TEST(Listing, UsesTheNetidsOfAllAddressesOfAName) {
  test::set_name("server.test", {"10.0.0.1", "fd00::1", "10.0.0.2"});
  FakeRpcbind rpcbind;
  auto listing = enter(rpcbind, "server.test");
  EXPECT_EQ(rpcbind.list(), (FakeRpcbind::List{{"rdma", {"10.0.0.1.29.47", "superuser"}},
                                               {"rdma6", {"fd00::1.29.47", "superuser"}}}));
}

// A new server starts before the old one ends, or by now another user's server has the address.
TEST(Listing, EndsWithoutTheEntryOfAnother) {
  for (const FakeRpcbind::List& anothers :
       {kAnothers, FakeRpcbind::List{{"rdma", {"10.0.0.1.29.47", "1000"}}}}) {
    FakeRpcbind rpcbind;
    auto listing = enter(rpcbind);
    rpcbind.set_list(anothers);
    EXPECT_TRUE(listing->end());
    EXPECT_EQ(rpcbind.list(), anothers);
  }
}

TEST(Listing, IsMadeAgainWhenRpcbindHasLostIt) {
  static std::string said;  // for the sink
  said.clear();
  set_log_sink([](LogLevel, const char* line, void*) { said += line; });
  FakeRpcbind rpcbind;
  rpcbind.options.look_again_ms = 1;
  auto listing = enter(rpcbind);
  rpcbind.set_list({});
  rpcbind.wait_until([&] { return rpcbind.list_ == kOurs; });
  EXPECT_TRUE(listing->end());
  set_log_sink(nullptr);
  EXPECT_NE(said.find("had lost the entry of program 536893184 version 1 under rdma"),
            std::string::npos)
      << said;
  EXPECT_TRUE(rpcbind.list().empty());
}

TEST(Listing, IsNotMadeAgainWhereAnotherServerIsListed) {
  FakeRpcbind rpcbind;
  rpcbind.options.look_again_ms = 1;
  auto listing = enter(rpcbind);
  rpcbind.set_list(kAnothers);
  const int before = [&] {
    int dumps = 0;
    rpcbind.wait_until([&] { return (dumps = rpcbind.dumps_, true); });
    return dumps;
  }();
  rpcbind.wait_until([&] { return rpcbind.dumps_ >= before + 3; });
  EXPECT_EQ(rpcbind.list(), kAnothers);
}

TEST(Listing, IsTheParentsInAChildOfFork) {
  FakeRpcbind rpcbind;
  rpcbind.options.look_again_ms = 60'000;
  auto listing = enter(rpcbind);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool ended = listing->end().has_value();
    listing.reset();
    ::_exit(ended ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(rpcbind.list(), kOurs);
}

// Two servers that start at the same time: one makes its entry between the steps of the other.
TEST(Listing, IsMadeAlthoughAnotherOneComesBetween) {
  FakeRpcbind rpcbind;
  rpcbind.sets_to_refuse_ = 1;
  auto listing = enter(rpcbind);
  EXPECT_EQ(rpcbind.list(), kOurs);
}

TEST(Listing, SaysThatAnEntryIsDeniedAndThatThereIsNoRpcbind) {
  RpcbindListingOptions options;
  {
    FakeRpcbind rpcbind;
    options = rpcbind.options;
    rpcbind.sets_to_refuse_ = 100;
    auto denied = RpcbindListing::enter(kService, "10.0.0.1", 1, options);
    ASSERT_FALSE(denied);
    EXPECT_EQ(denied.error().code, Errc::kPermission) << denied.error().message;
  }
  auto none = RpcbindListing::enter(kService, "10.0.0.1", 1, options);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::kNotFound) << none.error().message;
}

}  // namespace
}  // namespace rrdk
