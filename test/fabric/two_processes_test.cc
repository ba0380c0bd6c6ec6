// Two real processes: everything works across them, and the death of one, at any instruction, is
// just a disconnection for the other.
#include <algorithm>

#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"
#include "test/fabric/peer_process.h"

namespace rrdk::fabric::test {
namespace {

constexpr uint32_t kSize = 4096;

// The memory that a client may read and write, as its server announces it.
struct Offer {
  uint32_t read_key;
  uint32_t write_key;
  uint64_t read_address;
  uint64_t write_address;
};

// The peer: a connected client that has received the server's offer.
struct Client {
  explicit Client(const std::string& uri) : end(uri), qp(end.queue_pair()) {
    const ReceiveWr receive{1, inbox.span()};
    qp->post_receive(std::span(&receive, 1));
    // The connecting end sends first: iWARP's other end may not (RFC 5044 section 7.1), and siw
    // ends a connection on which it does.
    SendWr hello = send_wr(0, {buffer.first(1)});
    hello.signaled = false;
    if (const auto connecting = end.device->connect(*qp, uri, {}); !connecting)
      failure = connecting.error().message;
    else if (!pump_until({&end},
                         [&] { return end.has_event(EventType::kEstablished) || ended(); }) ||
             ended())
      failure = "no connection" + last_words();
    else if (qp->post_send(std::span(&hello, 1)) != 1)
      failure = "the first message could not be posted" + last_words();
    else
      expect_completion("the server's offer");
    std::memcpy(&offer, inbox.data(), sizeof(offer));
  }
  // Waits for the next completion; if it is not a success, `failure` gets the reason.
  bool expect_completion(const std::string& what) {
    if (!failure.empty())
      return false;
    pump_until({&end}, [&] { return !end.completions.empty() || ended(); });
    const std::vector<Completion> found = end.take_completions();
    if (found.empty())
      failure = what + ": nothing came";
    else if (found[0].status != WcStatus::kSuccess)
      failure = what + ": " + to_string(found[0].status);
    if (!failure.empty())
      failure += last_words();
    return failure.empty();
  }
  bool run(const SendWr& wr, const std::string& what) {
    if (qp->post_send(std::span(&wr, 1)) != 1)
      failure = what + " could not be posted" + last_words();
    return expect_completion(what);
  }
  bool ended() const {
    return end.has_event(EventType::kDisconnected) || end.has_event(EventType::kConnectFailed);
  }
  // The device's report about the end, which may come a little later than the completion.
  std::string last_words() {
    pump_until({&end}, [&] { return ended(); });
    std::string words;
    for (const Event& event : end.events)
      words += "; " + event.ending.text;
    return words;
  }

