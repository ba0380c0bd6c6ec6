#include <numeric>

#include "pair.h"
#include "proto/codec.h"

namespace rrdk::engine::test {
namespace {

using fabric::Op;

class BackToBack : public Pair {
 protected:
  MemorySpan room(Buffer& buffer, uint32_t length) {
    buffer = memory->get(length + 64);
    std::fill_n(buffer.data(), buffer.capacity(), std::byte{0x5a});
    return buffer.first(length);
  }
};

// Tests that hold in every version.
class EachVersion : public BackToBack, public testing::WithParamInterface<proto::Wire> {
 protected:
  void connect(ConnectionOptions client = {}, ConnectionOptions server = {}, uint32_t reads = 16) {
    connect_in(GetParam(), client, server, reads);
  }
};

INSTANTIATE_TEST_SUITE_P(Wires, EachVersion, each_wire(), wire_name);

// Shows: V1-INLINE-01, V1-INLINE-02, V1-CHUNK-16, V1-MEM-04
TEST_P(EachVersion, NullCallIsOneSendEachWay) {
  connect();
  OutgoingCall call;
  call_once(call, {}, {});
  ASSERT_EQ(a->qp.log.size(), 1u);
  ASSERT_EQ(b->qp.log.size(), 1u);
  EXPECT_EQ(a->qp.log[0].op, Op::kSend);
  EXPECT_EQ(b->qp.log[0].op, Op::kSend);
}

// Shows: V1-INLINE-05, V1-INLINE-10, V1-LONG-01, V1-RC-02, V1-RC-06, EXP-15, EXP-29
TEST_F(BackToBack, OneByteBeyondTheThresholdIsALongMessage) {
  for (uint32_t threshold : {1024u, 2048u}) {
    ConnectionOptions options{.send_size = threshold, .receive_size = threshold};
    for (uint32_t item : {threshold - 28 - 16, threshold - 28 - 16 + 4}) {
      bool fits = 28 + 16 + item <= threshold;
      connect(options, options);
      OutgoingCall call;
      call.max_reply = 16 + item;
      call_once(call, {{item}}, {{item}});
      auto expected = fits ? proto::MessageType::kMsg : proto::MessageType::kNoMsg;
      EXPECT_EQ(sent_type(*a, 0), expected);
      EXPECT_EQ(sent_type(*b, 0), expected);
      for (const fabric::SendWr& wr : a->qp.log) {
        uint32_t length = 0;
        for (const MemorySpan& sge : wr.spans())
          length += sge.length;
        EXPECT_TRUE(wr.op != Op::kSend || length <= threshold);
        EXPECT_TRUE(wr.op != Op::kSend || !fits || length == threshold);
      }
      call.release();
      finish();
    }
  }
}

// Shows: V1-INLINE-06, EXP-13, PD-12, PD-14
TEST_F(BackToBack, WithoutPrivateDataNoSendIsAbove1024) {
  ConnectionOptions options{.role = Role::kRequester};
  a = std::make_unique<End>(options, *memory, *pool);
  options.role = Role::kResponder;
  b = std::make_unique<End>(options, *memory, *pool);
  a->qp.remote = &b->qp;
  b->qp.remote = &a->qp;
  a->engine->on_established({}, 16);
  b->engine->on_established({}, 16);
  OutgoingCall call;
  call.max_reply = 1024;
  call_once(call, {{1000}}, {{1000}});
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kNoMsg);
  EXPECT_EQ(sent_type(*b, 0), proto::MessageType::kNoMsg);
  EXPECT_EQ(b->qp.count(Op::kSendInvalidate), 0u);  // PD-27
}

// Shows: V1-CHUNK-03, V1-CHUNK-09, V1-RL-03, V1-RL-04, V1-RL-10, V1-PAD-02, V1-PAD-07, V1-MEM-06,
// V1-MEM-07, V1-MEM-15, V1-LONG-06
TEST_P(EachVersion, EligibleArgumentsMoveInReadChunks) {
  ConnectionOptions options;
  options.chunk_threshold = 4;
  connect(options);
  OutgoingCall call;
  call_once(call, {{5, true}, {8, true}, {3}, {3001, true}}, {});
  EXPECT_EQ(b->qp.count(Op::kRead), 3u);
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kMsg);
  for (const fabric::SendWr& wr : a->qp.log)
    EXPECT_TRUE(wr.op != Op::kBindKey || wr.rights == fabric::Rights::kRemoteRead);
  // The keys are bound before the Send and invalidated after the reply.
  EXPECT_EQ(a->qp.log[0].op, Op::kBindKey);
  EXPECT_EQ(a->qp.log[3].op, Op::kSend);
  // In draft-04 the call names one of them for the reply's Send to invalidate.
  uint32_t by_reply = GetParam() == proto::Wire::kDraft04 ? 1 : 0;
  EXPECT_EQ(a->qp.count(Op::kInvalidateKey), 3 - by_reply);
}

