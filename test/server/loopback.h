// A server and a client in one process over shm, with a service that shows every way of answering.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rrdk/client.h"
#include "rrdk/eal.h"
#include "rrdk/server.h"

namespace rrdk::loopback {

// The procedures of the service.
constexpr uint32_t kEcho = 1;          // opaque<> -> opaque<>
constexpr uint32_t kRead = 2;          // offset, count -> status, eligible opaque<>
constexpr uint32_t kWrite = 3;         // offset, eligible opaque<> -> bytes, how many were wrong
constexpr uint32_t kRead2 = 4;         // offset, count, count -> eligible, word, eligible
constexpr uint32_t kReject = 5;        // accept_stat -> no result
constexpr uint32_t kDeny = 6;          // auth_stat -> no result
constexpr uint32_t kForget = 7;        // the ServerCall is destroyed
constexpr uint32_t kDropCall = 8;      // drop()
constexpr uint32_t kKeep = 9;          // kept in Keeper until released
constexpr uint32_t kDelay = 10;        // nanoseconds -> the same
constexpr uint32_t kThread = 11;       // answered by another thread
constexpr uint32_t kWorker = 12;       // as kEcho, on a worker
constexpr uint32_t kFailEncode = 13;   // results().fail()
constexpr uint32_t kWho = 14;          // -> uid of AUTH_SYS or 0xffffffff, peer's name
constexpr uint32_t kEmptyResult = 15;  // -> no bytes
constexpr uint32_t kOnce = 16;         // as kEcho, and not idempotent

constexpr ProcedureBinding kProcedures[] = {
    {.procedure = 0, .name = "NULL"},
    {.procedure = kEcho, .name = "ECHO", .fixed_results = 4},
    {.procedure = kRead, .name = "READ", .eligible_results = 1, .fixed_results = 8},
    {.procedure = kWrite, .name = "WRITE", .eligible_args = 1, .fixed_results = 8},
    {.procedure = kRead2, .name = "READ2", .eligible_results = 2, .fixed_results = 12},
    {.procedure = kKeep, .name = "KEEP", .eligible_results = 1, .fixed_results = 4},
    {.procedure = kDelay, .name = "DELAY", .fixed_results = 8},
    {.procedure = kThread, .name = "THREAD", .fixed_results = 4},
    {.procedure = kWorker, .name = "WORKER", .fixed_results = 4},
    {.procedure = kWho, .name = "WHO", .fixed_results = 8},
    {.procedure = kOnce, .name = "ONCE", .fixed_results = 4},
};
constexpr Binding kBinding = {
    .program = 0x20005600, .version = 3, .name = "loopback", .procedures = kProcedures};

inline std::byte pattern(uint64_t at) {
  return static_cast<std::byte>((at ^ (at >> 8) ^ (at >> 16)) * 167 + 13);
}

// Calls whose answers are held back, and threads that answer.
struct Keeper {
  std::mutex mutex;
  std::vector<ServerCall> calls;
  std::vector<std::thread> threads;

