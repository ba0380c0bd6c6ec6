// Transport properties of draft-04 (section 5): what an end announces, receives, requests and
// answers, word by word, first at the responder.
#include <set>

#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kConnProp = 6, kReqProp = 7, kRespProp = 8, kUpdProp = 9;
constexpr uint32_t kCall = 0, kReply = 1;

class ServerProperties : public ResponderTest {
 protected:
  ServerProperties() : ResponderTest({{4096, 256}, {16384, 128}, {65536, 32}}) {}

  // A connection whose first call was answered; returns what the server then announced about
  // itself.
  Bytes connect(ConnectionOptions options = {}) {
    ResponderTest::connect(options);
    call(1);
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 2u);
    return sent.size() == 2 ? sent[1] : Bytes(64);
  }
  void call(uint32_t xid, uint32_t bytes = 0) {
    peer_side->say(Wire{xid, 2, 4, kMsg, kCall, 0, 0, 0, 0, xid, kCall}.raw(Bytes(bytes)));
  }
  // The largest reply that comes inline.
  uint32_t threshold() {
    uint32_t largest = 0;
    for (uint32_t size : {1024u, 2048u, 4096u, 8192u, 16384u}) {
      results({}, size - 36 - 8);
      call(7);
      if (word(only_answer(), 3) == kMsg)
        largest = size;
    }
    end->handler = [this](ServedCall& call) { echo(call); };
    return largest;
  }
  void expect_silence(const Bytes& message) {
    peer_side->say(message);
    EXPECT_TRUE(peer_side->take().empty());
  }
  static Wire connprop(uint32_t size, std::initializer_list<uint32_t> nochg = {0}) {
    return Wire{70, 2, 0, kConnProp, 1, 1, 4, size}.add(nochg);
  }
  static Wire updprop(uint32_t size) { return {71, 2, 0, kUpdProp, 1, 1, 4, size}; }
};

// Shows: V2D4-NEG-08, V2D4-NEG-10, V2D4-POP-07, V2D4-POP-08, V2D4-POP-10, V2D4-PROP-18, V2X-17,
// V2D4-POP-30
TEST_F(ServerProperties, AreToldOnceAfterTheFirstReply) {
  Bytes said = connect({.credits = 16, .receive_size = 8192});
  ASSERT_EQ(said.size(), 52u);
  EXPECT_EQ(word(said, 1), 2u);
  EXPECT_GE(word(said, 2), 1u);
  Bytes body(said.begin() + 12, said.end());
  EXPECT_EQ(body, Wire({kConnProp, 2, 1, 4, 8192, 2, 4, 0, 1, 2}).bytes());
  call(2);
  only_answer();
}

TEST_F(ServerProperties, ArePartOfDraft04Alone) {
  ResponderTest::connect();
  peer_side->say(Wire{1, 1, 4, kMsg, 0, 0, 0, 1, kCall});
  only_answer();
}

// Shows: V2D4-POP-04, V2D4-POP-05
TEST_F(ServerProperties, SwitchedOffEachIsRefusedButAnAnswer) {
  ResponderTest::connect({.properties = false});
  call(1);
  only_answer();
  expect_error(connprop(8192), 9);
  expect_error(Wire{72, 2, 0, kReqProp, 0}, 9);
  expect_error(updprop(8192), 9);
  expect_silence(Wire{72, 2, 0, kRespProp, 0, 0, 0});
  EXPECT_EQ(threshold(), 4096u);
}

// Shows: V2D4-NEG-09
TEST_F(ServerProperties, AsTheFirstMessageTheyAreAnsweredAtOnce) {
  ResponderTest::connect();
  peer_side->say(connprop(8192));
  Bytes answer = only_answer();
  EXPECT_EQ(word(answer, 0), 70u);
  EXPECT_EQ(word(answer, 3), kConnProp);
  EXPECT_GE(word(answer, 2), 1u);
  call(2);
  only_answer();
}

// They take no credit, so they do not use up the Receives of calls.
TEST_F(ServerProperties, DoNotWaitBehindCalls) {
  connect();
  std::vector<ServedCall*> held;
  while (ServedCall* object = pool->get())
    held.push_back(object);
  call(2);
  EXPECT_TRUE(peer_side->take().empty()) << "it has to wait";
  peer_side->say(Wire{72, 2, 4, kReqProp, 1, 1, 4, 8192});
  EXPECT_EQ(word(only_answer(), 3), kRespProp);
  for (ServedCall* object : held)
    pool->put(*object);
  end->engine->on_tick(1);
  end->run();
  EXPECT_EQ(word(only_answer(), 0), 2u);
}

