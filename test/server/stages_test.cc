// When calls pass each stage, at both ends, and that a delay shows in the stage in which it
// happened.
#include <algorithm>
#include <cinttypes>
#include <functional>
#include <map>
#include <thread>

#include "loopback.h"
#include "rrdk/faults.h"

namespace rrdk::loopback {
namespace {

constexpr uint64_t kDelayNs = 30'000'000;

// A call's stages at both ends together, in order.
struct Passed {
  const char* name;
  Stage stage;
  bool made;
};
constexpr Passed kWay[] = {
    {"submitted", Stage::kSubmitted, true}, {"started", Stage::kStarted, true},
    {"posted", Stage::kPosted, true},       {"received", Stage::kReceived, false},
    {"whole", Stage::kWhole, false},        {"decoded", Stage::kDecoded, false},
    {"entered", Stage::kEntered, false},    {"answered", Stage::kAnswered, false},
    {"replied", Stage::kReplied, false},    {"seen", Stage::kSeen, true},
    {"called", Stage::kCalled, true},       {"ended", Stage::kEnded, true},
};

// Server and client have their own runtimes, so that only one is made slow.
class Stages : public testing::Test {
 protected:
  static RuntimeOptions sampling(RuntimeOptions options) {
    options.stamp_every = 1;
    return options;
  }

  Stages()
      : ends_(sampling({.poll_cpus = {-1}, .worker_cpus = {-1}}), {}, {},
              {{.binding = &kBinding, .procedures = kTable, .context = &keeper_}}),
        clients_(Runtime::create(*ends_.memory, sampling({})).value()),
        client_(Client::create(*clients_, {.credits = 1, .chunk_threshold = 1024}).value()),
        connection_(client_->connect(ends_.uri).value()) {}
  ~Stages() override {
    keeper_.join();
    keeper_.release();
    connection_.reset();
    client_.reset();
    clients_.reset();
    ends_.end();
  }

  void call(uint32_t procedure, const std::function<void(Encoder&)>& put,
            void (*ended)(Call&, void*) = nullptr) {
    Call made(*connection_);
    put(made.begin(kBinding, procedure));
    if (ended == nullptr) {
      EXPECT_EQ(made.submit_and_wait(), CallStatus::kOk);
      return;
    }
    made.submit(ended, nullptr);
    ends_.until([&] { return clients_->poll(), !made.in_flight(); });
  }
  void null() {
    call(0, [](Encoder&) {});
  }

  // For each call that both ends have: the nanoseconds from stage to stage, under the name of the
  // stage that was reached. The server's side of a call is complete when the Send of its reply is.
  std::vector<std::map<std::string, uint64_t>> times(uint32_t procedure, size_t calls) {
    std::vector<std::map<std::string, uint64_t>> all;
    ends_.until([&] {
      all = matched(procedure);
      return all.size() >= calls;
    });
    return all;
  }

  // An injected delay shows in that stage and in no other. Other load of the machine delays single
  // calls, so this is checked for most calls.
  void expect_delay_in(uint32_t procedure, size_t calls, const std::string& slow,
                       size_t but_the_first = 0) {
    auto all = times(procedure, calls);
    all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(but_the_first));
    for (const Passed& passed : kWay) {
      const auto late = std::ranges::count_if(all, [&](const auto& call) {
        auto time = call.find(passed.name);
        return time != call.end() && time->second >= kDelayNs;
      });
      if (passed.name == slow)
        EXPECT_EQ(late, static_cast<ptrdiff_t>(all.size())) << passed.name;
      else
        EXPECT_LT(2 * late, static_cast<ptrdiff_t>(all.size())) << passed.name;
    }
  }

  Keeper keeper_;
  Ends ends_;
  std::unique_ptr<Runtime> clients_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<ClientConnection> connection_;

