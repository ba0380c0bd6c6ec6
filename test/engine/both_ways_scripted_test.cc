// Calls in the other direction (RFC 8167). One end is the engine's and a script plays the other:
// what a client refuses or drops, and how a server takes answers.
#include "scripted_test.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kConnProp = 6;
constexpr uint32_t kCall = 0, kReply = 1;

class ScriptedBothWays : public ScriptedTest {
 protected:
  void client(ConnectionOptions options, Speaks speaks = Speaks::kOne) {
    options.role = Role::kRequester;
    options.speaks = speaks;
    options.properties = false;  // which the script would have to answer
    begin(options, {true, 4096, 4096}, 16);
    end->handler = [this](ServedCall& call) {
      Encoder e(call.reply, *memory, 900, 4096);
      e.put_u32(call.xid);
      e.put_u32(kReply);
      e.put_u32(99);
      e.finish();
      end->engine->reply(call);
    };
  }
  void server(ConnectionOptions options) {
    options.role = Role::kResponder;
    options.properties = false;
    begin(options, {true, 4096, 4096}, 16);
  }
  void expect_forward_works(uint32_t version = 1) {
    OutgoingCall call;
    submit(call);
    Bytes sent = only_sent();
    uint32_t xid = word(sent, 0);
    Wire reply{xid, version, 4, kMsg};
    if (version == 2)
      reply.add({kReply, 0});
    peer_side->say(reply.add({0, 0, 0, xid, kReply, 42}));
    EXPECT_EQ(call.status, CallStatus::kOk);
    end->ended.clear();
  }
};

// Shows: BIDIR-11, BIDIR-15
TEST_F(ScriptedBothWays, BackwardCallsWithChunksAreRefused) {
  client({.credits = 4, .backward_credits = 4});
  const Wire reads = Wire{5, 1, 2, kMsg, 1, 12}.segment(77, 100, 0).add({0, 0, 0, 5, kCall, 1});
  const Wire writes = Wire{5, 1, 2, kMsg, 0, 1, 1}.segment(77, 100, 0).add({0, 0, 5, kCall, 1});
  const Wire long_call = Wire{5, 1, 2, kNoMsg, 1, 0}.segment(77, 100, 0).add({0, 0, 0});
  for (const Wire& call : {reads, writes, long_call}) {
    peer_side->say(call);
    EXPECT_EQ(only_sent(), Wire({5, 1, 2, kError, kErrChunk}).bytes());
  }
  EXPECT_EQ(counters().refusals[Refusal::kBackwardChunks], 3u);
  EXPECT_EQ(end->calls, 0u);
  expect_forward_works();
}

// Shows: BIDIR-14
TEST_F(ScriptedBothWays, AClientWithoutServicesDropsCallsOfVersion1) {
  client({.credits = 4});
  for (int i = 0; i < 20; ++i)
    peer_side->say(Wire{5, 1, 2, kMsg, 0, 0, 0, 5, kCall, 1});
  EXPECT_TRUE(peer_side->take().empty());
  EXPECT_EQ(counters().refusals[Refusal::kBackwardCall], 20u);
  expect_forward_works();
}

// Shows: V2D4-PROP-30
TEST_F(ScriptedBothWays, AClientWithoutServicesRefusesCallsOfDraft04) {
  client({.credits = 4}, Speaks::kTwo);
  expect_forward_works(2);
  peer_side->say(Wire{5, 2, 2, kMsg, kCall, 0, 0, 0, 0, 5, kCall, 1});
  Bytes answer = only_sent();
  EXPECT_EQ(word(answer, 0), 5u);
  EXPECT_EQ(word(answer, 3), kError);
  EXPECT_EQ(word(answer, 4), 10u);  // SYSTEM
  EXPECT_EQ(counters().refusals[Refusal::kBackwardCall], 1u);
  expect_forward_works(2);
}

// Shows: V2D4-PROP-30
TEST_F(ScriptedBothWays, ChunksInBackwardCallsOfDraft04AreRefusedByKind) {
  client({.credits = 4, .backward_credits = 4}, Speaks::kTwo);
  expect_forward_works(2);
  peer_side->say(
      Wire{5, 2, 2, kMsg, kCall, 0, 1, 12}.segment(77, 100, 0).add({0, 0, 0, 5, kCall, 1}));
  Bytes answer = only_sent();
  EXPECT_EQ(Bytes(answer.begin() + 12, answer.end()), Wire({kError, 4, 0}).bytes());
  peer_side->say(
      Wire{5, 2, 2, kMsg, kCall, 0, 0, 1, 1}.segment(77, 100, 0).add({0, 0, 5, kCall, 1}));
  answer = only_sent();
  EXPECT_EQ(Bytes(answer.begin() + 12, answer.end()), Wire({kError, 5, 0}).bytes());
  expect_forward_works(2);
}

