// The share of a core that one connection may take. One server core and one client core, both
// polled here, so that the counts are the same in every run: calls handled per pass.
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <tuple>

#include "loopback.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kClients = 16;
constexpr uint32_t kGreedy = 15;  // the last one
constexpr uint32_t kPiece = 1u << 20;
// Constants of the server's core: of engine/credits.h and runtime/fair_share.h.
constexpr uint64_t kCallsOfTurn = 4;
constexpr uint64_t kCallsPerPiece = 256;  // calls for which a megabyte counts

enum : uint32_t { kCount = 1, kPut = 2, kGet = 3, kSlow = 4, kHold = 5 };

constexpr ProcedureBinding kFairProcedures[] = {
    {.procedure = kCount, .name = "COUNT"},
    {.procedure = kPut, .name = "PUT", .eligible_args = 1},
    {.procedure = kGet, .name = "GET", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kSlow, .name = "SLOW"},
    {.procedure = kHold, .name = "HOLD", .eligible_args = 1},
};
constexpr Binding kFair = {
    .program = 0x20005601, .version = 1, .name = "fair", .procedures = kFairProcedures};

struct Counts {
  std::vector<uint32_t> order;  // the client of each call, in order
  std::vector<ServerCall> held;
  RegisteredMemory data;
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;

  uint64_t of(uint32_t client) const {
    return static_cast<uint64_t>(std::ranges::count(order, client));
  }
};

void count(ServerCall call, void* context) {
  static_cast<Counts*>(context)->order.push_back(call.args().get_u32());
  std::move(call).reply();
}

void get(ServerCall call, void* context) {
  auto& counts = *static_cast<Counts*>(context);
  counts.order.push_back(call.args().get_u32());
  call.results().put_item(counts.data.span(0, call.args().get_u32()), Ddp::kEligible);
  std::move(call).reply();
}

void slow(ServerCall call, void* context) {
  auto& counts = *static_cast<Counts*>(context);
  std::unique_lock lock(counts.mutex);
  counts.order.push_back(call.args().get_u32());
  counts.opened.wait(lock, [&] { return counts.open; });
  std::move(call).reply();
}

void hold(ServerCall call, void* context) {
  auto& counts = *static_cast<Counts*>(context);
  counts.order.push_back(call.args().get_u32());
  counts.held.push_back(std::move(call));
}

constexpr Procedure kFairTable[] = {
    {kCount, count}, {kPut, count}, {kGet, get}, {kSlow, slow, Dispatch::kWorker}, {kHold, hold}};

struct Fair;

// A client that always has `in_flight` equal calls under way.
struct Caller {
  Fair* fair;
  uint32_t number;
  std::unique_ptr<ClientConnection> connection;
  std::vector<std::unique_ptr<Call>> calls;
  uint32_t procedure = kCount;
  bool again = true;
  std::vector<CallStatus> ended;

  void call(Call& call);
  void start(uint32_t in_flight, uint32_t of);
};

