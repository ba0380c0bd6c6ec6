// Names with several addresses: connecting to them and listening at them. And hosts that have
// fallen silent.
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "drivers/iwarp/queue_pair.h"
#include "raw_peer.h"
#include "test/fabric/end.h"
#include "test/name_server.h"

namespace rrdk::iwarp::test {
namespace {

using drivers::Clock;
using fabric::EventType;
using fabric::test::End;
using rrdk::test::set_name;

std::string at(const std::string& host, uint16_t port) {
  return "iwarp://" + host + ":" + std::to_string(port);
}

// A place that takes TCP connections and reads nothing.
class Deaf {
 public:
  explicit Deaf(const char* address, uint16_t port = 0, int backlog = 16)
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const drivers::Endpoint4Or6 to = endpoint_at(at(address, port));
    EXPECT_EQ(::bind(socket_.get(), to.get(), to.length), 0);
    EXPECT_EQ(::listen(socket_.get(), backlog), 0);
  }
  drivers::Endpoint4Or6 end() const { return local_end(socket_.get()); }
  uint16_t port() const { return drivers::address_of(end()).port; }

 private:
  base::Fd socket_;
};

// A listener whose queue is full, so that the system drops new connections.
class Dark : public Deaf {
 public:
  explicit Dark(const char* address) : Deaf(address, 0, 0) {
    const drivers::Endpoint4Or6 to = end();
    for (int i = 0; i < 4; ++i) {
      base::Fd& filler = fillers_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      (void)::connect(filler.get(), to.get(), to.length);
    }
  }

 private:
  std::vector<base::Fd> fillers_;
};

// A client, and a server that accepts every connection.
class Several : public testing::Test {
 protected:
  void listen(const std::string& uri) { listener_ = server_.device->listen(uri).value(); }
  uint16_t port() const {
    return static_cast<uint16_t>(
        std::stoi(listener_->uri().substr(listener_->uri().rfind(':') + 1)));
  }
  static std::unique_ptr<fabric::Place> find(const std::string& uri) {
    base::forget_addresses();
    return fabric::look_up(uri).value();
  }
  void start(const fabric::Place& place) {
    qp_ = client_.queue_pair();
    ASSERT_TRUE(client_.device->connect(*qp_, place, {}));
  }
  fabric::Event outcome() {
    fabric::test::pump_until({&client_, &server_}, [&] {
      while (server_.has_event(EventType::kConnectRequest)) {
        auto request = server_.take_event(EventType::kConnectRequest).request;
        accepted_.push_back(request->create_queue_pair({.cq = server_.cq.get()}).value());
        EXPECT_TRUE(request->accept(*accepted_.back(), {}));
      }
      return !client_.events.empty();
    });
    fabric::Event event = std::move(client_.events.at(0));
    client_.events.clear();
    return event;
  }
  // Who served.
  std::string connect(const fabric::Place& place) {
    start(place);
    EXPECT_EQ(outcome().type, EventType::kEstablished);
    return qp_->peer().remote.host;
  }

