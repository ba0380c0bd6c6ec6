// The responder against a scripted requester: how calls and connections end.
#include "responder_test.h"

namespace rrdk::engine::test {
namespace {

// Shows: V1-ERR-20
TEST_F(ResponderTest, ADroppedCallEndsTheConnection) {
  connect();
  end->handler = nullptr;
  peer_side->say(Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 0});
  end->engine->drop(*end->held.at(0));
  end->held.clear();
  EXPECT_TRUE(end->engine->wants_disconnect());
}

// Shows: V1-ERR-18, V1-WL-17
TEST_F(ResponderTest, ARefusedWriteEndsTheConnection) {
  connect();
  results({100});
  end->qp.expect_refusals = true;
  peer_side->say(Wire{7, 1, 4, kMsg, 0, 1, 1, 4711, 100, 0, 0, 0, 0, 7, 0});
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_TRUE(peer_side->take().empty());
}

// Shows: V1-INLINE-04, PD-42
TEST_F(ResponderTest, AFailedReceiveEndsTheConnection) {
  connect();
  fabric::Completion c{end->qp.receives.front().wr_id,
                       nullptr,
                       Op::kReceive,
                       fabric::WcStatus::kLocalLength,
                       false,
                       0,
                       0};
  end->qp.receives.pop_front();
  end->engine->on_completions({&c, 1});
  EXPECT_TRUE(end->engine->wants_disconnect());
}

// A device may report the length of a Write with immediate data.
TEST_F(ResponderTest, AMessageLongerThanItsReceiveEndsTheConnection) {
  connect();
  ASSERT_TRUE(end->qp.receive(Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 0, 3}, {}));
  end->qp.receive_completions.back().byte_length = 1 << 20;
  end->qp.deliver(*end->engine, end->qp.receive_completions, 1);
  EXPECT_EQ(end->calls, 0u);
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_EQ(end->engine->counters().refusals[Refusal::kMessageTooLong], 1u);
}

// A peer may send first: its call is kept until the connection is known to be established.
TEST_F(ResponderTest, ACallBeforeEstablishmentIsServedAfterIt) {
  end = std::make_unique<End>(ConnectionOptions{}, *memory, *pool);
  peer_side = std::make_unique<Script>(*end);
  end->handler = [this](ServedCall& call) { echo(call); };
  peer_side->say(Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 0, 3});
  EXPECT_EQ(end->calls, 0u);
  end->engine->on_established({}, 16);
  end->run();
  EXPECT_EQ(word(only_answer(), 9), 3u);
}

// The memory of a reply may change when its Send has completed, and not before.
TEST_F(ResponderTest, TellsWhenTheReplysMemoryIsFree) {
  connect();
  int told = 0;
  end->handler = [&](ServedCall& call) {
    call.user = &told;
    call.on_ended = [](void* count) { ++*static_cast<int*>(count); };
    echo(call);
  };
  ASSERT_TRUE(end->qp.receive(Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 0, 3}, {}));
  end->qp.deliver(*end->engine, end->qp.receive_completions, 32);
  end->qp.post(*end->engine);
  EXPECT_EQ(told, 0);
  end->run();
  EXPECT_EQ(told, 1);
  peer_side->take();
  end->handler = [&](ServedCall& call) { echo(call); };  // the object is used again
  expect_alive();
  EXPECT_EQ(told, 1);
}

// When a connection ends, calls that are answered but not posted end, too. Their callbacks may end
// other calls, including the next one in turn; calls that the upper layer has are ended only by the
// upper layer.
TEST_F(ResponderTest, EachCallTellsOfItsEndOnceWhenTheConnectionDies) {
  constexpr uint32_t kCalls = 16;
  connect({.credits = kCalls, .send_wrs = 8});
  end->handler = nullptr;
  for (uint32_t i = 0; i < kCalls; ++i)
    peer_side->say(Wire{i, 1, 4, kMsg, 0, 0, 0, i, 0});
  std::vector<ServedCall*> calls = std::exchange(end->held, {});
  ASSERT_EQ(calls.size(), kCalls);
  struct Told {
    End* end;
    int times = 0;
    ServedCall* next = nullptr;
  };
  std::vector<Told> told(kCalls, Told{end.get()});
  for (uint32_t i = 0; i < kCalls; ++i) {
    calls[i]->user = &told[i];
    calls[i]->on_ended = [](void* user) {
      auto& mine = *static_cast<Told*>(user);
      ++mine.times;
      if (ServedCall* next = std::exchange(mine.next, nullptr))
        mine.end->engine->reply(*next);
    };
  }
  for (uint32_t i = 4; i < kCalls; ++i) {
    if (i != 14)
      echo(*calls[i]);
  }
  told[15].next = calls[14];
  told[14].next = calls[3];
  end->qp.fail();
  end->engine->on_disconnected();
  for (uint32_t i : {3u, 13u, 14u, 15u})
    EXPECT_EQ(told[i].times, 1) << i;
  for (uint32_t i : {0u, 1u, 2u})
    EXPECT_EQ(told[i].times, 0) << i;
  end->engine->reply(*calls[0]);
  end->engine->drop(*calls[1]);
  end->engine->refuse(*calls[2], 0, 0);
  end->run();
  for (const Told& one : told)
    EXPECT_EQ(one.times, 1) << &one - told.data();
}

#ifndef NDEBUG

TEST_F(ResponderTest, OptionsOutliveTheConnectionsThatHaveThem) {
  connect();
  EXPECT_DEATH(end->options.~SharedOptions(), "assertion failed: connections_");
}

#endif

}  // namespace
}  // namespace rrdk::engine::test
