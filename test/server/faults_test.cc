// Injected faults: whatever fails, each call ends exactly once, and nothing is left behind.
#include "rrdk/faults.h"

#include "loopback.h"
#include "test/seed.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kSize = 100'000;

FaultPlan plan_of(const std::string& spec) {
  auto plan = parse_fault_plan(spec);
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

// Calls on one connection after the other: when a connection breaks, the next one is made.
struct Line {
  explicit Line(World& world_in)
      : world(world_in), room(std::move(world.memory->allocate(kSize).value())) {
    connect();
  }
  ~Line() { call.reset(); }

  void connect() {
    call.reset();
    connection.reset();
    for (int tries = 0; !connection; ++tries) {  // a fault may hit connect(), too
      ASSERT_LT(tries, 10'000);
      auto made = world.client->connect(world.uri);
      if (made)
        connection = std::move(*made);
      else
        EXPECT_NE(made.error().message, "");
    }
    call = std::make_unique<EndingCall>(*connection);
  }
  // Reads or writes, and fails the test unless the data are right or the call ended in an error.
  void start(uint32_t procedure) {
    if (!connection->alive())
      connect();
    Encoder& args = call->begin(procedure);
    args.put_u64(7);
    if (procedure == kRead) {
      args.put_u32(kSize);
      call->call.offer(room.span(0, kSize));
    } else {
      for (uint32_t i = 0; i < kSize; ++i)
        room.data()[i] = pattern(7 + i);
      args.put_item(room.span(0, kSize), Ddp::kEligible);
    }
    reads = procedure == kRead;
    call->submit();
    ++started;
  }
  bool over() const { return !call->call.in_flight(); }
  CallStatus check() {
    EXPECT_EQ(call->ended(), 1) << "once";
    call->ends = 0;
    CallStatus status = call->call.status();
    if (status != CallStatus::kOk)
      return status;
    Decoder& results = call->call.results();
    if (reads) {
      EXPECT_EQ(results.get_u32(), 7u);
      ItemView data = results.get_item(kSize);
      EXPECT_EQ(data.size(), kSize);
      uint64_t at = 7;
      uint32_t wrong = 0;
      data.for_each([&](const std::byte* bytes, size_t n) {
        for (size_t i = 0; i < n; ++i)
          wrong += bytes[i] != pattern(at++);
      });
      EXPECT_EQ(wrong, 0u);
    } else {
      EXPECT_EQ(results.get_u32(), kSize);
      EXPECT_EQ(results.get_u32(), 0u) << "wrong bytes";
    }
    EXPECT_TRUE(results.at_end());
    return status;
  }
  CallStatus one(uint32_t procedure) {
    start(procedure);
    world.until([this] { return over(); });
    return check();
  }

  World& world;
  RegisteredMemory room;
  std::unique_ptr<ClientConnection> connection;
  std::unique_ptr<EndingCall> call;
  bool reads = false;
  int started = 0;
};

struct ErrorKind {
  const char* spec;
  uint64_t FaultCounts::* count;
};

class WorkErrors : public testing::TestWithParam<ErrorKind> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, WorkErrors,
    testing::Values(ErrorKind{"send-error=1/5", &FaultCounts::send},
                    ErrorKind{"send-error=1/6:peer-lost", &FaultCounts::send},
                    ErrorKind{"read-error=1/5", &FaultCounts::read},
                    ErrorKind{"write-error=1/5:remote-operation", &FaultCounts::write},
                    ErrorKind{"receive-error=1/5", &FaultCounts::receive},
                    ErrorKind{"receive-error=1/6:peer-lost", &FaultCounts::receive},
                    ErrorKind{"rnr=1/5", &FaultCounts::rnr},
                    ErrorKind{"bind-error=1/5", &FaultCounts::bind}));

TEST_P(WorkErrors, EndTheConnectionAndNoOther) {
  World world;
  {
    Line other(world);
    Line line(world);
    ASSERT_EQ(other.one(kRead), CallStatus::kOk);
    ASSERT_TRUE(world.runtime->set_faults(plan_of(GetParam().spec)));
    int calls = 0;
    CallStatus status = CallStatus::kOk;
    for (; status == CallStatus::kOk && calls < 100; ++calls)
      status = line.one(calls % 2 == 0 ? kRead : kWrite);
    EXPECT_EQ(status, CallStatus::kConnectionLost);
    EXPECT_EQ(world.runtime->fault_counts().*GetParam().count, 1u);
    world.runtime->clear_faults();
    world.until([&] { return !line.connection->alive(); });
    EXPECT_TRUE(line.connection->error());
    EXPECT_TRUE(other.connection->alive());
    EXPECT_EQ(other.one(kWrite), CallStatus::kOk);
    EXPECT_EQ(line.one(kRead), CallStatus::kOk) << "on a new connection";
  }
}

TEST(Faults, LateCompletionsChangeNothingElse) {
  World world;
  {
    Line line(world);
    ASSERT_TRUE(world.runtime->set_faults(plan_of("delay-us=300:0.5,seed=3")));
    for (int i = 0; i < 200; ++i)
      EXPECT_EQ(line.one(i % 2 == 0 ? kRead : kWrite), CallStatus::kOk);
    EXPECT_GT(world.runtime->fault_counts().delay, 0u);
  }
}

TEST(Faults, NoBuffersEndsCallsByName) {
  World world;
  {
    Line line(world);
    ASSERT_TRUE(world.runtime->set_faults(plan_of("no-buffers=0.01,seed=5")));
    int bad = 0;
    for (int i = 0; i < 600; ++i) {
      CallStatus status = line.one(i % 2 == 0 ? kRead : kWrite);
      EXPECT_TRUE(status == CallStatus::kOk || status == CallStatus::kNoMemory ||
                  status == CallStatus::kSystemErr || status == CallStatus::kChunkError ||
                  status == CallStatus::kConnectionLost)
          << to_string(status);
      bad += status != CallStatus::kOk;
    }
    EXPECT_GT(bad, 0);
    EXPECT_GT(world.runtime->fault_counts().no_buffers, 0u);
    world.runtime->clear_faults();
    EXPECT_TRUE(world.memory->get(100));
    EXPECT_EQ(line.one(kRead), CallStatus::kOk);
  }
}

TEST(Faults, RegistrationFails) {
  World world;
  ASSERT_TRUE(world.runtime->set_faults(plan_of("registration=1/2")));
  EXPECT_TRUE(world.memory->allocate(4096));
  auto second = world.memory->allocate(4096);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kNoMemory);
  EXPECT_NE(second.error().message.find("fault"), std::string::npos) << second.error().message;
  EXPECT_EQ(world.runtime->fault_counts().registration, 1u);
  world.runtime->clear_faults();
  EXPECT_TRUE(world.memory->allocate(4096));
}

