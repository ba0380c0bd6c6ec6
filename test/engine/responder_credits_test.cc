// The responder against a scripted requester: what it grants, and how it works without memory.
#include "engine/credits.h"
#include "engine/receive_queue.h"
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

// Shows: V1-CREDIT-04, V1-CREDIT-05, V1-CREDIT-06, V1-CREDIT-17, V1-CREDIT-18, V1-CREDIT-19
TEST_F(ResponderTest, GrantsAreOursAndNeverZero) {
  connect({.credits = 8});
  uint32_t expected[][2] = {{0, 1}, {1, 1}, {5, 5}, {8, 8}, {1000, 8}, {0xffffffff, 8}};
  for (auto& [asked, granted] : expected) {
    peer_side->say(Wire{7, 1, asked, kMsg, 0, 0, 0, 7, 0});
    EXPECT_EQ(word(only_answer(), 2), granted);
  }
  for (uint32_t configured : {3u, 0u, 100u}) {
    end->engine->responder().set_granted_credits(configured);
    peer_side->say(Wire{7, 1, 8, kMsg, 0, 0, 0, 7, 0});
    EXPECT_EQ(word(only_answer(), 2), std::clamp(configured, 1u, 8u));
  }
}

// Shows: V1-CREDIT-16, V1-CREDIT-12
TEST_F(ResponderTest, CallsBeyondTheGrantAreServedAndCountedUpToALimit) {
  connect({.credits = 4, .overrun_limit = 2});
  end->handler = nullptr;
  auto ask = [&] { peer_side->say(Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 0}); };
  ask();
  EXPECT_EQ(counters().refusals[Refusal::kCreditOverrun], 0u);
  ask();
  ask();
  EXPECT_EQ(end->held.size(), 3u);
  EXPECT_EQ(counters().refusals[Refusal::kCreditOverrun], 2u);
  EXPECT_FALSE(end->engine->wants_disconnect());
  ask();
  EXPECT_TRUE(end->engine->wants_disconnect());
}

// Each call that arrives leaves fewer calls that may still come. Receives that are no longer due
// may be used for replies to our own calls (Link::receives_for_replies()).
TEST(Grants, CallsThatCameAreNotDueAnyMore) {
  Grant grant(8);
  EXPECT_EQ(grant.due(), 1u);
  grant.on_call(8);
  EXPECT_EQ(grant.due(), 0u);
  grant.on_answer(8);
  EXPECT_EQ(grant.due(), 8u);
  for (uint32_t left : {7u, 6u, 5u}) {
    grant.on_call(8);
    EXPECT_EQ(grant.due(), left);
  }
}

// Each of two lower grants counts once the peer knows about that grant, not as early as the first.
TEST(Grants, ALowerGrantAfterALowerOneIsNotABreachAtOnce) {
  Grant grant(6);
  uint32_t asked = 6;
  auto call = [&] { return grant.on_call(asked); };
  EXPECT_FALSE(call());
  EXPECT_EQ(grant.on_answer(6), 6u);
  // The client asks for less, and is granted less in five answers.
  asked = 4;
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(call());
    EXPECT_EQ(grant.on_answer(6), 4u);
  }
  // Three calls are on their way, as that grant allows, when it asks for one.
  asked = 1;
  EXPECT_FALSE(call());
  EXPECT_EQ(grant.on_answer(6), 1u);
  for (int i = 0; i < 3; ++i)
    EXPECT_FALSE(call()) << i;
  for (int i = 0; i < 3; ++i)
    grant.on_answer(6);
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(call());
    EXPECT_EQ(grant.on_answer(6), 1u);
  }
  EXPECT_FALSE(call());
  EXPECT_TRUE(call());
}

// Calls on their way when the grant becomes smaller are no overruns, and do not make later calls
// look like overruns. Calls beyond the smaller grant are.
TEST(Grants, ADipMakesNoOverruns) {
  Grant grant(8);
  auto call = [&](uint32_t asked = 8) { return grant.on_call(asked); };
  EXPECT_FALSE(call());
  EXPECT_EQ(grant.on_answer(8), 8u);
  for (int i = 0; i < 8; ++i)
    EXPECT_FALSE(call()) << i;
  // Short dips, while all of these are outstanding: the peer learns of each with its answer and has
  // called again before. However many there are, none lasts.
  for (int dips = 0; dips < 20; ++dips) {
    for (uint32_t credits : {2u, 8u}) {
      grant.configure(credits);
      EXPECT_EQ(grant.on_answer(8), credits);
      EXPECT_FALSE(call()) << dips << ", " << credits;
    }
  }
  // A long dip: it counts once it was carried by as many answers as calls were on their way.
  grant.configure(2);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(grant.on_answer(8), 2u);
  EXPECT_EQ(grant.unanswered(), 0u);
  EXPECT_FALSE(call());
  EXPECT_FALSE(call());
  EXPECT_TRUE(call());
}

