// What an embedder relies on besides calls: idle clients leave buffers, memory is given back, and
// the log reports connections.
#include <algorithm>
#include <initializer_list>

#include "base/internals.h"
#include "loopback.h"
#include "rrdk/log.h"
#include "runtime/runtime_impl.h"

namespace rrdk::loopback {
namespace {

// Collects the log's lines while it lives.
class Lines {
 public:
  explicit Lines(LogLevel most_verbose = LogLevel::kInfo) {
    set_log_level(most_verbose);
    set_log_sink(
        [](LogLevel level, const char* line, void* self) {
          auto& lines = *static_cast<Lines*>(self);
          std::lock_guard lock(lines.mutex_);
          lines.lines_.emplace_back(level, line);
        },
        this);
  }
  ~Lines() {
    set_log_sink(nullptr);
    set_log_level(LogLevel::kInfo);
  }
  // The number of lines of this level that contain all of `words`.
  size_t count(LogLevel level, std::initializer_list<const char*> words) {
    std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::ranges::count_if(lines_, [&](const auto& line) {
      return line.first == level && std::ranges::all_of(words, [&](const char* word) {
               return line.second.find(word) != std::string::npos;
             });
    }));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

class Embedding : public testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, Embedding,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

uint32_t available(const Memory& memory, uint32_t size) {
  return memory.audit_fitting(size).available;
}

// A client that opens connections and leaves them idle is refused while there are still buffers for
// the calls of others.
TEST_P(Embedding, IdleConnectionsLeaveBuffersForCalls) {
  Lines lines;
  World world(GetParam(), {.credits = 64, .first_credits = 64, .max_connections_per_client = 1000},
              {.credits = 1});
  std::vector<std::unique_ptr<ClientConnection>> idle;
  Errc refused = Errc::kSystem;
  while (idle.size() < 100 && refused == Errc::kSystem) {
    auto connection = world.client->connect(world.uri);
    if (connection) {
      open_window(**connection);  // a connection that never made a call would make way
      idle.push_back(std::move(*connection));
    } else {
      refused = connection.error().code;
    }
  }
  EXPECT_EQ(refused, Errc::kRefused);
  EXPECT_GE(idle.size(), 10u);
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsRefused], 1u);
  EXPECT_EQ(lines.count(LogLevel::kWarning, {"refused", "of 2048 buffers of 4096 bytes", "takes 64",
                                             "MemoryOptions::classes", "ServerOptions::credits"}),
            1u);
  for (uint32_t size : {65536u, 1u << 20, 4u << 20})
    EXPECT_EQ(available(*world.memory, size), world.memory->audit_fitting(size).count);
  EXPECT_GE(available(*world.memory, 4096), 2048u / 4 - 64u);  // caches and the heads of calls

  Buffer room = world.memory->get(1 << 20);
  for (auto& connection : {idle.front().get(), idle.back().get()}) {
    Call call(*connection);
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(5);
    args.put_u32(1 << 20);
    call.offer(room.first(1 << 20));
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
}

TEST_P(Embedding, TheLogTellsOfConnections) {
  Lines lines(LogLevel::kDebug);
  World world(GetParam(), {.max_connections = 1});
  auto connection = world.connect();
  open_window(*connection);
  EXPECT_FALSE(world.client->connect(world.uri));
  EXPECT_FALSE(world.client->connect(world.uri));
  EXPECT_FALSE(world.client->connect(world.uri));
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsRefused], 3u);
  EXPECT_GE(lines.count(LogLevel::kWarning, {"refused", "max_connections", "pid "}), 1u);
  world.until([&] { return lines.count(LogLevel::kDebug, {"accepted", "pid "}) == 1; });
  connection.reset();
  world.until([&] { return lines.count(LogLevel::kDebug, {"ended", "pid "}) == 1; });
  EXPECT_EQ(lines.count(LogLevel::kWarning, {"failed"}), 0u);
}

// Results that lie in the application's own memory.
constexpr uint32_t kSpan = 1;  // how to end -> eligible opaque<>
constexpr ProcedureBinding kSpanProcedures[] = {
    {.procedure = kSpan, .name = "SPAN", .eligible_results = 1, .fixed_results = 4}};
constexpr Binding kSpanBinding = {
    .program = 0x20005602, .version = 1, .name = "span", .procedures = kSpanProcedures};
constexpr uint32_t kSpanSize = 100'000;

enum class End : uint32_t { kReply, kReject, kDeny, kForget, kKeep, kDrop };

struct Spans {
  RegisteredMemory memory;
  Keeper keeper;
  std::atomic<int> released = 0;
  std::atomic<int> elsewhere = 0;  // released by a thread that is not the core's
  Runtime* runtime = nullptr;

  static void on_released(void* self) {
    auto& spans = *static_cast<Spans*>(self);
    const auto& cores = Internals::of(*spans.runtime).cores;
    spans.elsewhere += std::ranges::none_of(cores, [](const auto& core) { return core->here(); });
    spans.released.fetch_add(1, std::memory_order_release);
  }
};

