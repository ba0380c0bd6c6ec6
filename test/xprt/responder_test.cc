// The responder against a scripted requester, byte by byte.
#include "script.h"

namespace rrdk::xprt::test {
namespace {

using fabric::Op;
using fabric::Rights;

constexpr uint32_t kMsg = 0, kNoMsg = 1, kMsgp = 2, kDone = 3, kError = 4;
constexpr uint32_t kErrVers = 1, kErrChunk = 2;

class ResponderTest : public EngineTest {
 protected:
  using EngineTest::EngineTest;

  void connect(ConnectionOptions options = {}, proto::PrivateData peer = {true, 4096, 4096},
               uint32_t reads = 16) {
    options.role = Role::kResponder;
    end = std::make_unique<End>(options, *memory, *pool);
    peer_side = std::make_unique<Script>(*end);
    end->engine->on_established(peer, reads);
    end->handler = [this](IncomingCall& call) { echo(call); };
  }
  // Answers with the call's bytes behind the two first words.
  void echo(IncomingCall& call) {
    got = flatten(call.message());
    Encoder e(call.reply(), *memory, call.inline_size(), call.max_reply());
    e.put_u32(call.xid());
    e.put_u32(1);
    e.put_fixed(std::span<const std::byte>(got).subspan(8));
    e.finish();
    end->engine->reply(call);
  }
  // Answers with eligible results of these sizes, each after its count.
  void results(std::vector<uint32_t> sizes, uint32_t plain = 0) {
    end->handler = [this, sizes, plain](IncomingCall& call) {
      Encoder e(call.reply(), *memory, call.inline_size(), call.max_reply());
      e.put_u32(call.xid());
      e.put_u32(1);
      for (uint32_t size : sizes) {
        Buffer buffer = memory->get(std::max(size, 1u));
        Bytes bytes = pattern(size, size);
        std::copy(bytes.begin(), bytes.end(), buffer.data());
        e.put_item(std::move(buffer), size, Ddp::kEligible);
      }
      e.put_fixed(Bytes(plain));
      e.finish();
      end->engine->reply(call);
    };
  }
  Bytes only_answer() {
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? Bytes(64) : sent[0];
  }
  void expect_err_chunk(const Bytes& message, uint32_t xid) {
    size_t reads = end->qp.count(Op::kRead);
    uint64_t calls = end->calls;
    peer_side->say(message);
    Bytes answer = only_answer();
    EXPECT_EQ(answer.size(), 20u);
    EXPECT_EQ(word(answer, 0), xid);
    EXPECT_EQ(word(answer, 1), 1u);
    EXPECT_GE(word(answer, 2), 1u);
    EXPECT_EQ(word(answer, 3), kError);
    EXPECT_EQ(word(answer, 4), kErrChunk);
    EXPECT_EQ(end->qp.log.back().op, Op::kSend);
    EXPECT_EQ(end->qp.count(Op::kRead), reads);
    EXPECT_EQ(end->calls, calls);
  }
  // The connection still serves.
  void expect_alive() {
    peer_side->say(Wire{99, 1, 4, kMsg, 0, 0, 0, 99, 0, 7});
    Bytes answer = only_answer();
    EXPECT_EQ(answer.size(), 40u);
    EXPECT_EQ(word(answer, 3), kMsg);
    EXPECT_EQ(word(answer, 9), 7u);
    EXPECT_FALSE(end->engine->wants_disconnect());
  }
  const Counters& counters() { return end->engine->counters(); }
  void TearDown() override {
    if (end != nullptr) {
      end->disconnect();
      for (IncomingCall* call : std::exchange(end->held, {}))
        end->engine->reply(*call);
      EXPECT_TRUE(end->engine->idle());
      EXPECT_TRUE(end->qp.used_keys.empty());  // V1-MEM-13
      end.reset();
    }
    EngineTest::TearDown();
  }

