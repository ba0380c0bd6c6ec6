#include "server_scenario.h"

#include <ostream>

namespace rrdk::hostile {

Step say(Message message) {
  return [message](Stage& stage) { stage.peer->say(message.bytes(*stage.peer)); };
}

Step say_times(uint32_t count, Message message) {
  return [=](Stage& stage) {
    for (uint32_t i = 0; i < count; ++i)
      stage.peer->say(message.bytes(*stage.peer));
  };
}

Step hear(size_t count) {
  return [count](Stage& stage) {
    stage.until("the victim says something",
                [&] { return stage.peer->heard.size() >= count || stage.peer->closed(); });
  };
}

Step hang_up() {
  return [](Stage& stage) { stage.peer->hang_up(); };
}

Step pause(uint32_t passes) {
  return [passes](Stage& stage) { stage.passes(passes); };
}

Step expose(Message message) {
  return [message](Stage& stage) { stage.peer->expose_request(message.bytes(*stage.peer)); };
}

Step with_ally() {
  return [](Stage& stage) {
    stage.peer->connect_ally();
    stage.until("the second connection is there", [&] { return stage.peer->ally_ready(); });
  };
}

Step revoke(Peer::Memory which) {
  return [which](Stage& stage) { stage.peer->revoke(which); };
}

Step written(uint32_t skip, uint64_t offset, uint32_t length) {
  return [=](Stage& stage) {
    const std::byte* bytes = stage.peer->bytes(Peer::kWritable);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < Peer::kBytes; ++i) {
      bool inside = i >= skip && i - skip < length;
      wrong += bytes[i] != (inside ? loopback::pattern(offset + i - skip) : std::byte{0x5a});
    }
    EXPECT_EQ(wrong, 0u) << "bytes of the peer's memory";
  };
}

Step untouched() {
  return written(0, 0, 0);
}

void PrintTo(const ServerScenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

namespace {

constexpr uint32_t kLastXid = 0x0ff1ce;

class Play {
 public:
  Play(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario)
      : scenario_(scenario),
        stage_(fabric, scenario.server, {.credits = 16}),
        before_(stage_.server->stats().refusals) {}

  void run() {
    begin();
    for (const Step& step : scenario_.script) {
      step(stage_);
      stage_.pass();
    }
    stage_.until("what was expected", [this] { return complete(); });
    if (scenario_.after == After::kServes)
      expect_service();
    stage_.end_comparison();
    expect_answers();
    Refusals moved = refusals();
    EXPECT_EQ(describe(moved), describe(sum(scenario_.counters)));
    EXPECT_EQ(peer().closed(), scenario_.after == After::kEnds || scenario_.after == After::kLeft);
    end();
  }

 private:
  Peer& peer() { return *stage_.peer; }
  Refusals refusals() const { return stage_.server->stats().refusals - before_; }

  void begin() {
    stage_.new_peer(stage_.uri, scenario_.peer);
    stage_.begin_comparison();
    peer().connect();
    if (scenario_.waits)
      stage_.until("the connection is there", [this] { return peer().established(); });
  }
  bool complete() {
    Refusals now = refusals();
    for (const Moved& expected : scenario_.counters) {
      if (now[expected.reason] < expected.times)
        return false;
    }
    bool ends = scenario_.after == After::kEnds || scenario_.after == After::kLeft;
    return peer().heard.size() >= scenario_.answers.size() && (!ends || peer().closed());
  }
  void expect_service() {
    size_t before = peer().heard.size();
    peer().say(null_call(kLastXid).bytes(peer()));
    stage_.until("the next call is served",
                 [&] { return peer().heard.size() > before || peer().closed(); });
    ASSERT_FALSE(peer().closed()) << "the victim ended the connection";
    Bytes expected = null_reply(kLastXid, scenario_.server.credits).bytes(peer());
    EXPECT_EQ(hex(peer().heard.back().bytes), hex(expected));
    peer().heard.pop_back();
  }
  void expect_answers() {
    ASSERT_EQ(peer().heard.size(), scenario_.answers.size());
    for (size_t i = 0; i < scenario_.answers.size(); ++i)
      EXPECT_EQ(hex(peer().heard[i].bytes), hex(scenario_.answers[i].bytes(peer()))) << i;
  }
  void end() {
    peer().hang_up();
    stage_.until("the hostile connection is gone",
                 [this] { return stage_.server->stats().connections == 1; });
  }

  const ServerScenario& scenario_;
  Stage stage_;
  const Refusals before_;
};

}  // namespace

void play(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario) {
  Play(fabric, scenario).run();
}

}  // namespace rrdk::hostile
