// How connections begin and end: private data, rejection, flushes, and wrong addresses.
#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "test/fabric/end.h"
#include "test/fabric/fabrics.h"

namespace rrdk::fabric::test {
namespace {

class Connections : public testing::TestWithParam<FabricUnderTest> {};
INSTANTIATE_TEST_SUITE_P(Fabric, Connections, all_fabrics(), fabric_name);

std::vector<std::byte> some_bytes(size_t length, uint8_t first) {
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; ++i)
    bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

// Passes the devices' events to `handle` until it returns true, or until this takes too long.
void pump_events(std::initializer_list<Device*> devices,
                 const std::function<bool(Event&)>& handle) {
  const auto limit = std::chrono::steady_clock::now() + patience();
  for (bool enough = false; !enough && std::chrono::steady_clock::now() < limit;)
    for (Device* device : devices)
      for (Event& event : device->poll_events(4))
        enough = handle(event) || enough;
}

// Whether it is what the peer sent. InfiniBand's fields have one length, and zeros at their end.
bool is_private_data(std::span<const std::byte> got, std::span<const std::byte> sent,
                     const Capabilities& can) {
  if (got.size() < sent.size() || (can.exact_private_data && got.size() != sent.size()))
    return false;
  return std::ranges::equal(got.first(sent.size()), sent) &&
         std::ranges::all_of(got.subspan(sent.size()),
                             [](std::byte b) { return b == std::byte{0}; });
}

std::span<const std::byte> private_data_of(const Event& event) {
  return std::span(event.private_data).first(event.private_data_length);
}

TEST_P(Connections, CarryPrivateDataBothWays) {
  Pair pair(GetParam().new_uri());
  for (const size_t length : {0, 8, 56}) {
    int client_owner = 1;
    int server_owner = 2;
    auto qp = pair.client.queue_pair({.owner = &client_owner});
    const auto asked = some_bytes(length, 1);
    const auto answered = some_bytes(56 - length, 100);
    ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, asked));
    ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kConnectRequest); }));
    Event request = pair.server.take_event(EventType::kConnectRequest);
    EXPECT_EQ(request.listener, pair.listener.get());
    EXPECT_TRUE(is_private_data(request.request->private_data(), asked, pair.can()));
    EXPECT_NE(request.request->peer().to_string(), "not connected");
    auto accepted = request.request->create_queue_pair(
        {.cq = pair.server.cq.get(), .reads = 3, .owner = &server_owner});
    ASSERT_TRUE(request.request->accept(**accepted, answered));
    ASSERT_TRUE(pair.pump_until([&] {
      return pair.client.has_event(EventType::kEstablished) &&
             pair.server.has_event(EventType::kEstablished);
    }));
    const Event established = pair.client.take_event(EventType::kEstablished);
    EXPECT_EQ(established.owner, &client_owner);
    EXPECT_TRUE(is_private_data(private_data_of(established), answered, pair.can()));
    EXPECT_EQ(pair.server.take_event(EventType::kEstablished).owner, &server_owner);
    EXPECT_EQ(qp->reads_allowed(), 3u);
    EXPECT_EQ((*accepted)->reads_allowed(), 3u);
  }
}

// The status of the Read depends on the driver.
TEST_P(Connections, AReadEndsWhenThePeerServesNoReads) {
  Pair pair(GetParam().new_uri());
  auto [client, server] = pair.connect({}, {.reads = 0});
  EXPECT_EQ(client->reads_allowed(), 0u);
  Buffer mine = test_memory().get(4096);
  pair.run(pair.client, *client, access_wr(3, Op::kRead, mine.first(64), 77, 1000));
}

TEST_P(Connections, AreRejectedWithPrivateData) {
  Pair pair(GetParam().new_uri());
  auto qp = pair.client.queue_pair();
  ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, {}));
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kConnectRequest); }));
  pair.server.take_event(EventType::kConnectRequest).request->reject(some_bytes(20, 7));
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.has_event(EventType::kRejected); }));
  const Event rejected = pair.client.take_event(EventType::kRejected);
  EXPECT_EQ(rejected.ending.code, Errc::kRefused);
  EXPECT_TRUE(is_private_data(private_data_of(rejected), some_bytes(20, 7), pair.can()));
}