// Shows: BIDIR-23
TEST_F(ScriptedBothWays, AnErrorEndsTheCallThatItIsFor) {
  server({.credits = 4, .backward_credits = 4});
  peer_side->say(Wire{1, 1, 4, kMsg, 0, 0, 0, 1, kCall, 0});
  ASSERT_EQ(end->held.size(), 1u);
  OutgoingCall refused, versioned, fine;
  for (OutgoingCall* call : {&refused, &versioned, &fine}) {
    submit(*call);
    Bytes sent = only_sent();
    uint32_t xid = word(sent, 0);
    if (call == &refused)
      peer_side->say(Wire{xid, 1, 2, kError, kErrChunk});
    else if (call == &versioned)
      peer_side->say(Wire{xid, 1, 2, kError, kErrVers, 7, 9});
    else
      peer_side->say(Wire{xid, 1, 2, kMsg, 0, 0, 0, xid, kReply, 1});
  }
  EXPECT_EQ(refused.status, CallStatus::kChunkError);
  EXPECT_EQ(versioned.status, CallStatus::kVersionError);
  EXPECT_EQ(fine.status, CallStatus::kOk);
  EXPECT_FALSE(end->engine->wants_disconnect());
  EXPECT_EQ(end->held.size(), 1u) << "the forward call of another XID is still there";
  end->disconnect();
  end->engine->reply(*std::exchange(end->held, {}).front());
}

// Errors have no direction word and need none: the XID in an error belongs to the receiver of the
// error.
// Shows: V2D4-DIR-05
TEST_F(ScriptedBothWays, AnErrorIsNeverForACallOfThePeers) {
  client({.credits = 4, .backward_credits = 4}, Speaks::kTwo);
  expect_forward_works(2);
  end->handler = nullptr;  // the server's calls stay unanswered
  OutgoingCall call;
  submit(call);
  const uint32_t xid = word(only_sent(), 0);
  peer_side->say(Wire{xid, 2, 4, kMsg, kCall, 0, 0, 0, 0, xid, kCall, 1});  // the same XID
  ASSERT_EQ(end->held.size(), 1u);
  peer_side->say(Wire{xid, 2, 4, kError, 10});
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kRemoteError);
  EXPECT_EQ(call.error.code, proto::ErrorCode::kSystem);
  EXPECT_EQ(end->held.size(), 1u);
  // The same XID again: our call has ended, but the server's with this XID has not.
  peer_side->say(Wire{xid, 2, 4, kError, 10});
  EXPECT_EQ(counters().refusals[Refusal::kUnknownXid], 1u);
  EXPECT_TRUE(peer_side->take().empty());
  ServedCall& served = *std::exchange(end->held, {}).front();
  Encoder e(served.reply, *memory, 900, 4096);
  e.put_u32(served.xid);
  e.put_u32(kReply);
  e.finish();
  end->engine->reply(served);
  end->run();
  Bytes answer = only_sent();
  EXPECT_EQ(word(answer, 0), xid);
  EXPECT_EQ(word(answer, 3), kMsg);
  end->ended.clear();
}