// Devices without memory windows make a key only when they know what it is for.
TEST_P(EachVersion, KeysGoByTheNamesThatTheDeviceGivesThem) {
  connect();
  a->qp.renames_keys = true;
  Buffer buffer;
  MemorySpan spans[] = {room(buffer, 3000)};
  ResultRoom rooms[] = {{spans}};
  OutgoingCall call;
  call.results = rooms;
  call_once(call, {{3001, true}}, {{3000, true}});
  EXPECT_EQ(a->qp.named.size(), 2u);
  uint32_t bound = 0;
  for (const fabric::SendWr& wr : a->qp.log) {
    if (wr.op != Op::kBindKey)
      continue;
    ++bound;
    ASSERT_TRUE(a->qp.named.contains(wr.key));
    EXPECT_EQ(a->qp.named[wr.key].data, wr.sges[0].data);
    EXPECT_EQ(a->qp.named[wr.key].length, wr.sges[0].length);
    EXPECT_EQ(a->qp.named[wr.key].rights, wr.rights);
  }
  EXPECT_EQ(bound, 2u);
}

// Shows: V1-WL-02, V1-WL-04, V1-WL-05, V1-WL-09, V1-WL-11, V1-WL-14, V1-WL-17, V1-PAD-09,
// V1-PAD-10, V1-PAD-12, V1-PAD-16, V1-CHUNK-14, V1-RC-15, EXP-08
TEST_P(EachVersion, ResultsArePlacedInOrderAndPadsAreNot) {
  connect();
  Buffer buffers[4];
  MemorySpan first[] = {room(buffers[0], 100), room(buffers[1], 100), room(buffers[2], 100)};
  MemorySpan third[] = {room(buffers[3], 5)};
  ResultRoom rooms[] = {{first}, {}, {third}};
  OutgoingCall call;
  call.results = rooms;
  call.max_reply = 9000;
  call_once(call, {}, {{150, true}, {9, true}, {5, true}, {6000}, {7, true}});
  EXPECT_EQ(sent_type(*b, 0), proto::MessageType::kNoMsg);
  ASSERT_EQ(call.placed.size(), 3u);
  EXPECT_EQ(call.placed[0].size(), 150u);
  EXPECT_EQ(call.placed[1].size(), 0u);
  EXPECT_EQ(call.placed[2].size(), 5u);
  for (uint32_t i = 50; i < 100; ++i)
    EXPECT_EQ(buffers[1].data()[i], std::byte{0x5a});
  EXPECT_EQ(buffers[2].data()[0], std::byte{0x5a});
  for (uint32_t i = 5; i < 8; ++i)
    EXPECT_EQ(buffers[3].data()[i], std::byte{0x5a}) << "a pad was written";
}