TEST_P(Connections, TellOfAPeerThatHangsUpBeforeTheAnswer) {
  if (GetParam().name == std::string_view("verbs"))
    GTEST_SKIP() << "whether a connection manager tells of that depends on the device";
  Pair pair(GetParam().new_uri());
  auto qp = pair.client.queue_pair();
  ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, {}));
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kConnectRequest); }));
  const Event asked = pair.server.take_event(EventType::kConnectRequest);
  EXPECT_FALSE(asked.request->has_hung_up());
  qp.reset();
  EXPECT_TRUE(pair.pump_until([&] { return asked.request->has_hung_up(); }));
}

TEST_P(Connections, FailWhenTheRequestIsDropped) {
  Pair pair(GetParam().new_uri());
  auto qp = pair.client.queue_pair();
  const auto receive = ReceiveWr{77, {}};
  ASSERT_EQ(qp->post_receive(std::span(&receive, 1)), 1u);
  ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, {}));
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kConnectRequest); }));
  pair.server.events.clear();
  ASSERT_TRUE(pair.pump_until([&] {
    return (pair.client.has_event(EventType::kConnectFailed) ||
            pair.client.has_event(EventType::kRejected)) &&
           !pair.client.completions.empty();
  }));
  EXPECT_EQ(pair.client.completions[0].wr_id, 77u);
  EXPECT_EQ(pair.client.completions[0].status, WcStatus::kFlushed);
}

TEST_P(Connections, PrivateDataThatIsTooLongIsRefused) {
  Pair pair(GetParam().new_uri());
  auto qp = pair.client.queue_pair();
  const auto result = pair.client.device->connect(*qp, pair.uri, some_bytes(57, 0));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kInvalidArgument);
}

TEST_P(Connections, SendingBeforeEstablishmentTakesNothing) {
  End end(GetParam().new_uri());
  auto qp = end.queue_pair();
  const SendWr wr = send_wr(1, {});
  EXPECT_EQ(qp->post_send(std::span(&wr, 1)), 0u);
}

// Each posted request is reported once.
TEST_P(Connections, DisconnectFlushesEverythingOnce) {
  Pair pair(GetParam().new_uri());
  Buffer buffer = test_memory().get(4096);
  for (uint64_t i = 0; i < 10; ++i) {
    const ReceiveWr receive{100 + i, buffer.first(4096)};
    ASSERT_EQ(pair.client_qp->post_receive(std::span(&receive, 1)), 1u);
    const SendWr wr = send_wr(i, {buffer.first(i % 2 == 0 ? 10 : 3000)});
    ASSERT_EQ(pair.client_qp->post_send(std::span(&wr, 1)), 1u);
  }
  pair.client_qp->disconnect();
  pair.client_qp->disconnect();
  const SendWr late = send_wr(50, {buffer.first(10)});
  SendWr silent = send_wr(51, {buffer.first(10)});
  silent.signaled = false;
  const ReceiveWr late_receive{150, buffer.first(10)};
  EXPECT_EQ(pair.client_qp->post_send(std::span(&late, 1)), 1u);
  EXPECT_EQ(pair.client_qp->post_send(std::span(&silent, 1)), 1u);
  EXPECT_EQ(pair.client_qp->post_receive(std::span(&late_receive, 1)), 1u);
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.completions.size() == 23; }));
  for (int i = 0; i < 2000; ++i)
    pair.client.pump();
  ASSERT_EQ(pair.client.completions.size(), 23u);
  std::set<uint64_t> ids;
  for (const Completion& c : pair.client.completions) {
    EXPECT_TRUE(ids.insert(c.wr_id).second);
    if ((c.wr_id % 2 == 1 && pair.acknowledges()) || c.wr_id >= 50) {
      EXPECT_EQ(c.status, WcStatus::kFlushed) << c.wr_id;
    }
  }
  // Both ends are told once.
  ASSERT_TRUE(pair.pump_until([&] {
    return pair.client.has_event(EventType::kDisconnected) &&
           pair.server.has_event(EventType::kDisconnected);
  }));
  EXPECT_EQ(pair.client.events.size(), 1u);
  EXPECT_EQ(pair.server.events.size(), 1u);
}

TEST_P(Connections, MessagesSentBeforeTheEndAreReceived) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.server_qp, 4);
  Buffer buffer = test_memory().get(4096);
  const std::vector<SendWr> wrs(3, send_wr(1, {buffer.first(10)}));
  ASSERT_EQ(pair.client_qp->post_send(wrs), 3u);
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.completions.size() == 3; }));
  pair.client_qp->disconnect();
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.completions.size() == 4; }));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(pair.server.completions[i].status, WcStatus::kSuccess);
  EXPECT_EQ(pair.server.completions[3].status, WcStatus::kFlushed);
}