 private:
  std::vector<std::map<std::string, uint64_t>> matched(uint32_t procedure) {
    std::map<uint32_t, StampedCall> served;
    for (const StampedCall& call : ends_.runtime->stamped_calls()) {
      if (call.procedure == procedure && call.program == kBinding.program && !call.made)
        served[call.xid] = call;
    }
    std::vector<std::map<std::string, uint64_t>> all;
    for (const StampedCall& call : clients_->stamped_calls()) {
      auto other = served.find(call.xid);
      if (!call.made || other == served.end())
        continue;
      std::map<std::string, uint64_t> steps;
      uint64_t before = call.at(Stage::kSubmitted);
      for (const Passed& passed : kWay) {
        const uint64_t now = (passed.made ? call : other->second).at(passed.stage);
        EXPECT_GE(now, before) << passed.name;  // which is not 0: it has passed all stages
        steps[passed.name] = ticks_to_ns(now - before);
        before = now;
      }
      all.push_back(steps);
    }
    return all;
  }
};

// The stamps are available in the call's completion callback.
TEST_F(Stages, AreAvailableInTheCallsCallback) {
  struct Seen {
    std::optional<StampedCall> stamps;
  } seen;
  Call made(*connection_);
  made.begin(kBinding, 0);
  made.submit(
      [](Call& ended, void* argument) { static_cast<Seen*>(argument)->stamps = ended.stamps(); },
      &seen);
  ends_.until([&] { return clients_->poll(), !made.in_flight(); });
  EXPECT_FALSE(made.stamps());
  ASSERT_TRUE(seen.stamps);
  EXPECT_TRUE(seen.stamps->made);
  EXPECT_EQ(seen.stamps->program, kBinding.program);
  uint64_t before = 1;
  for (Stage stage :
       {Stage::kSubmitted, Stage::kStarted, Stage::kPosted, Stage::kSeen, Stage::kCalled}) {
    EXPECT_GE(seen.stamps->at(stage), before);
    before = seen.stamps->at(stage);
  }
  EXPECT_EQ(seen.stamps->at(Stage::kEnded), 0u);
}

TEST_F(Stages, ArePassedInTheirOrderAtBothEnds) {
  for (int i = 0; i < 20; ++i)
    null();
  EXPECT_EQ(times(0, 20).size(), 20u);
  for (const auto& call : times(0, 20))
    EXPECT_EQ(call.at("entered") + call.at("answered"), 0u);  // NULL has no handler
  for (int i = 0; i < 20; ++i) {
    call(kWrite, [&](Encoder& args) {
      args.put_u64(0);
      args.put_item(patterned(*ends_.memory, 0, 8192), 8192, Ddp::kEligible);
    });
  }
  for (const auto& call : times(kWrite, 20))
    EXPECT_GT(call.at("whole"), 0u);  // its data was read
}

TEST_F(Stages, AreOfTheConnectionThatHasThem) {
  null();
  times(0, 1);
  const uint64_t id = connection_->info().id;
  uint32_t mine = 0;
  for (const StampedCall& call : clients_->stamped_calls()) {
    EXPECT_EQ(call.connection, id);
    mine += call.made && call.program == kBinding.program && call.version == kBinding.version;
  }
  EXPECT_EQ(mine, 1u);
}

TEST_F(Stages, ACallThatIsGivenUpIsKeptWithoutItsAnswer) {
  Call kept(*connection_);
  kept.begin(kBinding, kKeep);
  kept.set_timeout_ms(20);
  EXPECT_EQ(kept.submit_and_wait(), CallStatus::kTimeout);
  keeper_.release();
  const std::vector<StampedCall> calls = clients_->stamped_calls();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_NE(calls[0].at(Stage::kPosted), 0u);
  EXPECT_EQ(calls[0].at(Stage::kSeen), 0u);
  EXPECT_NE(calls[0].at(Stage::kEnded), 0u);
}

TEST_F(Stages, TheLastOnesOfACoreAreKept) {
  for (size_t i = 0; i < kStampedCalls + 100; ++i)
    null();
  EXPECT_EQ(clients_->stamped_calls().size(), kStampedCalls);
  std::vector<uint32_t> xids;
  for (const StampedCall& call : clients_->stamped_calls())
    xids.push_back(call.xid);
  std::ranges::sort(xids);
  EXPECT_EQ(std::ranges::unique(xids).size(), 0u);
}

TEST_F(Stages, TheSlowestOfThoseBeforeAreKept) {
  const auto put_delay = [](Encoder& args) { args.put_u64(kDelayNs); };
  const auto of_delay = [](const std::vector<StampedCall>& calls) {
    return std::ranges::count(calls, kDelay, &StampedCall::procedure);
  };
  for (int i = 0; i < 3; ++i)
    call(kDelay, put_delay);
  for (size_t i = 0; i < 2 * kStampedCalls; ++i)
    null();
  call(kDelay, put_delay);
  for (const Runtime* runtime : {ends_.runtime.get(), clients_.get()}) {
    // A server's call is complete when the Send of its reply is.
    ends_.until([&] { return runtime->stamped_calls().size() == kStampedCalls; });
    EXPECT_EQ(of_delay(runtime->stamped_calls()), 1);
    EXPECT_EQ(of_delay(runtime->slow_calls()), 3);
    EXPECT_EQ(runtime->slow_calls().size(), kSlowCalls);
  }
}

TEST_F(Stages, AWaitForACreditIsBeforeTheStart) {
  for (int i = 0; i < 5; ++i) {
    Call first(*connection_);
    first.begin(kBinding, kDelay).put_u64(kDelayNs + kDelayNs / 2);
    first.submit([](Call&, void*) {}, nullptr);
    null();
    ends_.until([&] { return clients_->poll(), !first.in_flight(); });
  }
  expect_delay_in(0, 5, "started");
}

// A call that is submitted in a callback is sent at once, and answered while that callback still
// runs.
TEST_F(Stages, ABusyCallbackIsBeforeTheReplyIsSeen) {
  struct Behind {
    Call call;
    const Server& server;
  };
  for (int i = 0; i < 5; ++i) {
    Call first(*connection_);
    Behind second{Call(*connection_), *ends_.server};
    first.begin(kBinding, kWho);
    first.submit(
        [](Call&, void* next) {
          auto& [behind, server] = *static_cast<Behind*>(next);
          const uint64_t replies = server.stats()[Counter::kRepliesSent];
          behind.begin(kBinding, 0);
          behind.submit([](Call&, void*) {}, nullptr);
          while (server.stats()[Counter::kRepliesSent] == replies)
            std::this_thread::yield();
          const uint64_t end = Runtime::now_ns() + kDelayNs;
          while (Runtime::now_ns() <= end) {
          }
        },
        &second);
    ends_.until([&] { return clients_->poll(), !first.in_flight() && !second.call.in_flight(); });
  }
  expect_delay_in(0, 5, "seen");
}

// A call's data is fetched when there is space for it beside that of earlier calls.
TEST_F(Stages, AWaitForItsTurnIsBeforeTheFetch) {
  static constexpr Procedure kHolding[] = {
      {kKeep, [](ServerCall call, void*) { std::move(call).reply_after(kDelayNs + kDelayNs / 2); }},
      {kWrite, [](ServerCall call, void*) { std::move(call).reply(); }}};
  static constexpr ProcedureBinding kItems[] = {
      {.procedure = kWrite, .name = "WRITE", .eligible_args = 1},
      {.procedure = kKeep, .name = "HOLD", .eligible_args = 1}};
  static constexpr Binding kOfTwo = {
      .program = kBinding.program, .version = 5, .name = "turns", .procedures = kItems};
  auto server = Server::create(*ends_.runtime, {.max_chunk_bytes = 12'000}).value();
  ASSERT_TRUE(server->add_service({.binding = &kOfTwo, .procedures = kHolding}));
  auto client = Client::create(*clients_, {.credits = 4}).value();
  auto other = client->connect(server->listen("shm:" + socket_path()).value()).value();
  auto submit = [&](Call& call, uint32_t procedure) {
    Encoder& args = call.begin(kOfTwo, procedure);
    args.put_item(patterned(*ends_.memory, 0, 8192), 8192, Ddp::kEligible);
    call.submit([](Call&, void*) {}, nullptr);
  };
  Call more(*other);  // credits: the first answer grants them
  more.begin(kOfTwo, 0);
  EXPECT_EQ(more.submit_and_wait(), CallStatus::kOk);
  for (int i = 0; i < 5; ++i) {
    Call holder(*other), behind(*other);
    submit(holder, kKeep);
    submit(behind, kWrite);
    ends_.until([&] { return clients_->poll(), !holder.in_flight() && !behind.in_flight(); });
    EXPECT_EQ(behind.status(), CallStatus::kOk);
  }
  expect_delay_in(kWrite, 5, "whole");
}

TEST_F(Stages, ALateCallIsOnTheWayToTheServer) {
  ASSERT_TRUE(ends_.runtime->set_faults({.delay = {.rate = 1}, .delay_us = kDelayNs / 1000}));
  for (int i = 0; i < 5; ++i)
    null();
  expect_delay_in(0, 5, "received");
}

TEST_F(Stages, AWorkerThatIsBusyIsBeforeTheHandler) {
  static std::atomic<bool> held;
  static constexpr Procedure kSlow[] = {
      {1, [](ServerCall call, void*) { std::move(call).reply(); }, Dispatch::kWorker},
      {2,
       [](ServerCall call, void*) {
         while (held)
           std::this_thread::yield();
         std::move(call).reply();
       },
       Dispatch::kWorker}};
  static constexpr Binding kBusy = {
      .program = kBinding.program, .version = 4, .name = "busy", .procedures = {}};
  ASSERT_TRUE(ends_.server->add_service({.binding = &kBusy, .procedures = kSlow}));
  auto other = client_->connect(ends_.uri).value();
  auto arrives = [&](uint32_t procedure) {
    ends_.until([&] {
      clients_->poll();
      return std::ranges::any_of(ends_.server->procedures(), [&](const ProcedureStats& p) {
        return p.version == 4 && p.procedure == procedure && p.calls_in_progress == 1;
      });
    });
  };
  for (int i = 0; i < 5; ++i) {
    held = true;
    Call slow(*other);
    slow.begin(kBusy, 2);
    slow.submit([](Call&, void*) {}, nullptr);
    arrives(2);
    Call behind(*connection_);
    behind.begin(kBusy, 1);
    behind.submit([](Call&, void*) {}, nullptr);
    arrives(1);
    const uint64_t end = Runtime::now_ns() + kDelayNs + kDelayNs / 10;
    ends_.until([&] { return clients_->poll(), Runtime::now_ns() > end; });
    held = false;
    ends_.until([&] { return clients_->poll(), !slow.in_flight() && !behind.in_flight(); });
  }
  expect_delay_in(1, 5, "entered");
}

TEST_F(Stages, AHandlersTimeIsItsOwn) {
  static constexpr Procedure kSlow[] = {{1, [](ServerCall call, void*) {
                                           const uint64_t end = Runtime::now_ns() + kDelayNs;
                                           while (Runtime::now_ns() <= end) {
                                           }
                                           std::move(call).reply();
                                         }}};
  static constexpr Binding kBusy = {
      .program = kBinding.program, .version = 4, .name = "busy", .procedures = {}};
  ASSERT_TRUE(ends_.server->add_service({.binding = &kBusy, .procedures = kSlow}));
  for (int i = 0; i < 5; ++i) {
    Call slow(*connection_);
    slow.begin(kBusy, 1);
    EXPECT_EQ(slow.submit_and_wait(), CallStatus::kOk);
  }
  expect_delay_in(1, 5, "answered");
}

TEST_F(Stages, AReplyThatIsHeldBackIsBehindTheHandler) {
  for (int i = 0; i < 5; ++i)
    call(kDelay, [](Encoder& args) { args.put_u64(kDelayNs + kDelayNs / 10); });
  expect_delay_in(kDelay, 5, "replied");
}

TEST_F(Stages, ALateReplyIsOnTheWayBack) {
  ASSERT_TRUE(clients_->set_faults({.delay = {.rate = 1}, .delay_us = kDelayNs / 1000}));
  for (int i = 0; i < 5; ++i)
    null();
  expect_delay_in(0, 5, "seen");
}

// Fault injection in every stage: no other stage shows it.
TEST_F(Stages, OnlyTheDelayedStageIsSlow) {
  static constexpr struct {
    const char* fault;
    bool at_client;
    const char* seen;
  } kSlow[] = {
      {"wait", true, "started"},   {"post", true, "posted"},       {"complete", true, "called"},
      {"callback", true, "ended"}, {"fetch", false, "whole"},      {"decode", false, "decoded"},
      {"queue", false, "entered"}, {"handler", false, "answered"}, {"reply", false, "replied"},
  };
  uint64_t before = 0;
  for (const auto& slow : kSlow) {
    SCOPED_TRACE(slow.fault);
    Runtime& runtime = slow.at_client ? *clients_ : *ends_.runtime;
    ASSERT_TRUE(runtime.set_faults(
        parse_fault_plan("stage-us=" + std::to_string(kDelayNs / 1000) + ":1:" + slow.fault)
            .value()));
    for (int i = 0; i < 5; ++i)
      call(kWho, [](Encoder&) {});
    expect_delay_in(kWho, before + 5, slow.seen, before);
    before += 5;
    runtime.clear_faults();
    EXPECT_EQ(runtime.fault_counts().stage % 5, 0u);
    EXPECT_GT(runtime.fault_counts().stage, 0u);
  }
}

TEST_F(Stages, ASlowCallbackIsBehindTheReply) {
  for (int i = 0; i < 5; ++i) {
    call(
        0, [](Encoder&) {},
        [](Call&, void*) {
          const uint64_t end = Runtime::now_ns() + kDelayNs;
          while (Runtime::now_ns() <= end) {
          }
        });
  }
  expect_delay_in(0, 5, "ended");
}

}  // namespace
}  // namespace rrdk::loopback