  std::unique_ptr<End> end;
  std::unique_ptr<Script> peer_side;
  Bytes got;
};

// Shows: V1-HDR-01, V1-HDR-02, V1-HDR-03, V1-HDR-07, V1-HDR-12, V1-HDR-22, V1-RL-14, V1-CREDIT-02
TEST_F(ResponderTest, AnInlineReply) {
  connect({.credits = 8});
  peer_side->say(Wire{0x1234, 1, 5, kMsg, 0, 0, 0, 0x1234, 0, 42});
  EXPECT_EQ(only_answer(), (Wire{0x1234, 1, 5, kMsg, 0, 0, 0, 0x1234, 1, 42}.bytes()));
}

// Shows: V1-HDR-19, V1-ERR-21
TEST_F(ResponderTest, ShortMessagesAreDropped) {
  connect();
  size_t posted = end->qp.receives.size();
  Bytes message = Wire{1, 1, 4, kMsg, 0, 0, 0};
  for (size_t length = 0; length < 28; ++length)
    peer_side->say(Bytes(message.begin(), message.begin() + static_cast<long>(length)));
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().refused_short, 28u);
  EXPECT_EQ(end->qp.receives.size(), posted);
  expect_alive();
}

// Shows: V1-HDR-04, V1-ERR-01, V1-ERR-02, V1-ERR-03, V1-ERR-04, V1-HDR-14
TEST_F(ResponderTest, OtherVersionsGetErrVers) {
  connect();
  for (uint32_t version : {0u, 2u, 3u, 7u, 0xffffffffu}) {
    peer_side->say(Wire{55, version, 4, kMsg, 9, 9, 9, 55, 0});
    Bytes answer = only_answer();
    ASSERT_EQ(answer.size(), 28u);
    EXPECT_EQ(word(answer, 0), 55u);
    EXPECT_EQ(word(answer, 1), version);
    EXPECT_EQ(word(answer, 3), kError);
    EXPECT_EQ(word(answer, 4), kErrVers);
    EXPECT_EQ(word(answer, 5), 1u);
    EXPECT_EQ(word(answer, 6), 1u);
  }
  EXPECT_EQ(counters().refused_version, 5u);
  EXPECT_EQ(end->calls, 0u);
  expect_alive();
}

// Shows: V1-ERR-11, V1-DONE-01, V1-DONE-02, V1-DONE-03
TEST_F(ResponderTest, ErrorsAndDoneAreDropped) {
  connect();
  size_t posted = end->qp.receives.size();
  for (uint32_t version : {1u, 2u, 9u})
    peer_side->say(Wire{1, version, 4, kError, kErrChunk, 0, 0});
  for (int i = 0; i < 1000; ++i)
    peer_side->say(Wire{1, 1, 4, kDone});
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().error_ignored, 3u);
  EXPECT_EQ(counters().done_ignored, 1000u);
  EXPECT_EQ(end->qp.receives.size(), posted);
  expect_alive();
}

