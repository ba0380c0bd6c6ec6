// The Read-Read model of RFC 5666 section 3.8, in its compatibility mode: replies that the
// requester reads, and RDMA_DONE.
#include "mem/loans.h"
#include "pair.h"
#include "scripted_test.h"

namespace rrdk::engine::test {
namespace {

constexpr Rfc5666Options kMode = {.enabled = true, .read_replies = true};

class ReadRead : public Pair {
 protected:
  void connect(Rfc5666Options client = kMode, Rfc5666Options server = kMode,
               uint32_t credits = 32) {
    Pair::connect({.credits = credits, .rfc5666 = client}, {.credits = credits, .rfc5666 = server});
    // As the answer to CONF_RDMA, which says that replies may be read.
    a->engine->take_config({4096, 0, 16});
  }
  void begin(OutgoingCall& call, const std::vector<Item>& arguments = {}) {
    write(call.message, 0, 0, arguments);
    call.max_reply = 100;
    a->engine->submit(call);
  }
  size_t dones() {
    size_t count = 0;
    for (const fabric::SendWr& wr : a->qp.log)
      count += wr.op == Op::kSend && xdr::load_u32(wr.sges[0].data + 12) == kDone;
    return count;
  }
};

// Shows: V1-DONE-04, V1-MEM-15
TEST_F(ReadRead, AReplyWithoutRoomIsReadAndAcknowledged) {
  for (const std::vector<Item>& results :
       std::vector<std::vector<Item>>{{{20000, true}},
                                      {{5001, true}, {10}, {7003, true}},
                                      {{4000}, {30000, true}},
                                      {{100, true}, {3000}, {2000, true}, {1}}}) {
    connect();
    serve({{9}}, results);
    OutgoingCall call;
    begin(call, {{9}});
    run();
    if (stream_length(results) - results[0].length < 4000) {
      ASSERT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
      check(Decoder(call.reply, call.placed), results);
    }
    EXPECT_EQ(dones(), a->engine->counters().rfc5666_dones);
    EXPECT_EQ(b->engine->counters().rfc5666_dones, a->engine->counters().rfc5666_dones);
    EXPECT_EQ(b->engine->counters().rfc5666_read_replies, 1u);
    for (const fabric::SendWr& wr : b->qp.log)
      EXPECT_TRUE(wr.op != Op::kBindKey || wr.rights == Rights::kRemoteRead);
    EXPECT_TRUE(b->qp.keys.empty()) << "a key outlived RDMA_DONE";
    EXPECT_EQ(b->engine->responder().calls(), 0u);
    EXPECT_EQ(b->qp.count(Op::kBindKey), b->qp.count(Op::kInvalidateKey));
    call.release();
    finish();
  }
}

// Shows: V1-DONE-09
TEST_F(ReadRead, NoDoneIsSentForReadChunksOfACall) {
  connect();
  serve({{20000, true}}, {{4}});
  OutgoingCall call;
  begin(call, {{20000, true}});
  run();
  ASSERT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(b->qp.count(Op::kRead), 1u);
  EXPECT_EQ(dones(), 0u);
}

TEST_F(ReadRead, ResultsInWriteChunksAndResultsThatAreReadGoTogether) {
  connect({.enabled = true}, {.enabled = true});
  std::vector<Item> results = {{6000, true}, {7}, {9001, true}};
  serve({}, results);
  OutgoingCall call;
  Buffer buffer = memory->get(6000);
  MemorySpan spans[] = {buffer.first(6000)};
  ResultRoom rooms[] = {{spans}};
  call.results = rooms;
  begin(call);
  run();
  ASSERT_EQ(call.status, CallStatus::kOk) << to_string(call.status);
  check(Decoder(call.reply, call.placed), results);
  EXPECT_EQ(b->qp.count(Op::kWrite), 1u);
  EXPECT_EQ(a->qp.count(Op::kRead), 1u);
  EXPECT_EQ(dones(), 1u);
}

// Replies for which no call waits are still acknowledged.
TEST_F(ReadRead, ACallThatIsCancelledWhileItIsReadLeavesNothingBehind) {
  connect();
  serve({}, {{20000, true}});
  OutgoingCall call;
  begin(call);
  while (a->qp.receive_completions.empty()) {
    a->qp.post(*a->engine);
    b->qp.post(*b->engine);
    ASSERT_TRUE(a->qp.execute_one() || b->qp.execute_one() ||
                b->qp.deliver(*b->engine, b->qp.receive_completions, 1));
  }
  a->qp.deliver(*a->engine, a->qp.receive_completions, 1);
  EXPECT_TRUE(a->ended.empty());
  a->engine->cancel(call);
  run();
  ASSERT_EQ(a->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kCancelled);
  EXPECT_EQ(dones(), 1u);
  EXPECT_TRUE(b->qp.keys.empty());
}

TEST_F(ReadRead, AConnectionMayEndAtAnyMoment) {
  for (int steps = 0; steps < 24; ++steps) {
    connect();
    serve({}, {{20000, true}});
    OutgoingCall call;
    begin(call);
    for (int i = 0; i < steps; ++i) {
      a->qp.post(*a->engine);
      b->qp.post(*b->engine);
      if (!a->qp.execute_one() && !b->qp.execute_one() &&
          !b->qp.deliver(*b->engine, b->qp.receive_completions, 1) &&
          !a->qp.deliver(*a->engine, a->qp.receive_completions, 1) &&
          !a->qp.deliver(*a->engine, a->qp.send_completions, 1))
        b->qp.deliver(*b->engine, b->qp.send_completions, 1);
    }
    finish();
    EXPECT_TRUE(call.status == CallStatus::kOk || call.status == CallStatus::kConnectionLost);
    call.release();
  }
}

// A storm of large replies through few credits: each RDMA_DONE finds a Receive, no grant is zero.
// Shows: V1-DONE-06, V1-DONE-07
TEST_F(ReadRead, DonesAreWithinTheCredits) {
  for (uint32_t credits : {1u, 2u, 5u}) {
    connect(kMode, kMode, credits);
    serve({}, {{6000, true}});
    std::vector<OutgoingCall> calls(40);
    for (OutgoingCall& call : calls)
      begin(call);
    run();
    EXPECT_EQ(a->ended.size(), calls.size());
    for (OutgoingCall& call : calls) {
      EXPECT_EQ(call.status, CallStatus::kOk);
      call.release();
    }
    EXPECT_EQ(dones(), calls.size());
    EXPECT_EQ(b->engine->counters().refusals[Refusal::kCreditOverrun], 0u);
    EXPECT_GE(b->engine->responder().grant.last(), 1u);
    EXPECT_EQ(a->engine->requester().window.in_flight(), 0u);
    finish();
  }
}

// Outside the mode a Read list in a reply is refused, and a reply without space for it is an error.
// Shows: V1-DONE-01, V1-RL-13
TEST_F(ReadRead, OnlyBothEndsInTheModeDoIt) {
  for (bool server : {false, true}) {
    connect(server ? Rfc5666Options{} : Rfc5666Options{.enabled = true},
            server ? kMode : Rfc5666Options{});
    serve({}, {{20000, true}});
    OutgoingCall call;
    begin(call);
    run();
    EXPECT_EQ(call.status, server ? CallStatus::kMalformedReply : CallStatus::kChunkError);
    EXPECT_EQ(dones(), 0u);
    EXPECT_EQ(b->engine->counters().rfc5666_read_replies, server ? 1u : 0u);
    EXPECT_EQ(a->engine->counters().refusals[Refusal::kReadListInReply], server ? 1u : 0u);
    call.release();
    finish();
  }
}

// A responder in the mode, and a peer that reads or acknowledges as it likes.
class Exposing : public ScriptedTest {
 protected:
  void connect(Rfc5666Options mode, mem::Borrower* borrower = nullptr) {
    mode.enabled = true;
    begin({.role = Role::kResponder, .credits = 8, .rfc5666 = mode}, {true, 4096, 4096}, 16,
          {.borrower = borrower});
    end->handler = [this, engine = end->engine.get()](ServedCall& call) {
      Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
      e.put_u32(call.xid);
      e.put_u32(1);
      Buffer buffer = memory->get(8000);
      std::ranges::copy(pattern(8000, call.xid), buffer.data());
      e.put_item(std::move(buffer), 8000, Ddp::kEligible);
      e.finish();
      call.on_ended = [](void* count) { ++*static_cast<uint32_t*>(count); };
      call.user = &released;
      engine->reply(call);
    };
  }
  void call(uint32_t xid) { peer_side->say(Wire{xid, 1, 8, kMsg, 0, 0, 0, xid, 0}); }
  void done(uint32_t xid) { peer_side->say(Wire{xid, 1, 8, kDone}); }
  // The part of a reply's item that the peer can read now.
  std::byte* look(const Bytes& reply, Rights rights = Rights::kRemoteRead, uint32_t length = 8000) {
    uint64_t address = uint64_t{word(reply, 8)} << 32 | word(reply, 9);
    return end->qp.access(word(reply, 6), address, length, rights);
  }
  void TearDown() override {
    ScriptedTest::TearDown();
    EXPECT_EQ(released, replies);
  }