// If a server cannot read a client's Backward Request Support (its properties are switched off, or
// the value is invalid), the default applies: calls without chunks, even from a server that could
// send chunks.
// Shows: V2D4-PROP-33
TEST_F(ScriptedBothWays, UnreadableBackwardSupportMeansTheDefault) {
  for (bool reads_properties : {false, true}) {
    ConnectionOptions options{.credits = 4,
                              .backward_credits = 4,
                              .backward_chunks = true,
                              .properties = reads_properties};
    options.role = Role::kResponder;
    begin(options, {true, 4096, 4096}, 16);
    peer_side->say(Wire{1, 2, 4, kMsg, kCall, 0, 0, 0, 0, 1, kCall, 0});
    peer_side->take();
    const uint32_t general = 2;
    peer_side->say(Wire{2, 2, 4, kConnProp, 1, 2, 4, reads_properties ? general + 1 : general, 0});
    std::vector<Bytes> sent = peer_side->take();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(word(sent[0], 3), kError);
    for (bool fits : {true, false}) {
      OutgoingCall call;
      call.max_reply = fits ? 1024 : 65536;  // which would need a Reply chunk
      Encoder e(call.message, *memory, 1024, 1u << 20);
      e.put_u64(0);
      Buffer data = memory->get(2000);
      e.put_item(std::move(data), 2000, Ddp::kEligible);
      e.finish();
      end->engine->submit(call);
      end->run();
      Bytes message = only_sent();
      EXPECT_EQ(word(message, 3), kMsg);
      for (size_t list : {5u, 6u, 7u, 8u})
        EXPECT_EQ(word(message, list), 0u);
      EXPECT_EQ(message.size(), 36u + 8 + 4 + 2000);
      uint32_t xid = word(message, 0);
      peer_side->say(Wire{xid, 2, 4, kMsg, kReply, 0, 0, 0, 0, xid, kReply, 1});
      EXPECT_EQ(call.status, CallStatus::kOk);
    }
    end->disconnect();
    for (ServedCall* call : std::exchange(end->held, {}))
      end->engine->reply(*call);
    EXPECT_TRUE(end->engine->idle());
    end.reset();
  }
}

// A message that does not answer a call invalidates no key of either end: a call, or transport
// properties.
// Shows: PD-31
TEST_F(ScriptedBothWays, OnlyAnAnswerKillsAKey) {
  constexpr uint32_t kUpdProp = 9;
  for (bool of_server : {true, false}) {
    if (of_server) {
      begin(
          {.role = Role::kResponder, .credits = 4, .backward_credits = 4, .backward_chunks = true},
          {true, 4096, 4096}, 16);
      peer_side->say(Wire{1, 2, 4, kMsg, kCall, 0, 0, 0, 0, 1, kCall, 0});
      peer_side->say(Wire{2, 2, 4, kConnProp, 1, 2, 4, 2, 0});
      peer_side->take();
    } else {
      client({.credits = 4}, Speaks::kTwo);
      expect_forward_works(2);
    }
    OutgoingCall call;
    Encoder e(call.message, *memory, 1024, 1u << 20);
    e.put_u64(0);
    e.put_item(memory->get(8000), 8000, Ddp::kEligible);
    e.finish();
    end->engine->submit(call);
    end->run();
    Bytes message = only_sent();
    ASSERT_EQ(word(message, 6), 1u) << "no Read chunk";
    if (of_server)
      peer_side->say(Wire{3, 2, 4, kMsg, kCall, 0, 0, 0, 0, 3, kCall, 0}, word(message, 8));
    else
      peer_side->say(Wire{3, 2, 4, kUpdProp, 0}, word(message, 8));
    EXPECT_EQ(counters().refusals[Refusal::kForeignKey], 1u);
    EXPECT_TRUE(end->engine->wants_disconnect());
    end->disconnect();
    EXPECT_EQ(call.status, CallStatus::kConnectionLost);
    for (ServedCall* held : std::exchange(end->held, {}))
      end->engine->reply(*held);
    end->ended.clear();
  }
}

// Shows: BIDIR-16
TEST_F(ScriptedBothWays, ShortMessagesGrantNothing) {
  server({.credits = 4, .backward_credits = 4});
  peer_side->say(Wire{1, 1, 4, kMsg, 0, 0, 0, 1, kCall, 0});
  OutgoingCall call;
  submit(call);
  uint32_t xid = word(only_sent(), 0);
  peer_side->say(Wire{xid, 1, 0xffff, kMsg, 0, 0});
  EXPECT_EQ(end->engine->requester().window.size(), 1u);
  EXPECT_TRUE(end->ended.empty());
  end->disconnect();
  end->engine->reply(*std::exchange(end->held, {}).front());
}

// There is a limit on calls beyond the grant in this direction, too.
TEST_F(ScriptedBothWays, AServerThatCallsBeyondItsCreditsIsDisconnected) {
  client({.credits = 4, .backward_credits = 2, .overrun_limit = 8});
  end->handler = nullptr;
  for (uint32_t i = 0; i < 2; ++i)
    peer_side->say(Wire{i, 1, 9, kMsg, 0, 0, 0, i, kCall, 1});
  EXPECT_EQ(counters().refusals[Refusal::kCreditOverrun], 1u);
  EXPECT_FALSE(end->engine->wants_disconnect());
  end->disconnect();
  for (ServedCall* call : std::exchange(end->held, {}))
    end->engine->reply(*call);
}

}  // namespace
}  // namespace rrdk::engine::test