// Shows: V1-HDR-05, V1-HDR-16, V1-HDR-17, V1-ERR-06, V1-ERR-07, V1-ERR-08, V1-ERR-09, V1-ERR-10,
// V1-ERR-25, V1-ERR-26, V1-LONG-08, V1-LONG-09, V1-LONG-16, V1-RL-06, V1-RL-08, V1-RL-09,
// V1-CHUNK-12, V1-CHUNK-15, V1-WL-18, V1-MSGP-07, PD-34, EXP-27, V1-CREDIT-06, V1-CREDIT-21
TEST_F(ResponderTest, WhatIsWrongInAHeaderGetsErrChunk) {
  connect();
  uint32_t key = peer_side->expose(pattern(8000, 1), Rights::kRemoteRead);
  for (uint32_t proc : {5u, 6u, 9u, 0xffffffffu})
    expect_err_chunk(Wire{7, 1, 4, proc, 0, 0, 0, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 2, 0, 0, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 2, 0, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 0, 2, 7, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 0, 0, 8, 0}, 7);          // another XID
  expect_err_chunk(Wire{7, 1, 4, kMsgp, 8, 99, 0, 0, 0, 8, 0}, 7);  // the same
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 0, 0}, 7);                // no message
  expect_err_chunk(Wire{7, 1, 4, kNoMsg, 0, 0, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kNoMsg, 0, 1, 1, key, 100, 0, 0, 0, 0}, 7);
  expect_err_chunk(Wire{7, 1, 4, kMsg, 0, 1, 0xffffffff, 1, 0, 0, 0, 0, 0}, 7);
  for (uint32_t position : {41u, 0u, 10000u}) {
    Wire wire{7, 1, 4, kMsg, 1, position};
    peer_side->segment(wire, key, 100).add({0, 0, 0, 7, 0, 1, 2, 3});
    expect_err_chunk(wire, 7);
  }
  Wire malformed_later{7, 1, 4, kMsg, 1, 8};
  peer_side->segment(malformed_later, key, 100).add({0, 5, 0, 7, 0});
  expect_err_chunk(malformed_later, 7);
  Wire overlapping{7, 1, 4, kMsg, 1, 8};
  peer_side->segment(overlapping, key, 100).add({1, 12});
  peer_side->segment(overlapping, key, 100).add({0, 0, 0, 7, 0, 1, 2});
  expect_err_chunk(overlapping, 7);
  Wire wraps{7, 1, 4, kMsg, 1, 8};
  wraps.segment(key, 0xffffffff, 0).add({1, 8}).segment(key, 2, 0).add({0, 0, 0, 7, 0});
  expect_err_chunk(wraps, 7);
  Wire large{7, 1, 4, kNoMsg, 1, 0};
  large.segment(key, 1u << 30, 0).add({0, 0, 0});
  expect_err_chunk(large, 7);
  Wire nine_mib{7, 1, 4, kNoMsg, 1, 0};
  nine_mib.segment(key, 9u << 20, 0).add({0, 0, 0});
  expect_err_chunk(nine_mib, 7);
  Wire chunks{7, 1, 4, kMsg, 0};
  for (int i = 0; i < 17; ++i)
    chunks.add({1, 0});
  expect_err_chunk(chunks.add({0, 0, 7, 0}), 7);
  EXPECT_GE(counters().refused_limits, 4u);
  EXPECT_EQ(counters().refused_xid, 3u);
  expect_alive();
}

// Shows: V1-MSGP-03, V1-MSGP-02
TEST_F(ResponderTest, MsgpIsTakenAsMsg) {
  connect();
  peer_side->say(Wire{7, 1, 4, kMsgp, 8, 1024, 0, 0, 0, 7, 0, 5});
  EXPECT_EQ(only_answer(), (Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 1, 5}.bytes()));
}

// Shows: V1-PAD-04, V1-PAD-05, V1-PAD-06, V1-RL-02, V1-RL-07, V1-CHUNK-13, V1-LONG-03
TEST_F(ResponderTest, ReadChunksInAllTheirForms) {
  connect();
  Bytes bytes = pattern(16, 3);
  std::fill(bytes.begin() + 5, bytes.begin() + 8, std::byte{0});
  uint32_t key = peer_side->expose(bytes, Rights::kRemoteRead);
  Bytes expected = Wire{7, 0, 5};
  expected.insert(expected.end(), bytes.begin(), bytes.begin() + 8);
  expected.insert(expected.end(), {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{9}});
  std::vector<std::vector<uint32_t>> forms = {{5}, {8}, {5, 3}, {1, 0, 4}, {2, 2, 1}};
  for (const std::vector<uint32_t>& form : forms) {
    Wire wire{7, 1, 4, kMsg};
    uint32_t skip = 0;
    size_t reads = end->qp.count(Op::kRead);
    for (uint32_t length : form) {
      peer_side->segment(wire.add({1, 12}), key, length, skip);
      skip += length;
    }
    peer_side->say(wire.add({0, 0, 0, 7, 0, 5, 9}));
    only_answer();
    EXPECT_EQ(got, expected);
    EXPECT_EQ(end->qp.count(Op::kRead) - reads,
              form.size() - static_cast<size_t>(std::count(form.begin(), form.end(), 0u)));
  }
  // Positions in any order: 24, 12, 24.
  Wire wire{7, 1, 4, kMsg};
  peer_side->segment(wire.add({1, 24}), key, 2, 8);
  peer_side->segment(wire.add({1, 12}), key, 8, 0);
  peer_side->segment(wire.add({1, 24}), key, 2, 10);
  peer_side->say(wire.add({0, 0, 0, 7, 0, 5, 4}));
  only_answer();
  Bytes sorted = Wire{7, 0, 5};
  sorted.insert(sorted.end(), bytes.begin(), bytes.begin() + 8);
  sorted.insert(sorted.end(), {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{4}});
  sorted.insert(sorted.end(), bytes.begin() + 8, bytes.begin() + 12);
  EXPECT_EQ(got, sorted);
}

