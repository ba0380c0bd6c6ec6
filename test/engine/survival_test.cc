// A responder whose connection ends: because of a call's chunks, or because it was told to end it.
#include "script.h"

namespace rrdk::engine::test {
namespace {

using fabric::Op;
using fabric::Rights;

constexpr uint32_t kError = 4, kErrChunk = 2;
constexpr uint32_t kBadKey = 0x5555;

class Survival : public EngineTest {
 protected:
  Survival() {
    ConnectionOptions options;
    options.role = Role::kResponder;
    end = std::make_unique<End>(options, *memory, *pool);
    peer = std::make_unique<Script>(*end);
    end->engine->on_established({false, 1024, 1024}, 16);
  }
  void TearDown() override {
    if (end) {
      end->disconnect();
      for (ServedCall* call : std::exchange(end->held, {}))
        end->engine->reply(*call);
      EXPECT_TRUE(end->engine->idle());
      end.reset();
    }
    EngineTest::TearDown();
  }

  static Wire message(uint32_t xid, const Wire& lists = {0, 0, 0}) {
    Wire wire{xid, 1, 16, 0};
    wire.raw(lists);
    return wire.add({xid, 0, 2, 7, 7, 7, 0, 0, 0, 0});
  }
  // With a Reply chunk that only a reply of 2000 bytes needs.
  Wire with_reply_chunk(uint32_t xid, bool good) {
    Wire lists{0, 0, 1, 1};
    if (good)
      peer->segment(lists, peer->expose(Bytes(4096), Rights::kRemoteWrite), 4096);
    else
      lists.segment(kBadKey, 4096, 0);
    return message(xid, lists);
  }
  static Wire with_read_chunk(uint32_t xid) {
    Wire lists{1, 40};
    lists.segment(kBadKey, 100, 0).add({0, 0, 0});
    return message(xid, lists);
  }
  void reply(size_t held, uint32_t length) {
    ServedCall& call = *end->held[held];
    Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
    e.put_u32(call.xid);
    e.put_u32(1);
    e.put_fixed(Bytes(length));
    e.finish();
    end->engine->reply(call);
  }

  std::unique_ptr<End> end;
  std::unique_ptr<Script> peer;
};

// Shows: V1-ERR-18
TEST_F(Survival, TellsOfTheCallWhoseWriteFailed) {
  for (uint32_t xid : {1, 2, 3, 4})
    peer->say(with_reply_chunk(xid, xid != 3));
  end->qp.expect_refusals = true;
  for (size_t i = 0; i < 4; ++i)
    reply(i, 2000);
  end->held.clear();
  end->run();
  EXPECT_EQ(end->failed, std::vector<uint32_t>{3});
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_EQ(peer->sent.size(), 2u);
}

TEST_F(Survival, TellsOfTheCallWhoseReadFailed) {
  end->qp.expect_refusals = true;
  peer->say(message(1));
  peer->say(with_read_chunk(2));
  EXPECT_EQ(end->failed, std::vector<uint32_t>{2});
  EXPECT_TRUE(end->engine->wants_disconnect());
}

TEST_F(Survival, ALostConnectionIsNoFailedCall) {
  for (uint32_t xid : {1, 2})
    peer->say(with_reply_chunk(xid, true));
  reply(0, 2000);
  end->qp.post(*end->engine);
  end->disconnect();
  reply(1, 2000);
  end->held.clear();
  end->run();
  EXPECT_TRUE(end->failed.empty());
}

// Shows: V1-ERR-19
TEST_F(Survival, ACallThatFailedBeforeIsAnsweredErrChunk) {
  end->failed_earlier = {2, 3, 4};
  peer->say(message(1));
  EXPECT_EQ(end->asked, 0u) << "it has no chunks";
  peer->say(message(4));
  EXPECT_EQ(end->calls, 2u) << "this one has not either";
  for (const Wire& call : {with_read_chunk(2), with_reply_chunk(3, false)}) {
    peer->take();
    peer->say(call);
    ASSERT_EQ(peer->sent.size(), 1u);
    EXPECT_EQ(word(peer->sent[0], 3), kError);
    EXPECT_EQ(word(peer->sent[0], 4), kErrChunk);
  }
  EXPECT_EQ(end->calls, 2u);
  EXPECT_EQ(end->qp.count(Op::kRead), 0u);
  EXPECT_EQ(end->engine->counters().calls_failed_again, 2u);
  peer->say(with_reply_chunk(5, true));
  EXPECT_EQ(end->calls, 3u);
  EXPECT_FALSE(end->engine->wants_disconnect());
}

TEST_F(Survival, DrainsWhenTheLastReplyIsOut) {
  peer->say(message(1));
  peer->say(message(2));
  end->engine->drain();
  peer->say(message(3));
  peer->say(with_read_chunk(4));
  EXPECT_EQ(end->calls, 2u);
  EXPECT_EQ(end->engine->counters().calls_not_run, 2u);
  reply(0, 8);
  end->run();
  EXPECT_EQ(peer->take().size(), 1u);
  EXPECT_FALSE(end->engine->wants_disconnect());
  reply(1, 8);
  end->held.clear();
  EXPECT_FALSE(end->engine->wants_disconnect()) << "it is not sent yet";
  end->run();
  EXPECT_EQ(peer->take().size(), 1u);
  EXPECT_TRUE(end->engine->wants_disconnect());
  EXPECT_EQ(end->engine->ending().by, EndedBy::kProgram);
  EXPECT_EQ(end->engine->ending().code, Errc::kShutdown);
}

TEST_F(Survival, WithoutCallsItIsDrainedAtOnce) {
  EXPECT_FALSE(end->engine->wants_disconnect());
  end->engine->drain();
  EXPECT_TRUE(end->engine->wants_disconnect());
}

}  // namespace
}  // namespace rrdk::engine::test