// Shows: V1-WL-15, V1-RC-07, V1-RC-08, V1-CREDIT-22, V1-ERR-14, V1-ERR-25
TEST_P(EachVersion, TooLittleRoomEndsInAChunkErrorAndTheConnectionLives) {
  connect();
  Buffer buffer;
  MemorySpan span = room(buffer, 100);
  ResultRoom small{{&span, 1}};
  OutgoingCall call;
  for (bool write_chunk : {true, false}) {
    serve({}, {{write_chunk ? 104u : 6000u, write_chunk}});
    call.results = {&small, write_chunk ? 1u : 0u};
    write(call.message, 0, 0, {});
    a->engine->submit(call);
    run();
    EXPECT_EQ(call.status, CallStatus::kChunkError);
    EXPECT_TRUE(a->qp.keys.empty());
  }
  EXPECT_EQ(b->engine->counters().refusals[Refusal::kNoReplyRoom], 2u);
  EXPECT_EQ(b->qp.count(Op::kWrite), 0u);
  a->ended.clear();
  call.results = {};
  call_once(call, {}, {});
}

// Shows: V1-LONG-02, V1-LONG-04, V1-LONG-05, V1-LONG-13, V1-LONG-14, V1-RC-13, V1-PAD-17, EXP-07
TEST_P(EachVersion, LongCallWithChunksAndLongReply) {
  connect();
  OutgoingCall call;
  call.max_reply = 80000;
  call_once(call, {{70000}, {5001, true}, {9}, {2001, true}}, {{70001}, {3, false, true}});
  EXPECT_EQ(sent_type(*a, 0), proto::MessageType::kNoMsg);
  EXPECT_EQ(a->engine->counters().long_calls, 1u);
  call.force_long = true;
  call_once(call, {{1}}, {{2}});
  EXPECT_EQ(sent_type(*a, 1), proto::MessageType::kNoMsg);
  EXPECT_EQ(sent_type(*b, 1), proto::MessageType::kMsg);  // V1-RC-04, V1-RC-05
}

// Shows: PD-26, PD-28, PD-30, PD-31, PD-33
TEST_F(BackToBack, RemoteInvalidationOfTheOnlyKey) {
  connect();
  OutgoingCall call;
  call_once(call, {{5000, true}}, {});
  EXPECT_EQ(b->qp.count(Op::kSendInvalidate), 1u);
  EXPECT_EQ(a->qp.count(Op::kInvalidateKey), 0u);
  call_once(call, {{5000, true}, {5000, true}}, {});
  EXPECT_EQ(b->qp.count(Op::kSendInvalidate), 1u);
  EXPECT_EQ(a->qp.count(Op::kInvalidateKey), 2u);
}

// Shows: V1-CREDIT-08, V1-CREDIT-10, V1-CREDIT-11, V1-CREDIT-15, V1-INLINE-03
TEST_F(BackToBack, OneCallUntilTheFirstGrantThenAsManyAsGranted) {
  ConnectionOptions options{.credits = 4};
  connect(options, options);
  std::vector<OutgoingCall> calls(10);
  for (OutgoingCall& call : calls) {
    write(call.message, 0, 0, {});
    a->engine->submit(call);
  }
  run();
  EXPECT_EQ(b->held.size(), 1u);
  auto answer = [&](size_t index) {
    ServedCall* call = b->held[index];
    b->held.erase(b->held.begin() + static_cast<long>(index));
    write(call->reply, call->xid, 1, {});
    b->engine->reply(*call);
    run();
  };
  answer(0);
  EXPECT_EQ(b->held.size(), 4u);
  EXPECT_EQ(a->engine->requester().window.in_flight(), 4u);
  answer(2);  // in any order
  EXPECT_EQ(b->held.size(), 4u);
  b->engine->responder().set_granted_credits(2);
  answer(0);
  EXPECT_EQ(b->held.size(), 3u);
  answer(0);
  EXPECT_EQ(b->held.size(), 2u);
  b->engine->responder().set_granted_credits(4);
  while (!b->held.empty())
    answer(0);
  EXPECT_EQ(a->ended.size(), 10u);
  EXPECT_EQ(b->engine->counters().refusals[Refusal::kCreditOverrun], 0u);
  for (size_t i = 0; i < calls.size(); ++i)
    EXPECT_EQ(calls[i].status, CallStatus::kOk);
}