TEST(Faults, AreGoneFromTheMemoryWithTheirRuntime) {
  auto memory = make_memory();
  {
    auto runtime = Runtime::create(*memory, {}).value();
    ASSERT_TRUE(runtime->set_faults(plan_of("no-buffers=1,registration=1")));
    EXPECT_FALSE(memory->get(1));
    EXPECT_FALSE(memory->get_fitting(1));
    Buffer some[2];
    EXPECT_FALSE(memory->get_bulk(1, some));
  }
  EXPECT_TRUE(memory->get(1));
  EXPECT_TRUE(memory->get_fitting(1));
  EXPECT_TRUE(memory->allocate(1));
}

int calls_until_failure(const std::string& spec) {
  World world;
  Line line(world);
  EXPECT_TRUE(world.runtime->set_faults(plan_of(spec)));
  int calls = 0;
  while (line.one(kRead) == CallStatus::kOk)
    ++calls;
  world.runtime->clear_faults();
  return calls;
}

TEST(Faults, AreTheSameForTheSameSeed) {
  int first = calls_until_failure("send-error=0.01,seed=11");
  EXPECT_EQ(calls_until_failure("send-error=0.01,seed=11"), first);
  EXPECT_NE(calls_until_failure("send-error=0.01,seed=12"), first);
}