  ~Keeper() { join(); }
  size_t kept() {
    std::lock_guard lock(mutex);
    return calls.size();
  }
  // Answers all kept calls, from the calling thread.
  void release() {
    std::vector<ServerCall> mine;
    {
      std::lock_guard lock(mutex);
      mine.swap(calls);
    }
    for (ServerCall& call : mine)
      std::move(call).reply();
  }
  // Closes the connection of the last call that came.
  void drop_one() {
    std::unique_lock lock(mutex);
    ServerCall call = std::move(calls.back());
    calls.pop_back();
    lock.unlock();
    std::move(call).drop();
  }
  void join() {
    std::vector<std::thread> mine;
    {
      std::lock_guard lock(mutex);
      mine.swap(threads);
    }
    for (std::thread& thread : mine)
      thread.join();
  }
};

inline void echo(ServerCall call, void*) {
  ItemView data = call.args().get_opaque(UINT32_MAX);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  call.results().put_opaque(data);
  std::move(call).reply();
}

inline Buffer patterned(Memory& memory, uint64_t offset, uint32_t count) {
  Buffer data = memory.get(std::max(count, 1u));
  for (uint32_t i = 0; data && i < count; ++i)
    data.data()[i] = pattern(offset + i);
  return data;
}

inline void read(ServerCall call, void*) {
  uint64_t offset = call.args().get_u64();
  uint32_t count = call.args().get_u32();
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  Buffer data = patterned(call.memory(), offset, count);
  if (!data)
    return std::move(call).reject(AcceptStat::kSystemErr);
  call.results().put_u32(7);
  call.results().put_item(std::move(data), count, Ddp::kEligible);
  std::move(call).reply();
}

inline void write(ServerCall call, void*) {
  uint64_t at = call.args().get_u64();
  ItemView data = call.args().get_item(UINT32_MAX);
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  uint32_t wrong = 0;
  data.for_each([&](const std::byte* bytes, size_t n) {
    for (size_t i = 0; i < n; ++i)
      wrong += bytes[i] != pattern(at++);
  });
  call.results().put_u32(data.size());
  call.results().put_u32(wrong);
  std::move(call).reply();
}

inline void read2(ServerCall call, void*) {
  uint64_t offset = call.args().get_u64();
  uint32_t first = call.args().get_u32();
  uint32_t second = call.args().get_u32();
  if (!call.args().at_end())
    return std::move(call).reject(AcceptStat::kGarbageArgs);
  Buffer one = patterned(call.memory(), offset, first);
  Buffer two = patterned(call.memory(), offset + first, second);
  if (!one || !two)
    return std::move(call).reject(AcceptStat::kSystemErr);
  call.results().put_item(std::move(one), first, Ddp::kEligible);
  call.results().put_u32(99);
  call.results().put_item(std::move(two), second, Ddp::kEligible);
  std::move(call).reply();
}

inline void reject(ServerCall call, void*) {
  auto status = static_cast<AcceptStat>(call.args().get_u32());
  call.results().put_u64(0);  // must not be seen
  std::move(call).reject(status);
}

inline void deny(ServerCall call, void*) {
  auto reason = static_cast<AuthStat>(call.args().get_u32());
  std::move(call).deny(reason);
}

inline void forget(ServerCall, void*) {}

inline void drop(ServerCall call, void*) {
  std::move(call).drop();
}

inline void keep(ServerCall call, void* context) {
  auto& keeper = *static_cast<Keeper*>(context);
  std::lock_guard lock(keeper.mutex);
  keeper.calls.push_back(std::move(call));
}

inline void delay(ServerCall call, void*) {
  uint64_t ns = call.args().get_u64();
  call.results().put_u64(ns);
  std::move(call).reply_after(ns);
}

inline void by_thread(ServerCall call, void* context) {
  auto& keeper = *static_cast<Keeper*>(context);
  std::lock_guard lock(keeper.mutex);
  keeper.threads.emplace_back([](ServerCall mine) { echo(std::move(mine), nullptr); },
                              std::move(call));
}

inline void fail_encode(ServerCall call, void*) {
  call.results().fail();
  std::move(call).reply();
}

inline void who(ServerCall call, void*) {
  auto identity = call.auth_sys();
  call.results().put_u32(identity ? identity->uid : UINT32_MAX);
  call.results().put_string(identity ? identity->machine_name()
                                     : call.connection().peer().to_string());
  std::move(call).reply();
}

inline void empty_result(ServerCall call, void*) {
  std::move(call).reply();
}

constexpr Procedure kTable[] = {
    {kEcho, echo},
    {kRead, read},
    {kWrite, write},
    {kRead2, read2},
    {kReject, reject},
    {kDeny, deny},
    {kForget, forget},
    {kDropCall, drop},
    {kKeep, keep},
    {kDelay, delay},
    {kThread, by_thread},
    {kWorker, echo, Dispatch::kWorker},
    {kFailEncode, fail_encode},
    {kWho, who},
    {kEmptyResult, empty_result},
    {kOnce, echo, Dispatch::kInline, false},
};

// How server and client share cores.
enum class Cores { kEmbedded, kDedicated, kWorkers };

inline RuntimeOptions options_for(Cores cores) {
  switch (cores) {
    case Cores::kEmbedded:
      return {.embedded_cores = 2};
    case Cores::kDedicated:
      return {.poll_cpus = {-1, -1}};
    case Cores::kWorkers:
      return {.poll_cpus = {-1}, .worker_cpus = {-1, -1}, .idle = IdlePolicy::kAdaptive};
  }
  return {};
}

inline std::string socket_path() {
  static std::atomic<int> count = 0;
  return "/tmp/rrdk-test-" + std::to_string(getpid()) + "-" + std::to_string(count++) + ".sock";
}

inline std::unique_ptr<Memory> make_memory() {
  EXPECT_TRUE(ensure_eal());
  auto memory =
      Memory::create({.classes = {{4096, 2048}, {65536, 64}, {1u << 20, 16}, {4u << 20, 8}},
                      .hugepages = HugepagePolicy::kNever,
                      .prefault = false});
  EXPECT_TRUE(memory) << memory.error().message;
  return std::move(*memory);
}

// Calls `pass`, which returns how much it did, until `done()`; fails the test after a long time.
template <typename Done, typename Pass>
void wait_until(Done&& done, Pass&& pass) {
  uint64_t deadline = Runtime::now_ns() + 60'000'000'000;
  while (!done()) {
    ASSERT_LT(Runtime::now_ns(), deadline) << "it never happened";
    if (pass() == 0)
      std::this_thread::yield();
  }
}

// A server with services, and a client.
struct Ends {
  Ends(const RuntimeOptions& runtime_options, const ServerOptions& server_options,
       const ClientOptions& client_options, std::initializer_list<Service> services,
       const std::string& where = "shm:" + socket_path())
      : memory(make_memory()), runtime(Runtime::create(*memory, runtime_options).value()) {
    server = Server::create(*runtime, server_options).value();
    for (const Service& service : services) {
      auto added = server->add_service(service);
      EXPECT_TRUE(added) << added.error().message;
    }
    auto listening = server->listen(where);
    EXPECT_TRUE(listening) << listening.error().message;
    uri = *listening;
    client = Client::create(*runtime, client_options).value();
  }
  // Tears down in the right order, before the objects that the services use. The pools are whole
  // afterwards, or the test fails.
  void end() {
    client.reset();
    server.reset();
    runtime.reset();
    EXPECT_TRUE(memory->whole());
  }
  // Polls, or lets the cores run.
  template <typename Done>
  void until(Done&& done) {
    wait_until(done, [this] {
      uint32_t work = 0;
      for (uint32_t i = 0; runtime->embedded() && i < runtime->num_cores(); ++i)
        work += runtime->poll(i);
      return work;
    });
  }

  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<Server> server;
  std::string uri;
  std::unique_ptr<Client> client;
};

// The service above, and its client.
struct World : Ends {
  explicit World(Cores cores = Cores::kEmbedded, const ServerOptions& server_options = {},
                 const ClientOptions& client_options = {})
      : World(options_for(cores), server_options, client_options) {}
  World(const RuntimeOptions& runtime_options, const ServerOptions& server_options,
        const ClientOptions& client_options)
      : Ends(runtime_options, server_options, client_options,
             {{.binding = &kBinding, .procedures = kTable, .context = &keeper}}) {}
  ~World() {
    keeper.join();
    keeper.release();
    end();
  }

