// A whole call over shared memory, in three arrangements. The server has its own poll core and the
// client is polled here. Or both ends are polled here in turn: no cache line crosses between cores,
// which shows what the software alone costs. Or the same with handlers on a worker, beside items
// that cross two bare rings. scripts/call-cost.py counts the instructions and cache lines of
// `counted`.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "machine_limits.h"
#include "rrdk/client.h"
#include "rrdk/memory.h"
#include "rrdk/runtime.h"
#include "rrdk/server.h"
#include "runtime/inbox.h"

namespace {

using namespace rrdk;

constexpr uint32_t kLargest = 1u << 20;

enum : uint32_t { kNull = 0, kRead = 1, kWrite = 2, kEcho = 3, kOnWorker = 4 };

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kNull, .name = "NULL"},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1, .fixed_results = 4},
    {.procedure = kEcho, .name = "ECHO", .fixed_results = 2048},
    {.procedure = kOnWorker, .name = "ON_WORKER"},
};
constexpr Binding kBinding = {
    .program = 0x20005668, .version = 1, .name = "call_bench", .procedures = kProcedures};

void read(ServerCall call, void* data) {
  uint32_t count = call.args().get_u32();
  if (!call.args().at_end() || count > kLargest)
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_item(static_cast<RegisteredMemory*>(data)->span(0, count), Ddp::kEligible);
  std::move(call).reply();
}

void write(ServerCall call, void*) {
  ItemView data = call.args().get_item(kLargest);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_u32(data.size());
  std::move(call).reply();
}

void echo(ServerCall call, void*) {
  ItemView data = call.args().get_opaque(kLargest);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_view(data);
  std::move(call).reply();
}

void nothing(ServerCall call, void*) {
  std::move(call).reply();
}

constexpr Procedure kHandlers[] = {
    {kRead, read}, {kWrite, write}, {kEcho, echo}, {kOnWorker, nothing, Dispatch::kWorker}};

// Both ends, each with its own memory and runtime, as two processes would have.
struct Pair {
  std::unique_ptr<Memory> server_memory = make_memory();
  std::unique_ptr<Memory> client_memory = make_memory();
  RegisteredMemory data = std::move(server_memory->allocate(kLargest).value());
  RegisteredMemory room = std::move(client_memory->allocate(kLargest).value());
  std::unique_ptr<Runtime> server_runtime;
  std::unique_ptr<Runtime> client_runtime;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
  std::unique_ptr<ClientConnection> connection;
  std::string uri;

  static std::unique_ptr<Memory> make_memory() {
    return std::move(Memory::create({.classes = {{4096, 1024}, {65536, 64}}}).value());
  }

  // No server CPU: the server is polled here too.
  explicit Pair(std::vector<int> server_cpus, RpcRdmaVersion version = RpcRdmaVersion::kOne,
                std::vector<int> worker_cpus = {}) {
    server_runtime = std::move(Runtime::create(*server_memory, {.poll_cpus = server_cpus,
                                                                .worker_cpus = worker_cpus,
                                                                .idle = IdlePolicy::kBusy})
                                   .value());
    client_runtime =
        std::move(Runtime::create(*client_memory, {.idle = IdlePolicy::kBusy}).value());
    server = std::move(Server::create(*server_runtime).value());
    if (!server->add_service({.binding = &kBinding, .procedures = kHandlers, .context = &data}))
      std::abort();
    uri = server->listen("shm:/tmp/rrdk-call-bench." + std::to_string(getpid())).value();
    client = std::move(Client::create(*client_runtime, {.version = version}).value());
    if (!server_cpus.empty()) {
      connection = std::move(client->connect(uri).value());
      return;
    }
    // connect() waits for a server that is polled meanwhile.
    std::atomic<bool> connected = false;
    std::thread helper([&] {
      while (!connected)
        server_runtime->poll();
    });
    connection = std::move(client->connect(uri).value());
    connected = true;
    helper.join();
  }
};

