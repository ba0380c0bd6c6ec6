// Many hostile messages of all kinds, and many contexts that are never finished or never used,
// while an honest caller makes calls beside them: it loses none, new callers can still make
// contexts, and memory stays bounded.
//
// RRDK_GSS_MESSAGES says how many messages are sent; figures are printed then. doc/security.md has
// those of a million.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "base/sanitizer.h"
#include "gss_caller.h"
#include "rrdk/gss_context.h"
#include "test/seed.h"

namespace rrdk::gss {
namespace {

uint64_t messages_wanted() {
  const char* const given = std::getenv("RRDK_GSS_MESSAGES");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 0;
}

// 1.2.840.113554.1.2.2
char kerberos_number[] = "\x2a\x86\x48\x86\xf7\x12\x01\x02\x02";

// The first token of a context for which Kerberos needs three: as DCE makes them.
Bytes token_of_three() {
  void* const library = dlopen("libgssapi_krb5.so.2", RTLD_NOW);
  const auto find = [&](const char* name) { return dlsym(library, name); };
  const auto import = reinterpret_cast<decltype(&gss_import_name)>(find("gss_import_name"));
  const auto init = reinterpret_cast<decltype(&gss_init_sec_context)>(find("gss_init_sec_context"));
  const auto forget =
      reinterpret_cast<decltype(&gss_delete_sec_context)>(find("gss_delete_sec_context"));
  const auto release = reinterpret_cast<decltype(&gss_release_buffer)>(find("gss_release_buffer"));
  const auto release_name = reinterpret_cast<decltype(&gss_release_name)>(find("gss_release_name"));
  gss_OID_desc mechanism = {sizeof kerberos_number - 1, kerberos_number};
  char target[] = "nfs@localhost";
  gss_buffer_desc text = {sizeof target - 1, target}, token = GSS_C_EMPTY_BUFFER;
  gss_name_t name = GSS_C_NO_NAME;
  gss_ctx_id_t context = GSS_C_NO_CONTEXT;
  uint32_t minor = 0;
  EXPECT_EQ(
      import(&minor, &text, *static_cast<gss_OID*>(find("GSS_C_NT_HOSTBASED_SERVICE")), &name),
      uint32_t{GSS_S_COMPLETE});
  EXPECT_EQ(init(&minor, GSS_C_NO_CREDENTIAL, &context, name, &mechanism,
                 GSS_C_MUTUAL_FLAG | GSS_C_INTEG_FLAG | GSS_C_DCE_STYLE, GSS_C_INDEFINITE,
                 GSS_C_NO_CHANNEL_BINDINGS, GSS_C_NO_BUFFER, nullptr, &token, nullptr, nullptr),
            uint32_t{GSS_S_CONTINUE_NEEDED});
  const auto* const bytes = static_cast<const std::byte*>(token.value);
  Bytes made(bytes, bytes + token.length);
  release(&minor, &token);
  release_name(&minor, &name);
  forget(&minor, &context, GSS_C_NO_BUFFER);
  return made;
}

enum Kind : uint8_t {
  kGarbageToken,
  kRecordedToken,
  kTokenOfThree,
  kUnknownContinued,
  kUnknownHandle,
  kWrongChecksum,
  kReplay,
  kBelowWindow,
  kBeyondHighest,
  kBrokenIntegrity,
  kBrokenPrivacy,
  kCutCredential,
  kDestroyOfOthers,
  kKinds
};

// Whether the server leaves such a message unanswered.
bool is_unanswered(Kind kind) {
  return kind == kReplay || kind == kBelowWindow;
}

constexpr uint32_t kConnections = 8;
constexpr uint32_t kMostOutstanding = 16;
// So the tokens of all connections wait, and none is refused unless it makes way.
constexpr uint32_t kMostTokens = 2;
// The credits of unanswered calls are lost until the connection ends.
constexpr uint32_t kMostUnanswered = 16;
constexpr uint32_t kMostUnfinished = 16, kMostContexts = 16;

class Hostile : public testing::Test {
 protected:
  struct Peer {
    std::unique_ptr<loopback::RawClient> client;
    uint32_t outstanding = 0, unanswered = 0;
  };

