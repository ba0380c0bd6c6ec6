// The effects of the Connection Configuration Protocol's values on a connection (RFC 5666 section
// 6.2).
#include "pair.h"
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

constexpr Rfc5666Options kMode = {.enabled = true};

class Configured : public Pair {
 protected:
  void connect(Rfc5666Options client = kMode, Rfc5666Options server = kMode, uint32_t reads = 16) {
    client.enabled = server.enabled = true;
    Pair::connect({.rfc5666 = client}, {.rfc5666 = server}, reads);
  }
  // As if CONF_RDMA had been the first call.
  proto::ccp::Reply configure() { return b->engine->configure(a->engine->config_request()); }
  static uint32_t largest_send(const End& end) {
    uint32_t largest = 0;
    for (const fabric::SendWr& wr : end.qp.log) {
      uint32_t length = 0;
      for (const MemorySpan& sge : wr.spans())
        length += sge.length;
      if (wr.op == Op::kSend || wr.op == Op::kSendInvalidate)
        largest = std::max(largest, length);
    }
    return largest;
  }
  CallStatus call_once(const std::vector<Item>& arguments, const std::vector<Item>& results,
                       uint64_t max_reply = 900) {
    OutgoingCall call;
    serve(arguments, results);
    write(call.message, 0, 0, arguments);
    call.max_reply = max_reply;
    a->engine->submit(call);
    run();
    EXPECT_EQ(a->ended.size(), 1u);
    a->ended.clear();
    return call.status;
  }
};

// Shows: V1-CCP-07
TEST_F(Configured, EndsStateWhatTheyHavePosted) {
  Pair::connect(
      {.send_size = 2048, .receive_size = 3072, .rfc5666 = {.enabled = true, .max_reads = 3}},
      {.send_size = 8192,
       .receive_size = 4096,
       .rfc5666 = {.enabled = true, .max_reads = 5, .align = 128}});
  EXPECT_EQ(a->engine->config_request(), (proto::ccp::Request{2048, 3072, 3}));
  EXPECT_EQ(configure(), (proto::ccp::Reply{4096, 128, 5}));
}

// Shows: V1-CCP-08, V1-CCP-09, V1-CCP-10, V1-CCP-21, V1-CCP-23
TEST_F(Configured, NoInlineCallIsLargerThanTheServerTakes) {
  struct {
    uint32_t stated, limit;
  } const cases[] = {{2048, 2048}, {4096 - 512, 3584}, {4096 + 512, 4096},
                     {512, 1024},  {0, 1024},          {UINT32_MAX, 4096}};
  for (auto [stated, limit] : cases) {
    connect();
    a->engine->take_config({stated, 0, 16});
    uint32_t fits = limit - 28 - 16;
    EXPECT_EQ(call_once({{fits}}, {}), CallStatus::kOk);
    EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
    EXPECT_EQ(largest_send(*a), limit);
    EXPECT_EQ(call_once({{fits + 4}}, {}), CallStatus::kOk);
    EXPECT_EQ(sent_type(*a, 1), proto::MessageType::kNoMsg);
    EXPECT_EQ(call_once({{300000}}, {}), CallStatus::kOk);
    EXPECT_LE(largest_send(*a), limit);
    finish();
  }
}

// Shows: V1-CCP-11
TEST_F(Configured, NoInlineReplyIsLargerThanTheClientTakes) {
  struct {
    uint32_t stated, limit;
  } const cases[] = {{1536, 1536}, {100, 1024}, {0, 1024}, {UINT32_MAX, 4096}};
  for (auto [stated, limit] : cases) {
    connect();
    b->engine->configure({4096, stated, 16});
    uint32_t fits = limit - 28 - 16;
    EXPECT_EQ(call_once({}, {{fits}}, 1000), CallStatus::kOk);
    EXPECT_EQ(largest_send(*b), limit);
    EXPECT_EQ(call_once({}, {{fits + 4}}, 1000), CallStatus::kChunkError);
    EXPECT_EQ(call_once({}, {{fits + 4}}, 8192), CallStatus::kOk);
    EXPECT_EQ(largest_send(*b), limit);
    finish();
  }
}