// An answer does not either, unlike an error with the same XID.
TEST_F(ServerProperties, AnAnswerIsHeardWhileCallsWait) {
  connect({.send_size = 16384});
  expect_silence(connprop(8192));
  std::vector<ServedCall*> held;
  while (ServedCall* object = pool->get())
    held.push_back(object);
  call(2);
  ASSERT_TRUE(end->engine->request_receive_size(4096));
  end->run();
  const uint32_t xid = word(only_answer(), 0);
  expect_silence(Wire{xid, 2, 0, kRespProp, 1, 1, 0, 0});
  EXPECT_FALSE(end->engine->properties().requested());
  for (ServedCall* object : held)
    pool->put(*object);
  end->engine->on_tick(1);
  end->run();
  only_answer();
  EXPECT_EQ(threshold(), 4096u);
}

TEST_F(ServerProperties, ReceivesThatMayNotGrowStayAsTheyAre) {
  connect({.receive_size = 4096, .max_receive_size = 16384});
  expect_silence(connprop(4096));
  end->grows = false;
  peer_side->say(Wire{72, 2, 4, kReqProp, 1, 1, 4, 8192});
  Bytes answer = only_answer();
  EXPECT_EQ(Bytes(answer.begin() + 16, answer.end()), Wire({0, 0, 1, 1, 4, 4096}).bytes());
  EXPECT_EQ(counters().growth_refused, 1u);
  for (uint32_t xid = 100; xid < 140; ++xid) {
    call(xid);
    only_answer();
  }
  end->grows = true;
  EXPECT_TRUE(end->engine->properties().raise(8192));
}

// Shows: V2D4-PROP-20, V2D4-INL-03, V2D4-PROP-26, V2D4-POP-09
TEST_F(ServerProperties, ThePeersReceivesSayHowLargeARepliesMayBe) {
  connect({.send_size = 16384});
  EXPECT_EQ(threshold(), 4096u);
  expect_silence(connprop(8192));
  EXPECT_EQ(threshold(), 8192u);
  expect_silence(updprop(0xffffffff));
  EXPECT_EQ(threshold(), 16384u);  // our send size
  expect_silence(updprop(4096));
  EXPECT_EQ(threshold(), 4096u);
}

// Shows: V2D4-PROP-07, V2D4-PROP-10, V2D4-PROP-15, V2D4-PROP-02, V2D4-POP-12
TEST_F(ServerProperties, UnknownOnesArePassedOverAndTheLastOneCounts) {
  connect({.send_size = 16384});
  expect_silence(
      Wire{70, 2, 0, kConnProp, 4, 1000, 17, 0, 0, 0, 0, 0, 1, 4, 16384, 2, 4, 2, 1, 4, 8192, 0});
  EXPECT_EQ(threshold(), 8192u);
  expect_silence(Wire{71, 2, 0, kUpdProp, 1, 1, 0});  // no data: the default
  EXPECT_EQ(threshold(), 4096u);
  expect_silence(Wire{72, 2, 0, kUpdProp, 2, 1, 4, 16384, 1, 4, 8192});
  EXPECT_EQ(threshold(), 8192u);
}

// Shows: V2D4-PROP-08, V2D4-PROP-09, V2D4-PROP-11, V2D4-PROP-12, V2D4-PROP-13, V2D4-PROP-14,
// V2D4-PROP-25
TEST_F(ServerProperties, AFaultyMessageIsRefusedAsAWhole) {
  connect({.send_size = 16384});
  expect_error(Wire{70, 2, 0, kConnProp, 1, 1, 1000, 8192}, 2);     // runs past the end
  expect_error(Wire{70, 2, 0, kConnProp, 1, 1, 3, 8192, 0}, 2);     // too short
  expect_error(Wire{70, 2, 0, kConnProp, 1, 1, 8, 0, 8192, 0}, 2);  // too long
  // There is no such support.
  expect_error(Wire{70, 2, 0, kConnProp, 2, 1, 4, 8192, 2, 4, 3, 0}, 2);
  expect_error(connprop(1023), 2);
  expect_error(Wire{70, 2, 0, kReqProp}, 2);
  expect_silence(Wire{70, 2, 0, kRespProp, 5});
  EXPECT_EQ(threshold(), 4096u);
  EXPECT_EQ(end->engine->properties().peer().receive_size, 4096u);
  expect_silence(connprop(2048));  // against the rules, but obeyed
  EXPECT_EQ(threshold(), 2048u);
  EXPECT_EQ(counters().refusals[Refusal::kSmallReceives], 1u);
}

