// A server that accepts RPCSEC_GSS, with a caller that speaks it word by word.
#include <gtest/gtest.h>

#include "gss_caller.h"
#include "rrdk/gss.h"
#include "tcp_peer.h"

namespace rrdk::gss {
namespace {

using loopback::kEcho;
using loopback::kKeep;
using loopback::kOnce;
using loopback::kRead;

constexpr uint32_t kName = 40;  // -> flavour, protection, principal

void name(ServerCall call, void*) {
  const CallSecurity who = call.security();
  call.results().put_u32(static_cast<uint32_t>(who.flavor));
  call.results().put_u32(static_cast<uint32_t>(who.protection));
  call.results().put_string(who.principal);
  std::move(call).reply();
}

std::atomic<uint32_t> runs = 0;

void once(ServerCall call, void*) {
  call.args().get_rest();
  call.results().put_u32(++runs);
  std::move(call).reply();
}

constexpr Procedure kSecured[] = {{kEcho, loopback::echo},
                                  {kRead, loopback::read},
                                  {.number = kOnce, .handler = once, .idempotent = false},
                                  {kName, name}};

class Secured : public testing::Test {
 protected:
  void start(Acceptance accepts = kAcceptAny, uint32_t max_protected_bytes = 1u << 20) {
    GssAcceptorOptions keys;
    keys.service = "nfs@localhost";
    keys.max_protected_bytes = max_protected_bytes;
    keys.tcp = "127.0.0.1:0";
    acceptor = GssAcceptor::create(keys).value();
    ServerOptions options;
    options.gss = acceptor.get();
    memory = loopback::make_memory();
    runtime = Runtime::create(*memory, {.embedded_cores = 1}).value();
    server = Server::create(*runtime, options).value();
    ASSERT_TRUE(server->add_service(
        {.binding = &loopback::kBinding, .procedures = kSecured, .accepts = accepts}));
    uri = server->listen("shm:" + loopback::socket_path()).value();
    connect();
  }
  void connect() {
    client = std::make_unique<loopback::RawClient>(*memory, uri);
    until([&] { return client->up(); });
  }
  void TearDown() override {
    client.reset();
    server.reset();
    runtime.reset();
    EXPECT_TRUE(memory == nullptr || memory->whole());
  }
  template <typename Done>
  void until(Done&& done) {
    loopback::wait_until(done, [this] {
      if (client != nullptr)
        client->pump();
      return runtime->poll(0);
    });
  }

  void send(const Words& rpc) { client->send(Words{rpc[0], 1, 32, 0, 0, 0, 0} + rpc); }
  Received next_message() {
    until([&] { return !client->received.empty(); });
    Received first = client->received.front();
    client->received.erase(client->received.begin());
    return first;
  }
  Words next() {
    const Received first = next_message();
    EXPECT_EQ(first.type(), 0u) << "an RDMA_ERROR";
    return {first.words.begin() + 7, first.words.end()};
  }
  Answer take(GssCaller& caller, uint32_t signed_word) {
    return take_apart(caller, signed_word, next());
  }
  // Takes a reply apart; its verifier must be the checksum of `signed_word`.
  Answer take_apart(GssCaller& caller, uint32_t signed_word, const Words& reply) {
    Reader in(reply);
    in.word();  // the XID
    EXPECT_EQ(in.word(), 1u);
    Answer answer;
    answer.reply_stat = in.word();
    if (answer.reply_stat == 0) {
      const uint32_t flavor = in.word();
      const Bytes sum = in.opaque();
      answer.verified = flavor == 6 && caller.context.verify(bytes_of({signed_word}), sum);
    } else {
      EXPECT_EQ(in.word(), 1u) << "AUTH_ERROR";
    }
    answer.status = in.word();
    answer.results = in.rest();
    return answer;
  }
  void send_init(const Bytes& token, const Words& credential = {6, 20, 1, 1, 0, 1, 0}) {
    send(Words{++xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, 0} +
         credential + Words{0, 0} + opaque(token));
  }
  void establish(GssCaller& caller) {
    send_init(caller.begin());
    const Words reply = next();
    Reader in(reply);
    EXPECT_EQ(in.word(), xid);
    caller.take_context(in);
  }
  // Makes a call with the caller's next sequence number.
  Answer call(GssCaller& caller, uint32_t procedure, const Words& arguments, Protection protection,
              const Change& change = {}) {
    send(caller.message(++xid, procedure, arguments, protection, change));
    Answer answer = take(caller, caller.sequence);
    if (answer.success() && change.control.value_or(0) == 0) {
      auto open = caller.open(answer.results, protection, caller.sequence);
      EXPECT_TRUE(open) << "results that are not protected as they should be";
      answer.results = open.value_or(Words{});
    }
    ++caller.sequence;
    return answer;
  }
  uint64_t counted(Refusal refusal) const { return server->stats()[refusal]; }

