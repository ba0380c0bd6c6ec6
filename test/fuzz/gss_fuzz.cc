// Calls by RPCSEC_GSS against a server, and records by TCP against its acceptor, with a mechanism
// that does not look closely (fake_gssapi.cc): so a fuzzer comes through to what is behind the
// checksums. Credentials, verifiers, tokens and bodies are right but for some parts, or any bytes.
// After each input, a right call must get its right answer.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "require.h"
#include "rrdk/gss.h"
#include "test/gss/tcp_peer.h"
#include "test/server/loopback.h"
#include "test/server/raw_client.h"

namespace rrdk::fuzz {
namespace {

using gss::Bytes;
using gss::bytes_of;
using gss::opaque;
using loopback::Words;
using loopback::operator+;

constexpr uint32_t kLongest = 3000;  // bytes of a message
constexpr uint32_t kMark = 0x4d41524b;

Bytes text(std::string_view from) {
  const auto bytes = std::as_bytes(std::span(from));
  return {bytes.begin(), bytes.end()};
}

class Ground {
 public:
  Ground() : memory_(loopback::make_memory()) {
    GssAcceptorOptions keys;
    keys.max_contexts = keys.max_unfinished = 8;
    keys.max_protected_bytes = 2048;
    keys.tcp = "127.0.0.1:0";
    acceptor_ = GssAcceptor::create(keys).value();
    runtime_ = Runtime::create(*memory_, {.embedded_cores = 1}).value();
    ServerOptions options;
    options.gss = acceptor_.get();
    server_ = Server::create(*runtime_, options).value();
    require(
        server_->add_service({.binding = &loopback::kBinding, .procedures = kTable}).has_value(),
        "a service");
    uri_ = server_->listen("shm:" + loopback::socket_path()).value();
  }

  // A new connection with a new context.
  void begin() {
    client_ = std::make_unique<loopback::RawClient>(*memory_, uri_);
    until([this] { return client_->up(); });
    const Words reply = establish();
    require(reply.size() > 12, "an answer to a token");
    const Words whole(reply.begin() + 7, reply.end());
    gss::Reader in(whole);
    for (int i = 0; i != 4; ++i)
      in.word();
    in.opaque();
    require(in.word() == 0, "a token was refused");
    handle = in.opaque();
    require(handle.size() == 16, "a handle");
    next = 1;
  }
  // All that was sent has been taken when this is answered.
  Words establish() {
    send(call_header(0, {6, 20, 1, 1, 0, 1, 0}, kMark) + Words{0, 0} + opaque(text("o")));
    return answer_to(kMark);
  }
  void send(const Words& rpc) {
    if (!client_->down())
      client_->send(Words{rpc.empty() ? 0 : rpc[0], 1, 32, 0, 0, 0, 0} + rpc);
  }
  // Nothing if the connection has ended.
  Words answer_to(uint32_t xid) {
    Words found;
    until([&] {
      for (const auto& each : client_->received) {
        if (each.xid() == xid)
          found = each.words;
      }
      client_->received.clear();
      return !found.empty() || client_->down();
    });
    return found;
  }
  static Words call_header(uint32_t procedure, const Words& credential, uint32_t xid) {
    return Words{xid, 0, 2, loopback::kBinding.program, loopback::kBinding.version, procedure} +
           credential;
  }
  Words credential(uint32_t control, uint32_t sequence, uint32_t protection) const {
    const Words body = Words{1, control, sequence, protection} + opaque(handle);
    return Words{6, static_cast<uint32_t>(4 * body.size())} + body;
  }
  uint16_t tcp_port() const { return acceptor_->tcp_port(); }

  Bytes handle;
  uint32_t next = 1;  // sequence number

 private:
  static constexpr Procedure kTable[] = {
      {loopback::kEcho, loopback::echo},
      {loopback::kRead, loopback::read},
      {loopback::kOnce, loopback::echo, Dispatch::kInline, false}};

  template <typename Done>
  void until(Done&& done) {
    while (!done()) {
      client_->pump();
      if (runtime_->poll(0) == 0)
        std::this_thread::yield();
    }
  }