// Shows: V2D4-POP-28, V2D4-POP-13, V2D4-POP-27
TEST_F(ServerProperties, PropertiesDeclaredFixedOnlyShrink) {
  connect({.send_size = 16384});
  expect_silence(connprop(8192, {1, 1}));
  expect_silence(updprop(16384));
  EXPECT_EQ(threshold(), 8192u);
  expect_silence(connprop(16384));
  EXPECT_EQ(threshold(), 8192u);
  expect_silence(updprop(4096));
  EXPECT_EQ(threshold(), 4096u);
  EXPECT_EQ(counters().refusals[Refusal::kFixedProperty], 3u);
}

// Shows: V2D4-POP-16, V2D4-POP-17, V2D4-POP-19, V2D4-POP-21, V2D4-POP-23, V2D4-PROP-17,
// V2D4-PROP-31, V2D4-PROP-15
TEST_F(ServerProperties, EachEntryOfARequestIsAnsweredOnce) {
  connect();
  // 4096 as it is; the same again; an unknown property; backward support.
  peer_side->say(Wire{72, 2, 0, kReqProp, 4, 1, 4, 4096, 1, 4, 8192, 0x80000000, 0, 2, 4, 1});
  Bytes answer = only_answer();
  EXPECT_EQ(word(answer, 0), 72u);
  Bytes body(answer.begin() + 12, answer.end());
  EXPECT_EQ(body, Wire({kRespProp, 1, 1, 1, 14, 0}).bytes());
  peer_side->say(Wire{73, 2, 0, kReqProp, 0});
  answer = only_answer();
  EXPECT_EQ(answer.size(), 28u);
}

// Shows: V2D4-POP-20, V2D4-PROP-22, V2D4-PROP-19, V2D4-PROP-32
TEST_F(ServerProperties, ReceivesGrowWhenTheSmallOnesAreGone) {
  connect({.credits = 2, .receive_size = 4096, .max_receive_size = 16384});
  peer_side->say(Wire{72, 2, 0, kReqProp, 1, 1, 4, 65536});
  Bytes answer = only_answer();
  Bytes body(answer.begin() + 12, answer.end());
  EXPECT_EQ(body, Wire({kRespProp, 0, 0, 1, 1, 4, 4096}).bytes());  // not yet
  uint32_t said = 0;
  for (uint32_t xid = 100; xid < 110; ++xid) {
    call(xid);
    for (const Bytes& sent : peer_side->take()) {
      if (word(sent, 3) != kUpdProp)
        continue;
      ++said;
      EXPECT_EQ(word(sent, 7), 16384u);
      for (const fabric::ReceiveWr& wr : end->qp.receives)
        EXPECT_GE(wr.buffer.length, 16384u);
    }
  }
  EXPECT_EQ(said, 1u);
  EXPECT_EQ(end->engine->properties().receive_size(), 16384u);
  call(120, 16000);
  EXPECT_EQ(got.size(), 16008u);
  peer_side->take();
  // Down again at once.
  peer_side->say(Wire{72, 2, 0, kReqProp, 1, 1, 4, 8192});
  answer = only_answer();
  body.assign(answer.begin() + 12, answer.end());
  EXPECT_EQ(body, Wire({kRespProp, 1, 1, 0, 0}).bytes());
  EXPECT_EQ(end->engine->properties().receive_size(), 8192u);
  peer_side->say(Wire{72, 2, 0, kReqProp, 1, 1, 4, 2048});
  answer = only_answer();
  body.assign(answer.begin() + 12, answer.end());
  EXPECT_EQ(body, Wire({kRespProp, 0, 1, 1, 0}).bytes());  // V2D4-PROP-25
}

