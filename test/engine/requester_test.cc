// The requester against a scripted responder, byte by byte.
#include <set>

#include "scripted_test.h"

namespace rrdk::engine::test {
namespace {

class RequesterTest : public ScriptedTest {
 protected:
  void connect(ConnectionOptions options = {}, proto::PrivateData peer = {true, 4096, 4096}) {
    options.role = Role::kRequester;
    begin(options, peer, 16);
  }
  // A call that offers a Write list of one chunk of 100 bytes and a Reply chunk of 8000.
  Bytes send_with_room(OutgoingCall& call) {
    if (!buffer)
      buffer = memory->get(100);
    span = buffer.first(100);
    room.spans = {&span, 1};
    call.results = {&room, 1};
    call.max_reply = 8000;
    return send(call);
  }
  // The reply to it, with these lengths.
  Wire reply_to(const Bytes& call, uint32_t type, uint32_t write_length, uint32_t reply_length) {
    Wire wire{word(call, 0), 1, 4, type, 0, 1, 1};
    wire.add({word(call, 7), write_length, word(call, 9), word(call, 10), 0, 1, 1});
    return wire.add({word(call, 14), reply_length, word(call, 16), word(call, 17)});
  }
  Wire plain_reply(uint32_t xid, uint32_t grant = 4) {
    return {xid, 1, grant, kMsg, 0, 0, 0, xid, 1, 42};
  }
  void expect_status(OutgoingCall& call, CallStatus status) {
    ASSERT_EQ(end->ended.size(), 1u);
    EXPECT_EQ(end->ended[0], &call);
    EXPECT_EQ(call.status, status) << to_string(call.status);
    end->ended.clear();
    EXPECT_TRUE(peer_side->take().empty()) << "a reply was answered";  // V1-ERR-12
    EXPECT_TRUE(end->qp.keys.empty());
  }
  void expect_alive() {
    OutgoingCall call;
    peer_side->say(plain_reply(word(send(call), 0)));
    expect_status(call, CallStatus::kOk);
    EXPECT_FALSE(end->engine->wants_disconnect());
  }
  void TearDown() override {
    if (end != nullptr) {
      end->disconnect();
      EXPECT_TRUE(end->qp.keys.empty());
      EXPECT_EQ(end->qp.count(Op::kRead) + end->qp.count(Op::kWrite), 0u);  // V1-CHUNK-16
    }
    buffer.reset();
    ScriptedTest::TearDown();
  }

  Buffer buffer;
  MemorySpan span;
  ResultRoom room;
};

// Shows: V1-HDR-01, V1-HDR-02, V1-HDR-12, V1-CREDIT-01
TEST_F(RequesterTest, AnInlineCall) {
  connect({.credits = 32});
  OutgoingCall call;
  Bytes sent = send(call, 4);
  uint32_t xid = word(sent, 0);
  EXPECT_EQ(sent, (Wire{xid, 1, 32, kMsg, 0, 0, 0, xid, 0, 0}.bytes()));
  peer_side->say(plain_reply(xid));
  EXPECT_EQ(flatten(call.reply), (Wire{xid, 1, 42}.bytes()));
  expect_status(call, CallStatus::kOk);
  sent = send(call);
  EXPECT_EQ(word(sent, 2), 32u);
  EXPECT_NE(word(sent, 0), xid);
  peer_side->say(plain_reply(word(sent, 0)));
}

// A reply is matched by its whole XID, not only by the slot in it.
TEST_F(RequesterTest, StaleAndForgedRepliesAreIgnored) {
  connect({.credits = 4});
  OutgoingCall call;
  uint32_t first = word(send(call), 0);
  peer_side->say(plain_reply(first));
  end->ended.clear();
  uint32_t second = word(send(call), 0);
  EXPECT_EQ(first & 7, second & 7);
  EXPECT_NE(first, second);
  size_t posted = end->qp.receives.size();
  peer_side->say(plain_reply(first));
  peer_side->say(plain_reply(second ^ 0x80000000));
  peer_side->say(plain_reply(second + 1));
  peer_side->say(Wire{first, 1, 4, kError, kErrChunk, 0, 0});
  EXPECT_TRUE(end->ended.empty());
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 4u);
  EXPECT_EQ(end->qp.receives.size(), posted);
  peer_side->say(plain_reply(second));
  expect_status(call, CallStatus::kOk);
  peer_side->say(plain_reply(second));
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 5u);
}

