// Calls by TCP that make contexts: what is served, and what strangers cannot do there.
#include <gtest/gtest.h>

#include <deque>
#include <optional>

#include "gss/tcp_calls.h"
#include "rrdk/gss.h"
#include "tcp_peer.h"

namespace rrdk::gss {
namespace {

class Tcp : public testing::Test {
 protected:
  static GssAcceptorOptions options(const std::string& tcp) {
    GssAcceptorOptions options;
    options.service = "nfs@localhost";
    options.tcp = tcp;
    return options;
  }
  static std::optional<Errc> error(const std::string& tcp) {
    auto made = GssAcceptor::create(options(tcp));
    return made ? std::nullopt : std::optional(made.error().code);
  }
  uint16_t port() const { return acceptor->tcp_port(); }
  uint64_t refused() const { return acceptor->stats().tcp_refused; }

  std::unique_ptr<GssAcceptor> acceptor = GssAcceptor::create(options("127.0.0.1:0")).value();
};

const Words kNothing = {0, 0};  // AUTH_NONE
const Words kDone = {7, 1, 0, 0, 0, 0};

TEST_F(Tcp, MakesContexts) {
  GssCaller caller;
  TcpPeer peer(port());
  peer.call(tcp_init(caller.begin()));
  take_context(peer, caller);
  EXPECT_EQ(acceptor->stats().established, 1u);
  EXPECT_EQ(refused(), 0u);
}

TEST_F(Tcp, TakesRecordsInPieces) {
  GssCaller caller;
  TcpPeer peer(port());
  const Bytes call = bytes_of(tcp_init(caller.begin()));
  constexpr size_t kFirst = 30;  // not a whole number of words
  peer.send(bytes_of({0}));      // an empty fragment
  peer.send(bytes_of({kFirst}));
  for (size_t i = 0; i != kFirst; ++i)
    peer.send({call[i]});
  peer.send(bytes_of({0x80000000 | static_cast<uint32_t>(call.size() - kFirst)}));
  peer.send({call.begin() + kFirst, call.end()});
  take_context(peer, caller);
}

TEST_F(Tcp, AnswersCallsInTurn) {
  GssCaller caller;
  TcpPeer peer(port());
  Bytes both = TcpPeer::record(tcp_init(caller.begin()));
  const Bytes second = TcpPeer::record(tcp_call(0, kNothing));
  both.insert(both.end(), second.begin(), second.end());
  peer.send(both);
  take_context(peer, caller);
  EXPECT_EQ(peer.next(), kDone);
}

TEST_F(Tcp, ServesNothingElse) {
  TcpPeer peer(port());
  const auto answer = [&](const Words& call) {
    peer.call(call);
    return peer.next();
  };
  const auto denied = [](AuthStat why) { return Words{7, 1, 1, 1, static_cast<uint32_t>(why)}; };
  EXPECT_EQ(answer(tcp_call(0, kNothing)), kDone);
  EXPECT_EQ(refused(), 0u);
  EXPECT_EQ(answer(tcp_call(1, kNothing)), (Words{7, 1, 0, 0, 0, 3})) << "PROC_UNAVAIL";
  EXPECT_EQ(answer({7, 0, 3, 100003, 3, 0, 0, 0, 0, 0}), (Words{7, 1, 1, 0, 2, 2}));
  EXPECT_EQ(answer({7, 0, 2, 100003}), (Words{7, 1, 0, 0, 0, 4})) << "GARBAGE_ARGS";
  EXPECT_EQ(answer(tcp_call(0, {6, 20, 2, 1, 0, 1, 0})), denied(AuthStat::kRejectedCred));
  EXPECT_EQ(answer(tcp_call(0, {6, 24, 1, 1, 0, 1, 1, 0}, {0})), denied(AuthStat::kBadCred));
  EXPECT_EQ(answer(tcp_call(0, {6, 20, 1, 2, 0, 1, 0}, {0})), denied(AuthStat::kGssCredProblem));
  const Words unknown = {6, 36, 1, 2, 0, 1, 16, 1, 2, 3, 4};
  EXPECT_EQ(answer(tcp_call(0, unknown, {0})), denied(AuthStat::kGssCredProblem));
  EXPECT_EQ(answer(tcp_call(0, {6, 20, 1, 0, 1, 1, 0})), denied(AuthStat::kTooWeak)) << "DATA";
  EXPECT_EQ(answer(tcp_call(0, {6, 20, 1, 3, 1, 1, 0})), denied(AuthStat::kTooWeak)) << "DESTROY";
  EXPECT_EQ(answer(tcp_call(0, {6, 20, 1, 1, 0, 1, 0}, {4})), (Words{7, 1, 0, 0, 0, 4}));
  EXPECT_EQ(refused(), 10u);
  EXPECT_EQ(acceptor->stats().established, 0u);
}

TEST_F(Tcp, RefusesTokensOfStrangers) {
  TcpPeer peer(port());
  peer.call(tcp_init(Bytes(kLongestToken)));
  const Words reply = peer.next();
  ASSERT_GE(reply.size(), 8u);
  EXPECT_EQ(Words(reply.begin(), reply.begin() + 7), (Words{7, 1, 0, 0, 0, 0, 0})) << "no handle";
  EXPECT_TRUE(GSS_ERROR(reply[7]));
  EXPECT_EQ(acceptor->stats().refused, 1u);
  peer.call(tcp_call(0, kNothing));
  EXPECT_EQ(peer.next(), kDone);
}

TEST_F(Tcp, ClosesForWhatIsNoCall) {
  const Words records[] = {
      {0x80000000 | (TcpCalls::kLongestCall + 1)},           // too long
      {0x7fffffff},                                          // a fragment, likewise
      {4, 1, 0x80000000 | (TcpCalls::kLongestCall - 3), 1},  // both together
      {0x80000000},                                          // nothing
      {0x80000008, 7, 1},                                    // a reply
  };
  for (const Words& record : records) {
    TcpPeer peer(port());
    peer.send(bytes_of(record));
    EXPECT_TRUE(peer.is_closed()) << record[0];
  }
  EXPECT_EQ(refused(), std::size(records));
}

TEST_F(Tcp, TheOldestConnectionGivesWay) {
  std::deque<TcpPeer> peers;
  for (uint32_t i = 0; i != TcpCalls::kMostConnections + 1; ++i) {
    peers.emplace_back(port()).call(tcp_call(0, kNothing));
    EXPECT_EQ(peers.back().next(), kDone) << i;
  }
  EXPECT_TRUE(peers.front().is_closed());
  peers[1].call(tcp_call(0, kNothing));
  EXPECT_EQ(peers[1].next(), kDone);
  EXPECT_EQ(refused(), 1u);
}

TEST_F(Tcp, OneHostTakesNoPlaceOfOthers) {
  TcpPeer honest(port(), INADDR_LOOPBACK + 1);
  honest.call(tcp_call(0, kNothing));
  EXPECT_EQ(honest.next(), kDone);
  std::deque<TcpPeer> peers;
  for (uint32_t i = 0; i != TcpCalls::kMostConnections; ++i) {
    peers.emplace_back(port()).call(tcp_call(0, kNothing));
    EXPECT_EQ(peers.back().next(), kDone) << i;
  }
  EXPECT_TRUE(peers.front().is_closed());
  honest.call(tcp_call(0, kNothing));
  EXPECT_EQ(honest.next(), kDone);
}

// Whether they are silent, in the middle of a call, or between two.
TEST_F(Tcp, ConnectionsEndWhenTheirTimeIsOver) {
  Contexts contexts(Identity::acceptor("nfs@localhost", "").value(), {});
  const auto tcp = TcpCalls::start(contexts, "127.0.0.1:0", std::chrono::milliseconds(1)).value();
  TcpPeer silent(tcp->port()), begun(tcp->port()), busy(tcp->port());
  begun.send(bytes_of({0x80000028, 7, 0}));
  do {
    busy.try_to_send(TcpPeer::record(tcp_call(0, kNothing)));
  } while (!busy.next().empty());
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(begun.is_closed());
  EXPECT_EQ(tcp->refused(), 3u);
}

TEST_F(Tcp, EndsWhileTokensWait) {
  std::deque<TcpPeer> peers;
  GssCaller caller;
  const Words init = tcp_init(caller.begin());
  for (int i = 0; i != 8; ++i)
    peers.emplace_back(port()).call(init);
  acceptor.reset();
  while (!peers.empty()) {
    while (!peers.front().next().empty())
      continue;
    peers.pop_front();
  }
}

TEST_F(Tcp, NeedsANumericAddressThatIsFree) {
  for (const char* wrong : {"localhost:2049", "127.0.0.1", ":2049", "127.0.0.1:0/x", "2049"})
    EXPECT_EQ(error(wrong), Errc::kInvalidArgument) << wrong;
  EXPECT_EQ(error("127.0.0.1:" + std::to_string(port())), Errc::kAddressInUse);
  EXPECT_EQ(GssAcceptor::create(options("")).value()->tcp_port(), 0);
}

}  // namespace
}  // namespace rrdk::gss