  End end;
  Buffer inbox = test_memory().get(kSize);
  Buffer buffer = test_memory().get(1 << 20);
  std::unique_ptr<QueuePair> qp;
  Offer offer{};
  std::string failure;
};

uint32_t exercise_rounds() {
  return emulated() ? 40 : 200;
}

std::string exercise(const std::string& uri) {
  Client client(uri);
  const Offer& offer = client.offer;
  for (uint32_t i = 0; i < exercise_rounds() && client.failure.empty(); ++i) {
    const std::string round = " of round " + std::to_string(i);
    std::fill_n(client.buffer.data(), 2 * kSize, static_cast<std::byte>(i));
    if (client.run(access_wr(1, Op::kWrite, client.buffer.first(kSize), offer.write_key,
                             offer.write_address),
                   "the Write" + round) &&
        client.run(send_wr(2, {client.buffer.first(i % 2 == 0 ? 100 : kSize)}),
                   "the Send" + round) &&
        client.run(
            access_wr(3, Op::kRead, client.buffer.first(kSize), offer.read_key, offer.read_address),
            "the Read" + round) &&
        std::any_of(client.buffer.data(), client.buffer.data() + kSize,
                    [](std::byte b) { return b != std::byte{0x77}; }))
      client.failure = "the Read" + round + " brought other bytes";
  }
  return client.failure;
}

constexpr uint32_t kReceives = 32;  // of a server whose client is killed

// Reads, writes and sends until it is killed. If a message must not come before its Receive, it
// sends no more than there are Receives at first.
std::string load(const std::string& uri) {
  Client client(uri);
  const Offer& offer = client.offer;
  const std::array<SendWr, 4> wrs = {
      access_wr(1, Op::kWrite, client.buffer.first(kSize), offer.write_key, offer.write_address),
      access_wr(2, Op::kRead, client.buffer.first(kSize), offer.read_key, offer.read_address),
      send_wr(3, {client.buffer.first(50)}), send_wr(4, {client.buffer.first(3000)})};
  const bool bounded = !client.end.device->capabilities().waits_for_receives;
  for (uint32_t sends = 0; client.failure.empty();) {
    const uint32_t posted =
        client.qp->post_send(std::span(wrs).first(bounded && sends + 2 > kReceives ? 2 : 4));
    sends += posted > 2 ? posted - 2 : 0;
    client.end.pump();
    client.end.completions.clear();
  }
  return client.failure;
}

constexpr uint32_t kServed = 16;  // messages for which a server is ready at once

// A server that is only there to be killed: it takes everything that comes.
std::string take_all(const std::string& uri) {
  End end(uri);
  auto listener = end.device->listen(uri).value();
  std::vector<std::unique_ptr<QueuePair>> qps;
  Buffer buffer = test_memory().get(kSize);
  const ReceiveWr receive{1, buffer.span()};
  for (;;) {
    end.pump();
    for (Event& event : std::exchange(end.events, {})) {
      if (event.type != EventType::kConnectRequest)
        continue;
      qps.push_back(event.request->create_queue_pair({.cq = end.cq.get()}).value());
      for (uint32_t i = 0; i < kServed; ++i)
        qps.back()->post_receive(std::span(&receive, 1));
      (void)event.request->accept(*qps.back(), {});
    }
    for (const Completion& c : end.take_completions())
      if (c.op == Op::kReceive)
        qps.back()->post_receive(std::span(&receive, 1));
  }
}

// Connects to a server that is starting: tries again if it is refused, at once or by an event.
std::unique_ptr<QueuePair> connect_once_up(End& end, const std::string& uri,
                                           const QueuePairOptions& options) {
  std::unique_ptr<QueuePair> qp;
  bool connecting = false;
  pump_until({&end}, [&] {
    if (end.has_event(EventType::kConnectFailed)) {
      end.take_event(EventType::kConnectFailed);
      connecting = false;
    }
    if (!connecting) {
      qp = end.queue_pair(options);
      connecting = end.device->connect(*qp, uri, {}).has_value();
    }
    return end.has_event(EventType::kEstablished);
  });
  end.take_event(EventType::kEstablished);
  return qp;
}

class TwoProcesses : public testing::TestWithParam<FabricUnderTest> {
 protected:
  // Accepts the next connection with this many Receives, and sends it the memory that it may read
  // and write.
  std::unique_ptr<QueuePair> accept(uint32_t receives = kReceives) {
    EXPECT_TRUE(
        pump_until({&server_}, [&] { return server_.has_event(EventType::kConnectRequest); }));
    Event event = server_.take_event(EventType::kConnectRequest);
    auto qp = event.request->create_queue_pair({.cq = server_.cq.get(), .owner = this}).value();
    const std::vector<ReceiveWr> wrs_in(receives, ReceiveWr{1, inbox_.first(kSize)});
    EXPECT_EQ(qp->post_receive(wrs_in), receives);
    EXPECT_TRUE(event.request->accept(*qp, {}).has_value());
    EXPECT_TRUE(pump_until({&server_}, [&] { return server_.has_event(EventType::kEstablished); }));
    server_.take_event(EventType::kEstablished);
    EXPECT_TRUE(pump_until({&server_}, [&] { return !server_.completions.empty(); }));
    server_.completions.erase(server_.completions.begin());  // the client's first message
    const ReceiveWr again{1, inbox_.first(kSize)};
    EXPECT_EQ(qp->post_receive(std::span(&again, 1)), 1u);
    EXPECT_TRUE(qp->reserve_keys(keys_));
    const MemorySpan readable = memory_.first(kSize);
    const MemorySpan writable = {memory_.data() + kSize, kSize, memory_.region()};
    std::fill_n(readable.data, kSize, std::byte{0x77});
    keys_[0] = qp->name_key(keys_[0], readable, Rights::kRemoteRead);
    keys_[1] = qp->name_key(keys_[1], writable, Rights::kRemoteWrite);
    const Offer offer{keys_[0], keys_[1], address_of(readable.data), address_of(writable.data)};
    std::memcpy(outbox_.data(), &offer, sizeof(offer));
    const std::array<SendWr, 3> wrs = {bind_wr(1, keys_[0], readable, Rights::kRemoteRead),
                                       bind_wr(2, keys_[1], writable, Rights::kRemoteWrite),
                                       send_wr(3, {outbox_.first(sizeof(offer))})};
    EXPECT_EQ(qp->post_send(wrs), 3u);
    return qp;
  }
  // Serves until `done`; each message is checked and its Receive posted again.
  void serve(QueuePair& qp, const std::function<bool()>& done) {
    EXPECT_TRUE(pump_until({&server_}, [&] {
      for (const Completion& c : server_.take_completions()) {
        flushed_ += c.status == WcStatus::kFlushed;
        if (c.op != Op::kReceive || c.status != WcStatus::kSuccess)
          continue;
        ++messages_;
        const ReceiveWr again{1, inbox_.first(kSize)};
        qp.post_receive(std::span(&again, 1));
      }
      return done();
    }));
  }