  uint32_t released = 0;
  uint32_t replies = 0;
};

// Shows: V1-DONE-04, V1-DONE-08
TEST_F(Exposing, AnItemIsReadableUntilDoneAndNoLonger) {
  connect({});
  replies = 1;
  call(7);
  Bytes reply = peer_side->take().at(0);
  EXPECT_EQ(word(reply, 3), kMsg);
  EXPECT_EQ(word(reply, 4), 1u);   // a Read list,
  EXPECT_EQ(word(reply, 5), 12u);  // its item behind XID, msg_type and count,
  EXPECT_EQ(word(reply, 7), 8000u);
  EXPECT_EQ(word(reply, 10), 0u);  // and no more
  ASSERT_NE(look(reply), nullptr);
  EXPECT_TRUE(std::ranges::equal(std::span(look(reply), 8000), pattern(8000, 7)));
  EXPECT_EQ(look(reply, Rights::kRemoteWrite), nullptr);
  EXPECT_EQ(look(reply, Rights::kRemoteRead, 8001), nullptr);
  EXPECT_EQ(released, 0u);
  for (uint32_t wrong : {8u, 0u, UINT32_MAX}) {
    done(wrong);
    EXPECT_NE(look(reply), nullptr) << "RDMA_DONE for another XID";
  }
  EXPECT_EQ(counters().refusals[Refusal::kDone], 3u);
  done(7);
  EXPECT_EQ(look(reply), nullptr);
  EXPECT_EQ(released, 1u);
  EXPECT_EQ(end->engine->responder().calls(), 0u);
  done(7);  // once more
  EXPECT_EQ(counters().refusals[Refusal::kDone], 4u);
  EXPECT_EQ(counters().rfc5666_dones, 1u);
  EXPECT_TRUE(end->qp.keys.empty());
}

// Shows: V1-DONE-05, V1-DONE-08
TEST_F(Exposing, APeerThatNeverAcknowledgesIsEnded) {
  connect({.done_wait_ns = 1000});
  replies = 2;
  call(1);
  call(2);
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_TRUE(end->engine->busy()) << "needs ticks";
  end->engine->on_tick(10);
  end->engine->on_tick(1009);
  EXPECT_FALSE(end->engine->wants_disconnect());
  end->engine->on_tick(1010);
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_EQ(end->engine->ending().refusal, Refusal::kNoDone);
  EXPECT_EQ(counters().refusals[Refusal::kNoDone], 1u);
  end->disconnect();
  EXPECT_EQ(look(sent[0]), nullptr);
  EXPECT_TRUE(end->qp.keys.empty());
}

// Many clients that read nothing: together they cannot have more than that exposed, and one more
// client always finds something left.
// Shows: SEC-09, SEC-18
TEST_F(Exposing, ManyPeersTogetherAreBoundedToo) {
  constexpr uint64_t kTotal = 40000;
  std::vector<mem::BorrowerRef> borrowers;
  std::vector<std::unique_ptr<End>> ends;
  std::vector<std::unique_ptr<Script>> scripts;
  auto connect_another = [&](mem::Borrower& borrower) -> Script& {
    connect({.total_exposed_bytes = kTotal}, &borrower);
    ends.push_back(std::move(end));
    return *scripts.emplace_back(std::move(peer_side));
  };
  auto exposed = [&] {
    uint64_t bytes = 0;
    for (auto& each : ends)
      bytes += 8000 * each->engine->counters().rfc5666_read_replies;
    return bytes;
  };
  for (uint32_t peer = 0; peer < 5; ++peer) {
    borrowers.push_back(mem::Borrower::create(*memory));
    for (int connection = 0; connection < 2; ++connection) {
      Script& script = connect_another(*borrowers.back());
      for (uint32_t xid : {7u, 8u})
        script.say(Wire{xid, 1, 8, kMsg, 0, 0, 0, xid, 0});
    }
    EXPECT_EQ(exposed(), 8000 * std::min(2 + peer, 5u)) << peer;
  }
  EXPECT_EQ(ends[0]->engine->counters().rfc5666_read_replies, 2u);
  // Others get what one gives back.
  scripts[0]->say(Wire{7, 1, 8, kDone});
  ends.back()->engine->on_tick(1);
  ends.back()->run();
  EXPECT_EQ(exposed(), 8000u * 6);
  replies = 20;
  for (auto& each : ends) {
    each->disconnect();
    EXPECT_TRUE(each->engine->idle());
  }
  ends.clear();
}

// A reply's time starts with that reply, not with one that was acknowledged before.
TEST_F(Exposing, TheTimeBeginsAnewWithEachReply) {
  connect({.exposed_replies = 1, .done_wait_ns = 1000});
  replies = 3;
  for (uint32_t i = 0; i < 3; ++i) {
    call(7 + i);
    peer_side->take();
    end->engine->on_tick(10 + i * 900);
    end->engine->on_tick(900 + i * 900);
    EXPECT_FALSE(end->engine->wants_disconnect()) << i;
    done(7 + i);
  }
  EXPECT_EQ(counters().rfc5666_dones, 3u);
}

// The bounds on exposed memory hold whatever the peer does; replies beyond them wait for RDMA_DONE.
// Shows: V1-DONE-07, V1-DONE-08
TEST_F(Exposing, RepliesBeyondTheBoundsWait) {
  for (bool by_bytes : {false, true}) {
    released = 0;
    connect(by_bytes ? Rfc5666Options{.exposed_bytes = 17000}
                     : Rfc5666Options{.exposed_replies = 2});
    replies = 5;
    for (uint32_t xid = 1; xid <= 5; ++xid)
      call(xid);
    std::vector<Bytes> sent = peer_side->take();
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(end->qp.bound_keys(), 2u);
    for (const Bytes& reply : sent)
      EXPECT_GE(word(reply, 2), 1u) << "the grant";
    for (uint32_t xid = 1; xid <= 5; ++xid) {
      done(xid);
      EXPECT_LE(end->qp.bound_keys(), 2u);
    }
    EXPECT_EQ(peer_side->take().size(), 3u);
    EXPECT_EQ(end->qp.bound_keys(), 0u);
    EXPECT_EQ(released, 5u);
    end->disconnect();
    end.reset();
  }
}

// Shows: V1-DONE-07
TEST_F(Exposing, OutstandingDonesLowerTheGrantButNeverToZero) {
  connect({});
  replies = 8;
  std::vector<uint32_t> grants;
  for (uint32_t xid = 1; xid <= 8; ++xid) {
    call(xid);
    grants.push_back(word(peer_side->take().at(0), 2));
  }
  EXPECT_TRUE(std::ranges::is_sorted(grants, std::greater<>()));
  EXPECT_EQ(grants.front(), 7u);
  EXPECT_EQ(grants.back(), 1u);
  EXPECT_GE(end->qp.receives.size(), 8u) << "an RDMA_DONE each, and calls beside";
  for (uint32_t xid = 1; xid <= 8; ++xid)
    done(xid);
  replies = 9;
  call(9);
  done(9);
  EXPECT_EQ(word(peer_side->take().at(0), 2), 7u);
}

TEST_F(Exposing, AServerThatServesNoReadsExposesNothing) {
  connect({.max_reads = 0});
  replies = 1;
  call(7);
  EXPECT_EQ(word(peer_side->take().at(0), 3), kError);
  EXPECT_TRUE(end->qp.used_keys.empty());
}

// A requester in the mode, and a scripted responder.
class Reading : public ScriptedTest {
 protected:
  void connect(uint64_t max_reply = 1 << 20, uint32_t reads = 4) {
    begin({.role = Role::kRequester, .credits = 8, .max_reply = max_reply, .rfc5666 = kMode},
          {true, 4096, 4096}, reads);
    end->engine->take_config({4096, 0, 16});
    Encoder e(call.message, *memory, 900, 8u << 20);
    e.put_u32(0);
    e.put_u32(0);
    e.finish();
    call.max_reply = 100;
    end->engine->submit(call);
    end->run();
    xid = word(peer_side->take().at(0), 0);
  }
  // A reply with one Read chunk of these segments at Position 12.
  Wire reply(std::initializer_list<std::pair<uint32_t, uint32_t>> segments, uint32_t count) {
    Wire wire{xid, 1, 8, kMsg};
    for (auto [key, length] : segments) {
      wire.add({1, 12});
      peer_side->segment(wire, key, length);
    }
    return wire.add({0, 0, 0, xid, 1, count});
  }

