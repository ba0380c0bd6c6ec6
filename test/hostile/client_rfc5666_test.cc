// A client in RFC 5666's compatibility mode, and a server that answers CONF_RDMA in any way.
#include <atomic>
#include <thread>

#include "../server/loopback.h"
#include "peer.h"
#include "proto/negotiation.h"

namespace rrdk::hostile {
namespace {

using Words = std::vector<uint32_t>;

constexpr size_t kProgram = 10;  // words of a call without chunks
constexpr size_t kFlavor = 13;

Bytes bytes_of(const Words& words) {
  Bytes bytes(4 * words.size());
  for (size_t i = 0; i < words.size(); ++i)
    xdr::store_u32(&bytes[4 * i], words[i]);
  return bytes;
}

Words words_of(const Bytes& bytes) {
  Words words;
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4)
    words.push_back(xdr::load_u32(&bytes[i]));
  return words;
}

// A reply to `xid` that grants five credits and succeeds.
Bytes success(uint32_t xid, const Words& results) {
  Words words = {xid, 1, 5, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0};
  words.insert(words.end(), results.begin(), results.end());
  return bytes_of(words);
}

class ClientOfRfc5666 : public testing::Test {
 protected:
  void begin(ClientOptions options = {}, std::optional<AuthSys> identity = {}) {
    options.rfc5666.enabled = true;
    runtime_ = Runtime::create(*memory_, {.embedded_cores = 1}).value();
    client_ = Client::create(*runtime_, options).value();
    if (identity)
      client_->set_auth_sys(*identity);
    listen();
    connecting_ = std::thread([this] {
      result_ = client_->connect(uri_);
      returned_.store(true);
    });
  }
  void listen() {
    peer = std::make_unique<Peer>(uri_, PeerOptions{.private_data = usual_private_data()});
    peer->listen();
  }
  // Waits until CONF_RDMA has come, and returns its XID.
  uint32_t hear_config() {
    while (peer->heard.empty())
      peer->pump();
    return words_of(peer->heard_message(0))[0];
  }
  // The peer answers what it receives, and closes the connection, before the client is polled
  // again.
  void peer_answers_and_leaves() {
    uint32_t xid = hear_config();
    peer->say(success(xid, {1024, 0, 16}));
    peer->hang_up();
  }
  // Until connect() has returned.
  Result<void> join() {
    while (!returned_.load())
      peer->pump();
    connecting_.join();
    if (!result_)
      return tl::unexpected(result_.error());
    connection = std::move(*result_);
    return {};
  }
  void pass() {
    runtime_->poll(0);
    peer->pump();
  }
  // The call that waits for a connection whose CONF_RDMA was answered.
  void expect_success_after_config(loopback::EndingCall& call) {
    while (peer->heard.size() < 2)
      pass();
    EXPECT_EQ(words_of(peer->heard_message(1))[kProgram], loopback::kBinding.program);
    peer->say(success(words_of(peer->heard_message(1))[0], {0}));
    while (call.ended() == 0)
      pass();
    EXPECT_EQ(call.call.status(), CallStatus::kOk);
  }
  // Everything that belonged to one connection is gone.
  void restart() {
    connection.reset();
    client_.reset();
    peer.reset();
    runtime_.reset();
    returned_.store(false);
  }
  void TearDown() override {
    restart();
    EXPECT_TRUE(memory_->whole());
  }

  std::unique_ptr<Peer> peer;
  std::unique_ptr<ClientConnection> connection;