TEST_P(Connections, AnEndingConnectionLeavesTheOthersAlone) {
  Pair pair(GetParam().new_uri());
  int owner = 1;
  auto other = pair.connect({.owner = &owner}, {.owner = &owner});
  Buffer buffer = test_memory().get(4096);
  EXPECT_NE(pair.run(access_wr(1, Op::kRead, buffer.first(8), 1234, 0)).status, WcStatus::kSuccess);
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kDisconnected); }));
  pair.post_receives(*other.second, 1);
  EXPECT_EQ(pair.run(pair.client, *other.first, send_wr(1, {buffer.first(4096)})).status,
            WcStatus::kSuccess);
  for (const Event& event : pair.server.events)
    EXPECT_NE(event.owner, &owner);
}

TEST_P(Connections, DestroyingAQueuePairEndsItForThePeer) {
  Pair pair(GetParam().new_uri());
  pair.post_receives(*pair.client_qp, 2);
  pair.server_qp.reset();
  ASSERT_TRUE(pair.pump_until([&] {
    return pair.client.has_event(EventType::kDisconnected) && pair.client.completions.size() == 2;
  }));
  pair.server_qp = nullptr;
}

TEST_P(Connections, OutliveTheirListener) {
  Pair pair(GetParam().new_uri());
  pair.listener.reset();
  pair.post_receives(*pair.server_qp, 1);
  Buffer buffer = test_memory().get(4096);
  EXPECT_EQ(pair.run(send_wr(1, {buffer.first(1000)})).status, WcStatus::kSuccess);
  auto qp = pair.client.queue_pair();
  EXPECT_FALSE(pair.client.connect_error(*qp, pair.uri).message.empty());
}

TEST_P(Connections, GivenUpWhileConnectingReportTheirEnd) {
  Pair pair(GetParam().new_uri());
  auto qp = pair.client.queue_pair();
  ASSERT_TRUE(pair.client.device->connect(*qp, pair.uri, {}));
  qp->disconnect();
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.has_event(EventType::kConnectFailed); }));
}

// Events are handled by one thread while another polls the completion queues.
TEST_P(Connections, ComeAndGoOnAControlThread) {
  const std::string uri = GetParam().new_uri();
  End client(uri);
  End server(uri);
  auto listener = server.device->listen(uri).value();
  Buffer from = test_memory().get(4096);
  Buffer to = test_memory().get(4096);
  const ReceiveWr receive{1, to.first(4096)};
  const std::array<SendWr, 2> sends = {send_wr(1, {from.first(10)}),
                                       send_wr(2, {from.first(4000)})};
  for (int round = 0; round < 50; ++round) {
    std::unique_ptr<QueuePair> client_qp = client.queue_pair({.owner = this});
    std::unique_ptr<QueuePair> server_qp;
    ASSERT_TRUE(client.device->connect(*client_qp, uri, {}));
    std::atomic<int> established{0};
    std::atomic<int> disconnected{0};
    std::thread control([&] {
      pump_events({client.device.get(), server.device.get()}, [&](Event& event) {
        if (event.type == EventType::kConnectRequest) {
          server_qp = event.request->create_queue_pair({.cq = server.cq.get()}).value();
          server_qp->post_receive(std::vector<ReceiveWr>(4, receive));
          (void)event.request->accept(*server_qp, {});
        }
        established += event.type == EventType::kEstablished;
        disconnected += event.type == EventType::kDisconnected;
        return disconnected == 2;
      });
    });
    const auto poll = [&](const std::function<bool()>& done) {
      const auto limit = std::chrono::steady_clock::now() + patience();
      while (!done() && std::chrono::steady_clock::now() < limit) {
        for (End* end : {&client, &server}) {
          std::array<Completion, 8> out;
          const uint32_t n = end->cq->poll(out);
          end->completions.insert(end->completions.end(), out.begin(), out.begin() + n);
        }
      }
      EXPECT_TRUE(done());
    };
    poll([&] { return established == 2; });
    EXPECT_EQ(client_qp->post_send(sends), 2u);
    poll([&] { return server.completions.size() == 2 && client.completions.size() == 2; });
    client_qp->disconnect();
    poll([&] { return server.completions.size() == 4 && disconnected == 2; });
    control.join();
    client.completions.clear();
    server.completions.clear();
  }
}