  // The only item of the reply.
  Bytes item_read() {
    Decoder d(call.reply);
    d.get_u64();
    ItemView item = d.get_item(UINT32_MAX);
    EXPECT_TRUE(d.at_end());
    Bytes got(item.size());
    item.copy_to(got.data());
    return got;
  }

  void TearDown() override {
    if (end != nullptr)
      end->disconnect();
    call.release();
    ScriptedTest::TearDown();
  }

  OutgoingCall call;
  uint32_t xid = 0;
};

TEST_F(Reading, SegmentsArePutTogetherAndThenDoneIsSaid) {
  connect();
  Bytes data = pattern(70001, 3);
  auto key = peer_side->expose(Bytes(data.begin(), data.begin() + 30000), Rights::kRemoteRead);
  auto more = peer_side->expose(Bytes(data.begin() + 30000, data.end()), Rights::kRemoteRead);
  peer_side->say(reply({{key, 30000}, {more, 40001}}, 70001));
  ASSERT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(item_read(), data);
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].size(), 16u);
  EXPECT_EQ(word(sent[0], 0), xid);
  EXPECT_EQ(word(sent[0], 3), kDone);
}

// Empty segments name nothing: no Read is made for them, whatever their place and handle, and none
// delays the others.
TEST_F(Reading, EmptySegmentsAreSkipped) {
  for (uint32_t reads : {1u, 4u}) {
    connect(1 << 20, reads);
    Bytes data = pattern(70001, 3);
    auto key = peer_side->expose(Bytes(data.begin(), data.begin() + 30000), Rights::kRemoteRead);
    auto none = peer_side->expose({}, Rights::kRemoteWrite);
    auto more = peer_side->expose(Bytes(data.begin() + 30000, data.end()), Rights::kRemoteRead);
    peer_side->say(
        reply({{none, 0}, {key, 30000}, {none, 0}, {none, 0}, {more, 40001}, {none, 0}}, 70001));
    ASSERT_EQ(end->ended.size(), 1u);
    EXPECT_EQ(call.status, CallStatus::kOk);
    EXPECT_EQ(item_read(), data);
    EXPECT_EQ(end->qp.count(Op::kRead), 2u);
    EXPECT_EQ(counters().rfc5666_dones, 1u);
    call.release();
    end->disconnect();
    end.reset();
  }
}