class AllFaults : public testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, AllFaults,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(AllFaults, ThousandsOfCallsEndOnce) {
  constexpr int kCalls = 3000;
  World world(GetParam());
  uint64_t seed = test::run_seed();
  {
    std::vector<std::unique_ptr<Line>> lines;
    for (int i = 0; i < 4; ++i)
      lines.push_back(std::make_unique<Line>(world));
    ASSERT_TRUE(world.runtime->set_faults(
        plan_of("send-error=0.004,read-error=0.02,write-error=0.01,receive-error=0.004,rnr=0.002,"
                "bind-error=0.004,delay-us=100:0.02,no-buffers=0.004,seed=" +
                std::to_string(seed))));
    int done = 0;
    int good = 0;
    for (int turn = 0; done < kCalls; ++turn) {
      for (auto& line : lines)
        line->start(turn % 3 == 0 ? kWrite : kRead);
      for (auto& line : lines) {
        world.until([&] { return line->over(); });
        good += line->check() == CallStatus::kOk;
        ++done;
      }
    }
    EXPECT_GT(good, kCalls / 2);
    FaultCounts counts = world.runtime->fault_counts();
    world.runtime->clear_faults();
    for (uint64_t count :
         {counts.send, counts.read, counts.write, counts.receive, counts.delay, counts.no_buffers})
      EXPECT_GT(count, 0u) << to_string(counts);
    for (auto& line : lines)
      EXPECT_EQ(line->one(kRead), CallStatus::kOk) << "when the faults are over";
  }
}

TEST(Faults, AreSwitchedByAnyThreadWhileCallsRun) {
  World world(Cores::kDedicated);
  {
    Line line(world);
    std::atomic<bool> stop = false;
    std::thread switches([&] {
      while (!stop) {
        EXPECT_TRUE(world.runtime->set_faults(plan_of("delay-us=20:0.3,send-error=0.01")));
        world.runtime->clear_faults();
      }
    });
    for (int i = 0; i < 300; ++i)
      line.one(kRead);
    stop = true;
    switches.join();
    EXPECT_EQ(line.one(kRead), CallStatus::kOk);
  }
}

TEST(FaultPlans, AreReadAndWritten) {
  for (const char* text :
       {"send-error=0.001:remote-operation,seed=7", "read-error=1/100:peer-lost,seed=1",
        "delay-us=50:0.01,no-buffers=0.01,seed=18446744073709551615",
        "stage-us=50:0.5:decode,seed=1", "delay-us=1:1,stage-us=1000000:1/3:reply,seed=1",
        "write-error=1:rnr,receive-error=0.5:local-length,rnr=1/2,bind-error=0.1,registration=1/3,"
        "seed=0"}) {
    auto plan = parse_fault_plan(text);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(to_string(*plan), text);
  }
  EXPECT_EQ(to_string(FaultPlan{}), "off");
  EXPECT_EQ(to_string(FaultCounts{.send = 2, .no_buffers = 3}), "send-error 2\nno-buffers 3");
  EXPECT_EQ(to_string(FaultCounts{}), "none");
}

TEST(FaultPlans, ErrorsNameTheFault) {
  for (const char* text : {"",
                           "send-error",
                           "send-eror=1",
                           "send-error=",
                           "send-error=2",
                           "send-error=-1",
                           "send-error=nan",
                           "send-error=1/0",
                           "send-error=1/",
                           "send-error=0.1:",
                           "rnr=0.1:peer-lost",
                           "send-error=0.1:bad",
                           "delay-us=5",
                           "delay-us=0:1",
                           "delay-us=2000000:1",
                           "delay-us=5:2",
                           "stage-us=5",
                           "stage-us=5:1",
                           "stage-us=0:1:decode",
                           "stage-us=5:2:decode",
                           "stage-us=5:1:decoded",
                           "stage-us=5:1:network",
                           "seed=x",
                           "send-error=0.1,,seed=1",
                           "send-error=0.1,",
                           "send-error=0.1 "}) {
    auto plan = parse_fault_plan(text);
    ASSERT_FALSE(plan) << text;
    EXPECT_EQ(plan.error().code, Errc::kInvalidArgument);
    EXPECT_GT(plan.error().message.size(), std::string(text).size());
  }
  World world;
  EXPECT_FALSE(world.runtime->set_faults({.send = {.rate = 1.5}}));
  EXPECT_FALSE(world.runtime->set_faults({.delay = {.rate = 1}, .delay_us = 1'000'001}));
  EXPECT_FALSE(world.runtime->set_faults({.stage = {.rate = 1}, .stage_us = 1'000'001}));
  EXPECT_FALSE(world.runtime->set_faults({.stage = {.rate = -1}}));
}

}  // namespace
}  // namespace rrdk::loopback