struct Fair {
  explicit Fair(const ServerOptions& options = {}, const std::vector<int>& workers = {},
                uint32_t budget_us = 0)
      : runtime(
            Runtime::create(
                *memory, {.worker_cpus = workers, .embedded_cores = 2, .pass_budget_us = budget_us})
                .value()),
        server(Server::create(*runtime, options).value()),
        client(Client::create(*runtime, {.credits = 64}).value()) {
    counts.data = std::move(memory->allocate(kPiece).value());
    room = std::move(memory->allocate(kPiece).value());
    EXPECT_TRUE(
        server->add_service({.binding = &kFair, .procedures = kFairTable, .context = &counts}));
    uri = server->listen("shm:" + socket_path()).value();
    for (uint32_t i = 0; i < kClients; ++i) {
      callers[i].fair = this;
      callers[i].number = i;
      callers[i].connection = std::move(client->connect(uri, 1).value());
      open_window_of(callers[i]);
    }
    EXPECT_EQ(runtime->stats(0)[Counter::kConnections], kClients)
        << "the server's, and no client's";
    counts.order.clear();
  }
  ~Fair() {
    counts.held.clear();
    for (Caller& caller : callers)
      caller.connection.reset();
    for (Caller& caller : callers)
      caller.calls.clear();
    client.reset();
    server.reset();
    runtime.reset();
    counts.data = {};
    room = {};
    EXPECT_TRUE(memory->whole());
  }
  static std::unique_ptr<Memory> make() {
    EXPECT_TRUE(ensure_eal());
    return std::move(Memory::create({.classes = {{4096, 8192}, {kPiece, 64}},
                                     .hugepages = HugepagePolicy::kNever})
                         .value());
  }
  static void open_window_of(Caller& caller) {
    Call call(*caller.connection);
    call.begin(kFair, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  // One pass of the server, after clients have processed everything that has arrived for them.
  void pass() {
    while (runtime->poll(1) != 0) {
    }
    runtime->poll(0);
  }
  void passes(uint32_t number) {
    for (uint32_t i = 0; i < number; ++i)
      pass();
  }
  void until(const std::function<bool()>& done) {
    for (uint32_t i = 0; !done(); ++i) {
      ASSERT_LT(i, 100'000'000u) << "it never happened";
      pass();
    }
  }
  // The number of calls of each client that are handled in `passes` passes, when the greedy client
  // has `in_flight` at once.
  std::vector<uint64_t> run(uint32_t number, uint32_t others, uint32_t in_flight,
                            uint32_t procedure) {
    for (uint32_t i = 0; i < kGreedy; ++i)
      callers[i].start(others, kCount);
    callers[kGreedy].start(in_flight, procedure);
    passes(20);
    counts.order.clear();
    passes(number);
    std::vector<uint64_t> calls;
    for (uint32_t i = 0; i < kClients; ++i)
      calls.push_back(counts.of(i));
    return calls;
  }

  std::unique_ptr<Memory> memory = make();
  std::unique_ptr<Runtime> runtime;
  Counts counts;
  RegisteredMemory room;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
  std::string uri;
  Caller callers[kClients];
};

void Caller::call(Call& call) {
  Encoder& args = call.begin(kFair, procedure);
  args.put_u32(number);
  if (procedure == kPut || procedure == kHold)
    args.put_item(fair->room.span(0, kPiece), Ddp::kEligible);
  if (procedure == kGet) {
    args.put_u32(kPiece);
    call.offer(fair->room.span(0, kPiece));
  }
  call.submit(
      [](Call& done, void* self) {
        auto& caller = *static_cast<Caller*>(self);
        caller.ended.push_back(done.status());
        if (caller.again && done.status() == CallStatus::kOk)
          caller.call(done);
      },
      this);
}

void Caller::start(uint32_t in_flight, uint32_t of) {
  procedure = of;
  for (uint32_t i = 0; i < in_flight; ++i)
    call(*calls.emplace_back(std::make_unique<Call>(*connection)));
}

class FairSharingByProcedure : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Procedures, FairSharingByProcedure, testing::Values(kCount, kPut, kGet));

// Without a budget: a pass that has moved much data is over sooner with one, for all clients.
// Shows: SEC-09
TEST_P(FairSharingByProcedure, ManyCallsOfOneClientCostTheOthersNothing) {
  constexpr uint32_t kPasses = 400;
  constexpr uint32_t kFew = 2;
  std::vector<uint64_t> modest = Fair().run(kPasses, kFew, kFew, kCount);
  Fair fair;
  std::vector<uint64_t> calls = fair.run(kPasses, kFew, 64, GetParam());
  for (uint32_t i = 0; i < kGreedy; ++i)
    EXPECT_GE(calls[i] + kFew, modest[i]) << "client " << i;
  // Whether the greedy one's calls wait in their connection or in the completion queue depends on
  // where among the others its turn in that queue comes, which differs from run to run.
}

// What the greedy client calls, and the budget of a pass.
class FairShares : public testing::TestWithParam<std::tuple<uint32_t, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Procedures, FairShares,
                         testing::Combine(testing::Values(kCount, kPut, kGet),
                                          testing::Values(0, RuntimeOptions().pass_budget_us)));

// Shows: SEC-09
TEST_P(FairShares, AGreedyClientGetsTheSameShare) {
  constexpr uint32_t kPasses = 2000;
  const auto [procedure, budget_us] = GetParam();
  Fair fair({}, {}, budget_us);
  std::vector<uint64_t> calls = fair.run(kPasses, 16, 64, procedure);
  auto [least, most] = std::minmax_element(calls.begin(), calls.begin() + kGreedy);
  EXPECT_LE(*most - *least, 2 * kCallsOfTurn);
  uint64_t worth = procedure == kCount ? 1 : kCallsPerPiece;
  EXPECT_LE(calls[kGreedy] * worth, *most + 2 * std::max(kCallsOfTurn, worth));
  if (budget_us == 0)
    EXPECT_GE((calls[kGreedy] + 2) * worth + 2 * kCallsOfTurn, *least) << "nor less";
  else  // a piece may use up the budget, and the next one waits for another pass
    EXPECT_GE(calls[kGreedy], kPasses / 400) << "it has its turn";
}