// Shows: V1-LONG-02, V1-LONG-15, V1-HDR-18
TEST_F(ResponderTest, ALongCallIsReadAndItsXidChecked) {
  connect();
  Bytes message = Wire{7, 0, 1, 2, 3};
  uint32_t key = peer_side->expose(message, Rights::kRemoteRead);
  for (uint32_t xid : {7u, 8u}) {
    Wire wire{xid, 1, 4, kNoMsg};
    peer_side->segment(wire.add({1, 0}), key, 8);
    peer_side->segment(wire.add({1, 0}), key, 12, 8);
    peer_side->say(wire.add({0, 0, 0, 77, 77}));  // trailing bytes are ignored
    Bytes answer = only_answer();
    EXPECT_EQ(word(answer, 3), xid == 7 ? kMsg : kError);
  }
  EXPECT_EQ(got, message);
  EXPECT_EQ(counters().trailing_bytes, 2u);
  EXPECT_EQ(end->calls, 1u);
  EXPECT_EQ(counters().refused_xid, 1u);
}

// Shows: V1-WL-03, V1-WL-04, V1-WL-05, V1-WL-06, V1-WL-07, V1-WL-19, V1-PAD-10, V1-PAD-11,
// V1-RC-09, V1-RC-10, V1-CHUNK-06
TEST_F(ResponderTest, TheWriteListComesBackWithWhatWasWritten) {
  connect();
  uint32_t key = peer_side->expose(Bytes(600, std::byte{0x5a}), Rights::kRemoteWrite);
  results({150, 5});
  Wire call{7, 1, 4, kMsg, 0, 1, 3};
  for (uint32_t i = 0; i < 3; ++i)
    peer_side->segment(call, key, 100, 100 * i);
  peer_side->segment(call.add({1, 1}), key, 8, 300);
  peer_side->segment(call.add({1, 1}), key, 8, 400);
  peer_side->segment(call.add({0, 1, 2}), key, 50, 500);
  peer_side->segment(call, key, 50, 550);
  peer_side->say(call.add({7, 0}));
  Wire reply{7, 1, 4, kMsg, 0, 1, 3};
  peer_side->segment(reply, key, 100, 0);
  peer_side->segment(reply, key, 50, 100);
  peer_side->segment(reply, key, 0, 200);
  peer_side->segment(reply.add({1, 1}), key, 5, 300);
  peer_side->segment(reply.add({1, 1}), key, 0, 400);
  peer_side->segment(reply.add({0, 1, 2}), key, 0, 500);
  peer_side->segment(reply, key, 0, 550);
  EXPECT_EQ(only_answer(), reply.add({7, 1, 150, 5}).bytes());
  const Bytes& memory_image = peer_side->at(key).bytes;
  Bytes expected(600, std::byte{0x5a});
  Bytes first = pattern(150, 150), second = pattern(5, 5);
  std::copy(first.begin(), first.end(), expected.begin());
  std::copy(second.begin(), second.end(), expected.begin() + 300);
  EXPECT_EQ(memory_image, expected);
}

// Shows: V1-RC-06, V1-RC-12, V1-RC-16, V1-HDR-10, V1-HDR-13, V1-PAD-14
TEST_F(ResponderTest, ALongReplyFillsTheReplyChunk) {
  connect({}, {true, 4096, 1024});
  uint32_t key = peer_side->expose(Bytes(4096), Rights::kRemoteWrite);
  results({}, 1192);
  Wire call{7, 1, 4, kMsg, 0, 0, 1, 3};
  for (uint32_t i = 0; i < 3; ++i)
    peer_side->segment(call, key, 1000, 1000 * i);
  peer_side->say(call.add({7, 0}));
  Wire reply{7, 1, 4, kNoMsg, 0, 0, 1, 3};
  peer_side->segment(reply, key, 1000, 0);
  peer_side->segment(reply, key, 200, 1000);
  peer_side->segment(reply, key, 0, 2000);
  EXPECT_EQ(only_answer(), reply.bytes());
  EXPECT_EQ(word(peer_side->at(key).bytes, 0), 7u);
  // No chunk, or one that is too small.
  peer_side->say(Wire{8, 1, 4, kMsg, 0, 0, 0, 8, 0});
  EXPECT_EQ(word(only_answer(), 4), kErrChunk);
  Wire small{9, 1, 4, kMsg, 0, 0, 1, 1};
  peer_side->segment(small, key, 1196);
  peer_side->say(small.add({9, 0}));
  EXPECT_EQ(word(only_answer(), 4), kErrChunk);
  // A Reply chunk of no segments is none (V1-CHUNK-14).
  peer_side->say(Wire{9, 1, 4, kMsg, 0, 0, 1, 0, 9, 0});
  EXPECT_EQ(word(only_answer(), 4), kErrChunk);
}