// A call's Receive counts again when its reply says so, even if the results lie elsewhere.
TEST_F(ResponderTest, ResultsByReferenceCostNoCredit) {
  connect({.credits = 2});
  Buffer results = memory->get(4096);
  end->handler = [&](ServedCall& call) {
    Encoder e(call.reply, *memory, 64, 1024);
    e.put_u32(call.xid);
    e.put_u32(1);
    e.put_item(results.first(8), Ddp::kNo);
    e.finish();
    end->engine->reply(call);
  };
  for (int i = 0; i < 3; ++i) {
    peer_side->say(Wire{7, 1, 2, kMsg, 0, 0, 0, 7, 0});
    EXPECT_EQ(word(only_answer(), 2), 2u);
  }
}

// Results that refer to the arguments stay unchanged until the reply is sent.
TEST_F(ResponderTest, ResultsMayBeArguments) {
  connect({.credits = 2});
  end->handler = [&](ServedCall& call) {
    ItemView words = Decoder(call.message).get_bytes(16);
    Encoder e(call.reply, *memory, 64, 1024);
    e.put_u32(call.xid);
    e.put_u32(1);
    // The engine's own Receive, as a handler sees it.
    e.put_item({const_cast<std::byte*>(words.data()) + 8, 8, memory->get(64).region()}, Ddp::kNo);
    e.finish();
    end->engine->reply(call);
  };
  peer_side->say(Wire{7, 1, 2, kMsg, 0, 0, 0, 7, 0, 0xabcd, 0x1234});
  Bytes answer = only_answer();
  EXPECT_EQ(word(answer, 10), 0xabcdu);
  EXPECT_EQ(word(answer, 11), 0x1234u);
}

// After a burst, finished calls keep no more than a few buffers.
TEST_F(ResponderTest, AFewBuffersOfRepliesAreKept) {
  connect({.credits = 200});
  auto available = [&] { return memory->audit()[0].available; };
  end->handler = nullptr;
  uint32_t before = available();
  for (uint32_t i = 0; i < 200; ++i)
    peer_side->say(Wire{i, 1, 200, kMsg, 0, 0, 0, i, 0});
  for (ServedCall* call : std::exchange(end->held, {})) {
    Encoder e(call->reply, *memory, 64, 1024);
    e.put_u32(call->xid);
    e.put_u32(1);
    e.finish();
    end->engine->reply(*call);
  }
  end->run();
  peer_side->take();
  uint32_t slabs = pool->capacity() / 16;
  EXPECT_GE(available() + 64 + slabs, before);
}

// A peer that calls and never takes replies is held back, and does not use up the pool of calls.
TEST_F(ResponderTest, UnsentRepliesAreBounded) {
  connect({.credits = 4, .overrun_limit = 1000});
  uint32_t taken = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    end->qp.post(*end->engine);  // nothing is executed
    if (!end->qp.receive(Wire{7, 1, 4, 9, 0, 0, 0, 7, 0}, {}))
      break;
    end->qp.deliver(*end->engine, end->qp.receive_completions, 1);
    ++taken;
  }
  EXPECT_EQ(taken, 12u);  // twice the credits in work, and the Receives full
  end->run();
  EXPECT_EQ(peer_side->take().size(), 12u);
  expect_alive();
}

class ScarceMemory : public ResponderTest {
 protected:
  ScarceMemory() : ResponderTest({{4096, 6}, {16384, 2}}) {}
};

// Shows: V1-CREDIT-13, V1-CREDIT-14, EXP-16, EXP-17
TEST_F(ScarceMemory, GrantsAreBackedByReceivesEvenWithoutBuffers) {
  connect({.credits = 4, .receive_size = 4096});
  end->handler = nullptr;
  std::vector<Buffer> hoard;
  for (uint32_t size : {16384u, 4096u})
    while (Buffer buffer = memory->get(size))
      hoard.push_back(std::move(buffer));
  hoard.pop_back();  // one, for the pool of calls
  for (uint32_t i = 0; i < 20; ++i) {
    peer_side->say(Wire{i, 1, 4, kMsg, 0, 0, 0, i, 0});
    ASSERT_EQ(end->held.size(), 1u);
    ServedCall* call = std::exchange(end->held, {})[0];
    hoard.clear();  // the upper layer needs a buffer
    Encoder e(call->reply, *memory, 64, 1024);
    e.put_u32(call->xid);
    e.put_u32(1);
    e.finish();
    while (Buffer buffer = memory->get(4096))
      hoard.push_back(std::move(buffer));
    end->engine->reply(*call);
    end->qp.post(*end->engine);
    end->run();
    uint32_t granted = word(only_answer(), 2);
    EXPECT_LE(granted, end->qp.receives.size());
    EXPECT_GE(granted, 1u);
  }
}