// The connecting end is up before the other one, and sends one message at once.
TEST_P(Connections, AFirstMessageIsSeenHoweverEarlyItComes) {
  const std::string uri = GetParam().new_uri();
  End client(uri);
  End server(uri);
  auto listener = server.device->listen(uri).value();
  Buffer from = test_memory().get(4096);
  Buffer to = test_memory().get(4096);
  const ReceiveWr receive{1, to.first(4096)};
  std::atomic<bool> done{false};
  std::atomic<int> seen{0};
  std::thread serving([&] {
    std::vector<std::unique_ptr<QueuePair>> qps;
    while (!done) {
      server.pump();
      for (Event& event : std::exchange(server.events, {})) {
        if (event.type != EventType::kConnectRequest)
          continue;
        qps.push_back(event.request->create_queue_pair({.cq = server.cq.get()}).value());
        qps.back()->post_receive(std::span(&receive, 1));
        (void)event.request->accept(*qps.back(), {});
      }
      for (const Completion& c : server.take_completions())
        seen += c.status == WcStatus::kSuccess;
    }
  });
  const SendWr wr = send_wr(1, {from.first(100)});
  for (int round = 1; round <= 50 && !HasFailure(); ++round) {
    auto qp = client.queue_pair();
    EXPECT_TRUE(client.device->connect(*qp, uri, {}));
    pump_until({&client}, [&] { return client.has_event(EventType::kEstablished); });
    EXPECT_EQ(qp->post_send(std::span(&wr, 1)), 1u);
    pump_until({&client}, [&] { return seen == round; });
    client.events.clear();
  }
  done = true;
  serving.join();
}

TEST_P(Connections, TwoListenersAtOneAddress) {
  Pair pair(GetParam().new_uri());
  const auto second = pair.client.device->listen(pair.uri);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kAddressInUse);
  EXPECT_NE(second.error().message.find("another server listens"), std::string::npos);
}

TEST_P(Connections, NoListenerAtTheAddress) {
  const std::string uri = GetParam().new_uri();
  End end(uri);
  auto qp = end.queue_pair();
  const Error error = end.connect_error(*qp, uri);
  EXPECT_EQ(error.code, Errc::kNotFound) << error.message;
}

TEST_P(Connections, EventsAreTakenAFewAtATime) {
  Pair pair(GetParam().new_uri());
  std::vector<std::unique_ptr<QueuePair>> qps;
  for (int i = 0; i < 5; ++i) {
    qps.push_back(pair.client.queue_pair());
    ASSERT_TRUE(pair.client.device->connect(*qps.back(), pair.uri, {}));
  }
  size_t requests = 0;
  const auto limit = std::chrono::steady_clock::now() + patience();
  while (requests < 5 && std::chrono::steady_clock::now() < limit) {
    const std::vector<Event> events = pair.server.device->poll_events(2);
    EXPECT_LE(events.size(), 2u);
    requests += events.size();
    pair.client.pump();
  }
  EXPECT_EQ(requests, 5u);
}

TEST(Drivers, AreFoundByScheme) {
  EXPECT_TRUE(find_driver("shm:/x"));
  for (const char* uri : {"", "shm", "nonsense:/x", "/run/x.sock"}) {
    const auto none = find_driver(uri);
    ASSERT_FALSE(none) << uri;
    EXPECT_EQ(none.error().code, Errc::kBadUri);
    EXPECT_NE(none.error().message.find("shm:"), std::string::npos);
  }
}

// The other end accepts a connection for which the first one no longer waits.
TEST_P(Connections, GivingUpBeforeEstablishmentEndsTheOtherEnd) {
  Pair pair(GetParam().new_uri());
  auto given_up = pair.client.queue_pair();
  ASSERT_TRUE(pair.client.device->connect(*given_up, pair.uri, {}));
  ASSERT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kConnectRequest); }));
  Event request = pair.server.take_event(EventType::kConnectRequest);
  QueuePairOptions options;
  options.cq = pair.server.cq.get();
  auto accepted = request.request->create_queue_pair(options).value();
  given_up->disconnect();
  ASSERT_TRUE(pair.pump_until([&] { return pair.client.has_event(EventType::kConnectFailed); }));
  if (!request.request->accept(*accepted, {}))
    return;  // it has seen that
  EXPECT_TRUE(pair.pump_until([&] { return pair.server.has_event(EventType::kDisconnected); }));
}

}  // namespace
}  // namespace rrdk::fabric::test
