// Calls that end before they are answered: what the peer may still do with their memory, when the
// release of this memory is reported, and how the connection continues.
#include <limits>

#include "pair.h"

namespace rrdk::engine::test {
namespace {

using fabric::Op;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint32_t kItem = 5000;

class GivenUp : public Pair {
 protected:
  // An established connection with its grant, and a server that keeps calls.
  void connect(ConnectionOptions options = {}) {
    Pair::connect(options, options);
    serve({}, {});
    write(warm_up.message, 0, 0, {});
    a->engine->submit(warm_up);
    run();
    ASSERT_EQ(warm_up.status, CallStatus::kOk);
    a->ended.clear();
    b->handler = nullptr;
  }
  // Both directions: a Read chunk from the message's own buffer, and a Write chunk.
  void submit(OutgoingCall& call) {
    write(call.message, 0, 0, {{kItem, true}});
    a->engine->submit(call);
    run();
    ASSERT_EQ(a->qp.bound_keys(), 1u + (call.results.empty() ? 0 : 1));
  }
  // The call ends for its caller at once; the peer is not told.
  void submit_and_cancel(OutgoingCall& call) {
    submit(call);
    a->engine->cancel(call);
    expect_ended(call, CallStatus::kCancelled);
  }
  // Result memory of the caller's own, or from a buffer that goes with the call.
  void offer(OutgoingCall& call, bool own) {
    Buffer buffer = memory->get(kItem);
    span = buffer.first(kItem);
    room.spans = {&span, 1};
    call.results = {&room, 1};
    ASSERT_TRUE(call.take_chunks());
    (own ? mine : call.chunks->rooms[0]) = std::move(buffer);
  }
  void tell(OutgoingCall& call) {
    call.released = [](void* count) { ++*static_cast<int*>(count); };
    call.released_argument = &released;
  }
  void answer(const std::vector<Item>& results = {}) {
    for (ServedCall* held : std::exchange(b->held, {})) {
      write(held->reply, held->xid, 1, results);
      b->engine->reply(*held);
    }
    run();
  }
  void expect_ended(OutgoingCall& call, CallStatus status) {
    ASSERT_EQ(a->ended.size(), 1u);
    EXPECT_EQ(a->ended[0], &call);
    EXPECT_STREQ(to_string(call.status), to_string(status));
    a->ended.clear();
  }
  void expect_alive() {
    EXPECT_FALSE(a->engine->wants_disconnect());
    EXPECT_FALSE(b->engine->wants_disconnect());
    OutgoingCall next;
    serve({{kItem, true}}, {{kItem, true}});
    next.max_reply = 2 * kItem;
    submit_and_check(next);
    b->handler = nullptr;
  }
  void submit_and_check(OutgoingCall& call) {
    write(call.message, 0, 0, {{kItem, true}});
    a->engine->submit(call);
    run();
    expect_ended(call, CallStatus::kOk);
    check(Decoder(call.reply, call.placed), {{kItem, true}});
    call.release();
  }
  const Counters& counters() { return a->engine->counters(); }
  void TearDown() override {
    warm_up.release();
    mine.reset();
    Pair::TearDown();
  }