// Idle connections must not use up the buffers that large calls need.
TEST_F(ScarceMemory, ReceivesAreOfTheClassThatFitsThem) {
  End idle({.role = Role::kResponder, .credits = 6}, *memory, *pool);
  EXPECT_EQ(memory->audit_fitting(4096).available, 0u);
  EXPECT_EQ(memory->audit_fitting(16384).available, 2u);
  FakeQueuePair qp;
  const SharedOptions options({.role = Role::kResponder, .credits = 1});
  Connection another(options, {.client_share = &idle.share}, *memory, *pool, qp, idle);
  EXPECT_FALSE(another.prepare_receives());
  EXPECT_EQ(memory->audit_fitting(16384).available, 2u);
  another.on_disconnected();
  idle.disconnect();
}

// Shows: V1-LONG-16
TEST_F(ScarceMemory, ACallWaitsForTheBuffersOfItsChunks) {
  connect({.credits = 4, .receive_size = 1024});
  uint32_t key = peer_side->expose(pattern(9000, 2), Rights::kRemoteRead);
  Buffer hoard[2] = {memory->get(16384), memory->get(16384)};
  Wire call{7, 1, 4, kMsg};
  peer_side->segment(call.add({1, 8}), key, 9000).add({0, 0, 0, 7, 0});
  results({});
  peer_side->say(call);
  EXPECT_EQ(end->calls, 0u);
  EXPECT_TRUE(end->engine->busy());
  EXPECT_EQ(counters().waits_buffer, 1u);
  hoard[0].reset();
  end->engine->on_tick(1);
  end->run();
  EXPECT_EQ(end->calls, 1u);
  only_answer();
}

// A call that needs more buffers than exist is refused, and the calls behind it are served.
// Shows: V1-ERR-25
TEST_F(ScarceMemory, ACallThatWaitsForTooManyBuffersIsRefused) {
  connect({.credits = 4, .receive_size = 1024, .buffer_wait_ns = 1000});
  uint32_t key = peer_side->expose(pattern(40000, 2), Rights::kRemoteRead);
  results({});
  for (uint32_t xid : {7u, 8u}) {
    Wire call{xid, 1, 4, kMsg};
    peer_side->segment(call.add({1, 8}), key, xid == 7 ? 40000 : 9000).add({0, 0, 0, xid, 0});
    peer_side->say(call);
  }
  end->engine->on_tick(5000);
  end->engine->on_tick(5999);
  end->run();
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().refusals[Refusal::kNoBuffers], 0u);
  end->engine->on_tick(6000);
  end->run();
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(word(sent[0], 0), 7u);
  EXPECT_EQ(word(sent[0], 3), kError);
  EXPECT_EQ(word(sent[0], 4), kErrChunk);
  EXPECT_EQ(word(sent[1], 0), 8u);
  EXPECT_EQ(word(sent[1], 3), kMsg);
  EXPECT_EQ(counters().refusals[Refusal::kNoBuffers], 1u);
}

// A header beyond the space that each call has takes a buffer; without one the reply waits.
TEST_F(ScarceMemory, AReplyWaitsForItsHeadersBuffer) {
  connect({.credits = 2, .receive_size = 1024});
  uint32_t key = peer_side->expose(Bytes(400), Rights::kRemoteWrite);
  end->handler = nullptr;
  Wire call{7, 1, 4, kMsg, 0, 1, 20};
  for (uint32_t i = 0; i < 20; ++i)
    peer_side->segment(call, key, 10, 10 * i);
  peer_side->say(call.add({0, 0, 7, 0}));
  ASSERT_EQ(end->held.size(), 1u);
  ServedCall& held = *std::exchange(end->held, {})[0];
  Encoder e(held.reply, *memory, 64, 1024);
  e.put_u32(held.xid);
  e.put_u32(1);
  e.finish();
  std::vector<Buffer> hoard;
  while (Buffer buffer = memory->get(1024))
    hoard.push_back(std::move(buffer));
  end->engine->reply(held);
  end->run();
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_TRUE(end->engine->busy());
  hoard.pop_back();
  end->engine->on_tick(uint64_t{1} << 40);  // however long it has waited
  end->run();
  Bytes answer = only_answer();
  ASSERT_EQ(answer.size(), 28u + 8 + 320 + 8);
  for (uint32_t i = 0; i < 20; ++i)
    EXPECT_EQ(word(answer, 7 + 4 * i + 1), 0u);
}