  std::unique_ptr<Memory> memory_;
  std::unique_ptr<GssAcceptor> acceptor_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<loopback::RawClient> client_;
  std::string uri_;
};

Ground& ground() {
  static Ground& g = *new Ground;
  return g;
}

Bytes some(FuzzedDataProvider& in, size_t most) {
  const std::string bytes = in.ConsumeRandomLengthString(most);
  return text(bytes);
}

// Words of which some are others.
Words change(FuzzedDataProvider& in, Words words) {
  for (int i = in.ConsumeIntegralInRange(0, 3); i != 0 && !words.empty(); --i)
    words[in.ConsumeIntegralInRange<size_t>(0, words.size() - 1)] = in.ConsumeIntegral<uint32_t>();
  words.resize(std::min<size_t>(
      words.size(), in.ConsumeIntegralInRange<size_t>(in.ConsumeBool() ? 0 : words.size(), 4096)));
  return words;
}

Words whole_words(Bytes bytes) {
  bytes.resize(bytes.size() / 4 * 4);
  Words words;
  for (size_t at = 0; at != bytes.size(); at += 4)
    words.push_back(xdr::load_u32(&bytes[at]));
  return words;
}

Words body(uint32_t protection, uint32_t sequence, const Bytes& arguments) {
  Bytes clear = bytes_of({sequence});
  clear.insert(clear.end(), arguments.begin(), arguments.end());
  if (protection == 2)
    return opaque(clear) + opaque(text("ksum"));
  if (protection != 3)
    return whole_words(arguments);
  clear.insert(clear.begin(), std::byte{'w'});
  return opaque(clear);
}

void call(FuzzedDataProvider& in) {
  Ground& g = ground();
  const uint32_t control = in.ConsumeIntegralInRange<uint32_t>(0, 3);
  const uint32_t protection = in.ConsumeIntegralInRange<uint32_t>(0, 4);
  const uint32_t sequence = in.ConsumeBool() ? g.next++ : in.ConsumeIntegral<uint32_t>();
  const uint32_t procedure =
      in.PickValueInArray<uint32_t>({0, loopback::kEcho, loopback::kRead, loopback::kOnce, 99});
  Words credential = g.credential(control, sequence, protection);
  if (control == 1 && in.ConsumeBool())
    credential = {6, 20, 1, 1, 0, 1, 0};
  const Words verifier =
      in.ConsumeBool() ? Words{6} + opaque(text("k")) : Words{6} + opaque(some(in, 404));
  const Bytes arguments = some(in, 1500);
  const Words made =
      control == 1 || control == 2 ? opaque(arguments) : body(protection, sequence, arguments);
  Words rpc = change(in, Ground::call_header(procedure, credential, 7)) + change(in, verifier) +
              change(in, made);
  rpc.resize(std::min<size_t>(rpc.size(), kLongest / 4));
  g.send(rpc);
}

// Any bytes by TCP, and the whole of what comes back.
void record(FuzzedDataProvider& in) {
  gss::TcpPeer peer(ground().tcp_port());
  if (in.ConsumeBool()) {
    const Words call = gss::tcp_call(
        in.ConsumeIntegralInRange<uint32_t>(0, 1),
        change(in, ground().credential(in.ConsumeIntegralInRange<uint32_t>(0, 3), 1, 1)),
        change(in, opaque(some(in, 500))));
    peer.try_to_send(gss::TcpPeer::record(change(in, call)));
  } else {
    peer.try_to_send(some(in, 1000));
  }
  peer.end();
  while (!peer.is_closed())
    continue;
}

// Whatever came before.
void check_right_calls() {
  Ground& g = ground();
  if (g.establish().empty())
    g.begin();  // the connection was closed
  g.begin();
  for (const uint32_t protection : {1u, 2u, 3u}) {
    const uint32_t sequence = g.next++;
    const Words said = {4, 0x01020304};
    g.send(Ground::call_header(loopback::kEcho, g.credential(0, sequence, protection), kMark + 1) +
           Words{6} + opaque(text("ksum")) + body(protection, sequence, bytes_of(said)));
    const Words reply = g.answer_to(kMark + 1);
    const Words right = Words{kMark + 1, 1, 0, 6} + opaque(text("ksum")) + Words{0} +
                        body(protection, sequence, bytes_of(said));
    require(reply.size() > 7 && Words(reply.begin() + 7, reply.end()) == right, "a right call");
  }
}

}  // namespace
}  // namespace rrdk::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rrdk::fuzz;
  FuzzedDataProvider in(data, size);
  ground().begin();
  for (int i = 0; i != 8 && in.remaining_bytes() != 0; ++i) {
    if (in.ConsumeIntegralInRange(0, 7) == 0)
      record(in);
    else
      call(in);
  }
  check_right_calls();
  return 0;
}