// Shows: V1-CREDIT-25, V1-RL-02
TEST_P(EachVersion, ReadsInFlightStayWithinTheDepthThatWasNegotiated) {
  ConnectionOptions options;
  options.chunk_threshold = 4;
  connect(options, options, 2);
  std::vector<OutgoingCall> calls(6);
  std::vector<Item> arguments(5, Item{2000, true});
  serve(arguments, {});
  for (OutgoingCall& call : calls) {
    write(call.message, 0, 0, arguments);
    a->engine->submit(call);
  }
  run();
  EXPECT_EQ(a->ended.size(), 6u);
  EXPECT_EQ(b->qp.count(Op::kRead), 30u);
  EXPECT_LE(b->qp.max_reads_in_flight, 2u);
  EXPECT_GE(b->engine->counters().waits_read_depth, 1u);
}

// Chains longer than the send queue are posted piece by piece.
TEST_P(EachVersion, AShortSendQueueCarriesLongChains) {
  ConnectionOptions options{.send_wrs = 8, .max_sges = 2};
  options.chunk_threshold = 4;
  connect(options, options);
  std::vector<Buffer> buffers(16);
  std::vector<MemorySpan> spans;
  for (Buffer& buffer : buffers)
    spans.push_back(room(buffer, 10));
  ResultRoom rooms[] = {{spans}};
  OutgoingCall call;
  call.results = rooms;
  call.max_reply = 30000;
  std::vector<Item> items(12, Item{333, true});
  call_once(call, items, {{157, true}, {20, false, true}, {9000, false, true}, {3, false, true}});
  EXPECT_EQ(b->qp.count(Op::kRead), 12u);
}

// Shows: V1-CREDIT-23
TEST_P(EachVersion, ATimeoutFencesTheMemoryAndKeepsTheCredit) {
  ConnectionOptions options{.credits = 2, .lend_ns = 0, .starved_ns = 50};
  connect(options, options);
  OutgoingCall call;
  call_once(call, {}, {});
  b->handler = nullptr;
  call.deadline_ns = 100;
  write(call.message, 0, 0, {{5000, true}});
  a->engine->submit(call);
  run();
  ASSERT_EQ(b->held.size(), 1u);
  a->engine->on_tick(99);
  EXPECT_TRUE(a->ended.empty());
  a->engine->on_tick(100);
  EXPECT_TRUE(a->ended.empty()) << "ended before its key was invalidated";
  run();
  ASSERT_EQ(a->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kTimeout);
  EXPECT_EQ(a->qp.count(Op::kInvalidateKey), 1u);
  EXPECT_EQ(a->engine->requester().window.in_flight(), 1u);
  EXPECT_FALSE(a->engine->wants_disconnect());
  OutgoingCall second;
  second.deadline_ns = 200;
  write(second.message, 0, 0, {});
  a->engine->submit(second);
  run();
  a->engine->on_tick(200);
  EXPECT_EQ(second.status, CallStatus::kTimeout);
  EXPECT_FALSE(a->engine->wants_disconnect());
  a->engine->on_tick(250);
  EXPECT_TRUE(a->engine->wants_disconnect()) << "all credits are lost";
  // The answers come after all.
  b->engine->responder().set_granted_credits(2);
  for (ServedCall* held : std::exchange(b->held, {})) {
    write(held->reply, held->xid, 1, {});
    b->engine->reply(*held);
  }
  a->qp.expect_refusals = b->qp.expect_refusals = true;
  run();
  EXPECT_EQ(a->ended.size(), 2u);
}