// Shows: V1-CREDIT-07, V1-CREDIT-17, V1-CREDIT-21
TEST_F(RequesterTest, GrantsAreCappedAndZeroIsOne) {
  connect({.credits = 8});
  OutgoingCall call;
  uint32_t grants[][2] = {{1000, 8}, {3, 3}, {0, 1}};
  for (auto& [granted, window] : grants) {
    peer_side->say(plain_reply(word(send(call), 0), granted));
    EXPECT_EQ(end->engine->requester().window.size(), window);
  }
  peer_side->say(Wire{word(send(call), 0), 1, 8, kError, kErrVers, 1, 1});
  EXPECT_EQ(end->engine->requester().window.size(), 1u);
  peer_side->say(Wire{word(send(call), 0), 1, 8, kError, kErrChunk});
  EXPECT_EQ(end->engine->requester().window.size(), 8u);
}

// Shows: V1-ERR-05, V1-ERR-09, V1-ERR-14, V1-ERR-15, V1-ERR-16, V1-CREDIT-22, V1-HDR-18
TEST_F(RequesterTest, ErrorsEndTheirCall) {
  connect();
  OutgoingCall call;
  for (size_t extra : {0u, 8u}) {
    Wire error{word(send_with_room(call), 0), 1, 4, kError, kErrChunk};
    for (size_t i = 0; i < extra; ++i)
      error.add(0);
    peer_side->say(error);
    expect_status(call, CallStatus::kChunkError);
  }
  EXPECT_EQ(counters().refusals[Refusal::kTrailingBytes], 1u);
  peer_side->say(Wire{word(send_with_room(call), 0), 1, 4, kError, 77});
  expect_status(call, CallStatus::kRemoteError);
  for (uint32_t version : {1u, 2u, 7u}) {
    peer_side->say(Wire{word(send_with_room(call), 0), version, 4, kError, kErrVers, 1, 2});
    expect_status(call, CallStatus::kVersionError);
  }
  EXPECT_FALSE(end->engine->wants_disconnect());
  peer_side->say(Wire{word(send(call), 0), 1, 4, kError, kErrVers, 3, 5});
  expect_status(call, CallStatus::kVersionError);
  EXPECT_TRUE(end->engine->wants_disconnect());
}