void span_handler(ServerCall call, void* context) {
  auto& spans = *static_cast<Spans*>(context);
  auto how = static_cast<End>(call.args().get_u32());
  call.on_released(nullptr, nullptr);
  call.on_released(Spans::on_released, &spans);
  call.results().put_item(spans.memory.span(0, kSpanSize), Ddp::kEligible);
  switch (how) {
    case End::kReply:
      return std::move(call).reply();
    case End::kReject:
      return std::move(call).reject(AcceptStat::kSystemErr);
    case End::kDeny:
      return std::move(call).deny(AuthStat::kTooWeak);
    case End::kForget:
      return;
    case End::kKeep:
      return keep(std::move(call), &spans.keeper);
    case End::kDrop:
      return std::move(call).drop();
  }
}

constexpr Procedure kSpanTable[] = {{kSpan, span_handler, Dispatch::kWorker}};

class Releases : public testing::TestWithParam<Cores> {
 protected:
  Releases() : world(GetParam()) {
    spans.memory = world.memory->allocate(kSpanSize).value();
    spans.runtime = world.runtime.get();
    for (uint32_t i = 0; i < kSpanSize; ++i)
      spans.memory.data()[i] = pattern(i);
    server = Server::create(*world.runtime).value();
    EXPECT_TRUE(server->add_service(
        {.binding = &kSpanBinding, .procedures = kSpanTable, .context = &spans}));
    uri = server->listen("shm:" + socket_path()).value();
    connection = world.client->connect(uri).value();
  }
  int released() { return spans.released.load(std::memory_order_acquire); }

  World world;
  Spans spans;
  std::unique_ptr<Server> server;
  std::string uri;
  std::unique_ptr<ClientConnection> connection;
};
INSTANTIATE_TEST_SUITE_P(Cores, Releases,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(Releases, EachCallOnceHoweverItEnds) {
  Call call(*connection);
  Buffer room = world.memory->get(kSpanSize);
  int calls = 0;
  for (End how : {End::kReply, End::kReject, End::kDeny, End::kForget, End::kReply}) {
    call.begin(kSpanBinding, kSpan).put_u32(static_cast<uint32_t>(how));
    call.offer(room.first(kSpanSize));
    CallStatus status = call.submit_and_wait();
    EXPECT_EQ(status == CallStatus::kOk, how == End::kReply);
    if (status == CallStatus::kOk) {
      ItemView data = call.results().get_item(kSpanSize);
      ASSERT_EQ(data.size(), kSpanSize);
      EXPECT_EQ(data.data()[kSpanSize - 1], pattern(kSpanSize - 1));
    }
    ++calls;
    world.until([&] { return released() == calls; });
  }
  call.begin(kSpanBinding, kSpan).put_u32(static_cast<uint32_t>(End::kDrop));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kConnectionLost);
  world.until([&] { return released() == calls + 1; });
  connection.reset();
  server.reset();
  EXPECT_EQ(released(), calls + 1);
  EXPECT_EQ(spans.elsewhere, 0);
}

TEST_P(Releases, NotBeforeTheAnswerThoughTheConnectionIsGone) {
  EndingCall ending(*connection);
  ending.call.begin(kSpanBinding, kSpan).put_u32(static_cast<uint32_t>(End::kKeep));
  ending.submit();
  world.until([&] { return spans.keeper.kept() == 1; });
  connection.reset();
  EXPECT_EQ(released(), 0);
  spans.keeper.release();
  world.until([&] { return released() == 1; });
  server.reset();
  EXPECT_EQ(released(), 1);
}

TEST(EmbeddedServer, AnInlineSizeWithoutBuffersIsRefusedAtOnce) {
  auto eal = ensure_eal();
  ASSERT_TRUE(eal);
  auto memory =
      Memory::create({.classes = {{4096, 256}}, .hugepages = HugepagePolicy::kNever}).value();
  auto runtime = Runtime::create(*memory, {}).value();
  auto server = Server::create(*runtime, {.inline_size = 8192});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, Errc::kInvalidArgument);
  EXPECT_NE(server.error().message.find("MemoryOptions::classes"), std::string::npos);
  EXPECT_TRUE(Server::create(*runtime, {.inline_size = 4096}));
}

TEST(EmbeddedServer, ListensWhereTheDocumentSays) {
  World world;
  auto server = Server::create(*world.runtime).value();
  EXPECT_EQ(server->listen("shm:/nonexistent/x").error().code, Errc::kNotFound);
  std::string longest = "/tmp/rrdk-" + std::to_string(getpid()) + "-";
  longest.resize(107, 'x');
  EXPECT_TRUE(server->listen("shm:" + longest));
  EXPECT_EQ(server->listen("shm:" + longest + "x").error().code, Errc::kBadUri);
  std::string abstract = "shm:@rrdk-test-" + std::to_string(getpid());
  EXPECT_EQ(server->listen(abstract).value(), abstract);
  EXPECT_TRUE(world.client->connect(abstract));
  EXPECT_EQ(server->listen("rdma://127.0.0.1").error().code, Errc::kBadUri);
}

}  // namespace
}  // namespace rrdk::loopback