TEST_P(EachVersion, CancelEndsOnceWhereverTheCallIs) {
  connect();
  std::vector<OutgoingCall> calls(3);
  for (OutgoingCall& call : calls)
    write(call.message, 0, 0, {{5000, true}});
  a->engine->submit(calls[0]);
  a->engine->submit(calls[1]);  // waits for the first grant
  a->engine->submit(calls[2]);
  a->engine->cancel(calls[1]);
  EXPECT_EQ(a->ended.size(), 1u);
  EXPECT_EQ(calls[1].status, CallStatus::kCancelled);
  run();
  a->engine->cancel(calls[0]);
  a->engine->cancel(calls[0]);
  run();
  EXPECT_EQ(a->ended.size(), 2u);
  EXPECT_EQ(calls[0].status, CallStatus::kCancelled);
  a->engine->cancel(calls[2]);
  EXPECT_EQ(a->ended.size(), 3u);
}

// Shows: V1-MEM-08, V1-MEM-14
TEST_P(EachVersion, AKeyThatCannotBeRevokedEndsTheConnectionBeforeTheCall) {
  ConnectionOptions plain{.sends_invalidations = false};
  connect(plain, plain);
  serve({{5000, true}}, {});
  OutgoingCall call;
  write(call.message, 0, 0, {{5000, true}});
  a->qp.fail_invalidate = 1;
  a->engine->submit(call);
  a->qp.expect_refusals = b->qp.expect_refusals = true;
  run();
  EXPECT_TRUE(a->engine->wants_disconnect());
  EXPECT_TRUE(a->ended.empty());
  a->disconnect();
  EXPECT_EQ(a->ended.size(), 1u);
  EXPECT_TRUE(a->qp.keys.empty());
}

// Shows: V1-ERR-18, V1-CREDIT-26
TEST_P(EachVersion, ALostConnectionEndsEveryCallOnce) {
  ConnectionOptions options{.credits = 4};
  connect(options, options);
  OutgoingCall warm_up;
  call_once(warm_up, {}, {});
  b->handler = nullptr;
  std::vector<OutgoingCall> calls(8);
  for (OutgoingCall& call : calls) {
    write(call.message, 0, 0, {{5000, true}});
    a->engine->submit(call);
  }
  run();
  EXPECT_EQ(b->held.size(), 4u);
  a->disconnect();
  EXPECT_EQ(a->ended.size(), 8u);
  for (OutgoingCall& call : calls)
    EXPECT_EQ(call.status, CallStatus::kConnectionLost);
  EXPECT_TRUE(a->engine->idle());
  OutgoingCall late;
  write(late.message, 0, 0, {});
  a->engine->submit(late);
  EXPECT_EQ(late.status, CallStatus::kConnectionLost);
  b->disconnect();
  EXPECT_FALSE(b->engine->idle()) << "the upper layer still has calls";
}

// Shows: V1-INLINE-12
TEST_P(EachVersion, UnsendableCallsEndLocally) {
  connect();
  Buffer buffer;
  MemorySpan span = room(buffer, 8);
  std::vector<MemorySpan> spans(97, span);
  ResultRoom too_many{spans};
  OutgoingCall call;
  call.results = {&too_many, 1};
  write(call.message, 0, 0, {});
  a->engine->submit(call);
  EXPECT_EQ(call.status, CallStatus::kTooLarge);
  call.results = {};
  call.max_reply = 1u << 30;
  a->engine->submit(call);
  EXPECT_EQ(call.status, CallStatus::kTooLarge);
  EXPECT_EQ(a->ended.size(), 2u);
  a->ended.clear();
  call.max_reply = 1024;
  a->qp.keys_left = 0;
  write(call.message, 0, 0, {{5000, true}});
  a->engine->submit(call);
  EXPECT_EQ(call.status, CallStatus::kNoMemory);
  a->qp.keys_left = 100;
  a->ended.clear();
  call_once(call, {{5000, true}}, {});
}

}  // namespace
}  // namespace rrdk::engine::test
