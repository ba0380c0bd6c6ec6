// A whole call over shared memory. Server on a poll core of its own, client polled here; and, to
// see what the software alone costs, both ends polled here in turn, so that no cache line crosses
// between cores. scripts/call-cost.py counts the instructions and cache lines of `counted`.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
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

namespace {

using namespace rrdk;

constexpr uint32_t kLargest = 1u << 20;

enum : uint32_t { kNull = 0, kRead = 1, kWrite = 2, kEcho = 3 };

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = kNull, .name = "NULL"},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1, .fixed_results = 4},
    {.procedure = kEcho, .name = "ECHO", .fixed_results = 2048},
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
  call.results().put_opaque(data);
  std::move(call).reply();
}

constexpr Procedure kHandlers[] = {{kRead, read}, {kWrite, write}, {kEcho, echo}};

// Both ends, each with memory and runtime of its own, as two processes would have.
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
  explicit Pair(std::vector<int> server_cpus, RpcRdmaVersion version = RpcRdmaVersion::kOne) {
    server_runtime = std::move(
        Runtime::create(*server_memory, {.poll_cpus = server_cpus, .idle = IdlePolicy::kBusy})
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
                           {kRead, 4096, true}, {kWrite, 4096, true}};

void begin(Call& call, const Kind& kind, const RegisteredMemory& room) {
  Encoder& args = call.begin(kBinding, kind.procedure);
  if (kind.procedure == kRead) {
    args.put_u32(kind.bytes);
    call.offer(room.span(0, kind.bytes));
  } else if (kind.procedure == kWrite) {
    args.put_item(room.span(0, kind.bytes), Ddp::kEligible);
  } else if (kind.procedure == kEcho) {
    args.put_opaque({room.data(), kind.bytes});
  }
}

// One round: all calls at once, both ends polled until they have ended. scripts/call-cost.py finds
// it by its name, and the calls to it in a trace of memory accesses by the marker.
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

// What the software costs: client and server take turns on one core, so many calls at a time.
void in_turns(benchmark::State& state, const Kind& kind, RpcRdmaVersion version, int64_t window) {
  Pair pair({}, version);
  if (kind.auth_sys) {
    AuthSys identity;
    if (!identity.set_machine_name("client.example.net"))
      std::abort();
    pair.connection->set_auth_sys(identity);
  }
  std::vector<std::unique_ptr<Call>> calls;
  for (int64_t i = 0; i < window; ++i)
    calls.push_back(std::make_unique<Call>(*pair.connection));
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

void null(benchmark::State& state) {
  call(state, kNull);
}

void read(benchmark::State& state) {
  call(state, kRead);
}

BENCHMARK(null_in_turns)->ArgNames({"version", "window"})->ArgsProduct({{1, 2}, {1, 16}});
// By index into kKinds: null, null with AUTH_SYS, echo, echo with AUTH_SYS, READ, WRITE, and these
// two with AUTH_SYS.
BENCHMARK(kind_in_turns)
    ->ArgNames({"kind", "window"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6, 7}, {1, 16}});
BENCHMARK(counted)
    ->ArgNames({"kind", "window"})
    ->ArgsProduct({{0, 1, 2, 3, 4, 5, 6, 7}, {1, 16}})
    ->Iterations(200);
BENCHMARK(null)->Arg(0)->UseRealTime();
BENCHMARK(read)->Arg(4096)->Arg(65536)->Arg(kLargest)->UseRealTime();

}  // namespace