  Hostile()
      : acceptor(GssAcceptor::create({.service = "nfs@localhost",
                                      .key_table = {},
                                      .max_contexts = kMostContexts,
                                      .max_unfinished = kMostUnfinished})
                     .value()) {
    ServerOptions options;
    options.gss = acceptor.get();
    ends = std::make_unique<loopback::Ends>(
        loopback::options_for(loopback::Cores::kDedicated), options, ClientOptions{},
        std::initializer_list<Service>{
            {.binding = &loopback::kBinding, .procedures = loopback::kTable}});
    establish(bob);
    establish(victim);
    recorded = GssCaller().begin();
    of_three = token_of_three();
    bob.sequence = 10'000;
    replayed = made(Protection::kNone);
    send_and_wait(replayed);
    send_and_wait(victim.message(++xid, 0, {}, Protection::kNone));  // it is used, and kept
    below = made(Protection::kNone, {}, 2);
    beyond = made(Protection::kNone, {}, kHighestSequence + 1);
  }
  void TearDown() override {
    for (Peer& peer : peers)
      peer.client.reset();
    ends->end();
  }

  // The honest caller. It makes calls until it is told to end, and a new context now and then.
  void be_honest() {
    auto connection = ends->client->connect(ends->uri).value();
    std::mt19937_64 its_random(rrdk::test::run_seed());
    while (!ends_now) {
      auto credential = establish_context(*connection, loopback::kBinding,
                                          {.target = "nfs@localhost", .principal = {}});
      lost += !credential;
      if (!credential)
        continue;
      ++honest_contexts;
      connection->set_credential(*credential);
      for (int i = 0; i != 500 && !ends_now; ++i)
        echo(*connection, its_random);
    }
  }
  void echo(Caller& caller, std::mt19937_64& its_random) {
    Bytes text(its_random() % 300);
    std::ranges::generate(text, [&] { return static_cast<std::byte>(its_random()); });
    Call call(caller);
    call.begin(loopback::kBinding, loopback::kEcho).put_opaque(std::span<const std::byte>(text));
    const bool good = call.submit_and_wait() == CallStatus::kOk;
    Bytes got;
    if (good) {
      const ItemView item = call.results().get_opaque(UINT32_MAX);
      got.resize(item.size());
      item.copy_to(got.data());
    }
    ++(got == text && good ? honest_calls : lost);
  }

  Peer& connect(Peer& peer) {
    peer = {};
    peer.client = std::make_unique<loopback::RawClient>(*ends->memory, ends->uri);
    ends->until([&] {
      peer.client->pump();
      return peer.client->up();
    });
    return peer;
  }
  void send(Peer& peer, const Words& rpc, bool is_answered = true) {
    peer.client->send(Words{rpc[0], 1, 32, 0, 0, 0, 0} + rpc);
    ++(is_answered ? peer.outstanding : peer.unanswered);
  }
  void take(Peer& peer) {
    peer.client->pump();
    ASSERT_FALSE(peer.client->down());
    ASSERT_LE(peer.client->received.size(), peer.outstanding);
    peer.outstanding -= static_cast<uint32_t>(peer.client->received.size());
    for (const Received& reply : peer.client->received) {
      // Accepted, with a handle, and CONTINUE_NEEDED.
      half_made += reply.at(12) == 0 && reply.at(13) == 16 && reply.at(18) == 1;
      last = reply.words;
    }
    peer.client->received.clear();
  }
  void wait(Peer& peer, uint32_t most = 0) {
    ends->until([&] {
      take(peer);
      return peer.outstanding <= most || HasFatalFailure();
    });
  }
  // What was sent before was taken, too.
  void finish(Peer& peer) {
    send(peer, call_header({0, 0}, 0) + Words{0, 0});
    wait(peer);
  }
  void send_and_wait(const Words& rpc) {
    Peer peer;
    send(connect(peer), rpc);
    wait(peer);
  }

