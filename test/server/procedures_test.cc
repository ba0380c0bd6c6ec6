// The statistics of a server's procedures.
#include <algorithm>

#include "loopback.h"

namespace rrdk::loopback {
namespace {

ProcedureStats of(const Ends& ends, uint32_t procedure) {
  std::vector<ProcedureStats> all = ends.server->procedures();
  auto found = std::ranges::find(all, procedure, &ProcedureStats::procedure);
  EXPECT_NE(found, all.end());
  return found != all.end() ? *found : ProcedureStats();
}

class ProcedureCounts : public testing::TestWithParam<Cores> {
 protected:
  void call(uint32_t procedure, uint32_t bytes, CallStatus expected, uint32_t times = 1) {
    for (uint32_t i = 0; i < times; ++i) {
      Call made(*connection_);
      std::vector<std::byte> data(bytes);
      made.begin(kBinding, procedure).put_opaque(data);
      EXPECT_EQ(made.submit_and_wait(), expected);
    }
  }

  static RuntimeOptions all_sampled(Cores cores) {
    RuntimeOptions options = options_for(cores);
    options.stamp_every = 1;
    return options;
  }

  World world_{all_sampled(GetParam()), {}, {}};
  std::unique_ptr<ClientConnection> connection_ = world_.connect();
};
INSTANTIATE_TEST_SUITE_P(Cores, ProcedureCounts,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(ProcedureCounts, AreCountedEachForItself) {
  call(kEcho, 1000, CallStatus::kOk, 40);
  call(kOnce, 12, CallStatus::kOk, 3);
  const ProcedureStats echo = of(world_, kEcho);
  EXPECT_EQ(echo.name, "ECHO of loopback");
  EXPECT_EQ(echo.program, kBinding.program);
  EXPECT_EQ(echo.version, kBinding.version);
  EXPECT_EQ(echo.calls, 40u);
  EXPECT_EQ(echo.errors, 0u);
  // RFC 5531: a call without credentials has a header of 40 bytes, a reply one of 24.
  EXPECT_EQ(echo.received_bytes, 40u * (40 + 4 + 1000));
  EXPECT_EQ(echo.sent_bytes, 40u * (24 + 4 + 1000));
  EXPECT_EQ(of(world_, kOnce).calls, 3u);
  EXPECT_EQ(of(world_, kRead).calls, 0u);
}

TEST_P(ProcedureCounts, BytesOfCallsAndOfRepliesAreTwoNumbers) {
  const std::vector<std::byte> data(1000);
  Call made(*connection_);
  Encoder& args = made.begin(kBinding, kWrite);
  args.put_u64(0);
  args.put_opaque(data);
  ASSERT_EQ(made.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(of(world_, kWrite).received_bytes, 40u + 8 + 4 + 1000);
  EXPECT_EQ(of(world_, kWrite).sent_bytes, 24u + 8);
}

TEST_P(ProcedureCounts, CallsThatAreSampledAreTimed) {
  call(kEcho, 8, CallStatus::kOk, 40);
  // The last times are taken after the reply is on its way.
  world_.until([&] { return of(world_, kEcho).reply.count() == 40; });
  const ProcedureStats echo = of(world_, kEcho);
  for (const DurationHistogram* times : {&echo.fetch, &echo.decode, &echo.queue, &echo.handler})
    EXPECT_EQ(times->count(), 40u);
  EXPECT_GT(echo.decode.mean_ns(), 0u);
  EXPECT_LE(echo.handler.percentile_ns(50), echo.handler.percentile_ns(99));
}

TEST_P(ProcedureCounts, ARateCanBeChangedWhileCallsRun) {
  world_.runtime->stamp_every(0);
  call(kEcho, 8, CallStatus::kOk, 40);
  EXPECT_EQ(of(world_, kEcho).handler.count(), 0u);
  EXPECT_TRUE(world_.runtime->stamped_calls().empty());
  world_.runtime->stamp_every(4);
  call(kEcho, 8, CallStatus::kOk, 400);
  EXPECT_GT(of(world_, kEcho).handler.count(), 50u);
  EXPECT_LT(of(world_, kEcho).handler.count(), 200u);
}

TEST_P(ProcedureCounts, ErrorsAreTold) {
  call(kEcho, 8, CallStatus::kOk);
  Call wrong(*connection_);
  wrong.begin(kBinding, kEcho).put_u32(77);  // a length without data behind it
  EXPECT_EQ(wrong.submit_and_wait(), CallStatus::kGarbageArgs);
  call(kForget, 0, CallStatus::kSystemErr, 2);
  EXPECT_EQ(of(world_, kEcho).calls, 2u);
  EXPECT_EQ(of(world_, kEcho).errors, 1u);
  EXPECT_EQ(of(world_, kForget).errors, 2u);
}

// However long it keeps a call, and wherever it answers; the requested delay of the reply does not
// count.
TEST_P(ProcedureCounts, TheHandlersTimeIsUntilItAnswers) {
  constexpr uint64_t kDelayNs = 2'000'000;
  for (int i = 0; i < 4; ++i) {
    Call made(*connection_);
    made.begin(kBinding, kDelay).put_u64(kDelayNs);
    EXPECT_EQ(made.submit_and_wait(), CallStatus::kOk);
  }
  call(kThread, 8, CallStatus::kOk, 4);
  world_.until([&] { return of(world_, kThread).reply.count() == 4; });
  EXPECT_EQ(of(world_, kThread).handler.count(), 4u);
  EXPECT_EQ(of(world_, kDelay).handler.count(), 4u);
  EXPECT_EQ(of(world_, kDelay).reply.count(), 0u);
}

// A handler of all procedures without an entry, whatever number a peer calls.
TEST_P(ProcedureCounts, ProceduresWithoutAnEntryAreCountedTogether) {
  constexpr uint32_t kKnown = 300,
                     kNumbers[] = {
                         1, 2, 255, 256, 299, 301, 70'000, 0x7fffffff, UINT32_MAX - 1, UINT32_MAX};
  constexpr Binding kOpen = {.program = 0x20005604, .version = 1, .name = "open", .procedures = {}};
  auto number_of = [](ServerCall call, void*) {
    call.results().put_u32(call.procedure());
    std::move(call).reply();
  };
  auto known = [](ServerCall call, void*) {
    call.results().put_u32(77);
    std::move(call).reply();
  };
  for (Dispatch dispatch : {Dispatch::kInline, Dispatch::kWorker}) {
    const Procedure table[] = {
        {.number = kOtherProcedures, .handler = number_of, .dispatch = dispatch},
        {.number = kKnown, .handler = known}};
    ASSERT_TRUE(world_.server->add_service({.binding = &kOpen, .procedures = table}));
    const size_t rows = world_.server->procedures().size();
    auto call_for = [&](uint32_t procedure) {
      Call made(*connection_);
      made.begin(kOpen, procedure);
      EXPECT_EQ(made.submit_and_wait(), CallStatus::kOk) << procedure;
      return made.results().get_u32();
    };
    for (uint32_t number : kNumbers)
      EXPECT_EQ(call_for(number), number);
    EXPECT_EQ(call_for(kKnown), 77u);
    Call null(*connection_);
    null.begin(kOpen, 0);
    EXPECT_EQ(null.submit_and_wait(), CallStatus::kOk);
    EXPECT_TRUE(null.results().at_end()) << "NULL does not count";
    const std::vector<ProcedureStats> all = world_.server->procedures();
    EXPECT_EQ(all.size(), rows);
    auto others = std::ranges::find(all, "other procedures of open", &ProcedureStats::name);
    ASSERT_NE(others, all.end());
    EXPECT_EQ(others->procedure, kOtherProcedures);
    EXPECT_EQ(others->calls, std::size(kNumbers));
    EXPECT_EQ(others->errors, 0u);
    EXPECT_EQ(of(world_, kKnown).calls, 1u);
    EXPECT_EQ(world_.server->stats()[Refusal::kNoProcedure], 0u);
    ASSERT_TRUE(world_.server->remove_service(kOpen.program, kOpen.version));
  }
}

// There is one worker, which has the first call: the second call waits for it in the queue, already
// decoded.
TEST(ProcedureTimes, WaitingForAWorkerIsTimeInTheQueue) {
  constexpr uint64_t kHeldNs = 20'000'000;
  constexpr uint32_t kHold = 1, kWait = 2;
  static constexpr ProcedureBinding kEntries[] = {{.procedure = kHold, .name = "HOLD"},
                                                  {.procedure = kWait, .name = "WAIT"}};
  static constexpr Binding kSlow = {
      .program = 0x20005690, .version = 1, .name = "slow", .procedures = kEntries};
  std::atomic<uint64_t> until_ns = 0;  // 0: the second call has not come yet
  const Procedure table[] = {
      {kHold,
       [](ServerCall call, void* until) {
         auto& its = *static_cast<std::atomic<uint64_t>*>(until);
         while (its.load() == 0 || Runtime::now_ns() < its.load())
           std::this_thread::yield();
         std::move(call).reply();
       },
       Dispatch::kWorker},
      {kWait, [](ServerCall call, void*) { std::move(call).reply(); }, Dispatch::kWorker}};
  Ends ends({.poll_cpus = {-1}, .worker_cpus = {-1}, .stamp_every = 1}, {}, {},
            {{.binding = &kSlow, .procedures = table, .context = &until_ns}});
  auto connection = ends.client->connect(ends.uri).value();
  {
    Call hold(*connection), wait(*connection);
    hold.begin(kSlow, 0);  // its reply opens the window
    ASSERT_EQ(hold.submit_and_wait(), CallStatus::kOk);
    hold.begin(kSlow, kHold);
    hold.submit(nullptr, nullptr);
    wait.begin(kSlow, kWait);
    wait.submit(nullptr, nullptr);
    ends.until([&] { return of(ends, kWait).calls_in_progress == 1; });
    until_ns = Runtime::now_ns() + kHeldNs;
    ends.until([&] { return of(ends, kWait).reply.count() == 1 && !wait.in_flight(); });
    ends.until([&] { return !hold.in_flight(); });
  }
  const ProcedureStats waited = of(ends, kWait);
  EXPECT_GE(waited.queue.total_ns, kHeldNs / 2);
  EXPECT_LT(waited.decode.total_ns, waited.queue.total_ns);
  connection.reset();
  ends.end();
}

TEST_P(ProcedureCounts, NullIsCountedThoughItHasNoHandler) {
  for (int i = 0; i < 4; ++i) {
    Call made(*connection_);
    made.begin(kBinding, 0);
    EXPECT_EQ(made.submit_and_wait(), CallStatus::kOk);
  }
  EXPECT_EQ(of(world_, 0).calls, 4u);
  EXPECT_EQ(of(world_, 0).handler.count(), 0u);
}

TEST(Durations, FindTheirBuckets) {
  size_t last = 0;
  for (uint64_t ns : {0ull, 1ull, 15ull, 16ull, 17ull, 100ull, 1000ull, 123'456ull, 1ull << 30,
                      (1ull << 37) - 1, 1ull << 37, ~0ull}) {
    const size_t bucket = DurationHistogram::bucket_of(ns);
    ASSERT_LT(bucket, DurationHistogram::kBuckets) << ns;
    EXPECT_GE(bucket, last) << ns;
    last = bucket;
    if (ns < 1ull << 37) {
      EXPECT_GE(DurationHistogram::upper_end_ns(bucket), ns);
      EXPECT_LE(DurationHistogram::upper_end_ns(bucket), ns + ns / 8);
    }
  }
  DurationHistogram times;
  EXPECT_EQ(times.percentile_ns(99), 0u);
  times.buckets[DurationHistogram::bucket_of(10)] = 98;
  times.buckets[DurationHistogram::bucket_of(12)] = 1;
  times.buckets[DurationHistogram::bucket_of(14)] = 1;
  EXPECT_EQ(times.percentile_ns(50), 10u);
  EXPECT_EQ(times.percentile_ns(99), 12u);
  EXPECT_EQ(times.percentile_ns(100), 14u);
}

}  // namespace
}  // namespace rrdk::loopback