 private:
  const std::string uri_ = "shm:" + loopback::socket_path();
  std::unique_ptr<Memory> memory_ = loopback::make_memory();
  std::unique_ptr<Runtime> runtime_;  // of the thread that polls it first
  std::unique_ptr<Client> client_;
  std::thread connecting_;
  std::atomic<bool> returned_ = false;
  Result<std::unique_ptr<ClientConnection>> result_ = fail(Errc::kSystem, "not yet");
};

// Shows: V1-CCP-01, V1-CCP-02, V1-CCP-05, V1-CCP-06, V1-CCP-07
TEST_F(ClientOfRfc5666, NothingIsSentBeforeConfRdmaIsAnswered) {
  begin({.credits = 9,
         .inline_size = 2048,
         .reconnect = {.enabled = true, .first_delay_ms = 1},
         .rfc5666 = {.max_reads = 3}});
  uint32_t xid = hear_config();
  EXPECT_EQ(words_of(peer->heard_message(0)),
            (Words{xid, 1, 9, 0, 0, 0, 0, xid, 0, 2, 100417, 1, 1, 0, 0, 0, 0, 2048, 2048, 3}));
  peer->say(success(xid, {1024, 0, 16}));
  ASSERT_TRUE(join());
  EXPECT_EQ(connection->stats()[Counter::kRfc5666Configured], 1u);
  EXPECT_EQ(connection->stats()[Counter::kCredits], 5u);

  // The next connection, for which a call waits.
  peer->hang_up();
  while (!connection->reconnecting())
    pass();
  listen();
  loopback::EndingCall call(*connection);
  call.begin(loopback::kEcho).put_u32(0);
  call.submit();
  while (peer->heard.empty())
    pass();
  for (int i = 0; i < 1000; ++i)
    pass();
  ASSERT_EQ(peer->heard.size(), 1u) << "one message, at most";
  EXPECT_LE(peer->heard_message(0).size(), 1024u);
  EXPECT_EQ(words_of(peer->heard_message(0))[kProgram], proto::ccp::kProgram);
  peer->say(success(words_of(peer->heard_message(0))[0], {1024, 0, 16}));
  expect_success_after_config(call);
}

// A refusal is a valid reply, and so is every value.
TEST_F(ClientOfRfc5666, EveryValidReplyMakesAConnection) {
  const Words replies[] = {
      {1, 0, 0, 0, 1},                                      // PROG_UNAVAIL
      {1, 0, 0, 0, 2, 2, 3},                                // PROG_MISMATCH
      {1, 0, 0, 0, 3},                                      // PROC_UNAVAIL
      {1, 0, 0, 0, 5},                                      // SYSTEM_ERR
      {1, 1, 1, 5},                                         // AUTH_TOOWEAK
      {1, 0, 0, 0, 0, 0, 0, 0},                             // zeros,
      {1, 0, 0, 0, 0, UINT32_MAX, UINT32_MAX, UINT32_MAX},  // and the largest
  };
  for (const Words& reply : replies) {
    begin();
    uint32_t xid = hear_config();
    Words words = {xid, 1, 5, 0, 0, 0, 0, xid};
    words.insert(words.end(), reply.begin(), reply.end());
    peer->say(bytes_of(words));
    ASSERT_TRUE(join());
    EXPECT_EQ(connection->stats()[Counter::kRfc5666Configured], reply.size() == 8 ? 1u : 0u);
    loopback::EndingCall call(*connection);
    std::vector<std::byte> data(500);
    call.begin(loopback::kEcho).put_opaque(std::span<const std::byte>(data));
    call.submit();
    while (peer->heard.size() < 2)
      pass();
    EXPECT_LE(peer->heard_message(1).size(), 1024u);
    peer->hang_up();
    while (call.ended() == 0)
      pass();
    restart();
  }
}

// Shows: V1-CCP-06
TEST_F(ClientOfRfc5666, InvalidRepliesMakeNoConnection) {
  const Words replies[] = {
      {0, 1, 5, 4, 2},                                      // ERR_CHUNK
      {0, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},              // no results,
      {0, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2},        // too few,
      {0, 1, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4},  // and too many
      {0, 1, 5, 0, 0, 0, 0, 0, 1, 7},                       // no reply_stat
  };
  for (Words words : replies) {
    begin();
    uint32_t xid = hear_config();
    words[0] = xid;
    if (words.size() > 7)
      words[7] = xid;
    peer->say(bytes_of(words));
    Result<void> made = join();
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Errc::kConnectionLost);
    EXPECT_NE(made.error().message.find("CONF_RDMA"), std::string::npos) << made.error().message;
    restart();
  }
}