  void establish(GssCaller& caller) {
    send_and_wait(init(caller.begin()));
    const Words reply(last.begin() + 7, last.end());
    Reader in(reply);
    in.word();
    caller.take_context(in);
  }
  Words call_header(const Words& credential, uint32_t procedure) {
    return Words{++xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, procedure} +
           credential;
  }
  Words init(const Bytes& token, const Words& credential = {6, 20, 1, 1, 0, 1, 0}) {
    return call_header(credential, 0) + Words{0, 0} + opaque(token);
  }
  // A call of bob's, right but for the change.
  Words made(Protection protection, const Change& change = {},
             std::optional<uint32_t> number = {}) {
    const uint32_t next = bob.sequence;
    bob.sequence = number.value_or(next);
    Words call = bob.message(++xid, loopback::kEcho, opaque(bytes_of({1, 2})), protection, change);
    bob.sequence = number ? next : next + 1;
    return call;
  }
  // Bob's key, and another's handle.
  Words destroy_of_others() {
    std::swap(bob.handle, victim.handle);
    Words call = bob.message(++xid, 0, {}, Protection::kNone, {.control = 3});
    std::swap(bob.handle, victim.handle);
    return call;
  }
  Words unknown_handle() {
    Words call = replayed;
    for (size_t i = 13; i != 17; ++i)
      call[i] = static_cast<uint32_t>(random());
    return call;
  }
  // Its length says that it is whole.
  Words cut_credential() {
    const auto kept = static_cast<uint32_t>(random() % 9);
    const Words whole = bob.credential(bob.sequence, Protection::kNone);
    return call_header(Words{6, 4 * kept} + Words(whole.begin() + 2, whole.begin() + 2 + kept), 1) +
           Words{0, 0};
  }
  Words hostile(Kind kind) {
    Bytes garbage;
    switch (kind) {
      case kGarbageToken:
        garbage = random() % 2 == 0 ? recorded : Bytes(random() % 600);
        for (int i = 0; i != 8 && !garbage.empty(); ++i)
          garbage[random() % garbage.size()] ^= static_cast<std::byte>(1 + random() % 255);
        return init(garbage);
      case kRecordedToken:
        return init(recorded);
      case kTokenOfThree:
        return init(of_three);
      case kUnknownContinued:
        return init(recorded, {6, 36, 1, 2, 0, 1, 16, static_cast<uint32_t>(random()), 2, 3, 4});
      case kUnknownHandle:
        return unknown_handle();
      case kWrongChecksum:
        return made(Protection::kNone, {.wrong_header_checksum = true}, 20'000'000);
      case kReplay:
        return replayed;
      case kBelowWindow:
        return below;
      case kBeyondHighest:
        return beyond;
      case kBrokenIntegrity:
        return made(Protection::kIntegrity, {.wrong_body_checksum = true});
      case kBrokenPrivacy:
        return made(Protection::kPrivacy, {.wrong_body_checksum = true});
      case kCutCredential:
        return cut_credential();
      case kDestroyOfOthers:
        return destroy_of_others();
      case kKinds:
        break;
    }
    return {};
  }
  // Sends messages of such kinds from several connections, while the honest caller makes calls.
  void attack(uint64_t messages, std::span<const Kind> kinds, uint32_t most_outstanding) {
    for (uint64_t i = 0; i != messages && !HasFatalFailure(); ++i) {
      Peer& peer = peers[i % peers.size()];
      if (peer.unanswered == kMostUnanswered)
        finish(peer);
      if (peer.client == nullptr || peer.unanswered == kMostUnanswered)
        connect(peer);
      wait(peer, most_outstanding - 1);
      const Kind kind = kinds[random() % kinds.size()];
      ++sent[kind];
      send(peer, hostile(kind), !is_unanswered(kind));
    }
    for (Peer& peer : peers)
      finish(peer);
  }
  void run(uint64_t messages, std::span<const Kind> kinds, uint32_t most_outstanding) {
    std::thread honest([this] { be_honest(); });
    attack(messages / 10, kinds, most_outstanding);  // what is made only once is there now
    const uint64_t honest_before = honest_calls, before = resident(), began = Runtime::now_ns();
    attack(messages, kinds, most_outstanding);
    const double seconds = static_cast<double>(Runtime::now_ns() - began) * 1e-9;
    const uint64_t after = resident();
    const uint64_t made_beside = honest_calls - honest_before;
    // At least one context is made from beginning to end after all this.
    const uint64_t contexts = honest_contexts;
    ends->until([&] { return honest_contexts >= contexts + 2 || lost != 0; });
    ends_now = true;
    honest.join();
    EXPECT_EQ(lost, 0u);
    EXPECT_GT(made_beside, 0u);
    const GssAcceptorStats stats = acceptor->stats();
    EXPECT_LE(stats.contexts, kMostContexts + kMostUnfinished);
    if (RRDK_ASAN == 0 && RRDK_TSAN == 0) {
      EXPECT_LE(after, before + (16u << 20));
    }
    if (messages_wanted() == 0)
      return;
    std::printf(
        "%lu messages, %.0f/s; resident %.1f MiB before, %.1f MiB after; honest: %lu calls "
        "(%.0f/s), %lu contexts, %lu lost\n",
        messages, static_cast<double>(messages) / seconds, static_cast<double>(before) / (1 << 20),
        static_cast<double>(after) / (1 << 20), made_beside,
        static_cast<double>(made_beside) / seconds, honest_contexts.load(), lost.load());
    std::printf(
        "contexts %lu, half made %lu, established %lu, refused %lu, evicted %lu; refused calls: "
        "context %lu, verifier %lu, sequence %lu, replay %lu, body %lu, credential %lu, busy %lu\n",
        stats.contexts, half_made, stats.established, stats.refused, stats.evicted,
        counted(Refusal::kGssContext), counted(Refusal::kGssVerifier),
        counted(Refusal::kGssSequence), counted(Refusal::kGssReplay), counted(Refusal::kGssBody),
        counted(Refusal::kGssCredential), counted(Refusal::kGssBusy));
  }
  uint64_t counted(Refusal refusal) const { return ends->server->stats()[refusal]; }
  static uint64_t resident() {
    std::ifstream in("/proc/self/statm");
    uint64_t pages = 0;
    in >> pages >> pages;
    return pages * 4096;
  }