// Shows: V1-ERR-12, V1-ERR-13, V1-RL-13, V1-RC-11, V1-RC-14, V1-HDR-16, V1-WL-10, V1-ERR-24
TEST_F(RequesterTest, MalformedRepliesEndTheirCallOnly) {
  connect();
  OutgoingCall call;
  auto refuse = [&](auto make) {
    Bytes sent = send_with_room(call);
    peer_side->say(make(sent, word(sent, 0)));
    expect_status(call, CallStatus::kMalformedReply);
  };
  using B = const Bytes&;
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 1, 8, 1, 1, 0, 0, 0, 0, 0, x, 1, 5}; });
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 0, 0, 0, x + 1, 1}; });
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 0, 0, 0, x}; });
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 7, 0, 0, x, 1}; });
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, 9, 0, 0, 0, x, 1}; });
  refuse([](B, uint32_t x) { return Wire{x, 3, 4, kMsg, 0, 0, 0, x, 1}; });
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, kNoMsg, 0, 0, 0}; });
  refuse([&](B s, uint32_t) { return reply_to(s, kNoMsg, 0, 0); });
  refuse([&](B s, uint32_t) { return reply_to(s, kNoMsg, 0, 8004); });
  refuse([&](B s, uint32_t) { return reply_to(s, kNoMsg, 0, 100); });  // not the message's XID
  refuse([&](B s, uint32_t x) { return reply_to(s, kMsg, 0, 12).add({x, 1}); });
  refuse([&](B s, uint32_t x) { return reply_to(s, kMsg, 101, 0).add({x, 1}); });
  refuse([&](B s, uint32_t x) {
    return Wire{x, 1, 4, kMsg, 0, 1, 1, word(s, 7) + 1, 5, word(s, 9), word(s, 10), 0, 0, x, 1};
  });
  refuse([&](B s, uint32_t x) {
    return Wire{x, 1, 4, kMsg, 0, 1, 1, word(s, 7), 5, word(s, 9), word(s, 10) + 4, 0, 0, x, 1};
  });
  refuse([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 0, 1, 0, 1, 0, 0, 0, x, 1}; });
  refuse([&](B s, uint32_t x) {
    return Wire{x,           1, 4,          kMsg,        0,          1, 2,
                word(s, 7),  5, word(s, 9), word(s, 10), word(s, 7), 5, word(s, 9),
                word(s, 10), 0, 0,          x,           1};
  });
  EXPECT_EQ(counters().breaches(), 15u);
  EXPECT_EQ(counters().refusals[Refusal::kBadVersion], 1u);
  expect_alive();
}

// Shows: V1-WL-08, EXP-11, V1-RC-05, V1-RC-10, V1-PAD-11, V1-MSGP-08, V1-WL-12, V1-WL-13
TEST_F(RequesterTest, OldRespondersFormsAreAccepted) {
  connect();
  OutgoingCall call;
  auto accept = [&](auto make, uint32_t placed) {
    Bytes sent = send_with_room(call);
    peer_side->say(make(sent, word(sent, 0)));
    EXPECT_EQ(flatten(call.reply), (Wire{word(sent, 0), 1, 5}.bytes()));
    EXPECT_EQ(call.placed.empty() ? 0 : call.placed[0].size(), placed);
    expect_status(call, CallStatus::kOk);
  };
  using B = const Bytes&;
  accept([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 0, 0, 0, x, 1, 5}; }, 0);
  accept([](B, uint32_t x) { return Wire{x, 1, 4, kMsg, 0, 1, 0, 0, 0, x, 1, 5}; }, 0);
  accept([&](B s, uint32_t x) { return reply_to(s, kMsg, 0, 0).add({x, 1, 5}); }, 0);
  accept([&](B s, uint32_t x) { return reply_to(s, kMsg, 100, 0).add({x, 1, 5}); }, 100);
  accept([&](B s, uint32_t x) { return reply_to(s, kMsg, 8, 0).add({x, 1, 5}); }, 8);
  accept([](B, uint32_t x) { return Wire{x, 1, 4, kMsgp, 4, 4, 0, 0, 0, x, 1, 5}; }, 0);
  // A length rounded up beyond a buffer of five bytes.
  buffer.reset();
  Buffer small = memory->get(5);
  span = small.first(5);
  room.spans = {&span, 1};
  call.results = {&room, 1};
  Bytes sent = send(call);
  peer_side->say(reply_to(sent, kMsg, 8, 0).add({word(sent, 0), 1, 5}));
  EXPECT_EQ(call.placed[0].size(), 5u);
  expect_status(call, CallStatus::kOk);
}