TEST_F(Reading, AChunkOfEmptySegmentsIsAnEmptyItem) {
  connect();
  auto none = peer_side->expose({}, Rights::kRemoteWrite);
  peer_side->say(reply({{none, 0}, {none, 0}}, 0));
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
  Decoder d(call.reply);
  d.get_u64();
  EXPECT_TRUE(d.get_item(UINT32_MAX).empty());
  EXPECT_TRUE(d.at_end());
  EXPECT_EQ(end->qp.count(Op::kRead), 0u);
  EXPECT_EQ(counters().rfc5666_dones, 1u);
}

TEST_F(Reading, AReadListThatIsTooMuchIsRefused) {
  for (bool by_bytes : {false, true}) {
    connect(65536);
    auto key = peer_side->expose(Bytes(100), Rights::kRemoteRead);
    Wire wire{xid, 1, 8, kMsg};
    for (uint32_t i = 0; i != (by_bytes ? 1 : 100); ++i) {
      wire.add({1, 12});
      peer_side->segment(wire, key, by_bytes ? 70000 : 4);
    }
    wire.add({0, 0, 0, xid, 1, 400});
    peer_side->say(wire);
    ASSERT_EQ(end->ended.size(), 1u);
    EXPECT_EQ(call.status, CallStatus::kMalformedReply);
    EXPECT_EQ(end->qp.count(Op::kRead), 0u);
    EXPECT_FALSE(end->engine->wants_disconnect());
    call.release();
    end->disconnect();
    end.reset();
  }
}

TEST_F(Reading, AKeyThatIsNotGoodEndsTheConnectionAndTheCall) {
  connect();
  end->qp.expect_refusals = true;
  auto key = peer_side->expose(Bytes(100), Rights::kRemoteRead);
  peer_side->say(reply({{key, 200}}, 200));
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_EQ(counters().refusals[Refusal::kAccessRefused], 1u);
  end->disconnect();
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kConnectionLost);
}

TEST_F(Reading, ASecondReplyWhileReadingChangesNothing) {
  connect();
  auto key = peer_side->expose(pattern(5000, 1), Rights::kRemoteRead);
  Bytes message = reply({{key, 5000}}, 5000);
  EXPECT_TRUE(end->qp.receive(message, {}));
  EXPECT_TRUE(end->qp.receive(message, {}));
  end->run();
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kOk);
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 1u);
  EXPECT_EQ(counters().rfc5666_dones, 1u);
}

}  // namespace
}  // namespace rrdk::engine::test
