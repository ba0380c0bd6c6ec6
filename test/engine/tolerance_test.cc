// Messages from a peer that are obsolete or not allowed.
#include "script.h"

namespace rrdk::engine::test {
namespace {

constexpr uint32_t kMsg = 0, kDone = 3, kError = 4;

class Tolerance : public EngineTest {
 protected:
  void connect(Role role, uint32_t credits = 8) {
    end =
        std::make_unique<End>(ConnectionOptions{.role = role, .credits = credits}, *memory, *pool);
    peer = std::make_unique<Script>(*end);
    end->engine->on_established({true, 4096, 4096}, 16);
    end->handler = [this](ServedCall& call) {
      Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
      e.put_u32(call.xid);
      e.put_u32(1);
      e.finish();
      end->engine->reply(call);
    };
  }
  void TearDown() override {
    end->disconnect();
    EXPECT_TRUE(end->engine->idle());
    end.reset();
    EngineTest::TearDown();
  }
  void submit(OutgoingCall& call) {
    Encoder e(call.message, *memory, 900, 8u << 20);
    e.put_u32(0);
    e.put_u32(0);
    e.finish();
    end->engine->submit(call);
    end->run();
  }
  static Wire null_call(uint32_t xid) { return {xid, 1, 8, kMsg, 0, 0, 0, xid, 0}; }

  std::unique_ptr<End> end;
  std::unique_ptr<Script> peer;
};

// Shows: V1-DONE-06, V1-DONE-07
TEST_F(Tolerance, DonesTakeNoCreditForLonger) {
  connect(Role::kResponder);
  size_t posted = end->qp.receives.size();
  for (uint32_t i = 0; i != 1000; ++i)
    peer->say(Wire{i, 1, 8, kDone});
  EXPECT_EQ(end->qp.receives.size(), posted);
  EXPECT_EQ(end->engine->counters().refusals[Refusal::kDone], 1000u);
  EXPECT_TRUE(peer->take().empty());
  for (uint32_t i = 0; i != 20; ++i) {
    peer->say(Wire{i, 1, 8, kDone});
    peer->say(null_call(i));
    std::vector<Bytes> sent = peer->take();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(word(sent[0], 2), 8u) << "the grant";
  }
}

// Errors travel only from responder to requester.
// Shows: V1-ERR-22
TEST_F(Tolerance, AnErrorEndsACallOfOursOrNone) {
  connect(Role::kResponder);
  peer->say(Wire{9, 1, 8, kError, 2});
  EXPECT_EQ(end->engine->counters().refusals[Refusal::kError], 1u);
  EXPECT_TRUE(peer->take().empty());
  end->disconnect();

  connect(Role::kRequester);
  OutgoingCall call;
  submit(call);
  uint32_t xid = word(peer->take().at(0), 0);
  peer->say(Wire{xid + 1, 1, 8, kError, 2});
  EXPECT_TRUE(end->ended.empty());
  EXPECT_EQ(end->engine->counters().refusals[Refusal::kUnknownXid], 1u);
  peer->say(Wire{xid, 1, 8, kError, 2});
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(call.status, CallStatus::kChunkError);
}

// The header's XID finds the call before the message is looked at.
// Shows: V1-HDR-15
TEST_F(Tolerance, AReplyIsFoundByTheXidOfItsHeader) {
  connect(Role::kRequester);
  OutgoingCall calls[2];
  submit(calls[0]);
  uint32_t first = word(peer->take().at(0), 0);
  peer->say(Wire{first, 1, 8, kMsg, 0, 0, 0, first, 1});
  EXPECT_EQ(calls[0].status, CallStatus::kOk);
  end->ended.clear();
  submit(calls[0]);
  submit(calls[1]);
  std::vector<Bytes> sent = peer->take();
  ASSERT_EQ(sent.size(), 2u);
  // The message inside names the other call: the call that the header names ends with an error.
  peer->say(Wire{word(sent[1], 0), 1, 8, kMsg, 0, 0, 0, word(sent[0], 0), 1});
  ASSERT_EQ(end->ended.size(), 1u);
  EXPECT_EQ(end->ended[0], &calls[1]);
  EXPECT_EQ(calls[1].status, CallStatus::kMalformedReply);
  end->disconnect();  // while the first call is still there
}

// Shows: V1-INLINE-07
TEST_F(Tolerance, AMessageOf1024BytesIsTakenByAllMeans) {
  for (uint32_t size : {1024u, 4096u}) {
    end = std::make_unique<End>(ConnectionOptions{.role = Role::kResponder, .receive_size = size},
                                *memory, *pool);
    peer = std::make_unique<Script>(*end);
    end->engine->on_established({}, 16);
    Wire call = null_call(7);
    call.raw(Bytes(1024 - call.bytes().size()));
    peer->say(call);
    ASSERT_EQ(end->held.size(), 1u);
    EXPECT_EQ(flatten(end->held[0]->message).size(), 1024u - 28);
    end->engine->drop(*end->held[0]);
    end->disconnect();
  }
}

}  // namespace
}  // namespace rrdk::engine::test