TEST(FairSharing, AWaitIsAtMostAQuantumOfEachClient) {
  Fair fair;
  for (uint32_t i = 1; i < kClients; ++i)
    fair.callers[i].start(64, kCount);
  fair.passes(50);
  fair.callers[0].again = false;
  for (int i = 0; i < 100; ++i) {
    fair.counts.order.clear();
    fair.callers[0].start(1, kCount);
    fair.until([&] { return fair.counts.of(0) == 1; });
    auto before = std::ranges::find(fair.counts.order, 0u) - fair.counts.order.begin();
    EXPECT_LE(static_cast<uint64_t>(before), 2 * kCallsOfTurn * kClients);
    fair.pass();
  }
}

TEST(FairSharing, ASingleClientGetsEverything) {
  Fair fair;
  constexpr uint32_t kPasses = 200;
  fair.callers[kGreedy].start(64, kCount);
  fair.passes(20);
  fair.counts.order.clear();
  uint64_t waits = fair.server->stats()[Counter::kWaitsTurn];
  fair.passes(kPasses);
  EXPECT_GE(fair.counts.of(kGreedy), 16u * kPasses) << "as many as one pass took without turns";
  EXPECT_EQ(fair.server->stats()[Counter::kWaitsTurn], waits) << "no other client wants the core";
}

TEST(FairSharing, ADebtIsForgottenWhenTheOthersAreIdle) {
  Fair fair;
  for (uint32_t i = 0; i < kClients; ++i)
    fair.callers[i].start(i == kGreedy ? 8 : 1, i == kGreedy ? kPut : kCount);
  fair.passes(200);
  for (uint32_t i = 0; i < kGreedy; ++i)
    fair.callers[i].again = false;
  fair.passes(20);
  fair.counts.order.clear();
  fair.passes(100);
  EXPECT_GE(fair.counts.of(kGreedy), 100u) << "at least one a pass";
}

// Shows: SEC-09
TEST(FairSharing, WorkersTakeCallsOfEachConnectionInTurn) {
  Fair fair({.first_credits = 64}, {-1});  // that all come before one is answered
  for (Caller& caller : fair.callers)
    caller.again = false;
  uint64_t before = fair.server->stats()[Counter::kCallsReceived];
  fair.callers[kGreedy].start(64, kSlow);
  fair.until([&] { return fair.server->stats()[Counter::kCallsReceived] == before + 64; });
  fair.passes(20);
  for (uint32_t i = 0; i < kGreedy; ++i)
    fair.callers[i].start(2, kSlow);
  fair.until(
      [&] { return fair.server->stats()[Counter::kCallsReceived] == before + 64 + 2 * kGreedy; });
  fair.passes(20);
  {
    std::lock_guard lock(fair.counts.mutex);
    fair.counts.open = true;
    fair.counts.opened.notify_all();
  }
  fair.until([&] {
    return std::ranges::all_of(fair.callers, [](const Caller& caller) {
      return caller.ended.size() == caller.calls.size();
    });
  });
  // When the others' calls came, the worker had taken 16 calls and as many were in its ring.
  std::vector<uint32_t>& order = fair.counts.order;
  ASSERT_EQ(order.size(), 64 + 2 * kGreedy);
  auto last =
      std::find_if(order.rbegin(), order.rend(), [](uint32_t who) { return who != kGreedy; });
  EXPECT_LE(order.rend() - last, 16 + 16 + 2 * static_cast<int>(kClients));
}

// Shows: SEC-09
TEST(ChunkBytes, CallsBeyondTheLimitWaitAndHoldNoMemory) {
  Fair fair({.max_chunk_bytes = 2 * kPiece + 100});
  auto large_buffers = [&] { return fair.memory->audit_fitting(kPiece).available; };
  uint32_t before = large_buffers();
  Caller& greedy = fair.callers[kGreedy];
  for (Caller& caller : fair.callers)
    caller.again = false;
  greedy.start(8, kHold);
  fair.passes(100);
  EXPECT_EQ(fair.counts.held.size(), 2u);
  EXPECT_EQ(large_buffers(), before - 2);
  EXPECT_EQ(fair.server->stats()[Counter::kWaitsChunkBytes], 1u);
  fair.callers[0].start(1, kPut);  // the limit is each connection's own
  fair.until([&] { return fair.callers[0].ended.size() == 1; });
  EXPECT_EQ(fair.callers[0].ended[0], CallStatus::kOk);
  while (greedy.ended.size() != 8) {
    for (ServerCall& call : std::exchange(fair.counts.held, {}))
      std::move(call).reply();
    fair.passes(10);
    EXPECT_LE(fair.counts.held.size(), 2u);
  }
  EXPECT_EQ(greedy.ended, std::vector(8, CallStatus::kOk));
  EXPECT_GE(fair.server->stats()[Counter::kWaitsChunkBytes], 3u);
  EXPECT_EQ(large_buffers(), before);
}