// Shows: V1-MEM-06, V1-MEM-09, V1-MEM-11, V1-MEM-15, V1-CHUNK-09
TEST_F(RequesterTest, KeysLiveAsLongAsTheirCall) {
  connect();
  OutgoingCall call;
  Bytes sent = send_with_room(call);
  uint32_t key = word(sent, 7);
  uint64_t address = uint64_t{word(sent, 9)} << 32 | word(sent, 10);
  EXPECT_NE(end->qp.access(key, address, 100, Rights::kRemoteWrite), nullptr);
  EXPECT_EQ(end->qp.access(key, address, 101, Rights::kRemoteWrite), nullptr);
  EXPECT_EQ(end->qp.access(key, address, 100, Rights::kRemoteRead), nullptr);
  end->on_ended = [&](OutgoingCall&) {
    EXPECT_EQ(end->qp.access(key, address, 100, Rights::kRemoteWrite), nullptr);
  };
  peer_side->say(plain_reply(word(sent, 0)));
  expect_status(call, CallStatus::kOk);
  EXPECT_NE(word(send_with_room(call), 7), key);
  end->disconnect();
}

// Shows: PD-31
TEST_F(RequesterTest, AnInvalidationOfAnotherCallsKeyEndsTheConnection) {
  connect();
  OutgoingCall first, second;
  peer_side->say(plain_reply(word(send(first), 0)));
  end->ended.clear();
  Bytes sent = send_with_room(first);
  Bytes other = send(second);
  peer_side->say(plain_reply(word(other, 0)), word(sent, 7));
  EXPECT_TRUE(end->engine->wants_disconnect());
  end->disconnect();
  EXPECT_EQ(end->ended.size(), 2u);
}

// Shows: PD-30, PD-31
TEST_F(RequesterTest, AKeyThePeerInvalidatedIsNotInvalidatedAgain) {
  connect();
  OutgoingCall call;
  Bytes sent = send_with_room(call);
  peer_side->say(plain_reply(word(sent, 0)), word(sent, 7));
  expect_status(call, CallStatus::kOk);
  EXPECT_EQ(end->qp.count(Op::kInvalidateKey), 1u);
}

// The peer's Send invalidates the key of a call that is being given up, and is reported only after
// our own invalidation of that key.
TEST_F(RequesterTest, ALateInvalidationByThePeerDisturbsNothing) {
  connect();
  OutgoingCall other;
  peer_side->say(plain_reply(word(send(other), 0)));
  end->ended.clear();
  OutgoingCall call;
  Bytes sent = send_with_room(call);
  EXPECT_TRUE(end->qp.receive(plain_reply(word(sent, 0)), word(sent, 7)));
  end->qp.expect_refusals = true;  // the invalidation finds a dead key
  end->engine->cancel(call);
  end->qp.post(*end->engine);
  while (end->qp.execute_one()) {
  }
  end->qp.deliver(*end->engine, end->qp.send_completions, 32);
  expect_status(call, CallStatus::kCancelled);
  end->qp.deliver(*end->engine, end->qp.receive_completions, 32);
  EXPECT_EQ(counters().refusals[Refusal::kLateReply], 1u);
  EXPECT_EQ(counters().breaches(), 0u);
  expect_alive();
}

// Our timeout is not the peer's fault; an unreadable message or a second answer is.
TEST_F(RequesterTest, ALateReplyIsNoBreachAndAMalformedOneIs) {
  connect();
  OutgoingCall call;
  call.deadline_ns = 1000;
  uint32_t late = word(send(call), 0);
  end->engine->on_tick(2000);
  end->run();
  expect_status(call, CallStatus::kTimeout);
  peer_side->say(plain_reply(late));
  EXPECT_EQ(counters().calls_answered_late, 1u);
  EXPECT_EQ(counters().refusals[Refusal::kLateReply], 1u);
  EXPECT_EQ(counters().breaches(), 0u);
  peer_side->say(plain_reply(late));
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 1u);
  EXPECT_EQ(counters().breaches(), 1u);
  call.deadline_ns = 0;
  peer_side->say(Wire{word(send(call), 0), 1, 4, kMsg, 7, 0, 0, 0, 1});
  expect_status(call, CallStatus::kMalformedReply);
  EXPECT_EQ(counters().refusals[Refusal::kBadDiscriminator], 1u);
  EXPECT_EQ(counters().breaches(), 2u);
}