// Shows: V1-CREDIT-04, V1-CREDIT-05, V1-CREDIT-06, V1-CREDIT-17, V1-CREDIT-18, V1-CREDIT-19
TEST_F(ResponderTest, GrantsAreOursAndNeverZero) {
  connect({.credits = 8});
  uint32_t expected[][2] = {{0, 1}, {1, 1}, {5, 5}, {8, 8}, {1000, 8}, {0xffffffff, 8}};
  for (auto& [asked, granted] : expected) {
    peer_side->say(Wire{7, 1, asked, kMsg, 0, 0, 0, 7, 0});
    EXPECT_EQ(word(only_answer(), 2), granted);
  }
  for (uint32_t configured : {3u, 0u, 100u}) {
    end->engine->set_granted_credits(configured);
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
  EXPECT_EQ(counters().credit_overruns, 0u);
  ask();
  ask();
  EXPECT_EQ(end->held.size(), 3u);
  EXPECT_EQ(counters().credit_overruns, 2u);
  EXPECT_FALSE(end->engine->wants_disconnect());
  ask();
  EXPECT_TRUE(end->engine->wants_disconnect());
}

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

// Shows: PD-26, PD-27, PD-33
TEST_F(ResponderTest, OnlyAnOnlyHandleIsInvalidated) {
  for (bool peer_allows : {true, false}) {
    connect({}, {peer_allows, 4096, 4096});
    results({});
    uint32_t key = peer_side->expose(Bytes(64), Rights::kRemoteWrite);
    Wire one{7, 1, 4, kMsg, 0, 1, 2};
    peer_side->segment(peer_side->segment(one, key, 8), key, 8).add({0, 0, 7, 0});
    peer_side->say(one);
    EXPECT_EQ(peer_side->invalidated, peer_allows ? std::optional(key) : std::nullopt);
    Wire two{7, 1, 4, kMsg, 0, 1, 2};
    peer_side->segment(two, key, 8).segment(key + 1, 8, 0).add({0, 0, 7, 0});
    peer_side->say(two);
    EXPECT_EQ(peer_side->invalidated, std::nullopt);
    end->disconnect();
    end.reset();
  }
}

// A peer may be first: its call is kept until the connection is known to be there.
TEST_F(ResponderTest, ACallBeforeEstablishmentIsServedAfterIt) {
  end = std::make_unique<End>(ConnectionOptions{}, *memory, *pool);
  peer_side = std::make_unique<Script>(*end);
  end->handler = [this](IncomingCall& call) { echo(call); };
  peer_side->say(Wire{7, 1, 4, kMsg, 0, 0, 0, 7, 0, 3});
  EXPECT_EQ(end->calls, 0u);
  end->engine->on_established({}, 16);
  end->run();
  EXPECT_EQ(word(only_answer(), 9), 3u);
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

// The memory of a reply may change when its Send has completed, and not before.
TEST_F(ResponderTest, TellsWhenTheReplysMemoryIsFree) {
  connect();
  int told = 0;
  end->handler = [&](IncomingCall& call) {
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
  end->handler = [&](IncomingCall& call) { echo(call); };  // the object is used again
  expect_alive();
  EXPECT_EQ(told, 1);
}

// A dying connection ends what is answered and not posted. Who is told of that may end other calls,
// the one that is next in turn among them; what is with the upper layer is ended by that alone.
TEST_F(ResponderTest, EachCallTellsOfItsEndOnceWhenTheConnectionDies) {
  constexpr uint32_t kCalls = 16;
  connect({.credits = kCalls, .send_wrs = 8});
  end->handler = nullptr;
  for (uint32_t i = 0; i < kCalls; ++i)
    peer_side->say(Wire{i, 1, 4, kMsg, 0, 0, 0, i, 0});
  std::vector<IncomingCall*> calls = std::exchange(end->held, {});
  ASSERT_EQ(calls.size(), kCalls);
  struct Told {
    End* end;
    int times = 0;
    IncomingCall* next = nullptr;
  };
  std::vector<Told> told(kCalls, Told{end.get()});
  for (uint32_t i = 0; i < kCalls; ++i) {
    calls[i]->user = &told[i];
    calls[i]->on_ended = [](void* user) {
      auto& mine = *static_cast<Told*>(user);
      ++mine.times;
      if (IncomingCall* next = std::exchange(mine.next, nullptr))
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
  end->engine->refuse(*calls[2]);
  end->run();
  for (const Told& one : told)
    EXPECT_EQ(one.times, 1) << &one - told.data();
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
    IncomingCall* call = std::exchange(end->held, {})[0];
    hoard.clear();  // the upper layer needs a buffer
    Encoder e(call->reply(), *memory, 64, 1024);
    e.put_u32(call->xid());
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

// Idle connections must not use up what large calls need.
TEST_F(ScarceMemory, ReceivesAreOfTheClassThatFitsThem) {
  End idle({.role = Role::kResponder, .credits = 6}, *memory, *pool);
  EXPECT_EQ(memory->audit_fitting(4096).available, 0u);
  EXPECT_EQ(memory->audit_fitting(16384).available, 2u);
  FakeQueuePair qp;
  Connection another({.role = Role::kResponder, .credits = 1}, *memory, *pool, qp, idle);
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

// A call that needs more buffers than there are is refused, and those behind it are served.
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
  EXPECT_EQ(counters().refused_buffers, 0u);
  end->engine->on_tick(6000);
  end->run();
  std::vector<Bytes> sent = peer_side->take();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(word(sent[0], 0), 7u);
  EXPECT_EQ(word(sent[0], 3), kError);
  EXPECT_EQ(word(sent[0], 4), kErrChunk);
  EXPECT_EQ(word(sent[1], 0), 8u);
  EXPECT_EQ(word(sent[1], 3), kMsg);
  EXPECT_EQ(counters().refused_buffers, 1u);
}

// A header beyond the room that each call has takes a buffer; without one the reply waits.
TEST_F(ScarceMemory, AReplyWaitsForItsHeadersBuffer) {
  connect({.credits = 2, .receive_size = 1024});
  uint32_t key = peer_side->expose(Bytes(400), Rights::kRemoteWrite);
  end->handler = nullptr;
  Wire call{7, 1, 4, kMsg, 0, 1, 20};
  for (uint32_t i = 0; i < 20; ++i)
    peer_side->segment(call, key, 10, 10 * i);
  peer_side->say(call.add({0, 0, 7, 0}));
  ASSERT_EQ(end->held.size(), 1u);
  IncomingCall& held = *std::exchange(end->held, {})[0];
  Encoder e(held.reply(), *memory, 64, 1024);
  e.put_u32(held.xid());
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

// Shows: V1-HDR-20
TEST_F(ResponderTest, ATruncatedHeaderReadsNothing) {
  connect();
  uint32_t key = peer_side->expose(Bytes(400), Rights::kRemoteRead);
  Wire wire{7, 1, 4, kMsg, 1, 8};
  peer_side->segment(wire, key, 10).add({0, 1, 1, 1, 10, 0, 0, 0, 1, 1, 1, 10, 0, 0, 7, 0});
  Bytes whole = wire;
  for (size_t length = 28; length < whole.size() - 8; ++length) {
    peer_side->say(Bytes(whole.begin(), whole.begin() + static_cast<long>(length)));
    EXPECT_EQ(word(only_answer(), 4), kErrChunk);
  }
  EXPECT_EQ(end->qp.count(Op::kRead), 0u);
  expect_alive();
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

}  // namespace
}  // namespace rrdk::xprt::test