// The time that a reply waits for a buffer counts from the start of this wait, however long its
// call has waited for others.
TEST_F(ScarceMemory, TheWaitsOfOneCallAreApart) {
  connect({.credits = 2, .receive_size = 1024, .buffer_wait_ns = 1000});
  uint32_t arguments = peer_side->expose(pattern(9000, 2), Rights::kRemoteRead);
  uint32_t room = peer_side->expose(Bytes(400), Rights::kRemoteWrite);
  end->handler = nullptr;
  auto add_room = [&](Wire& call, uint32_t xid) {
    call.add({1, 20});
    for (uint32_t i = 0; i < 20; ++i)
      peer_side->segment(call, room, 10, 10 * i);
    call.add({0, 0, xid, 0});
  };
  Wire first{8, 1, 4, kMsg, 0};
  add_room(first, 8);
  peer_side->say(first);
  ASSERT_EQ(end->held.size(), 1u);
  std::vector<Buffer> hoard;
  for (int i = 0; i < 2; ++i)
    hoard.push_back(memory->get(16384));
  Wire second{7, 1, 4, kMsg};
  peer_side->segment(second.add({1, 8}), arguments, 9000).add({0});
  add_room(second, 7);
  peer_side->say(second);
  end->engine->on_tick(1);  // it waits for its arguments' buffers
  hoard.clear();
  end->engine->on_tick(2);
  end->run();
  ASSERT_EQ(end->held.size(), 2u);
  std::vector<ServedCall*> held = std::exchange(end->held, {});
  for (ServedCall* call : held) {
    Encoder e(call->reply, *memory, 64, 1024);
    e.put_u32(call->xid);
    e.put_u32(1);
    e.finish();
  }
  auto take_all = [&] {
    while (Buffer buffer = memory->get(1024))
      hoard.push_back(std::move(buffer));
  };
  for (ServedCall* call : held) {
    take_all();
    end->engine->reply(*call);
    take_all();
  }
  // A buffer for the first reply, whose Send keeps it. Now the second reply is at the head of its
  // queue.
  hoard.pop_back();
  end->engine->on_tick(500);
  end->engine->on_tick(1001);
  EXPECT_EQ(counters().refusals[Refusal::kNoBuffers], 0u);
  end->engine->on_tick(1499);
  EXPECT_EQ(counters().refusals[Refusal::kNoBuffers], 0u);
  end->engine->on_tick(1500);
  EXPECT_EQ(counters().refusals[Refusal::kNoBuffers], 1u);
}

// After Receives have grown, none is posted with a buffer from before, which would be too small.
TEST_F(ScarceMemory, ABufferFromBeforeTheGrowthIsNotPosted) {
  ReceiveQueue queue(*memory, 2, 4096, ReceiveQueue::Users::kOne);
  ASSERT_TRUE(queue.post_more(2));
  std::vector<ReceiveSlot*> slots;
  for (const fabric::ReceiveWr& wr : queue.list())
    slots.push_back(static_cast<ReceiveSlot*>(WorkTag::of(wr.wr_id).owner));
  queue.list().clear();
  queue.resize(16384);
  Buffer used;
  for (ReceiveSlot* slot : slots) {
    queue.on_completion(*slot);
    used = std::move(slot->buffer);  // with a call that is answered later
    ASSERT_TRUE(queue.refill(*slot));
  }
  ASSERT_TRUE(queue.grown());
  queue.keep_size();
  // No large buffer remains for a slot.
  queue.list().clear();
  queue.on_completion(*slots[0]);
  Buffer large = std::move(slots[0]->buffer);
  EXPECT_FALSE(queue.refill(*slots[0]));
  queue.give(std::move(used));
  EXPECT_TRUE(queue.has_bare());
  EXPECT_TRUE(queue.list().empty());
  queue.give(std::move(large));
  ASSERT_FALSE(queue.list().empty());
  EXPECT_EQ((*queue.list().begin()).buffer.length, 16384u);
}

}  // namespace
}  // namespace rrdk::engine::test