  std::unique_ptr<GssAcceptor> acceptor;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Server> server;
  std::unique_ptr<loopback::RawClient> client;
  std::string uri;
  uint32_t xid = 100;
};

class SecuredServer : public Secured, public testing::WithParamInterface<Protection> {};

INSTANTIATE_TEST_SUITE_P(Gss, SecuredServer,
                         testing::Values(Protection::kNone, Protection::kIntegrity,
                                         Protection::kPrivacy),
                         [](const auto& of) {
                           return std::to_string(static_cast<uint32_t>(of.param));
                         });

// Shows: GSS-INIT-01, GSS-DATA-01, GSS-DATA-04, GSS-INTEG-01, GSS-PRIV-01, GSS-WIN-01, SEC-03
TEST_P(SecuredServer, AnswersItsCallers) {
  start();
  GssCaller caller;
  establish(caller);
  EXPECT_GE(caller.window, 128u);
  const Words text = opaque(bytes_of({0x01020304, 5, 6}));
  for (int i = 0; i != 3; ++i) {
    const Answer answer = call(caller, kEcho, text, GetParam());
    ASSERT_TRUE(answer.success() && answer.verified);
    EXPECT_EQ(answer.results, text);
  }
  const Answer null = call(caller, 0, {}, GetParam());
  EXPECT_TRUE(null.success() && null.verified);
  EXPECT_TRUE(null.results.empty());
  const Answer who = call(caller, kName, {}, GetParam());
  ASSERT_TRUE(who.success());
  const std::string alice = "alice@" + std::string(std::getenv("RRDK_TEST_REALM"));
  EXPECT_EQ(who.results, (Words{6, static_cast<uint32_t>(GetParam())} +
                          opaque(std::as_bytes(std::span(alice)))));
}

// Shows: SEC-06, GSS-RDMA-04
TEST_P(SecuredServer, MovesItemsByRdmaUnlessTheBodyIsProtected) {
  start();
  GssCaller caller;
  establish(caller);
  Buffer room = memory->get(3000);
  const uint32_t key = client->expose(room.first(3000));
  const Words rpc = caller.message(++xid, kRead, {0, 0, 3000}, GetParam());
  client->send(Words{xid, 1, 32, 0, 0, 1, 1} + loopback::segment(key, 3000, room.data()) +
               Words{0, 0} + rpc);
  const Received reply = next_message();
  ASSERT_EQ(reply.type(), 0u);
  if (GetParam() == Protection::kNone) {
    EXPECT_EQ(reply.at(8), 3000u) << "the segment's length";
    const Answer answer = take_apart(caller, 1, {reply.words.begin() + 13, reply.words.end()});
    ASSERT_TRUE(answer.success() && answer.verified);
    EXPECT_EQ(answer.results, (Words{7, 3000}));
    for (uint32_t i = 0; i != 3000; ++i)
      ASSERT_EQ(room.data()[i], loopback::pattern(i)) << i;
  } else {
    const Words rest(reply.words.end() - 13, reply.words.end());
    EXPECT_EQ(rest.back(), static_cast<uint32_t>(AcceptStat::kGarbageArgs));
    EXPECT_EQ(counted(Refusal::kBindingChunks), 1u);
  }
}

// A call whose message is in a Position-Zero chunk, and whose reply is in the Reply chunk.
// Shows: SEC-04, SEC-05
TEST_P(SecuredServer, TakesLongCallsAndGivesLongReplies) {
  constexpr uint32_t kBytes = 20'000, kRoom = 65'536;
  start();
  GssCaller caller;
  establish(caller);
  Bytes text(kBytes);
  for (uint32_t i = 0; i != kBytes; ++i)
    text[i] = loopback::pattern(i);
  const Bytes rpc = bytes_of(caller.message(++xid, kEcho, opaque(text), GetParam()));
  Buffer call_memory = memory->get(static_cast<uint32_t>(rpc.size()));
  Buffer reply_memory = memory->get(kRoom);
  std::ranges::copy(rpc, call_memory.data());
  const auto length = static_cast<uint32_t>(rpc.size());
  const uint32_t read = client->expose(call_memory.first(length), fabric::Rights::kRemoteRead);
  const uint32_t written = client->expose(reply_memory.first(kRoom));
  client->send(Words{xid, 1, 32, 1, 1, 0} + loopback::segment(read, length, call_memory.data()) +
               Words{0, 0, 1, 1} + loopback::segment(written, kRoom, reply_memory.data()));
  const Received reply = next_message();
  ASSERT_EQ(reply.type(), 1u) << "RDMA_NOMSG";
  const uint32_t got = reply.at(9);
  ASSERT_GT(got, kBytes);
  Words words;
  for (uint32_t at = 0; at < got; at += 4)
    words.push_back(xdr::load_u32(reply_memory.data() + at));
  const Answer answer = take_apart(caller, 1, words);
  ASSERT_TRUE(answer.success() && answer.verified);
  EXPECT_EQ(caller.open(answer.results, GetParam(), 1), opaque(text));
}

// A poll core that decrypts much serves no one else meanwhile.
TEST_P(SecuredServer, ProtectsNoMoreThanItsLimit) {
  if (GetParam() == Protection::kNone)
    return;  // nothing is protected
  start(kAcceptAny, 1024);
  GssCaller caller;
  establish(caller);
  EXPECT_TRUE(call(caller, kEcho, opaque(Bytes(700)), GetParam()).success());
  EXPECT_TRUE(
      call(caller, kEcho, opaque(Bytes(1100)), GetParam()).refused(AcceptStat::kGarbageArgs));
  EXPECT_TRUE(call(caller, kRead, {0, 0, 1100}, GetParam()).refused(AcceptStat::kSystemErr));
  EXPECT_TRUE(call(caller, kRead, {0, 0, 900}, GetParam()).success());
}

// The Server keeps what it needs of its acceptor.
TEST_P(SecuredServer, MayOutliveItsAcceptor) {
  start();
  acceptor.reset();
  GssCaller caller;
  establish(caller);
  EXPECT_TRUE(call(caller, 0, {}, GetParam()).success());
}

// Shows: GSS-ERR-01
TEST_P(SecuredServer, SignsItsRefusals) {
  start();
  GssCaller caller;
  establish(caller);
  EXPECT_TRUE(call(caller, 99, {}, GetParam()).refused(AcceptStat::kProcUnavail));
  EXPECT_TRUE(call(caller, kRead, {1}, GetParam()).refused(AcceptStat::kGarbageArgs));
}

// Shows: GSS-ERR-02
TEST_P(SecuredServer, RefusesABrokenBody) {
  start();
  GssCaller caller;
  establish(caller);
  if (GetParam() == Protection::kNone)
    return;  // its body is not protected
  const Words text = opaque(bytes_of({1}));
  for (const Change& change : {Change{.wrong_body_checksum = true}, Change{.bare_body = true},
                               Change{.body_sequence = 77}, Change{.cut_body = true}})
    EXPECT_TRUE(call(caller, kEcho, text, GetParam(), change).refused(AcceptStat::kGarbageArgs));
  EXPECT_EQ(counted(Refusal::kGssBody), 4u);
  EXPECT_TRUE(call(caller, kEcho, text, GetParam()).success());
}

// Shows: GSS-VERF-01, GSS-ERR-03
TEST_P(SecuredServer, BelievesNothingBeforeTheChecksum) {
  start();
  GssCaller caller;
  establish(caller);
  caller.sequence = 4'000'000;  // would move the window beyond all others
  const Words text = opaque(bytes_of({1}));
  for (const Change& change : {Change{.wrong_header_checksum = true}, Change{.no_verifier = true}})
    EXPECT_TRUE(call(caller, kEcho, text, GetParam(), change).denied(AuthStat::kGssCredProblem));
  EXPECT_EQ(counted(Refusal::kGssVerifier), 2u);
  caller.sequence = 1;
  EXPECT_TRUE(call(caller, kEcho, text, GetParam()).success());
}

// Shows: GSS-CRED-02, GSS-CRED-03, GSS-SEQ-03, GSS-VERS-02, GSS-VERS-03
TEST_P(SecuredServer, RefusesWrongCredentials) {
  start();
  GssCaller caller;
  establish(caller);
  const Words text = opaque(bytes_of({1}));
  const auto denied = [&](const Change& change, AuthStat why) {
    return call(caller, kEcho, text, GetParam(), change).denied(why);
  };
  EXPECT_TRUE(denied({.version = 2}, AuthStat::kBadCred));
  for (const uint32_t control : {4u, 5u, 6u})  // of versions 2 and 3
    EXPECT_TRUE(denied({.control = control}, AuthStat::kBadCred));
  EXPECT_TRUE(denied({.behind_credential = {0}}, AuthStat::kBadCred));
  EXPECT_TRUE(denied({.protection = 0}, AuthStat::kBadCred));
  EXPECT_TRUE(denied({.protection = 4}, AuthStat::kBadCred));
  EXPECT_EQ(counted(Refusal::kGssCredential), 7u);
  const Bytes handle = caller.handle;
  for (const Bytes& wrong : {Bytes{}, Bytes(16), Bytes(15), Bytes(300)}) {
    caller.handle = wrong;
    EXPECT_TRUE(denied({}, AuthStat::kGssCredProblem)) << wrong.size();
  }
  caller.handle = handle;
  EXPECT_EQ(counted(Refusal::kGssContext), 4u);
  caller.sequence = kHighestSequence + 1;
  EXPECT_TRUE(denied({}, AuthStat::kGssCtxProblem));
  EXPECT_EQ(counted(Refusal::kGssSequence), 1u);
  caller.sequence = kHighestSequence;
  EXPECT_TRUE(call(caller, kEcho, text, GetParam()).success());
}

// Shows: GSS-SEQ-02
TEST_P(SecuredServer, LeavesReplaysUnanswered) {
  start();
  GssCaller caller;
  establish(caller);
  const Words text = opaque(bytes_of({1}));
  const Words message = caller.message(++xid, kEcho, text, GetParam());
  send(message);
  EXPECT_TRUE(take(caller, caller.sequence).success());
  send(message);
  Words later = message;
  later[0] = ++xid;  // its checksum is wrong now
  send(later);
  EXPECT_TRUE(take(caller, 0).denied(AuthStat::kGssCredProblem));
  EXPECT_EQ(counted(Refusal::kGssReplay), 1u);
  caller.sequence = 10'000;
  EXPECT_TRUE(call(caller, kEcho, text, GetParam()).success());
  caller.sequence = 2;  // too old now, though never used
  send(caller.message(++xid, kEcho, text, GetParam()));
  caller.sequence = 9'999;
  EXPECT_TRUE(call(caller, kEcho, text, GetParam()).success());
  EXPECT_EQ(counted(Refusal::kGssReplay), 2u);
  EXPECT_TRUE(client->received.empty());
}

// Shows: GSS-CTX-01
TEST_P(SecuredServer, KeepsContextsWhenConnectionsEnd) {
  start();
  GssCaller caller;
  establish(caller);
  EXPECT_TRUE(call(caller, 0, {}, GetParam()).success());
  connect();
  EXPECT_TRUE(call(caller, 0, {}, GetParam()).success());
  EXPECT_EQ(acceptor->stats().established, 1u);
}

// Shows: GSS-DESTROY-01, GSS-DESTROY-02
TEST_P(SecuredServer, ForgetsAContextThatItsCallerEnds) {
  start();
  GssCaller caller;
  establish(caller);
  EXPECT_TRUE(call(caller, kEcho, {}, GetParam(), {.control = 3, .bare_body = true})
                  .refused(AcceptStat::kProcUnavail));
  EXPECT_TRUE(call(caller, 0, {}, GetParam(), {.control = 3, .wrong_header_checksum = true})
                  .denied(AuthStat::kGssCredProblem));
  caller.sequence = 1;  // it was used
  send(caller.message(++xid, 0, {}, GetParam(), {.control = 3}));
  caller.sequence = 3;
  EXPECT_TRUE(call(caller, 0, {}, GetParam()).success()) << "the context is there still";
  const Answer gone = call(caller, 0, {}, GetParam(), {.control = 3});
  EXPECT_TRUE(gone.success() && gone.verified);
  EXPECT_TRUE(call(caller, 0, {}, GetParam()).denied(AuthStat::kGssCredProblem));
  EXPECT_EQ(acceptor->stats().contexts, 0u);
}

// A repetition comes with a sequence number and a checksum of its own (RFC 2203 section 5.3.3.1),
// and perhaps with another protection. It is answered with the first results, and not run again.
// Shows: GSS-RETRY-01, GSS-DATA-03
TEST_P(SecuredServer, KnowsARepeatedCallByItsPrincipal) {
  start();
  GssCaller caller;
  establish(caller);
  const Words text = opaque(bytes_of({1, 2}));
  const Answer first = call(caller, kOnce, text, GetParam());
  ASSERT_TRUE(first.success());
  const uint32_t repeated = xid;
  connect();
  for (Protection again : {GetParam(), Protection::kNone, Protection::kPrivacy}) {
    xid = repeated - 1;
    const Answer second = call(caller, kOnce, text, again);
    EXPECT_TRUE(second.success() && second.verified);
    EXPECT_EQ(second.results, first.results);
  }
  GssCaller again;  // another context of the same principal
  establish(again);
  xid = repeated - 1;
  EXPECT_EQ(call(again, kOnce, text, GetParam()).results, first.results);
  GssCaller bob("nfs@localhost", "bob");
  establish(bob);
  xid = repeated - 1;
  const Answer his = call(bob, kOnce, text, GetParam());
  ASSERT_TRUE(his.success());
  EXPECT_NE(his.results, first.results) << "what alice was answered";
}

// Shows: SEC-08
TEST_P(SecuredServer, TakesOnlyWhatItsServiceAccepts) {
  const Acceptance accepted = GetParam() == Protection::kNone        ? kAcceptAuthentic
                              : GetParam() == Protection::kIntegrity ? kAcceptIntegrity
                                                                     : kAcceptPrivacy;
  start(accepted);
  GssCaller caller;
  establish(caller);
  for (Protection each : {Protection::kNone, Protection::kIntegrity, Protection::kPrivacy}) {
    const Answer answer = call(caller, kEcho, opaque({}), each);
    EXPECT_TRUE(each == GetParam() ? answer.success() : answer.denied(AuthStat::kTooWeak));
    EXPECT_TRUE(call(caller, 0, {}, each).success()) << "NULL";
  }
  // With AUTH_NONE and AUTH_SYS, in the lane and on the general path.
  for (const Words& credential : {Words{0, 0}, Words{1, 20, 0, 0, 7, 7, 0}, Words{5, 0}}) {
    for (int i = 0; i != 2; ++i) {
      send(Words{++xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, kEcho} +
           credential + Words{0, 0, 0});
      EXPECT_TRUE(take(caller, 0).denied(AuthStat::kTooWeak));
      send(Words{++xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, 0} +
           credential + Words{0, 0});
      EXPECT_TRUE(take(caller, 0).success());
    }
  }
  EXPECT_EQ(counted(Refusal::kFlavor), 8u);
}

// As Linux's NFS client makes them.
// Shows: GSS-RDMA-02
TEST_P(SecuredServer, TakesContextsMadeByTcp) {
  start();
  GssCaller caller;
  TcpPeer peer(acceptor->tcp_port());
  peer.call(tcp_init(caller.begin()));
  take_context(peer, caller);
  const Words text = opaque(bytes_of({0x01020304, 5, 6}));
  const Answer answer = call(caller, kEcho, text, GetParam());
  ASSERT_TRUE(answer.success() && answer.verified);
  EXPECT_EQ(answer.results, text);
}

// Shows: GSS-INIT-02, GSS-INIT-08
TEST_F(Secured, RefusesWrongTokens) {
  start();
  const auto result_of = [this] {
    const Words reply = next();
    Reader in(reply);
    in.word();
    EXPECT_EQ(in.word(), 1u);
    EXPECT_EQ(in.word(), 0u);
    EXPECT_EQ(in.word(), 0u) << "there is nothing to sign with";
    EXPECT_TRUE(in.opaque().empty());
    EXPECT_EQ(in.word(), 0u);
    EXPECT_TRUE(in.opaque().empty()) << "no handle";
    return in.word();
  };
  send_init(bytes_of({1, 2, 3}));
  EXPECT_TRUE(GSS_ERROR(result_of()));
  GssCaller other("other@localhost");
  send_init(other.begin());
  EXPECT_TRUE(GSS_ERROR(result_of()));
  // Not NULL; a handle at the beginning; a context that does not exist; bytes behind the token.
  GssCaller caller;
  const Bytes token = caller.begin();
  send(Words{++xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, kEcho} +
       Words{6, 20, 1, 1, 0, 1, 0} + Words{0, 0} + opaque(token));
  EXPECT_TRUE(take(caller, 0).denied(AuthStat::kBadCred));
  send_init(token, {6, 24, 1, 1, 0, 1, 4, 9});
  EXPECT_TRUE(take(caller, 0).denied(AuthStat::kBadCred));
  send_init(token, {6, 36, 1, 2, 0, 1, 16, 1, 2, 3, 4});
  EXPECT_TRUE(take(caller, 0).denied(AuthStat::kGssCredProblem));
  send(Words{++xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, 0} +
       Words{6, 20, 1, 1, 0, 1, 0} + Words{0, 0} + opaque(token) + Words{0});
  const Words garbage = {xid, 1, 0, 0, 0, static_cast<uint32_t>(AcceptStat::kGarbageArgs)};
  EXPECT_EQ(next(), garbage) << "without a verifier";
  EXPECT_EQ(acceptor->stats().contexts, 0u);
  GssCaller good;
  establish(good);
  EXPECT_TRUE(call(good, 0, {}, Protection::kIntegrity).success());
}

// A caller that knows a later version finds out that it must use this one.
// Shows: GSS-VERS-01
TEST_F(Secured, MakesNoContextOfAnotherVersion) {
  start();
  GssCaller caller;
  const Bytes token = caller.begin();
  for (const uint32_t version : {0u, 2u, 3u}) {
    send_init(token, {6, 20, version, 1, 0, 1, 0});
    EXPECT_TRUE(take(caller, 0).denied(AuthStat::kRejectedCred)) << version;
  }
  TcpPeer peer(acceptor->tcp_port());
  peer.call(tcp_call(0, {6, 20, 3, 1, 0, 1, 0}, opaque(token)));
  EXPECT_EQ(peer.next(), (Words{7, 1, 1, 1, static_cast<uint32_t>(AuthStat::kRejectedCred)}));
  EXPECT_EQ(acceptor->stats().established, 0u);
}

// Shows: GSS-CRED-04
TEST_F(Secured, IgnoresNumberAndServiceOfATokensCall) {
  start();
  GssCaller caller;
  send_init(caller.begin(), {6, 20, 1, 1, kHighestSequence + 1, 99, 0});
  const Words reply = next();
  Reader in(reply);
  EXPECT_EQ(in.word(), xid);
  caller.take_context(in);
  EXPECT_TRUE(call(caller, 0, {}, Protection::kIntegrity).success());
}

// Tokens of one connection that come together: some wait, the others are refused at once.
TEST_F(Secured, BoundsTheTokensThatWait) {
  start();
  for (int i = 0; i != 20; ++i)
    send_init(bytes_of({1}));
  uint32_t refused = 0;
  for (int i = 0; i != 20; ++i) {
    const Words reply = next();
    refused += reply[5] == static_cast<uint32_t>(AcceptStat::kSystemErr);
  }
  EXPECT_EQ(counted(Refusal::kGssBusy), refused);
  GssCaller caller;
  establish(caller);
  EXPECT_TRUE(call(caller, 0, {}, Protection::kIntegrity).success());
}

}  // namespace
}  // namespace rrdk::gss