  OutgoingCall warm_up;
  Buffer mine;
  MemorySpan span;
  ResultRoom room;
  int released = 0;
};

TEST_F(GivenUp, MemoryOfTheCallStaysWithThePeerUntilTheAnswer) {
  connect();
  OutgoingCall call;
  offer(call, false);
  submit_and_cancel(call);
  EXPECT_EQ(a->qp.bound_keys(), 2u);
  EXPECT_TRUE(call.chunks == nullptr || !call.chunks->rooms[0]);
  EXPECT_TRUE(call.message.pieces().empty());
  run();
  EXPECT_EQ(a->qp.count(Op::kInvalidateKey), 0u);
  answer({{kItem, true}});  // an RDMA Write, which must not be refused
  EXPECT_EQ(b->qp.count(Op::kWrite), 1u);
  EXPECT_TRUE(a->qp.keys.empty());
  EXPECT_EQ(a->engine->requester().window.in_flight(), 0u);
  EXPECT_EQ(counters().calls_given_up, 1u);
  EXPECT_EQ(counters().calls_lent, 1u);
  EXPECT_EQ(counters().calls_answered_late, 1u);
  EXPECT_EQ(counters().lends_expired, 0u);
  expect_alive();
}

TEST_F(GivenUp, ADeadlineLendsToo) {
  connect();
  OutgoingCall call;
  call.deadline_ns = 100;
  submit(call);
  a->engine->on_tick(99);
  EXPECT_TRUE(a->ended.empty());
  a->engine->on_tick(100);
  expect_ended(call, CallStatus::kTimeout);
  EXPECT_EQ(a->qp.bound_keys(), 1u);
  answer();
  EXPECT_TRUE(a->qp.keys.empty());
  expect_alive();
}

// The caller may use the object again at once; the messages sent with it before are processed
// independently.
TEST_F(GivenUp, TheSameObjectIsSubmittedAgainWhileItsFirstCallIsLent) {
  connect({.credits = 4});
  OutgoingCall call;
  for (int i = 0; i < 3; ++i) {
    write(call.message, 0, 0, {{kItem, true}});
    a->engine->submit(call);
    run();
    EXPECT_EQ(a->qp.bound_keys(), 1u + static_cast<uint32_t>(i));
    a->engine->cancel(call);
    expect_ended(call, CallStatus::kCancelled);
  }
  serve({{kItem, true}}, {{kItem, true}});
  call.max_reply = 2 * kItem;
  submit_and_check(call);
  answer();
  EXPECT_TRUE(a->qp.keys.empty());
  EXPECT_EQ(counters().calls_answered_late, 3u);
}

TEST_F(GivenUp, MemoryOfTheCallersIsFencedBeforeItHearsOfTheEnd) {
  connect();
  OutgoingCall call;
  offer(call, true);
  submit(call);
  a->engine->cancel(call);
  EXPECT_TRUE(a->ended.empty()) << "ended before its keys were revoked";
  run();
  expect_ended(call, CallStatus::kCancelled);
  EXPECT_TRUE(a->qp.keys.empty());
  EXPECT_EQ(counters().calls_lent, 0u);
  // The server's Write is refused, and that ends the connection.
  a->qp.expect_refusals = b->qp.expect_refusals = true;
  answer({{kItem, true}});
  EXPECT_TRUE(b->engine->wants_disconnect());
}

TEST_F(GivenUp, ACallWithAReleaseCallbackLendsItsOwnMemory) {
  connect();
  OutgoingCall call;
  offer(call, true);
  tell(call);
  submit_and_cancel(call);
  EXPECT_EQ(call.released, nullptr);
  run();
  EXPECT_EQ(released, 0);
  EXPECT_EQ(a->qp.bound_keys(), 2u);
  answer({{kItem, true}});
  EXPECT_EQ(released, 1);
  EXPECT_TRUE(a->qp.keys.empty());
  mine.reset();
  expect_alive();
  EXPECT_EQ(released, 1);
}

// The caller reports the release of an answered call itself: the engine no longer has the call.
TEST_F(GivenUp, ACallThatIsAnsweredInTimeReleasesNothing) {
  connect();
  OutgoingCall call;
  offer(call, true);
  tell(call);
  submit(call);
  answer({{kItem, true}});
  expect_ended(call, CallStatus::kOk);
  EXPECT_EQ(released, 0);
  EXPECT_NE(call.released, nullptr);
  call.release();
}

TEST_F(GivenUp, AfterTheBoundTheKeysAreRevoked) {
  connect({.lend_ns = 10 * kSecond});
  OutgoingCall call;
  offer(call, true);
  tell(call);
  submit_and_cancel(call);
  a->engine->on_tick(kSecond);
  a->engine->on_tick(11 * kSecond - 1);
  run();
  EXPECT_EQ(released, 0);
  EXPECT_EQ(a->qp.bound_keys(), 2u);
  a->engine->on_tick(11 * kSecond);
  run();
  EXPECT_EQ(released, 1);
  EXPECT_TRUE(a->qp.keys.empty());
  EXPECT_EQ(counters().lends_expired, 1u);
  EXPECT_EQ(a->engine->requester().window.in_flight(), 1u)
      << "the credit is the server's to give back";
  // A server that does not use the memory still answers later.
  b->engine->responder().set_granted_credits(32);
  answer();
  EXPECT_EQ(a->engine->requester().window.in_flight(), 0u);
  expect_alive();
}

TEST_F(GivenUp, WithoutABoundKeysAreRevokedAtOnce) {
  connect({.lend_ns = 0});
  OutgoingCall call;
  submit(call);
  a->engine->cancel(call);
  EXPECT_TRUE(a->ended.empty());
  run();
  expect_ended(call, CallStatus::kCancelled);
  EXPECT_EQ(a->qp.count(Op::kInvalidateKey), 1u);
}

TEST_F(GivenUp, TheEndOfTheConnectionReleasesWhatWasLent) {
  connect();
  OutgoingCall call;
  offer(call, true);
  tell(call);
  submit_and_cancel(call);
  EXPECT_EQ(released, 0);
  a->disconnect();
  EXPECT_EQ(released, 1);
  EXPECT_TRUE(a->ended.empty());
  EXPECT_TRUE(a->engine->idle());
}

// A message is in use until its Send has completed, with or without chunks.
TEST_F(GivenUp, ACallWhoseSendIsOnItsWayEndsAtOnce) {
  connect();
  OutgoingCall call;
  write(call.message, 0, 0, {{100}});
  a->engine->submit(call);
  a->engine->cancel(call);
  expect_ended(call, CallStatus::kCancelled);
  EXPECT_EQ(counters().calls_lent, 1u);
  run();
  answer();
  EXPECT_EQ(counters().calls_answered_late, 1u);
  expect_alive();
}

// A message that waits for the send queue is sent from the lent memory, after the caller has its
// object back.
TEST_F(GivenUp, ACallThatWaitsForTheSendQueueIsSentAllTheSame) {
  constexpr uint32_t kCalls = 24;
  connect({.credits = kCalls, .send_wrs = 8});
  std::vector<OutgoingCall> calls(kCalls);
  for (OutgoingCall& call : calls) {
    write(call.message, 0, 0, {{100}});
    a->engine->submit(call);
  }
  ASSERT_GT(counters().waits_send_queue, 0u);
  OutgoingCall& last = calls.back();
  const uint32_t xid = last.xid;
  a->engine->cancel(last);
  expect_ended(last, CallStatus::kCancelled);
  EXPECT_TRUE(last.sent);  // it will be, so that it must not be made again
  write(last.message, 0, 0, {{300}});
  run();
  ASSERT_EQ(b->held.size(), kCalls);
  EXPECT_EQ(b->held.back()->xid, xid);
  check(Decoder(b->held.back()->message), {{100}});
  answer();
  EXPECT_EQ(counters().calls_answered_late, 1u);
  EXPECT_EQ(a->ended.size(), kCalls - 1);
  a->ended.clear();
  last.release();
  expect_alive();
}

// Sends beyond the list have no completion, and a call that was given up is not reported to its
// caller when it is answered. It still ends, exactly once.
TEST_F(GivenUp, ACallThatWaitsForTheSendQueueAndThenGoesAtOnceEndsOnce) {
  constexpr uint32_t kCalls = 24;
  connect({.credits = kCalls, .send_wrs = 8, .max_copied = 512, .lend_ns = 0});
  std::vector<OutgoingCall> calls(kCalls);
  for (OutgoingCall& call : calls) {
    write(call.message, 0, 0, {{100}});
    a->engine->submit(call);
  }
  a->engine->cancel(calls.back());
  EXPECT_TRUE(a->ended.empty()) << "its message is still to be sent";
  a->qp.post(*a->engine);
  while (a->qp.execute_one()) {
  }
  a->qp.sends_now = true;
  run();
  EXPECT_GT(a->qp.sent_now, 0u);
  EXPECT_EQ(b->held.size(), kCalls);
  expect_ended(calls.back(), CallStatus::kCancelled);
  answer();
  EXPECT_EQ(a->ended.size(), kCalls - 1) << "a late answer ends nothing";
  a->ended.clear();
  EXPECT_EQ(a->engine->requester().window.in_flight(), 0u);
  expect_alive();
}

TEST_F(GivenUp, APeerThatTakesNoMessagesLosesItsConnection) {
  connect({.send_wait_ns = 4 * kSecond, .lend_ns = kSecond});
  OutgoingCall call;
  write(call.message, 0, 0, {{100}});
  a->engine->submit(call);
  a->engine->cancel(call);
  expect_ended(call, CallStatus::kCancelled);
  for (const uint64_t seconds : {1, 2, 3, 6}) {
    a->engine->on_tick(seconds * kSecond);
    EXPECT_FALSE(a->engine->wants_disconnect()) << seconds;
  }
  a->engine->on_tick(7 * kSecond);
  EXPECT_TRUE(a->engine->wants_disconnect());
  EXPECT_EQ(counters().refusals[Refusal::kNotReceived], 1u);
}

class Starved : public GivenUp {
 protected:
  // Gives up as many calls as there are credits.
  void starve(ConnectionOptions options, uint32_t credits) {
    connect(options);
    calls = std::vector<OutgoingCall>(credits);
    for (OutgoingCall& call : calls) {
      write(call.message, 0, 0, {});
      a->engine->submit(call);
    }
    run();
    for (OutgoingCall& call : calls)
      a->engine->cancel(call);
    a->ended.clear();
    ASSERT_EQ(a->engine->requester().window.in_flight(), credits);
    EXPECT_TRUE(a->engine->busy()) << "no timer would run";
  }
  void tick(uint64_t now_ns, bool wants_disconnect) {
    a->engine->on_tick(now_ns);
    EXPECT_EQ(a->engine->wants_disconnect(), wants_disconnect) << now_ns;
  }
  void TearDown() override {
    calls.clear();
    GivenUp::TearDown();
  }
  std::vector<OutgoingCall> calls;
};

// Shows: V1-CREDIT-23
TEST_F(Starved, AConnectionWithoutCreditsEndsWhenNothingComes) {
  starve({.credits = 3, .starved_ns = 5 * kSecond}, 3);
  tick(kSecond, false);
  tick(6 * kSecond - 1, false);
  tick(6 * kSecond, true);
  EXPECT_EQ(counters().refusals[Refusal::kNoAnswers], 1u);
  EXPECT_EQ(a->engine->ending(),
            (Ending{EndedBy::kPeer, Errc::kConnectionLost, Refusal::kNoAnswers,
                    "all 3 credits are held by calls that were given up, and nothing came for "
                    "5000 ms"}));
}

TEST_F(Starved, AnythingThatComesShowsThatThePeerIsThere) {
  starve({.credits = 3, .starved_ns = 5 * kSecond}, 3);
  tick(kSecond, false);
  ServedCall& one = *b->held.front();
  b->held.erase(b->held.begin());
  write(one.reply, one.xid, 1, {});
  b->engine->reply(one);
  run();
  tick(7 * kSecond, false);  // a credit is back
  OutgoingCall next;
  write(next.message, 0, 0, {});
  a->engine->submit(next);
  run();
  EXPECT_EQ(b->held.size(), 3u);
  a->engine->cancel(next);
  a->ended.clear();
  tick(8 * kSecond, false);
  tick(12 * kSecond, false);
  answer();
  tick(std::numeric_limits<uint64_t>::max(), false);
  expect_alive();
}

TEST_F(Starved, OnRequestItIsKeptForEver) {
  starve({.credits = 2, .starved_ns = 0}, 2);
  tick(kSecond, false);
  tick(std::numeric_limits<uint64_t>::max(), false);
  answer();
  expect_alive();
}

// On a new connection there is one credit.
TEST_F(Starved, AFirstCallMayBeGivenUp) {
  Pair::connect();
  OutgoingCall first;
  first.deadline_ns = 10;
  write(first.message, 0, 0, {});
  a->engine->submit(first);
  run();
  tick(10, false);
  expect_ended(first, CallStatus::kTimeout);
  OutgoingCall second;
  write(second.message, 0, 0, {});
  a->engine->submit(second);
  run();
  EXPECT_EQ(b->held.size(), 1u);
  tick(4 * kSecond, false);
  answer();
  answer();
  expect_ended(second, CallStatus::kOk);
  expect_alive();
}

}  // namespace
}  // namespace rrdk::engine::test