// Shows: V1-CCP-12, V1-CCP-14
TEST_F(Configured, NoMoreReadsAreInFlightThanThePeerServes) {
  for (uint32_t stated : {2u, 3u}) {
    connect({.max_reads = stated}, {.max_reads = 5});
    a->engine->take_config(configure());
    EXPECT_EQ(call_once({{2000, true}, {2000, true}, {2000, true}, {2000, true}, {2000, true}}, {}),
              CallStatus::kOk);
    EXPECT_EQ(b->qp.count(Op::kRead), 5u);
    EXPECT_EQ(b->qp.max_reads_in_flight, stated);
    finish();
  }
}

// Shows: V1-CCP-13, V1-CCP-14
TEST_F(Configured, AClientThatServesNoReadsNeedsNone) {
  connect({.max_reads = 0});
  a->engine->take_config(configure());
  EXPECT_EQ(call_once({{2000, true}}, {{5}}), CallStatus::kOk) << "inline";
  OutgoingCall call;
  write(call.message, 0, 0, {{5000, true}});
  a->engine->submit(call);
  run();
  EXPECT_EQ(call.status, CallStatus::kTooLarge);
  EXPECT_FALSE(call.sent);
  EXPECT_TRUE(a->qp.used_keys.empty());
  EXPECT_EQ(b->qp.count(Op::kRead), 0u);
}

class ConfiguredServer : public ResponderTest {};

// Shows: V1-CCP-13
TEST_F(ConfiguredServer, ReadChunksOfAClientThatServesNoReadsAreRefused) {
  connect({.rfc5666 = kMode});
  EXPECT_EQ(end->engine->configure({0, 0, 0}), (proto::ccp::Reply{4096, 0, 16}));
  uint32_t key = peer_side->expose(Bytes(100), Rights::kRemoteRead);
  Wire wire{5, 1, 4, kMsg, 1, 12};
  peer_side->segment(wire, key, 100);
  expect_err_chunk(wire.add({0, 0, 0, 5, 0, 100}), 5);
  EXPECT_EQ(counters().refusals[Refusal::kReadsForbidden], 1u);
  expect_alive();
}

// Shows: V1-CCP-22
TEST_F(ConfiguredServer, InTheMiddleOfItsLifeAConnectionKeepsItsValues) {
  connect({.rfc5666 = kMode});
  proto::ccp::Reply first = end->engine->configure({2048, 2048, 4});
  EXPECT_EQ(end->engine->configure({1024, 1024, 0}), first);
  EXPECT_EQ(counters().rfc5666_configured, 1u);
  results({}, 2048 - 28 - 8);
  peer_side->say(Wire{5, 1, 4, kMsg, 0, 0, 0, 5, 0});
  EXPECT_EQ(only_answer().size(), 2048u);
  end->disconnect();

  connect({.rfc5666 = kMode});
  expect_alive();
  EXPECT_EQ(end->engine->configure({1024, 1024, 0}), first) << "too late: a call came before";
  EXPECT_EQ(counters().rfc5666_configured, 0u);
  results({}, 4096 - 28 - 8);
  peer_side->say(Wire{5, 1, 4, kMsg, 0, 0, 0, 5, 0});
  EXPECT_EQ(only_answer().size(), 4096u);
}

// Shows: V1-CCP-19
TEST_F(ConfiguredServer, EachConnectionHasItsOwn) {
  connect({.rfc5666 = kMode});
  end->engine->configure({4096, 1024, 4});
  auto first = std::move(end);
  auto first_peer = std::move(peer_side);
  connect({.rfc5666 = kMode});
  results({}, 2000);
  peer_side->say(Wire{5, 1, 4, kMsg, 0, 0, 0, 5, 0});
  EXPECT_EQ(word(only_answer(), 3), kMsg);
  std::swap(first, end);
  std::swap(first_peer, peer_side);
  results({}, 2000);
  peer_side->say(Wire{5, 1, 4, kMsg, 0, 0, 0, 5, 0});
  EXPECT_EQ(word(only_answer(), 3), kError);
  first->disconnect();
}

}  // namespace
}  // namespace rrdk::engine::test