// Shows: V1-DONE-03, V1-HDR-19
TEST_F(RequesterTest, DoneAndShortMessagesAreDropped) {
  connect();
  OutgoingCall call;
  uint32_t xid = word(send(call), 0);
  peer_side->say(Wire{xid, 1, 4, kDone});
  peer_side->say(Wire{xid, 1, 4});
  peer_side->say(Wire{xid, 1, 4, kMsg, 0, 0});
  peer_side->say(Wire{xid, 1, 4, kMsg, 0, 0, 0, xid, 0, 1});  // a call from the peer
  EXPECT_TRUE(end->ended.empty());
  EXPECT_EQ(counters().refusals[Refusal::kDone], 1u);
  EXPECT_EQ(counters().refusals[Refusal::kTooShort], 2u);
  peer_side->say(plain_reply(xid));
  expect_status(call, CallStatus::kOk);
}

// The reply may overtake the completion of the call's Send, whose buffers are still in use then.
TEST_F(RequesterTest, ACallEndsAfterItsSendCompleted) {
  connect();
  OutgoingCall call;
  Encoder e(call.message, *memory, 1024, 4096);
  e.put_u64(0);
  e.finish();
  end->engine->submit(call);
  end->qp.post(*end->engine);
  end->qp.execute_one();
  EXPECT_TRUE(end->qp.receive(plain_reply(word(peer_side->sent.at(0), 0)), {}));
  end->qp.deliver(*end->engine, end->qp.receive_completions, 1);
  EXPECT_TRUE(end->ended.empty());
  end->qp.deliver(*end->engine, end->qp.send_completions, 1);
  peer_side->take();
  expect_status(call, CallStatus::kOk);
}

TEST_F(RequesterTest, QueuedCallsEndAtTheirOwnDeadlinesInAnyOrder) {
  connect({.credits = 4});
  OutgoingCall first, calls[4];
  send(first);
  const uint64_t deadlines[] = {300, 100, 0, 200};
  for (size_t i = 0; i < std::size(calls); ++i) {
    calls[i].deadline_ns = deadlines[i];
    submit(calls[i]);
  }
  auto ended_at = [&](uint64_t now) {
    end->ended.clear();
    end->engine->on_tick(now);
    return end->ended;
  };
  using Ended = decltype(end->ended);
  EXPECT_EQ(ended_at(99), Ended());
  EXPECT_EQ(ended_at(100), Ended{&calls[1]});
  EXPECT_EQ(ended_at(199), Ended());
  EXPECT_EQ(ended_at(200), Ended{&calls[3]});
  calls[1].deadline_ns = 250;  // earlier than those that wait
  submit(calls[1]);
  EXPECT_EQ(ended_at(250), Ended{&calls[1]});
  EXPECT_EQ(ended_at(300), Ended{&calls[0]});
  EXPECT_EQ(ended_at(UINT64_MAX), Ended()) << "a call without a deadline";
  EXPECT_EQ(calls[0].status, CallStatus::kTimeout);
  end->disconnect();
}

// Shows: V1-CREDIT-23
TEST_F(RequesterTest, ALateReplyGivesTheCreditBack) {
  connect({.credits = 4});
  OutgoingCall call;
  peer_side->say(plain_reply(word(send(call), 0)));
  end->ended.clear();
  call.deadline_ns = 10;
  Bytes sent = send(call);
  end->engine->on_tick(10);
  expect_status(call, CallStatus::kTimeout);
  EXPECT_EQ(end->engine->requester().window.in_flight(), 1u);
  peer_side->say(plain_reply(word(sent, 0)));
  EXPECT_EQ(end->engine->requester().window.in_flight(), 0u);
  EXPECT_TRUE(end->ended.empty());
  call.deadline_ns = 0;
  expect_alive();
}

