// Sends that the driver copies when they are posted (fabric/work.h): calls end without waiting for
// a completion.
#include <gtest/gtest.h>

#include "pair.h"

namespace rrdk::engine::test {
namespace {

class CopiedSends : public Pair {
 protected:
  static constexpr uint32_t kMost = 232;

  void connect(ConnectionOptions client = {}, ConnectionOptions server = {}) {
    client.max_copied = server.max_copied = kMost;
    Pair::connect(client, server);
  }
  void submit(OutgoingCall& call) {
    write(call.message, 0, 0, {});
    a->engine->submit(call);
  }
  static size_t signaled(const End& end) {
    return static_cast<size_t>(
        std::ranges::count_if(end.qp.log, [](const fabric::SendWr& wr) { return wr.signaled; }));
  }
};

TEST_F(CopiedSends, CallsEndWithoutACompletionOfTheirSends) {
  connect();
  serve({}, {});
  OutgoingCall call;
  submit(call);
  run();
  ASSERT_EQ(a->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(signaled(*a) + signaled(*b), 0u);
  EXPECT_EQ(b->engine->responder().calls(), 0u);
  EXPECT_FALSE(b->qp.log.empty());
}

// A signaled Send among them gives the slots of the send queue back.
TEST_F(CopiedSends, MoreThanTheSendQueueHolds) {
  constexpr uint32_t kCalls = 200;
  connect({.send_wrs = 16}, {.send_wrs = 16});
  serve({}, {});
  for (uint32_t i = 0; i < kCalls; ++i) {
    OutgoingCall call;
    submit(call);
    run();
    ASSERT_EQ(call.status, CallStatus::kOk);
  }
  EXPECT_EQ(a->ended.size(), kCalls);
  EXPECT_GE(signaled(*a), kCalls / 16);
  EXPECT_LE(signaled(*a), kCalls / 3);
}

// There is neither a list nor a completion: the peer has the call when submit() returns, and an
// answered call has ended when reply() returns.
TEST_F(CopiedSends, GoAtOnceWhereTheDriverTakesThem) {
  connect({.send_wrs = 8}, {.send_wrs = 8});
  a->qp.sends_now = b->qp.sends_now = true;
  serve({}, {});
  b->handler = [this, serve = b->handler](ServedCall& call) {
    EXPECT_EQ(b->engine->responder().calls(), 1u);
    serve(call);
    EXPECT_EQ(b->engine->responder().calls(), 0u);
  };
  for (uint64_t calls = 1; calls <= 100; ++calls) {
    OutgoingCall call;
    submit(call);
    EXPECT_TRUE(a->engine->sends().empty());
    EXPECT_EQ(a->qp.sent_now, calls);
    run();
    ASSERT_EQ(call.status, CallStatus::kOk);
  }
  EXPECT_EQ(b->qp.sent_now, 100u);
  EXPECT_EQ(signaled(*a) + signaled(*b), 0u);
}

// A completion callback may answer another call, whose completion callback may do the same. Each
// callback is called from the posting, not from within the previous answer.
TEST_F(CopiedSends, CompletionCallbacksDoNotNest) {
  connect();
  a->qp.sends_now = b->qp.sends_now = true;
  OutgoingCall call;
  submit(call);
  run();
  ASSERT_EQ(b->held.size(), 1u);
  ServedCall& held = *std::exchange(b->held, {})[0];
  bool told = false;
  held.on_ended = [](void* flag) { *static_cast<bool*>(flag) = true; };
  held.user = &told;
  write(held.reply, held.xid, 1, {});
  b->engine->reply(held);
  EXPECT_FALSE(told);
  run();
  EXPECT_TRUE(told);
  EXPECT_EQ(call.status, CallStatus::kOk);
}

TEST_F(CopiedSends, WithAChunkGoAtOnceToo) {
  connect();
  a->qp.sends_now = b->qp.sends_now = true;
  const std::vector<Item> items = {{4096, true}};
  serve(items, {});
  OutgoingCall call;
  write(call.message, 0, 0, items);
  a->engine->submit(call);
  EXPECT_TRUE(a->engine->sends().empty());
  EXPECT_EQ(a->qp.count(fabric::Op::kBindKey), 1u);
  run();
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(signaled(*a), 0u);
  EXPECT_EQ(b->qp.sent_now, 1u);
}

TEST_F(CopiedSends, DoNotOvertakeWhatWaitsToBePosted) {
  connect();
  serve({}, {});
  OutgoingCall first;
  submit(first);
  run();  // there are more credits than one
  b->handler = nullptr;
  OutgoingCall with_chunk, plain;
  write(with_chunk.message, 0, 0, {{4096, true}});
  a->engine->submit(with_chunk);
  a->qp.sends_now = true;
  submit(plain);
  EXPECT_EQ(a->engine->sends().size(), 3u);  // a Bind and two Sends
  EXPECT_EQ(a->qp.sent_now, 0u);
  run();
  for (ServedCall* call : std::exchange(b->held, {})) {
    write(call->reply, call->xid, 1, {});
    b->engine->reply(*call);
  }
  run();
  EXPECT_EQ(with_chunk.status, CallStatus::kOk);
  EXPECT_EQ(plain.status, CallStatus::kOk);
}

TEST_F(CopiedSends, LongerOnesAreReported) {
  connect();
  serve({}, {{kMost + 1}});
  OutgoingCall call;
  call.max_reply = 600;
  submit(call);
  run();
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(signaled(*a), 0u);
  EXPECT_EQ(signaled(*b), 1u);
}

// Neither the Bind nor the Send behind it is reported.
TEST_F(CopiedSends, CallsWithAReadChunkEndWithoutACompletionToo) {
  connect();
  const std::vector<Item> items = {{4096, true}};
  serve(items, {});
  OutgoingCall call;
  write(call.message, 0, 0, items);
  a->engine->submit(call);
  run();
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(a->qp.count(fabric::Op::kBindKey), 1u);
  EXPECT_EQ(signaled(*a), 0u);
}

// The memory of a result is in use until its Write is done, and the Write's completion says so.
TEST_F(CopiedSends, TheWriteOfAResultIsReported) {
  connect();
  const std::vector<Item> items = {{4096, true}};
  serve({}, items);
  Buffer room = memory->get(4096);
  const MemorySpan span = room.first(4096);
  const ResultRoom result{{&span, 1}};
  OutgoingCall call;
  call.results = {&result, 1};
  submit(call);
  run();
  ASSERT_EQ(call.status, CallStatus::kOk);
  check(Decoder(call.reply, call.placed), items);
  EXPECT_EQ(signaled(*a), 0u);
  ASSERT_EQ(signaled(*b), 1u);
  EXPECT_EQ(std::ranges::find(b->qp.log, true, &fabric::SendWr::signaled)->op, fabric::Op::kWrite);
  EXPECT_EQ(b->engine->responder().calls(), 0u);
}

TEST_F(CopiedSends, BehindBindsOfAConnectionThatEndsBeforeTheyArePosted) {
  connect();
  OutgoingCall call;
  write(call.message, 0, 0, {{4096, true}});
  a->engine->submit(call);
  finish();
  EXPECT_EQ(call.status, CallStatus::kConnectionLost);
}

// The bytes of a Send are in use until it is posted.
TEST_F(CopiedSends, ACallThatIsCancelledBeforeItIsPostedEndsWhenItIs) {
  connect({.lend_ns = 0});
  b->handler = [](ServedCall&) {};
  OutgoingCall call;
  submit(call);
  a->engine->cancel(call);
  size_t before = a->ended.size();
  a->run();
  EXPECT_EQ(before, 0u);
  ASSERT_EQ(a->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kCancelled);
}

TEST_F(CopiedSends, EndWithTheirConnectionBeforeTheyArePosted) {
  connect();
  OutgoingCall call;
  submit(call);
  finish();
  EXPECT_EQ(call.status, CallStatus::kConnectionLost);
}

}  // namespace
}  // namespace rrdk::engine::test