// Shows: V2D4-PROP-24, V2D4-POP-18, V2D4-POP-22, V2D4-POP-24, V2D4-POP-26, V2D4-POP-11
TEST_F(ServerProperties, ARequestIsKeptToUntilItIsAnswered) {
  connect({.send_size = 16384});
  EXPECT_FALSE(end->engine->request_receive_size(8192));  // it has announced nothing
  expect_silence(connprop(8192));
  auto request = [&](uint32_t size) {
    EXPECT_TRUE(end->engine->request_receive_size(size));
    EXPECT_FALSE(end->engine->request_receive_size(size));  // one at a time
    end->run();
    Bytes sent = only_answer();
    EXPECT_EQ(word(sent, 3), kReqProp);
    EXPECT_EQ(word(sent, 7), size);
    return word(sent, 0);
  };
  uint32_t xid = request(4096);
  results({}, 8192 - 44);
  call(7);
  EXPECT_TRUE(peer_side->take().empty());  // larger than the requested size; it may be refused
  expect_silence(Wire{xid + 1, 2, 0, kRespProp, 1, 1, 0, 0});  // another's
  EXPECT_TRUE(end->engine->properties().requested());
  peer_side->say(Wire{xid, 2, 0, kRespProp, 0, 1, 1, 0});  // rejected
  EXPECT_EQ(only_answer().size(), 8192u);
  EXPECT_EQ(threshold(), 8192u);
  xid = request(4096);
  results({}, 4096 - 44);
  call(7);
  EXPECT_EQ(only_answer().size(), 4096u);
  results({}, 8192 - 44);
  call(7);
  peer_side->say(Wire{xid, 2, 0, kRespProp, 1, 1, 0, 0});
  EXPECT_EQ(word(only_answer(), 3), kError);
  EXPECT_EQ(threshold(), 4096u);
  xid = request(16384);
  EXPECT_EQ(threshold(), 4096u);
  expect_silence(Wire{xid, 2, 0, kRespProp, 0, 0, 2, 2, 4, 0, 1, 4, 8192});
  EXPECT_EQ(threshold(), 8192u);
  xid = request(16384);
  expect_silence(Wire{xid, 2, 0, kRespProp, 1, 1, 1, 1, 0});  // done and rejected
  EXPECT_EQ(threshold(), 8192u);
  xid = request(16384);
  expect_silence(Wire{xid, 2, 0, kRespProp, 0, 0, 0});  // neither
  EXPECT_EQ(threshold(), 8192u);
}