// They start when another call's reply has been posted: their replies are posted then, too, and
// need nothing further to complete.
TEST(ChunkBytes, CallsThatWaitedForItEndByThemselves) {
  constexpr uint32_t kBytes = 4096;
  Fair fair({.max_chunk_bytes = 2 * kBytes + 100});
  std::vector<std::unique_ptr<Call>> calls;
  size_t ended = 0;
  const auto start = [&](uint32_t procedure) {
    Call& call = *calls.emplace_back(std::make_unique<Call>(*fair.callers[0].connection));
    Encoder& args = call.begin(kFair, procedure);
    args.put_u32(0);
    if (procedure == kGet) {
      args.put_u32(kBytes);
      call.offer(fair.room.span(0, kBytes));
    } else {
      args.put_item(fair.room.span(0, kBytes), Ddp::kEligible);
    }
    call.submit([](Call&, void* count) { ++*static_cast<size_t*>(count); }, &ended);
  };
  start(kHold);
  start(kHold);
  fair.passes(100);
  ASSERT_EQ(fair.counts.held.size(), 2u);
  start(kGet);
  start(kPut);
  fair.passes(100);
  EXPECT_EQ(ended, 0u);
  for (ServerCall& call : std::exchange(fair.counts.held, {}))
    std::move(call).reply();
  fair.until([&] { return ended == calls.size(); });
  for (const auto& call : calls)
    EXPECT_EQ(call->status(), CallStatus::kOk);
  fair.until([&] {
    uint64_t in_progress = 0;
    fair.server->visit([&](const ConnectionInfo& info) { in_progress += info.in_progress; });
    return in_progress == 0;
  });
}

TEST(ChunkBytes, ACallAndAReplyLargerThanTheLimitAreRefused) {
  Fair fair({.max_chunk_bytes = kPiece - 1});
  for (Caller& caller : fair.callers)
    caller.again = false;
  fair.callers[0].start(1, kPut);
  fair.callers[1].start(1, kGet);
  fair.until([&] { return !fair.callers[0].ended.empty() && !fair.callers[1].ended.empty(); });
  EXPECT_EQ(fair.callers[0].ended[0], CallStatus::kChunkError);
  EXPECT_EQ(fair.callers[1].ended[0], CallStatus::kSystemErr);
  EXPECT_EQ(fair.server->stats()[Refusal::kTooManyBytes], 1u);
  EXPECT_EQ(fair.server->stats()[Counter::kProtocolBreaches], 0u)
      << "the limit is the server's own";
  fair.callers[0].start(4, kCount);
  fair.until([&] { return fair.callers[0].ended.size() == 5; });
  EXPECT_EQ(fair.callers[0].ended.back(), CallStatus::kOk);
}

TEST(ChunkBytes, MoreRoomThanTheLimitMayBeOffered) {
  Fair fair({.max_chunk_bytes = 5000});
  std::vector<std::unique_ptr<Call>> calls;
  int ended = 0;
  for (int i = 0; i < 8; ++i) {
    Call& call = *calls.emplace_back(std::make_unique<Call>(*fair.callers[0].connection));
    Encoder& args = call.begin(kFair, kGet);
    args.put_u32(0);
    args.put_u32(4000);
    call.offer(fair.room.span(0, kPiece));
    call.submit([](Call&, void* count) { ++*static_cast<int*>(count); }, &ended);
  }
  fair.until([&] { return ended == 8; });
  for (const auto& call : calls)
    EXPECT_EQ(call->status(), CallStatus::kOk);
}

TEST(ChunkBytes, WaitingCallsEndWithTheirConnection) {
  Fair fair({.max_chunk_bytes = kPiece + 100});
  Caller& greedy = fair.callers[kGreedy];
  greedy.again = false;
  greedy.start(40, kHold);
  fair.passes(100);
  ASSERT_EQ(fair.counts.held.size(), 1u);
  greedy.connection.reset();
  fair.passes(100);
  EXPECT_EQ(fair.counts.held.size(), 1u);
  fair.counts.held.clear();
  fair.until([&] { return fair.server->stats()[Counter::kConnections] == kClients - 1; });
}

}  // namespace
}  // namespace rrdk::loopback