  std::unique_ptr<GssAcceptor> acceptor;
  std::unique_ptr<loopback::Ends> ends;
  std::array<Peer, kConnections> peers;
  GssCaller bob{"nfs@localhost", "bob"}, victim{"nfs@localhost", "bob"};
  Bytes recorded, of_three;
  Words replayed, below, beyond, last;
  uint32_t xid = 0;
  std::mt19937_64 random{rrdk::test::run_seed()};
  std::array<uint64_t, kKinds> sent = {};
  uint64_t half_made = 0;
  std::atomic<uint64_t> honest_calls = 0, honest_contexts = 0, lost = 0;
  std::atomic<bool> ends_now = false;
};

TEST_F(Hostile, MessagesOfAllKindsDisturbNoCall) {
  std::array<Kind, kKinds> all;
  for (uint8_t i = 0; i != kKinds; ++i)
    all[i] = static_cast<Kind>(i);
  const uint64_t wanted = messages_wanted();
  run(wanted != 0 ? wanted : 5'000, all, kMostOutstanding);
  EXPECT_EQ(counted(Refusal::kGssVerifier), sent[kWrongChecksum] + sent[kDestroyOfOthers]);
  EXPECT_EQ(counted(Refusal::kGssSequence), sent[kBeyondHighest]);
  EXPECT_EQ(counted(Refusal::kGssReplay), sent[kReplay] + sent[kBelowWindow]);
  EXPECT_EQ(counted(Refusal::kGssBody), sent[kBrokenIntegrity] + sent[kBrokenPrivacy]);
  EXPECT_EQ(counted(Refusal::kGssCredential), sent[kCutCredential]);
  EXPECT_GE(counted(Refusal::kGssContext), sent[kUnknownHandle]);
  EXPECT_GT(acceptor->stats().evicted, 0u);
}

TEST_F(Hostile, HalfMadeContextsKeepNoCallerOut) {
  constexpr Kind kHalfMade[] = {kRecordedToken, kTokenOfThree};
  const uint64_t wanted = messages_wanted();
  run(wanted != 0 ? wanted / 50 : 300, kHalfMade, kMostTokens);
  EXPECT_GT(acceptor->stats().established, sent[kRecordedToken] / 2);
  EXPECT_GT(half_made, sent[kTokenOfThree] / 2);
}

}  // namespace
}  // namespace rrdk::gss
