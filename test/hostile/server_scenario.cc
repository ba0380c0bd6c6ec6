#include "server_scenario.h"

#include <ostream>

namespace rrdk::hostile {

void PrintTo(const ServerScenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

namespace {

constexpr uint32_t kLastXid = 0x0ff1ce;

class ServerPlay {
 public:
  ServerPlay(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario)
      : scenario_(scenario),
        stage_(fabric, scenario.server, {.credits = 16}),
        before_(refusals_of(stage_.server->stats())) {}

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
    EXPECT_EQ(describe(moved), describe(expected()));
    EXPECT_EQ(peer().closed(), scenario_.after == After::kEnds || scenario_.after == After::kLeft);
    end();
  }

 private:
  Peer& peer() { return *stage_.peer; }
  Refusals refusals() const { return refusals_of(stage_.server->stats()) - before_; }

  void begin() {
    stage_.new_peer(stage_.uri, scenario_.peer);
    stage_.begin_comparison();
    peer().connect();
    if (scenario_.waits)
      stage_.until("the connection is there", [this] { return peer().established(); });
  }
  Refusals expected() { return sum(scenario_.counters, peer().can().acknowledges); }
  bool complete() {
    Refusals now = refusals();
    const Refusals wanted = expected();
    for (Refusal reason : all_refusals()) {
      if (now[reason] < wanted[reason])
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
    for (size_t i = 0; i < scenario_.answers.size(); ++i) {
      Bytes& answer = peer().heard[i].bytes;
      if (scenario_.grants_vary)
        normalise_grant(answer);
      EXPECT_EQ(hex(answer), hex(scenario_.answers[i].bytes(peer()))) << i;
    }
  }
  void normalise_grant(Bytes& answer) const {
    uint32_t grant = word_at(answer, 2);
    EXPECT_GE(grant, 1u);
    EXPECT_LE(grant, scenario_.server.credits);
    if (answer.size() >= 12)
      xdr::store_u32(&answer[8], kCredits);
  }
  void end() {
    peer().hang_up();
    stage_.until("the hostile connection is gone",
                 [this] { return stage_.server->stats()[Counter::kConnections] == 1; });
  }

  const ServerScenario& scenario_;
  Stage stage_;
  const Refusals before_;
};

}  // namespace

void play(const fabric::test::FabricUnderTest& fabric, const ServerScenario& scenario) {
  ServerPlay(fabric, scenario).run();
}

}  // namespace rrdk::hostile