  std::unique_ptr<ClientConnection> connect(int core = -1) {
    auto connection = client->connect(uri, core);
    EXPECT_TRUE(connection) << connection.error().message;
    return std::move(*connection);
  }

  Keeper keeper;
};

// A call that counts how often it ended.
struct EndingCall {
  explicit EndingCall(Caller& caller) : call(caller) {}
  Call call;
  std::atomic<int> ends = 0;

  Encoder& begin(uint32_t procedure) { return call.begin(kBinding, procedure); }
  void submit() {
    call.submit(
        [](Call&, void* self) {
          static_cast<EndingCall*>(self)->ends.fetch_add(1, std::memory_order_release);
        },
        this);
  }
  int ended() const { return ends.load(std::memory_order_acquire); }
};

// A call that is made again and again, until it ends with an error.
struct Repeating : EndingCall {
  explicit Repeating(Caller& caller, uint32_t procedure_in = kWorker, MemorySpan room_in = {})
      : EndingCall(caller), procedure(procedure_in), room(room_in) {}

  void again() {
    Encoder& args = begin(procedure);
    if (procedure == kRead) {
      args.put_u64(0);
      args.put_u32(room.length);
      call.offer(room);
    } else {
      args.put_u32(0);
      call.expect_reply(4);
    }
    call.submit(
        [](Call& ended, void* argument) {
          auto& self = *static_cast<Repeating*>(argument);
          if (ended.status() == CallStatus::kOk) {
            self.good.fetch_add(1, std::memory_order_relaxed);
            self.again();
          } else {
            self.ends.fetch_add(1, std::memory_order_release);
          }
        },
        this);
  }

  uint32_t procedure;
  MemorySpan room;  // of kRead
  std::atomic<uint64_t> good = 0;
};

// Until the first reply a client may have one call outstanding (V1-CREDIT-11).
inline void open_window(Caller& caller) {
  Call call(caller);
  call.begin(kBinding, 0);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

}  // namespace rrdk::loopback
