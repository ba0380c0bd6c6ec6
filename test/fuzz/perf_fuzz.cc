// The perf program's arguments, through a whole server: client and server over shm, both polled
// here. The first byte chooses the procedure, the second how much space is offered; the rest are
// the arguments.
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "apps/testrpc/perf_program.h"
#include "require.h"
#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/runtime.h"

namespace {

using namespace rrdk;
using fuzz::require;

constexpr uint32_t kMaxSize = 8192;

struct World {
  World() {
    require(ensure_eal().has_value(), "EAL");
    memory = Memory::create({.classes = {{4096, 2048}, {65536, 64}},
                             .hugepages = HugepagePolicy::kNever,
                             .numa_nodes = {},
                             .prefault = false})
                 .value();
    room = memory->allocate(2 * kMaxSize).value();
    perf = testrpc::PerfServer::create(*memory, kMaxSize, /*touches=*/true, /*pieces=*/3,
                                       /*work_ns=*/0)
               .value();
    server_runtime = Runtime::create(*memory, {}).value();
    client_runtime = Runtime::create(*memory, {}).value();
    server = Server::create(*server_runtime).value();
    require(server->add_service(perf->service(Dispatch::kInline, /*once=*/false)).has_value(),
            "service");
    std::string uri = server->listen("shm:@rrdk-fuzz-" + std::to_string(getpid())).value();
    client = Client::create(*client_runtime).value();
    std::atomic<bool> connected = false;
    std::thread helper([&] {
      while (!connected)
        server_runtime->poll();
    });
    connection = client->connect(uri).value();
    connected = true;
    helper.join();
    call = std::make_unique<Call>(*connection);
  }

  std::unique_ptr<Memory> memory;
  RegisteredMemory room;
  std::unique_ptr<testrpc::PerfServer> perf;
  std::unique_ptr<Runtime> server_runtime, client_runtime;
  std::unique_ptr<Server> server;
  std::unique_ptr<Client> client;
  std::unique_ptr<ClientConnection> connection;
  std::unique_ptr<Call> call;
};

// Never destroyed: a fuzzer's process ends anywhere.
World& world() {
  static World& w = *new World;
  return w;
}

// Replies that are held back on purpose would only slow the fuzzer down.
void clear_delay(uint32_t procedure, std::vector<std::byte>& args) {
  size_t at = procedure == testrpc::kPerfRead    ? 16
              : procedure == testrpc::kPerfWrite ? 12
                                                 : SIZE_MAX;
  for (size_t i = at; i < args.size() && i < at + 4; ++i)
    args[i] = std::byte{0};
}

bool expected(CallStatus status) {
  switch (status) {
    case CallStatus::kOk:
    case CallStatus::kGarbageArgs:
    case CallStatus::kSystemErr:
    case CallStatus::kProcUnavail:
    case CallStatus::kChunkError:
    case CallStatus::kTooLarge:
      return true;
    default:
      std::fprintf(stderr, "status: %s\n", to_string(status));
      return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2)
    return 0;
  World& w = world();
  uint32_t procedure = data[0] % 8;
  const auto* bytes = reinterpret_cast<const std::byte*>(data + 2);
  std::vector<std::byte> args(bytes, bytes + (size - 2));
  clear_delay(procedure, args);
  Encoder& out = w.call->begin(testrpc::perf_binding(), procedure);
  out.put_fixed(args);
  if ((data[1] & 1) != 0)
    w.call->offer(w.room.span(0, 32u * data[1]));
  if ((data[1] & 2) != 0)
    w.call->offer(w.room.span(kMaxSize, 32u * data[1]));
  w.call->expect_reply(64u * data[1]);
  std::atomic<bool> ended = false;
  w.call->submit([](Call&, void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &ended);
  for (uint32_t i = 0; !ended; ++i) {
    w.client_runtime->poll();
    w.server_runtime->poll();
    require(i < 1'000'000, "a call that never ends");
  }
  require(expected(w.call->status()), "a status that these arguments cannot cause");
  require(w.connection->alive(), "the connection was lost");
  return 0;
}