// Shows: V1-RC-02, PD-11, EXP-15
TEST_F(RequesterTest, AReplyChunkIsOfferedWhenTheReplyCouldBeTooLarge) {
  connect({}, {true, 1024, 4096});  // the server sends at most 1024 at once
  OutgoingCall call;
  for (uint32_t max : {1024 - 28u, 1024 - 28u + 4}) {
    call.max_reply = max;
    Bytes sent = send(call);
    EXPECT_EQ(word(sent, 6), max == 1024 - 28 ? 0u : 1u);
    if (word(sent, 6) == 1) {
      EXPECT_EQ(word(sent, 9), max);
    }
    peer_side->say(plain_reply(word(sent, 0)));
    end->ended.clear();
  }
}

// A responder may remember calls by XID: the XIDs of the next connection must differ, unless they
// are meant to be the same.
TEST_F(RequesterTest, XidsGoOnOnTheNextConnection) {
  connect({.credits = 4, .first_xid = 0x1000});
  OutgoingCall calls[4];
  for (int i = 0; i < 100; ++i)
    peer_side->say(plain_reply(word(send(calls[0]), 0)));
  uint32_t next = word(send(calls[0]), 0);
  uint32_t lost = word(send(calls[1]), 0);
  std::vector<uint32_t> last = end->engine->requester().last_xids();
  end->disconnect();
  EXPECT_EQ(end->ended.size(), 102u);
  EXPECT_TRUE(calls[1].sent);

  ConnectionOptions options = {.credits = 4, .first_xid = 0x1000};
  options.role = Role::kRequester;
  end = std::make_unique<End>(options, *memory, *pool);
  peer_side = std::make_unique<Script>(*end);
  end->engine->requester().continue_xids(last);
  end->engine->on_established({true, 4096, 4096}, 16);
  calls[1].resend = true;
  EXPECT_EQ(word(send(calls[1]), 0), lost);
  peer_side->say(plain_reply(lost));
  EXPECT_EQ(word(send(calls[0]), 0), lost + 8);  // the slot that was freed last
  EXPECT_EQ(word(send(calls[2]), 0), next + 8);
  EXPECT_EQ(counters().calls_resent, 1u);
  EXPECT_EQ(counters().messages_received, 1u);
  end->disconnect();
}

// Slots are created as they are used, on the next connection, too.
TEST_F(RequesterTest, ManyCallsInFlightHaveXidsOfTheirOwn) {
  connect({.credits = 64});
  std::vector<OutgoingCall> calls(40);
  peer_side->say(plain_reply(word(send(calls[0]), 0), 64));
  std::set<uint32_t> xids;
  for (OutgoingCall& call : calls)
    xids.insert(word(send(call), 0));
  EXPECT_EQ(xids.size(), calls.size());
  const uint32_t lost = calls.back().xid;
  const std::vector<uint32_t> last = end->engine->requester().last_xids();
  end->disconnect();

  end = std::make_unique<End>(ConnectionOptions{.role = Role::kRequester, .credits = 64}, *memory,
                              *pool);
  peer_side = std::make_unique<Script>(*end);
  end->engine->requester().continue_xids(last);
  end->engine->on_established({true, 4096, 4096}, 16);
  calls.back().resend = true;
  EXPECT_EQ(word(send(calls.back()), 0), lost);
  peer_side->say(plain_reply(lost, 64));
  calls.back().resend = false;
  for (OutgoingCall& call : calls)
    EXPECT_TRUE(xids.insert(word(send(call), 0)).second);
  EXPECT_EQ(end->engine->requester().window.in_flight(), calls.size());
  end->disconnect();
}

// Memory that only calls with chunks need is taken by the first such call, and kept.
TEST_F(RequesterTest, PlainCallsTakeNoMemoryForChunks) {
  connect();
  OutgoingCall call;
  peer_side->say(plain_reply(word(send(call), 0)));
  expect_status(call, CallStatus::kOk);
  EXPECT_EQ(call.chunks, nullptr);
  const Bytes sent = send_with_room(call);
  const CallChunks* const chunks = call.chunks.get();
  EXPECT_NE(chunks, nullptr);
  peer_side->say(reply_to(sent, kMsg, 0, 0).add({word(sent, 0), 1, 42}));
  end->ended.clear();
  call.results = {};
  call.max_reply = 100;
  peer_side->say(plain_reply(word(send(call), 0)));
  EXPECT_EQ(call.chunks.get(), chunks);
  end->ended.clear();
}

