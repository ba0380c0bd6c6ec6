// One half of the engine under test, and a script that plays the other end.
#pragma once

#include "script.h"

namespace rrdk::engine::test {

using fabric::Op;
using fabric::Rights;

constexpr uint32_t kMsg = 0, kNoMsg = 1, kMsgp = 2, kDone = 3, kError = 4;
constexpr uint32_t kErrVers = 1, kErrChunk = 2;

class ScriptedTest : public EngineTest {
 protected:
  using EngineTest::EngineTest;

  void begin(const ConnectionOptions& options, const proto::PrivateData& peer, uint32_t reads,
             const PerConnection& own = {}) {
    end = std::make_unique<End>(options, *memory, *pool, own);
    peer_side = std::make_unique<Script>(*end);
    end->engine->on_established(peer, reads);
    end->engine->set_port(&end->qp);
  }
  // For an end that makes calls: `plain` bytes of arguments follow two words.
  void submit(OutgoingCall& call, uint32_t plain = 0) {
    Encoder e(call.message, *memory, 1024, 1u << 20);
    e.put_u64(0);
    e.put_fixed(Bytes(plain));
    e.finish();
    end->engine->submit(call);
    end->run();
  }
  // The only message that the end has sent.
  Bytes only_sent() {
    std::vector<Bytes> sent = peer_side->take();
    EXPECT_EQ(sent.size(), 1u);
    return sent.empty() ? Bytes(64) : sent[0];
  }
  Bytes send(OutgoingCall& call, uint32_t plain = 0) {
    submit(call, plain);
    return only_sent();
  }
  const Counters& counters() { return end->engine->counters(); }
  // If a test's own TearDown() has disconnected the end, it is idle and holds nothing.
  void TearDown() override {
    if (end != nullptr) {
      end->disconnect();
      EXPECT_TRUE(end->engine->idle());
      end.reset();
    }
    EngineTest::TearDown();
  }

  std::unique_ptr<End> end;
  std::unique_ptr<Script> peer_side;
};

}  // namespace rrdk::engine::test