TEST_F(ClientOfRfc5666, AConnectionThatIsLostBeforeTheAnswerIsAnError) {
  begin();
  hear_config();
  peer->hang_up();
  Result<void> made = join();
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kConnectionLost) << made.error().message;
}

// If the answer is there when the connection is found to be lost, no connection is made: connect()
// fails, or it succeeds and the loss is reported.
TEST_F(ClientOfRfc5666, AnAnswerWithTheLossBehindItLeavesNothingBehind) {
  for (int i = 0; i < 20; ++i) {
    begin();
    peer_answers_and_leaves();
    if (Result<void> made = join(); !made) {
      EXPECT_EQ(made.error().code, Errc::kConnectionLost) << made.error().message;
    } else {
      while (connection->alive())
        pass();
    }
    restart();
  }
}

// Each further connection is configured before its calls, and a loss meanwhile is not final.
TEST_F(ClientOfRfc5666, AReconnectionThatIsLostMeanwhileIsMadeAgain) {
  begin(
      {.reconnect = {.enabled = true, .first_delay_ms = 1, .max_delay_ms = 2}, .retransmit = true});
  peer->say(success(hear_config(), {1024, 0, 16}));
  ASSERT_TRUE(join());
  loopback::EndingCall call(*connection);
  call.begin(loopback::kEcho).put_u32(0);
  for (bool answers : {false, true, false}) {
    peer->hang_up();
    while (!connection->reconnecting())
      pass();
    if (call.ended() == 0 && !call.call.in_flight())
      call.submit();
    listen();
    while (peer->heard.empty())
      pass();
    uint64_t failed = connection->stats()[Counter::kAttemptsFailed];
    uint64_t made = connection->stats()[Counter::kReconnections];
    EXPECT_EQ(words_of(peer->heard_message(0))[kProgram], proto::ccp::kProgram);
    if (answers)
      peer->say(success(words_of(peer->heard_message(0))[0], {1024, 0, 16}));
    peer->hang_up();
    while (connection->stats()[Counter::kAttemptsFailed] +
               connection->stats()[Counter::kReconnections] ==
           failed + made)
      pass();
  }
  listen();
  while (peer->heard.empty())
    pass();
  ASSERT_EQ(call.ended(), 0);
  uint32_t xid = words_of(peer->heard_message(0))[0];
  EXPECT_EQ(words_of(peer->heard_message(0))[kProgram], proto::ccp::kProgram);
  peer->say(success(xid, {1024, 0, 16}));
  expect_success_after_config(call);
}

// Shows: V1-CCP-17
TEST_F(ClientOfRfc5666, ConfRdmaHasTheCredentialOfTheClient) {
  begin();
  peer->say(success(hear_config(), {1024, 0, 16}));
  ASSERT_TRUE(join());
  EXPECT_EQ(words_of(peer->heard_message(0))[kFlavor], 0u) << "AUTH_NONE, unless told";
  restart();
  begin({}, AuthSys{});
  peer->say(success(hear_config(), {1024, 0, 16}));
  ASSERT_TRUE(join());
  EXPECT_EQ(words_of(peer->heard_message(0))[kFlavor], 1u) << "AUTH_SYS";
  loopback::EndingCall call(*connection);
  call.begin(loopback::kEcho).put_u32(0);
  call.submit();
  while (peer->heard.size() < 2)
    pass();
  EXPECT_EQ(words_of(peer->heard_message(1))[kFlavor], 1u) << "and so have its calls";
  peer->hang_up();
  while (call.ended() == 0)
    pass();
}

TEST_F(ClientOfRfc5666, ASilentServerTimesOut) {
  begin({.connect_timeout_ms = 100});
  Result<void> made = join();  // on a slow machine before CONF_RDMA is there
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, Errc::kTimeout);
}

}  // namespace
}  // namespace rrdk::hostile