void call(benchmark::State& state, uint32_t procedure) {
  // Asked once: pinning changes the answer.
  static const std::vector<int> cpus = apps::allowed_cpus();
  if (cpus.size() < 2) {
    state.SkipWithError("needs two CPUs");
    return;
  }
  apps::pin_to_cpu(cpus[0]);
  Pair pair({cpus[1]});
  Call c(*pair.connection);
  auto size = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    Encoder& args = c.begin(kBinding, procedure);
    if (procedure == kRead) {
      args.put_u32(size);
      c.offer(pair.room.span(0, size));
    }
    if (CallStatus status = c.submit_and_wait(); status != CallStatus::kOk) {
      state.SkipWithError(to_string(status));
      break;
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

struct Kind {
  uint32_t procedure;
  uint32_t bytes;
  bool auth_sys;
};
constexpr Kind kKinds[] = {{kNull, 0, false},   {kNull, 0, true},     {kEcho, 1000, false},
                           {kEcho, 1000, true}, {kRead, 4096, false}, {kWrite, 4096, false},
                           {kRead, 4096, true}, {kWrite, 4096, true}, {kEcho, 65536, false}};

void begin(Call& call, const Kind& kind, const RegisteredMemory& room) {
  Encoder& args = call.begin(kBinding, kind.procedure);
  if (kind.procedure == kRead) {
    args.put_u32(kind.bytes);
    call.offer(room.span(0, kind.bytes));
  } else if (kind.procedure == kWrite) {
    args.put_item(room.span(0, kind.bytes), Ddp::kEligible);
  } else if (kind.procedure == kEcho) {
    args.put_item(room.span(0, kind.bytes), Ddp::kNo);
    call.expect_reply(kind.bytes);
  }
}

// One round: all calls at once, both ends polled until all calls have ended. scripts/call-cost.py
// finds it by its name, and its calls in a trace of memory accesses by the marker.
volatile uint64_t round_marker;

[[gnu::noinline]] void make_calls(Pair& pair, const Kind& kind,
                                  std::vector<std::unique_ptr<Call>>& calls) {
  round_marker = 1;
  size_t ended = 0;
  for (std::unique_ptr<Call>& c : calls) {
    begin(*c, kind, pair.room);
    c->submit([](Call&, void* count) { ++*static_cast<size_t*>(count); }, &ended);
  }
  while (ended != calls.size()) {
    pair.client_runtime->poll();
    pair.server_runtime->poll();
  }
  round_marker = 2;
}

std::vector<std::unique_ptr<Call>> calls_of(Pair& pair, int64_t window) {
  std::vector<std::unique_ptr<Call>> calls;
  for (int64_t i = 0; i < window; ++i)
    calls.push_back(std::make_unique<Call>(*pair.connection));
  return calls;
}

// The cost of the software: client and server take turns on one core, with this many calls at a
// time.
void in_turns(benchmark::State& state, const Kind& kind, RpcRdmaVersion version, int64_t window) {
  Pair pair({}, version);
  if (kind.auth_sys) {
    AuthSys identity;
    if (!identity.set_machine_name("client.example.net"))
      std::abort();
    pair.connection->set_auth_sys(identity);
  }
  std::vector<std::unique_ptr<Call>> calls = calls_of(pair, window);
  for (auto _ : state) {
    make_calls(pair, kind, calls);
    if (CallStatus status = calls.front()->status(); status != CallStatus::kOk)
      state.SkipWithError(to_string(status));
  }
  state.SetItemsProcessed(state.iterations() * window);
}

void null_in_turns(benchmark::State& state) {
  in_turns(state, kKinds[0], state.range(0) == 1 ? RpcRdmaVersion::kOne : RpcRdmaVersion::kTwo,
           state.range(1));
}

void kind_in_turns(benchmark::State& state) {
  in_turns(state, kKinds[state.range(0)], RpcRdmaVersion::kOne, state.range(1));
}

// A fixed number of rounds, for instruments that count.
void counted(benchmark::State& state) {
  std::printf("rounds of %ld calls, marked at %p\n", static_cast<long>(state.range(1)),
              static_cast<const volatile void*>(&round_marker));
  std::fflush(stdout);
  kind_in_turns(state);
}

// Two bare rings, and a thread that passes items from one to the other.
class Rings {
 public:
  explicit Rings(int cpu) {
    thread_ = std::thread([this, cpu] {
      apps::pin_to_cpu(cpu);
      std::array<runtime::WorkItem*, kMost> items;
      while (!stop_.load(std::memory_order_relaxed))
        back_->push_burst(std::span(items).first(there_->pop_burst(items)));
    });
  }
  ~Rings() {
    stop_ = true;
    thread_.join();
  }

  void round(size_t window) {
    std::array<runtime::WorkItem*, kMost> items;
    for (size_t i = 0; i < window; ++i)
      items[i] = &items_[i];
    there_->push_burst(std::span(items).first(window));
    for (size_t back = 0; back != window;)
      back += back_->pop_burst(items);
  }

 private:
  static constexpr size_t kMost = 32;
  static std::unique_ptr<runtime::Ring> make(runtime::Consumers consumers) {
    return std::move(runtime::Ring::create(1024, consumers).value());
  }

  std::unique_ptr<runtime::Ring> there_ = make(runtime::Consumers::kMany);
  std::unique_ptr<runtime::Ring> back_ = make(runtime::Consumers::kOne);
  std::array<runtime::WorkItem, kMost> items_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Client and poll core here, the handler on a worker; then as many items through the rings, between
// the same two CPUs.
void on_worker(benchmark::State& state) {
  static const std::vector<int> cpus = apps::allowed_cpus();
  if (cpus.size() < 2) {
    state.SkipWithError("needs two CPUs");
    return;
  }
  apps::pin_to_cpu(cpus[0]);
  using Clock = std::chrono::steady_clock;
  const auto window = static_cast<size_t>(state.range(0));
  Clock::duration of_calls{};
  Clock::duration of_rings{};
  {
    Pair pair({}, RpcRdmaVersion::kOne, {cpus[1]});
    std::vector<std::unique_ptr<Call>> calls = calls_of(pair, state.range(0));
    for (auto _ : state) {
      const Clock::time_point start = Clock::now();
      make_calls(pair, {kOnWorker, 0, false}, calls);
      of_calls += Clock::now() - start;
    }
  }  // the worker leaves the CPU to the rings' thread
  Rings rings(cpus[1]);
  for (int64_t i = 0; i < state.iterations(); ++i) {
    const Clock::time_point start = Clock::now();
    rings.round(window);
    of_rings += Clock::now() - start;
  }
  const auto per_call = [&](Clock::duration all) {
    return std::chrono::duration<double, std::nano>(all).count() /
           static_cast<double>(state.iterations() * state.range(0));
  };
  state.counters["call_ns"] = per_call(of_calls);
  state.counters["rings_ns"] = per_call(of_rings);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void null(benchmark::State& state) {
  call(state, kNull);
}

void read(benchmark::State& state) {
  call(state, kRead);
}

BENCHMARK(null_in_turns)->ArgNames({"version", "window"})->ArgsProduct({{1, 2}, {1, 16}});
// By index into kKinds: null, null with AUTH_SYS, echo, echo with AUTH_SYS, READ, WRITE, these two
// with AUTH_SYS, and a long echo.
BENCHMARK(kind_in_turns)
    ->ArgNames({"kind", "window"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6, 7, 8}, {1, 16}});
BENCHMARK(counted)
    ->ArgNames({"kind", "window"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6, 7, 8}, {1, 16}})
    ->Iterations(200);
BENCHMARK(on_worker)->ArgName("window")->Arg(1)->Arg(16)->UseRealTime();
BENCHMARK(null)->Arg(0)->UseRealTime();
BENCHMARK(read)->Arg(4096)->Arg(65536)->Arg(kLargest)->UseRealTime();

}  // namespace
