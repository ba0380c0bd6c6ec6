#include "client_scenario.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "version2.h"

namespace rrdk::hostile {

using loopback::kBinding;

void PrintTo(const ClientScenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

// A call of the victim's, and the memory that it needs.
struct VictimCall {
  explicit VictimCall(ClientConnection& connection) : call(connection) {}

  void submit(Ask what, Memory& memory, uint32_t timeout_ms);

  static constexpr std::byte kNothing{0x5a};
  Call call;
  Buffer room;
};

void VictimCall::submit(Ask what, Memory& memory, uint32_t timeout_ms) {
  static constexpr uint32_t kItem = 8000;
  switch (what) {
    case Ask::kNull:
      call.begin(kBinding, 0);
      break;
    case Ask::kLong:
    case Ask::kEcho: {
      Encoder& args = call.begin(kBinding, loopback::kEcho);
      args.put_u32(4);
      args.put_u32(5);
      if (what == Ask::kLong)
        call.expect_reply(kItem);
      break;
    }
    case Ask::kLarge: {
      std::array<std::byte, 2000> bytes = {};
      Encoder& args = call.begin(kBinding, loopback::kEcho);
      args.put_u32(static_cast<uint32_t>(bytes.size()));
      args.put_fixed(bytes);
      break;
    }
    case Ask::kBoth:
    case Ask::kRead: {
      Encoder& args = call.begin(kBinding, loopback::kRead);
      args.put_u64(0);
      args.put_u32(1000);
      room = memory.get(1000);
      std::fill_n(room.data(), 1000, kNothing);
      MemorySpan span = room.span();
      std::array<MemorySpan, 2> segments = {MemorySpan{span.data, 600, span.region},
                                            MemorySpan{span.data + 600, 400, span.region}};
      call.offer(segments);
      if (what == Ask::kBoth)
        call.expect_reply(kItem);
      break;
    }
    case Ask::kWrite: {
      Encoder& args = call.begin(kBinding, loopback::kWrite);
      args.put_u64(0);
      args.put_item(loopback::patterned(memory, 0, kItem), kItem, Ddp::kEligible);
      break;
    }
  }
  call.set_timeout_ms(timeout_ms);
  call.submit(nullptr, nullptr);
}

Step cancel(size_t n) {
  return [n](Stage& stage) { stage.victim_calls[n]->call.cancel(); };
}

Step nothing_written(size_t n) {
  return [n](Stage& stage) {
    const std::byte* bytes = stage.victim_calls[n]->room.data();
    EXPECT_TRUE(
        std::all_of(bytes, bytes + 1000, [](std::byte b) { return b == VictimCall::kNothing; }));
  };
}

Step ended(size_t n) {
  return [n](Stage& stage) {
    stage.until("the call ends", [&] { return !stage.victim_calls[n]->call.in_flight(); });
  };
}

namespace {

class ClientPlay {
 public:
  ClientPlay(const fabric::test::FabricUnderTest& fabric, const ClientScenario& scenario)
      : scenario_(scenario),
        stage_(fabric, {.versions = {.draft = scenario.client.version2.draft}, .credits = kCredits},
               scenario.client, scenario.serves) {
    stage_.new_peer(fabric.new_uri(), scenario.peer);
  }

  void run() {
    stage_.begin_comparison();
    peer().listen();
    if (!connect())
      return end();
    if (scenario_.first_grant)
      get_a_grant();
    for (const Asked& asked : scenario_.asked)
      submit(asked.what, asked.timeout_ms);
    if (!scenario_.asked.empty() && scenario_.peer.receives != 0)
      stage_.until("the first call comes", [this] { return !peer().heard.empty(); });
    for (const Step& step : scenario_.script) {
      step(stage_);
      stage_.pass();
    }
    stage_.until("what was expected", [this] { return complete(); });
    if (scenario_.after == After::kServes)
      expect_service();
    stage_.end_comparison();
    expect_statuses();
    expect_only_calls();
    EXPECT_EQ(describe(refusals_of(victim_->stats())), describe(expected()));
    EXPECT_EQ(victim_->stats()[Counter::kProtocolBreaches], breaches(expected()));
    EXPECT_EQ(peer().closed(), ends());
    end();
  }

 private:
  Peer& peer() { return *stage_.peer; }
  bool ends() const { return scenario_.after == After::kEnds || scenario_.after == After::kLeft; }

  // Another thread waits for the outcome, while this one polls victim and peer.
  bool connect() {
    std::optional<Result<std::unique_ptr<ClientConnection>>> outcome;
    std::atomic<bool> done = false;
    std::thread connector([&] {
      outcome = stage_.client->connect(peer().uri());
      done.store(true, std::memory_order_release);
    });
    bool in_time =
        stage_.until("connect() returns", [&] { return done.load(std::memory_order_acquire); });
    EXPECT_TRUE(in_time);
    connector.join();
    if (scenario_.connect_error) {
      EXPECT_FALSE(*outcome);
      if (!*outcome) {
        const std::string& message = outcome->error().message;
        EXPECT_EQ(outcome->error().code, *scenario_.connect_error) << message;
        EXPECT_TRUE(message.ends_with(scenario_.connect_says)) << message;
        EXPECT_TRUE(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
        EXPECT_LE(message.size(), 200 + peer().uri().size()) << message;
      }
      return false;
    }
    EXPECT_TRUE(*outcome) << outcome->error().message;
    if (*outcome)
      victim_ = std::move(**outcome);
    return victim_ != nullptr;
  }

  VictimCall& submit(Ask what, uint32_t timeout_ms = 0) {
    auto& calls = stage_.victim_calls;
    calls.push_back(std::make_shared<VictimCall>(*victim_));
    calls.back()->submit(what, *stage_.memory, timeout_ms);
    return *calls.back();
  }
  // One more call, answered correctly.
  void null_exchange() {
    size_t before = peer().heard.size();
    VictimCall& last = submit(Ask::kNull);
    if (!stage_.until("the victim calls",
                      [&] { return peer().heard.size() > before || !last.call.in_flight(); }))
      return;
    ASSERT_GT(peer().heard.size(), before) << to_string(last.call.status());
    uint32_t xid = word_at(peer().heard[before].bytes, 0);
    bool is_1 = word_at(peer().heard[before].bytes, 1) == 1;
    Wire draft = scenario_.client.version2.draft == RpcRdmaDraft::kDraft00 ? k00 : k04;
    peer().say((is_1 ? null_reply(xid) : null_reply2(draft, xid)).bytes(peer()));
    stage_.until("the call ends", [&] { return !last.call.in_flight(); });
    EXPECT_EQ(last.call.status(), CallStatus::kOk) << to_string(last.call.status());
  }
  // A client that tells its properties does so behind the reply.
  void get_a_grant() {
    null_exchange();
    const ClientOptions& client = scenario_.client;
    bool tells = client.version2.properties && client.version != RpcRdmaVersion::kOne &&
                 client.version2.draft == RpcRdmaDraft::kDraft04;
    stage_.until("it says what it is", [&] { return !tells || peer().heard.size() == 2; });
    stage_.victim_calls.clear();
    peer().heard.clear();
  }
  Refusals expected() { return sum(scenario_.counters, peer().can().acknowledges); }
  bool complete() {
    Refusals now = refusals_of(victim_->stats());
    const Refusals wanted = expected();
    for (Refusal reason : all_refusals()) {
      if (now[reason] < wanted[reason])
        return false;
    }
    for (auto& one : stage_.victim_calls) {
      if (one->call.in_flight())
        return false;
    }
    return ends() ? peer().closed() : replies() >= scenario_.replies;
  }
  bool is_reply(const Peer::Heard& message) const {
    return scenario_.serves && word_at(message.bytes, 3) <= kOptional &&
           word_at(message.bytes, 3) != kError && word_at(message.bytes, 4) == kBackward;
  }
  size_t replies() {
    return static_cast<size_t>(std::ranges::count_if(
        peer().heard, [this](const Peer::Heard& message) { return is_reply(message); }));
  }
  void expect_service() {
    null_exchange();
    stage_.victim_calls.pop_back();
    if (!peer().heard.empty())
      peer().heard.pop_back();
  }
  void expect_statuses() {
    for (size_t i = 0; i < scenario_.asked.size(); ++i) {
      EXPECT_STREQ(to_string(stage_.victim_calls[i]->call.status()),
                   to_string(scenario_.asked[i].status))
          << "call " << i;
    }
  }
  // A client does not answer anything that a server sends (V1-ERR-12): all its messages are calls,
  // each sent once, and those that had to be sent again. For transport properties the receiver is
  // the responder (V2D4-PROP-12).
  void expect_only_calls() {
    std::set<uint32_t> xids;
    std::vector<Bytes> errors;
    size_t calls = 0;
    for (const Peer::Heard& message : peer().heard) {
      uint32_t type = word_at(message.bytes, 3);
      if (type == kError)
        errors.push_back(message.bytes);
      if (type == kError || (type > kOptional && scenario_.client.version2.properties))
        continue;
      if (is_reply(message))
        continue;
      ++calls;
      xids.insert(word_at(message.bytes, 0));
      if (scenario_.client.version == RpcRdmaVersion::kOne) {
        EXPECT_EQ(word_at(message.bytes, 1), 1u);
      }
      EXPECT_LE(word_at(message.bytes, 3), kNoMsg) << hex(message.bytes);
    }
    EXPECT_EQ(replies(), scenario_.replies);
    EXPECT_LE(xids.size(), scenario_.asked.size());
    EXPECT_EQ(calls - xids.size(), scenario_.resent);
    expect_errors(errors);
  }
  void expect_errors(const std::vector<Bytes>& said) {
    const std::vector<Message>& wanted = scenario_.errors;
    if (!scenario_.errors_vary) {
      EXPECT_EQ(said.size(), wanted.size());
    }
    for (size_t i = 0; i < said.size() && !wanted.empty(); ++i)
      EXPECT_EQ(hex(said[i]), hex(wanted[std::min(i, wanted.size() - 1)].bytes(peer()))) << i;
  }
  void end() {
    stage_.victim_calls.clear();
    victim_.reset();
  }

  const ClientScenario& scenario_;
  Stage stage_;
  std::unique_ptr<ClientConnection> victim_;
};

}  // namespace

void play(const fabric::test::FabricUnderTest& fabric, const ClientScenario& scenario) {
  ClientPlay(fabric, scenario).run();
}

}  // namespace rrdk::hostile