// Shows: V2D4-POP-32, V2D4-POP-25
TEST_F(ServerProperties, APeerThatKnowsNoRequestsRejectsThem) {
  connect({.send_size = 16384});
  expect_silence(connprop(8192));
  EXPECT_TRUE(end->engine->request_receive_size(4096));
  end->run();
  only_answer();
  end->engine->on_tick(1);
  end->engine->on_tick(5'000'000'002);
  EXPECT_FALSE(end->engine->properties().requested());
  EXPECT_EQ(threshold(), 8192u);
  EXPECT_TRUE(end->engine->request_receive_size(4096));
  end->run();
  uint32_t xid = word(only_answer(), 0);
  expect_silence(Wire{xid, 2, 0, kError, 9});
  EXPECT_EQ(threshold(), 8192u);
  EXPECT_FALSE(end->engine->request_receive_size(4096));
}

// Shows: V2D4-POP-29
TEST_F(ServerProperties, TakeReceivesThatNoCreditStandsOn) {
  ResponderTest::connect({.credits = 8});
  EXPECT_EQ(end->qp.receives.size(), 8u);
  peer_side->say(Wire{1, 1, 8, kMsg, 0, 0, 0, 1, kCall});
  only_answer();
  EXPECT_EQ(end->qp.receives.size(), 8u);  // version 1 has no properties
  peer_side->say(Wire{2, 2, 100, kMsg, kCall, 0, 0, 0, 0, 2, kCall});
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(end->qp.receives.size(), 11u);
  EXPECT_EQ(word(sent[0], 2), 8u);
  EXPECT_EQ(word(sent[1], 2), 8u);
}

TEST_F(ServerProperties, RequestsBeyondAFewAreAnsweredOnlyWhenTheLastOnesWere) {
  connect({.credits = 8});
  end->qp.post(*end->engine);
  for (uint32_t i = 0; i < 6; ++i)  // nothing of ours is executed meanwhile
    ASSERT_TRUE(end->qp.receive(Wire{72 + i, 2, 0, kReqProp, 1, 1, 4, 65536}, {}));
  while (end->qp.deliver(*end->engine, end->qp.receive_completions, 1))
    end->qp.post(*end->engine);
  end->run();
  EXPECT_EQ(peer_side->take().size(), 4u);
  EXPECT_EQ(counters().refusals[Refusal::kManyRequests], 2u);
  EXPECT_EQ(end->qp.receives.size(), 11u);
  peer_side->say(Wire{90, 2, 0, kReqProp, 0});
  EXPECT_EQ(word(only_answer(), 0), 90u);
}

// Shows: V2D4-POP-25
TEST_F(ServerProperties, ALateAnswerIsBelievedIfItMakesSendsSmaller) {
  connect({.send_size = 16384});
  expect_silence(connprop(8192));
  for (uint32_t answered : {8192u, 16384u, 65536u, 4096u}) {
    EXPECT_TRUE(end->engine->request_receive_size(65536));
    end->run();
    uint32_t xid = word(only_answer(), 0);
    end->engine->on_tick(1);
    end->engine->on_tick(5'000'000'002);
    EXPECT_FALSE(end->engine->properties().requested());
    EXPECT_EQ(threshold(), 8192u);
    expect_silence(Wire{xid, 2, 0, kRespProp, 0, 0, 1, 1, 4, answered});
    EXPECT_EQ(threshold(), std::min(answered, 8192u));
  }
  EXPECT_EQ(counters().refusals[Refusal::kLateReply], 4u);
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 0u);
}

TEST_F(ServerProperties, ALateErrorIsNoBreach) {
  connect({.send_size = 16384});
  expect_silence(connprop(8192));
  EXPECT_TRUE(end->engine->request_receive_size(4096));
  end->run();
  uint32_t xid = word(only_answer(), 0);
  end->engine->on_tick(1);
  end->engine->on_tick(5'000'000'002);
  for (uint32_t late = 0; late < 2; ++late) {
    EXPECT_EQ(counters().refusals[Refusal::kLateReply], late);
    expect_silence(Wire{xid, 2, 0, kError, 9});
  }
  EXPECT_EQ(counters().refusals[Refusal::kLateReply], 1u);
  EXPECT_EQ(counters().refusals[Refusal::kError], 1u) << "a second one";
  EXPECT_EQ(counters().breaches(), 0u);
}

// If there are too few large buffers, Receives of the old size stay, and the peer is not told.
TEST_F(ServerProperties, ReceivesGrowNoFurtherThanTheBuffersReach) {
  std::vector<Buffer> hoard;
  while (Buffer buffer = memory->get_fitting(65536))
    hoard.push_back(std::move(buffer));
  hoard.resize(hoard.size() - 4);
  connect({.credits = 8, .max_receive_size = 65536});
  peer_side->say(Wire{72, 2, 0, kReqProp, 1, 1, 4, 65536});
  only_answer();
  for (uint32_t xid = 100; xid < 130; ++xid) {
    call(xid);
    EXPECT_EQ(word(only_answer(), 2), 4u);  // as it asks for
    EXPECT_EQ(end->qp.receives.size(), 11u);
  }
  EXPECT_EQ(end->engine->properties().receive_size(), 4096u);
  hoard.clear();
  uint32_t told = 0;
  for (uint32_t xid = 130; xid < 160; ++xid) {
    call(xid);
    for (const Bytes& sent : peer_side->take())
      told += word(sent, 3) == kUpdProp;
  }
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(end->engine->properties().receive_size(), 65536u);
}

class ClientsProperties : public ScriptedTest {
 protected:
  ClientsProperties() : ScriptedTest({{4096, 256}, {16384, 128}, {65536, 32}}) {}

  void connect(Speaks speaks, ConnectionOptions options = {}) {
    options.role = Role::kRequester;
    options.speaks = speaks;
    options.limits.versions.two = proto::Wire::kDraft04;
    begin(options, {true, 4096, 4096}, 16);
  }
  // Among the sent messages, properties may follow the call.
  Bytes send(OutgoingCall& call, uint32_t plain = 0) {
    submit(call, plain);
    std::vector<Bytes> sent = peer_side->take();
    return sent.empty() ? Bytes(64) : sent[0];
  }
  std::vector<Bytes> answer(uint32_t xid, uint32_t version = 2) {
    Wire reply{xid, version, 4, kMsg};
    if (version == 2)
      reply.add({kReply, 0});
    peer_side->say(reply.add({0, 0, 0, xid, kReply, 42}));
    return peer_side->take();
  }
  // Whether a call with `bytes` of arguments goes inline.
  bool goes_inline(uint32_t plain) {
    OutgoingCall call;
    Bytes sent = send(call, plain);
    bool is_inline = word(sent, 3) == kMsg;
    answer(word(sent, 0));
    return is_inline;
  }
};

// Shows: V2D4-NEG-08, V2D4-POP-07
TEST_F(ClientsProperties, AreToldBehindTheFirstReply) {
  connect(Speaks::kAuto, {.credits = 8});
  EXPECT_EQ(end->qp.receives.size(), 8u);
  OutgoingCall call;
  uint32_t xid = word(send(call), 0);
  std::vector<Bytes> sent = answer(xid);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_NE(word(sent[0], 0), xid);
  Bytes body(sent[0].begin() + 4, sent[0].end());
  EXPECT_EQ(body, Wire({2, 8, kConnProp, 2, 1, 4, 4096, 2, 4, 0, 1, 2}).bytes());
  EXPECT_EQ(end->qp.receives.size(), 11u);
}

TEST_F(ClientsProperties, CostNoReceivesInVersion1) {
  connect(Speaks::kAuto, {.credits = 8});
  OutgoingCall call;
  Bytes sent = send(call);
  peer_side->say(Wire{word(sent, 0), 2, 4, kError, kErrVers, 1, 1});
  std::vector<Bytes> again = peer_side->take();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(word(again[0], 1), 1u);
  EXPECT_TRUE(answer(word(again[0], 0), 1).empty());
  EXPECT_EQ(end->qp.receives.size(), 8u);
}

// Shows: V2D4-POP-29
TEST_F(ClientsProperties, HaveReceivesFromTheStartWhereFewRepliesAreExpected) {
  connect(Speaks::kAuto, {.credits = 1});
  EXPECT_EQ(end->qp.receives.size(), 4u);
}

// Shows: V2D4-POP-18, V2D4-POP-27, V2D4-PROP-20, V2D4-PROP-24, V2D4-INL-03
TEST_F(ClientsProperties, CallsAreAsLargeAsTheServersReceives) {
  connect(Speaks::kTwo, {.credits = 8, .send_size = 4096});
  EXPECT_TRUE(goes_inline(1000 - 44));  // the first one, and the announced properties
  EXPECT_FALSE(goes_inline(4097 - 44));
  peer_side->say(Wire{70, 2, 0, kConnProp, 1, 1, 4, 4096, 0});
  EXPECT_TRUE(end->engine->request_receive_size(8192));
  end->run();
  uint32_t xid = word(peer_side->take().at(0), 0);
  EXPECT_FALSE(goes_inline(8192 - 44));
  peer_side->say(Wire{xid, 2, 0, kRespProp, 1, 1, 0, 0});
  EXPECT_TRUE(goes_inline(8192 - 44));
  EXPECT_FALSE(goes_inline(8193 - 44));
  EXPECT_TRUE(end->engine->request_receive_size(4096));
  end->run();
  xid = word(peer_side->take().at(0), 0);
  EXPECT_FALSE(goes_inline(8192 - 44));
  peer_side->say(Wire{xid, 2, 0, kRespProp, 0, 1, 1, 0});  // rejected
  EXPECT_TRUE(goes_inline(8192 - 44));
  EXPECT_EQ(counters().size_requests_ended, 2u);
  EXPECT_EQ(counters().size_requests_refused, 1u);
}

// The server has no property for its send size: its receive size is used instead.
// Shows: V2D4-PROP-21
TEST_F(ClientsProperties, AReplyChunkIsOfferedByTheSmallerOfBothEndsReceives) {
  connect(Speaks::kTwo, {.credits = 8, .receive_size = 16384});
  goes_inline(0);
  auto offers = [this](uint64_t max_reply) {
    OutgoingCall call;
    call.max_reply = max_reply;
    Bytes sent = send(call);
    EXPECT_EQ(word(sent, 6), 0u);  // neither list
    EXPECT_EQ(word(sent, 7), 0u);
    answer(word(sent, 0));
    return word(sent, 8) == 1;
  };
  constexpr uint32_t kHeader = 36;
  auto expect_least = [&](uint32_t receives) {
    EXPECT_FALSE(offers(receives - kHeader));
    EXPECT_TRUE(offers(receives - kHeader + 4));
  };
  expect_least(4096);  // the default, since it has announced nothing
  peer_side->say(Wire{70, 2, 0, kConnProp, 1, 1, 4, 4096, 0});
  expect_least(4096);
  peer_side->say(Wire{71, 2, 0, kUpdProp, 1, 1, 4, 8192});
  expect_least(8192);
  peer_side->say(Wire{71, 2, 0, kUpdProp, 1, 1, 4, 65536});
  expect_least(16384);
}

// Shows: V2D4-POP-14
TEST_F(ClientsProperties, AnswersToRequestsAreToldFromRepliesByTheirType) {
  connect(Speaks::kTwo, {.credits = 1, .send_size = 4096});
  goes_inline(0);
  peer_side->say(Wire{70, 2, 0, kConnProp, 1, 1, 4, 4096, 0});
  ASSERT_TRUE(end->engine->request_receive_size(8192));
  end->run();
  const uint32_t request = word(peer_side->take().at(0), 0);
  OutgoingCall call;
  const uint32_t xid = word(send(call), 0);
  end->ended.clear();
  // The server's own requests have these XIDs, too.
  for (uint32_t same : {request, xid}) {
    peer_side->say(Wire{same, 2, 0, kReqProp, 0});
    std::vector<Bytes> sent = peer_side->take();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(word(sent[0], 0), same);
    EXPECT_EQ(word(sent[0], 3), kRespProp);
  }
  // Neither message is answered by what would answer the other.
  peer_side->say(Wire{xid, 2, 0, kRespProp, 1, 1, 0, 0});
  answer(request);
  EXPECT_TRUE(end->engine->properties().requested());
  EXPECT_TRUE(end->ended.empty());
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 2u);
  peer_side->say(Wire{request, 2, 0, kRespProp, 1, 1, 0, 0});
  EXPECT_FALSE(end->engine->properties().requested());
  answer(xid);
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(counters().size_requests_refused, 0u);
}

// Calls, CONNPROP, REQPROP and UPDPROP together, all unanswered for as long as allowed:
// only the XID of an error tells which message it answers.
// Shows: V2D4-POP-15
TEST_F(ClientsProperties, ItsRequestsHaveDistinctXids) {
  for (uint32_t credits : {1u, 3u, 4u}) {
    connect(Speaks::kTwo, {.credits = credits, .max_receive_size = 65536});
    std::set<uint32_t> xids;
    uint32_t told = 0;
    // The last XID of that type among the messages sent since; none came before.
    auto newest = [&](uint32_t type) {
      std::optional<uint32_t> found;
      for (const Bytes& message : peer_side->take()) {
        EXPECT_TRUE(xids.insert(word(message, 0)).second) << credits << ": " << word(message, 0);
        told += word(message, 3) == kUpdProp;  // the small Receives are gone
        if (word(message, 3) == type)
          found = word(message, 0);
      }
      return found;
    };
    auto say_reply = [&](uint32_t xid) {
      peer_side->say(Wire{xid, 2, 4, kMsg, kReply, 0, 0, 0, 0, xid, kReply, 42});
    };
    OutgoingCall first;
    submit(first);
    say_reply(*newest(kMsg));
    EXPECT_TRUE(newest(kConnProp));
    peer_side->say(Wire{70, 2, 0, kConnProp, 1, 1, 4, 4096, 0});
    for (uint32_t round = 0; round != 40; ++round) {
      std::vector<OutgoingCall> calls(credits);
      std::vector<uint32_t> unanswered;
      for (OutgoingCall& call : calls) {
        submit(call);
        std::optional<uint32_t> xid = newest(kMsg);
        ASSERT_TRUE(xid) << credits << " credits, round " << round;
        unanswered.push_back(*xid);
      }
      ASSERT_TRUE(end->engine->request_receive_size(4096 + 4 * round));
      end->run();
      std::optional<uint32_t> request = newest(kReqProp);
      ASSERT_TRUE(request);
      if (round % 8 == 0)
        end->engine->properties().raise(8192 + 1024 * round);
      for (uint32_t xid : unanswered)
        say_reply(xid);
      peer_side->say(Wire{*request, 2, 0, kRespProp, 1, 1, 0, 0});
      EXPECT_FALSE(end->engine->properties().requested());
    }
    EXPECT_GT(told, 0u);
    end->disconnect();
  }
}

// Shows: V2D4-PROP-23, V2D4-PROP-32
TEST_F(ClientsProperties, ItsOwnReceivesGrowButDoNotShrink) {
  connect(Speaks::kTwo, {.credits = 2, .max_receive_size = 16384});
  EXPECT_FALSE(end->engine->properties().raise(8192));  // nothing was announced yet
  goes_inline(0);
  EXPECT_TRUE(end->engine->properties().raise(8192));
  EXPECT_FALSE(end->engine->properties().raise(4096));
  EXPECT_FALSE(end->engine->properties().raise(32768));
  uint32_t told = 0;
  for (int i = 0; i < 12; ++i) {
    OutgoingCall call;
    Bytes sent = send(call);
    for (const Bytes& message : answer(word(sent, 0))) {
      EXPECT_EQ(word(message, 3), kUpdProp);
      EXPECT_EQ(word(message, 7), 8192u);
      ++told;
    }
  }
  EXPECT_EQ(told, 1u);
}

// Calls that were sent without a Reply chunk rely on them, and such calls may have crossed the
// request.
TEST_F(ClientsProperties, ItsReceivesDoNotShrinkWhileCallsRelyOnThem) {
  connect(Speaks::kTwo, {.credits = 8, .receive_size = 16384});
  goes_inline(0);
  peer_side->say(Wire{70, 2, 0, kConnProp, 1, 1, 4, 16384, 0});
  auto ask = [this](uint32_t size) {
    peer_side->say(Wire{72, 2, 4, kReqProp, 1, 1, 4, size});
    Bytes sent = peer_side->take().at(0);
    EXPECT_EQ(word(sent, 3), kRespProp);
    return Bytes(sent.begin() + 16, sent.end());
  };
  const Bytes done = Wire({1, 1, 0, 0}).bytes(), rejected = Wire({0, 1, 1, 0}).bytes();
  std::array<OutgoingCall, 3> calls;
  calls[0].max_reply = 8192 - 36;  // inline; the next one by a Reply chunk, the last one inline
  calls[1].max_reply = 16384;
  calls[2].max_reply = 4096 - 36;
  std::array<uint32_t, 3> xids;
  for (size_t i = 0; i < calls.size(); ++i)
    xids[i] = word(send(calls[i]), 0);
  EXPECT_EQ(ask(4096), rejected);
  EXPECT_EQ(ask(8192), done);
  answer(xids[0]);
  EXPECT_EQ(ask(4096), done);
  answer(xids[1]);
  answer(xids[2]);
  for (const OutgoingCall& call : calls)
    EXPECT_EQ(call.status, CallStatus::kOk);
}

// Shows: V2D4-PROP-12
TEST_F(ClientsProperties, UnreadableMessagesAreAnswered) {
  connect(Speaks::kTwo, {.credits = 8});
  goes_inline(0);
  peer_side->say(Wire{70, 2, 0, kUpdProp, 1, 1, 1000, 8192});
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0], Wire({70, 2, 1, kError, 2}).bytes());
  peer_side->say(Wire{71, 2, 0, kRespProp, 1000});
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().refusals[Refusal::kBadProperties], 1u);
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 1u);
}

// Shows: V2D4-POP-05
TEST_F(ClientsProperties, AServerWithoutPropertiesIsSentNoMore) {
  connect(Speaks::kTwo, {.credits = 2, .max_receive_size = 16384});
  OutgoingCall call;
  uint32_t xid = word(send(call), 0);
  std::vector<Bytes> sent = answer(xid);
  ASSERT_EQ(sent.size(), 1u);
  peer_side->say(Wire{word(sent[0], 0), 2, 4, kError, 9});
  EXPECT_FALSE(end->engine->properties().raise(8192));
  EXPECT_FALSE(end->engine->request_receive_size(8192));
  EXPECT_TRUE(goes_inline(0));
}

}  // namespace
}  // namespace rrdk::engine::test