  const std::string uri_ = GetParam().new_uri();
  End server_{uri_};
  std::unique_ptr<Listener> listener_ = server_.device->listen(uri_).value();
  Buffer inbox_ = test_memory().get(kSize);
  Buffer outbox_ = test_memory().get(kSize);
  Buffer memory_ = test_memory().get(1 << 20);
  std::array<uint32_t, 2> keys_{};
  uint64_t messages_ = 0;
  uint64_t flushed_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Fabric, TwoProcesses, all_fabrics(), fabric_name);

TEST_P(TwoProcesses, ExchangeMessagesAndMemory) {
  PeerProcess peer(exercise, uri_);
  // One Receive for each message: if none may come before its Receive, ours may be late with the
  // next one while the client continues to send.
  auto qp =
      accept(server_.device->capabilities().waits_for_receives ? kReceives : exercise_rounds());
  serve(*qp, [&] { return server_.has_event(EventType::kDisconnected); });
  EXPECT_EQ(peer.failure(), "");
  EXPECT_EQ(messages_, exercise_rounds());
  EXPECT_EQ(memory_.data()[kSize], static_cast<std::byte>(exercise_rounds() - 1));
}

TEST_P(TwoProcesses, DeathOfAClientUnderLoad) {
  Pair bystander(GetParam().new_uri());
  Buffer buffer = test_memory().get(kSize);
  const uint64_t rounds = emulated() ? 1 : 8;
  for (uint64_t round = 1; round <= rounds; ++round) {
    SCOPED_TRACE(round);
    PeerProcess peer(load, uri_);
    auto qp = accept();
    messages_ = flushed_ = 0;
    const uint64_t wanted =
        server_.device->capabilities().waits_for_receives ? 100 * round : kReceives / 2;
    serve(*qp, [&] { return messages_ >= wanted; });
    peer.kill();
    serve(*qp,
          [&] { return server_.has_event(EventType::kDisconnected) && flushed_ == kReceives; });
    EXPECT_EQ(server_.take_event(EventType::kDisconnected).owner, this);
    EXPECT_EQ(flushed_, kReceives);
    // The memory that the peer could reach is ours again.
    for (const uint32_t key : keys_)
      qp->release_key(key);
    bystander.post_receives(*bystander.server_qp, 1);
    EXPECT_EQ(bystander.run(send_wr(round, {buffer.first(2000)})).status, WcStatus::kSuccess);
  }
  // To TCP a death can look like a close.
  if (bystander.acknowledges() && bystander.can().counts_causes) {
    EXPECT_EQ(server_.counter("peers_lost"), rounds);
  }
}

TEST_P(TwoProcesses, DeathOfAServerUnderLoad) {
  const int rounds = emulated() ? 1 : 5;
  for (int round = 0; round < rounds; ++round) {
    const std::string uri = GetParam().new_uri();
    PeerProcess peer(take_all, uri);
    End client(uri);
    auto qp = connect_once_up(client, uri, {.send_wrs = 32, .owner = this});
    Buffer buffer = test_memory().get(kSize);
    uint64_t posted = 0;
    uint64_t reported = 0;
    const auto push = [&] {
      // If a message must not come before its Receive: Writes of zero bytes, once no more messages
      // may come.
      SendWr wr = send_wr(posted, {buffer.first(posted % 2 == 0 ? 10 : 3000)});
      if (!client.device->capabilities().waits_for_receives && posted >= kServed)
        wr = access_wr(posted, Op::kWrite, {}, 0, 0);
      posted += qp->post_send(std::span(&wr, 1));
      client.pump();
      for (const Completion& c : client.take_completions())
        EXPECT_EQ(c.wr_id, reported++);
    };
    ASSERT_TRUE(pump_until({&client}, [&] {
      push();
      return reported >= 500;
    }));
    EXPECT_FALSE(client.has_event(EventType::kDisconnected));
    peer.kill();
    ASSERT_TRUE(pump_until({&client}, [&] {
      push();
      return client.has_event(EventType::kDisconnected);
    }));
    ASSERT_TRUE(pump_until({&client}, [&] {
      for (const Completion& c : client.take_completions())
        EXPECT_EQ(c.wr_id, reported++);
      return reported == posted;
    }));
  }
}

}  // namespace
}  // namespace rrdk::fabric::test