  End client_{"iwarp:"};
  End server_{"iwarp:"};
  std::unique_ptr<fabric::Listener> listener_;
  std::vector<std::unique_ptr<fabric::QueuePair>> accepted_;
  std::unique_ptr<fabric::QueuePair> qp_;
};

TEST_F(Several, TheSecondIsTriedWhileTheFirstIsSilent) {
  const Dark dark("127.0.0.2");
  listen(at("127.0.0.3", dark.port()));
  set_name("two.test", {"127.0.0.2", "127.0.0.3"});
  EXPECT_EQ(connect(*find(at("two.test", dark.port()))), "127.0.0.3");
}

TEST_F(Several, TheSecondIsTriedAtOnceWhenTheFirstRefuses) {
  listen("iwarp://127.0.0.3:0");
  set_name("two.test", {"127.0.0.2", "127.0.0.3"});
  EXPECT_EQ(connect(*find(at("two.test", port()))), "127.0.0.3");
}

// The server at the first address is stopped: its system accepts the connection, and nothing
// answers.
TEST_F(Several, TheSecondIsTriedWhenTheFirstHasHadItsShare) {
  const Deaf deaf("127.0.0.2");
  listen(at("127.0.0.3", deaf.port()));
  set_name("two.test", {"127.0.0.2", "127.0.0.3"});
  const auto place = find(at("two.test", deaf.port()));
  place->timeout = std::chrono::hours(1);
  start(*place);
  auto& qp = static_cast<QueuePair&>(*qp_);
  qp.on_tick(Clock::now() + std::chrono::minutes(29));
  EXPECT_TRUE(server_.device->poll_events(1).empty());
  qp.on_tick(Clock::now() + std::chrono::minutes(31));
  EXPECT_EQ(outcome().type, EventType::kEstablished);
  EXPECT_EQ(qp_->peer().remote.host, "127.0.0.3");
}

TEST_F(Several, TheOneThatServedLastIsTheFirst) {
  set_name("two.test", {"127.0.0.2", "127.0.0.3"});
  listen("iwarp://two.test:0");  // at both
  const auto place = find(at("two.test", port()));
  EXPECT_EQ(connect(*place), "127.0.0.2");
  place->begin_with({.host = "127.0.0.3", .port = port()});
  EXPECT_EQ(connect(*place), "127.0.0.3");
}

TEST_F(Several, WhenAllFailTheErrorNamesEach) {
  const Dark dark("127.0.0.2");
  set_name("two.test", {"127.0.0.2", "127.0.0.3"});
  const auto place = find(at("two.test", dark.port()));
  place->timeout = std::chrono::milliseconds(400);
  start(*place);
  const fabric::Event event = outcome();
  EXPECT_EQ(event.type, EventType::kConnectFailed);
  const std::string port = ":" + std::to_string(dark.port());
  EXPECT_EQ(event.ending.text, "127.0.0.3" + port +
                                   ": Connection refused: no server listens there; 127.0.0.2" +
                                   port + ": no answer within 400 ms");
}

TEST_F(Several, AServerListensAtAllThatItsHostHas) {
  set_name("many.test", {"127.0.0.2", "203.0.113.1", "127.0.0.3"});
  listen("iwarp://many.test:0");
  EXPECT_EQ(listener_->uri(), at("many.test", port()));
  for (const char* address : {"127.0.0.2", "127.0.0.3"})
    EXPECT_EQ(connect(*find(at(address, port()))), address);
  const auto second = server_.device->listen(at("127.0.0.3", port()));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kAddressInUse);
  set_name("none.test", {"203.0.113.1", "203.0.113.2"});
  const auto none = server_.device->listen("iwarp://none.test:0");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "203.0.113.2:0: this host does not have the address");
}

TEST_F(Several, AServerListensAtBothFamilies) {
  if (!server_.device->listen("iwarp://[::1]:0"))
    GTEST_SKIP() << "this machine has no IPv6 loopback";
  set_name("both.test", {"::1", "127.0.0.1"});
  listen("iwarp://both.test:0");
  EXPECT_EQ(connect(*find(at("[::1]", port()))), "::1");
  EXPECT_EQ(connect(*find(at("127.0.0.1", port()))), "127.0.0.1");
}

TEST(Silence, IsOfAHostAndNotOfAProcess) {
  using namespace std::chrono_literals;
  const Clock::time_point start = Clock::now();
  // A process that is stopped: its system still answers TCP's window probes.
  Silence stopped;
  for (auto t = 0s; t <= 600s; t += 5s)
    EXPECT_FALSE(
        stopped.look(t.count() % 10 == 0 ? 1 : 0, std::chrono::seconds(t.count() % 60), start + t));
  Silence busy;
  for (auto t = 0s; t <= 600s; t += 5s)
    EXPECT_FALSE(busy.look(2, 3s, start + t));
  // A host that has gone.
  Silence gone;
  for (auto t = 0s; t < 25s; t += 5s)
    EXPECT_FALSE(gone.look(3, t + 1s, start + t)) << t.count();
  EXPECT_TRUE(gone.look(5, 30s, start + 25s));
  // A single probe may have been lost.
  Silence lossy;
  EXPECT_FALSE(lossy.look(1, 120s, start));
  EXPECT_FALSE(lossy.look(1, 220s, start + 100s));
  EXPECT_TRUE(lossy.look(2, 320s, start + 200s));
  // It has as much time as the address says.
  Silence patient(600s);
  EXPECT_EQ(patient.look_every(), 100s);
  EXPECT_FALSE(patient.look(3, 1s, start));
  EXPECT_FALSE(patient.look(9, 400s, start + 400s));
  EXPECT_TRUE(patient.look(11, 500s, start + 500s));
}

}  // namespace
}  // namespace rrdk::iwarp::test