// Calls that are sent again take the slots of their XIDs, wherever these are among the free slots.
TEST_F(RequesterTest, CallsSentAgainTakeTheirOwnSlots) {
  connect({.credits = 8});
  std::vector<OutgoingCall> calls(8);
  peer_side->say(plain_reply(word(send(calls[0]), 0), 8));
  std::vector<uint32_t> xids;
  for (OutgoingCall& call : calls)
    xids.push_back(word(send(call), 0));
  std::vector<uint32_t> last = end->engine->requester().last_xids();
  end->disconnect();

  end = std::make_unique<End>(ConnectionOptions{.role = Role::kRequester, .credits = 8}, *memory,
                              *pool);
  peer_side = std::make_unique<Script>(*end);
  end->engine->requester().continue_xids(last);
  end->engine->on_established({true, 4096, 4096}, 16);
  OutgoingCall fresh;
  for (size_t i : {5, 2, 7, 0}) {
    calls[i].resend = true;
    submit(calls[i]);
  }
  submit(fresh);
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 1u);  // the one credit of a new connection (V1-CREDIT-11)
  EXPECT_EQ(word(sent[0], 0), xids[5]);
  EXPECT_FALSE(calls[2].sent);
  peer_side->say(plain_reply(xids[5], 8));
  sent = peer_side->take();
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(word(sent[0], 0), xids[2]);
  EXPECT_EQ(word(sent[1], 0), xids[7]);
  EXPECT_EQ(word(sent[2], 0), xids[0]);
  EXPECT_TRUE(calls[2].sent);
  for (uint32_t xid : xids)
    EXPECT_NE(word(sent[3], 0), xid);
  end->disconnect();
}

// A call may be sent again later than others: its slot has had a newer XID by then, or has another
// call.
TEST_F(RequesterTest, CallsSentAgainAfterOthersLeaveNoXidTwice) {
  connect({.credits = 2});
  OutgoingCall again, other, blocker;
  std::set<uint32_t> xids;
  const uint32_t old = word(send(again), 0);
  xids.insert(old);
  peer_side->say(plain_reply(old, 2));
  const uint32_t newer = word(send(other), 0);
  xids.insert(newer);
  peer_side->say(plain_reply(newer, 2));
  EXPECT_EQ(newer & 1, old & 1) << "it had the same slot";

  again.resend = true;
  EXPECT_EQ(word(send(again), 0), old);
  EXPECT_EQ(end->engine->requester().last_xids()[old & 1], newer);
  peer_side->say(plain_reply(old, 2));
  for (int i = 0; i != 2; ++i) {
    const uint32_t xid = word(send(other), 0);
    EXPECT_TRUE(xids.insert(xid).second);
    peer_side->say(plain_reply(xid, 2));
  }
  end->ended.clear();

  send(blocker);  // has the slot
  ASSERT_EQ(blocker.slot, again.slot);
  submit(again);
  EXPECT_EQ(again.status, CallStatus::kNoMemory);
  EXPECT_EQ(end->ended.size(), 1u);
  send(other);  // is not kept waiting
  end->disconnect();
}

TEST_F(RequesterTest, ACallThatWaitsForACreditWasNotSent) {
  connect({.credits = 4});
  OutgoingCall first, second;
  send(first);
  submit(second);
  EXPECT_FALSE(end->engine->requester().may_send());
  end->disconnect();
  EXPECT_TRUE(first.sent);
  EXPECT_FALSE(second.sent);
  EXPECT_EQ(second.status, CallStatus::kConnectionLost);
}

}  // namespace
}  // namespace rrdk::engine::test
