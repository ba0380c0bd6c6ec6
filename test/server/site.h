// A server, and clients with identities: the test chooses the identity under which the next
// connection comes. The service counts how often each of its procedures ran.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "base/internals.h"
#include "loopback.h"
#include "raw_client.h"
#include "runtime/runtime_impl.h"
#include "server/server_impl.h"

namespace rrdk::loopback {

// The procedures of the program below; results begin with the number of the run.
constexpr uint32_t kAppend = 1;      // word -> run, word
constexpr uint32_t kAppendKept = 2;  // -> run, when the test releases it
constexpr uint32_t kAppendData = 3;  // bytes -> run, eligible opaque<>, a word
constexpr uint32_t kAppendOwn = 4;   // the same, from two pieces of the application's own memory
constexpr uint32_t kAgainKept = 5;   // as kAppendKept, but it may be run twice
constexpr uint32_t kAgain = 6;       // as kAppend, but it may be run twice
constexpr uint32_t kAppendWork = 7;  // as kAppend, on a worker
constexpr uint32_t kLater = 8;       // kAppendData without the word, in a minute; may be run twice
constexpr uint32_t kWord = 77;       // behind the data

constexpr ProcedureBinding kSiteProcedures[] = {
    {.procedure = kAppend, .name = "APPEND", .fixed_results = 8},
    {.procedure = kAppendKept, .name = "APPEND_KEPT", .fixed_results = 4},
    {.procedure = kAppendData, .name = "APPEND_DATA", .eligible_results = 1, .fixed_results = 8},
    {.procedure = kAppendOwn, .name = "APPEND_OWN", .eligible_results = 1, .fixed_results = 8},
    {.procedure = kAgainKept, .name = "AGAIN_KEPT", .fixed_results = 4},
    {.procedure = kAgain, .name = "AGAIN", .eligible_args = 1, .fixed_results = 8},
    {.procedure = kAppendWork, .name = "APPEND_WORK", .fixed_results = 8},
};
constexpr Binding kSiteBinding = {
    .program = 0x20005700, .version = 1, .name = "site", .procedures = kSiteProcedures};

struct SiteService {
  std::atomic<uint32_t> runs = 0;
  Keeper keeper;
  RegisteredMemory own;
};

inline void put_run(ServerCall& call, void* context) {
  call.results().put_u32(static_cast<SiteService*>(context)->runs.fetch_add(1) + 1);
}

inline void append(ServerCall call, void* context) {
  uint32_t word = call.args().get_u32();
  put_run(call, context);
  call.results().put_u32(word);
  std::move(call).reply();
}

inline void append_kept(ServerCall call, void* context) {
  put_run(call, context);
  keep(std::move(call), &static_cast<SiteService*>(context)->keeper);
}

inline void append_data(ServerCall call, void* context) {
  uint32_t length = call.args().get_u32();
  put_run(call, context);
  call.results().put_item(patterned(call.memory(), 0, length), length, Ddp::kEligible);
  call.results().put_u32(kWord);
  std::move(call).reply();
}

inline void append_later(ServerCall call, void* context) {
  uint32_t length = call.args().get_u32();
  put_run(call, context);
  call.results().put_item(patterned(call.memory(), 0, length), length, Ddp::kEligible);
  std::move(call).reply_after(60'000'000'000);
}

inline void append_own(ServerCall call, void* context) {
  uint32_t length = call.args().get_u32();
  put_run(call, context);
  auto& own = static_cast<SiteService*>(context)->own;
  constexpr uint32_t kSecond = 2048;  // where the second piece begins
  const uint32_t first = length / 3;
  for (uint32_t i = 0; i < length; ++i)
    own.data()[i < first ? i : kSecond + i - first] = pattern(i);
  call.results().put_item(std::array{own.span(0, first), own.span(kSecond, length - first)},
                          Ddp::kEligible);
  call.results().put_u32(kWord);
  call.on_released(
      [](void* memory) { std::memset(static_cast<RegisteredMemory*>(memory)->data(), 0xee, 4096); },
      &own);
  std::move(call).reply();
}

constexpr Procedure kSiteTable[] = {
    {.number = kAppend, .handler = append, .idempotent = false},
    {.number = kAppendKept, .handler = append_kept, .idempotent = false},
    {.number = kAppendData, .handler = append_data, .idempotent = false},
    {.number = kAppendOwn, .handler = append_own, .idempotent = false},
    {.number = kAgainKept, .handler = append_kept},
    {.number = kAgain, .handler = append},
    {.number = kLater, .handler = append_later},
    {.number = kAppendWork, .handler = append, .dispatch = Dispatch::kWorker, .idempotent = false},
    {.number = kOtherProcedures, .handler = append, .idempotent = false},
};

// A connection request under another name. The upper half of a name's 64 bits, if it is not zero,
// is the name of its origin.
class Disguise final : public fabric::ConnectRequest {
 public:
  // Why no queue pair can be made for a connection of that core, if that is so.
  using Impossible = std::function<std::optional<Error>(uint32_t core)>;

  Disguise(std::unique_ptr<fabric::ConnectRequest> request, const fabric::Identity& identity,
           Impossible impossible)
      : request_(std::move(request)), identity_(identity), impossible_(std::move(impossible)) {}
  std::span<const std::byte> private_data() const override { return request_->private_data(); }
  Peer peer() const override { return request_->peer(); }
  fabric::Identity identity() const override { return identity_; }
  fabric::Identity origin(uint32_t) const override {
    const uint64_t name = identity_.words[0];
    return {{name >> 32 != 0 ? name >> 32 : name, 0, 0}};
  }
  bool has_hung_up() const override { return request_->has_hung_up(); }
  Result<std::unique_ptr<fabric::QueuePair>> create_queue_pair(
      const fabric::QueuePairOptions& options) override {
    const auto& link = *static_cast<runtime::Link*>(options.owner);
    if (impossible_)
      if (std::optional<Error> why = impossible_(link.core().index()); why)
        return tl::unexpected(*why);
    return request_->create_queue_pair(options);
  }
  Result<void> accept(fabric::QueuePair& qp, std::span<const std::byte> private_data) override {
    return request_->accept(qp, private_data);
  }
  void reject(std::span<const std::byte> private_data) override { request_->reject(private_data); }

 private:
  std::unique_ptr<fabric::ConnectRequest> request_;
  fabric::Identity identity_;
  const Impossible impossible_;
};

struct Site final : private runtime::Acceptor {
  explicit Site(const ServerOptions& options = {}, Cores cores = Cores::kEmbedded)
      : Site(options, options_for(cores)) {}
  Site(const ServerOptions& options, const RuntimeOptions& cores)
      : memory(make_memory()), runtime(Runtime::create(*memory, cores).value()) {
    service.own = memory->allocate(4096).value();
    server = std::make_shared<Server::Impl>(Internals::of(*runtime), options);
    EXPECT_TRUE(server->add_service(
        {.binding = &kSiteBinding, .procedures = kSiteTable, .context = &service}));
    EXPECT_TRUE(server->listen("shm:" + socket_path()));
    device_ = Internals::of(*runtime)
                  .device(*fabric::find_driver("shm:").value(), "shm:", fabric::Purpose::kListening)
                  .value();
    uri = "shm:" + socket_path();
    listener_ = device_->listen(*fabric::look_up(uri).value(), *this).value();
  }
  ~Site() {
    device_->unlisten(listener_);
    listener_ = nullptr;
    service.keeper.join();
    service.keeper.release();
    end_server();
    runtime.reset();
    service.own = {};
    EXPECT_TRUE(memory->whole());
  }

  void end_server() {
    if (server != nullptr)
      server->handle_destroyed();
    server.reset();
  }

  // A connection of the client called `name`; 0 is a client without an identity.
  std::unique_ptr<RawClient> connect(uint64_t name = 1, uint32_t receives = 32) {
    std::unique_ptr<RawClient> client = knock(name, receives);
    until([&] { return client->up(); }, {client.get()});
    return client;
  }
  // The same, accepted or not.
  std::unique_ptr<RawClient> knock(uint64_t name, uint32_t receives = 32) {
    identity_ = {{name, 0, 0}};
    requests_.store(0);
    auto client = std::make_unique<RawClient>(*memory, uri, receives);
    until([&] { return requests_.load() == 1; }, {client.get()});
    return client;
  }
  // The same, but only this core polls, until it has done all that it has to do for the connection.
  std::unique_ptr<RawClient> knock_at_core(uint32_t core, uint64_t name, uint32_t receives = 32) {
    identity_ = {{name, 0, 0}};
    requests_.store(0);
    auto client = std::make_unique<RawClient>(*memory, uri, receives);
    wait_until([&] { return requests_.load() == 1; }, [&] { return runtime->poll(core); });
    for (int i = 0; i < 8; ++i)
      runtime->poll(core);
    return client;
  }
  // The same, but no core has done anything for it yet.
  std::unique_ptr<RawClient> knock_at_no_core(uint64_t name, uint32_t receives = 1) {
    identity_ = {{name, 0, 0}};
    requests_.store(0);
    auto client = std::make_unique<RawClient>(*memory, uri, receives);
    wait_until([&] { return requests_.load() == 1; },
               [&] {
                 client->pump();
                 return route_events();
               });
    return client;
  }
  template <typename Done>
  void until(Done&& done, std::initializer_list<RawClient*> clients = {}) {
    wait_until(done, [&] {
      poll();
      for (RawClient* client : clients)
        client->pump();
      return 1;
    });
  }
  void poll() {
    if (!runtime->embedded())
      return std::this_thread::yield();
    for (uint32_t i = 0; i < runtime->num_cores(); ++i)
      runtime->poll(i);
  }
  const runtime::OpenDevice& device() const { return *device_; }
  // Processes connection events without a pass of a core. Returns how many events there were.
  uint32_t route_events() { return device_->route_events(base::Budget::none()); }
  static void send(RawClient& client, const RawCall& call) {
    client.send(call.message(kSiteBinding.program, kSiteBinding.version));
  }
  // The next answer.
  Received answer(RawClient& client) {
    until([&] { return !client.received.empty() || client.down(); }, {&client});
    if (client.received.empty())
      return {};
    Received first = client.received.front();
    client.received.erase(client.received.begin());
    return first;
  }
  Received call(RawClient& client, const RawCall& call) {
    send(client, call);
    return answer(client);
  }
  // Cuts the connection, and waits until the server has destroyed it.
  void cut(std::unique_ptr<RawClient>& client) {
    uint64_t before = server->stats()[Counter::kConnections];
    client->disconnect();
    until([&] { return server->stats()[Counter::kConnections] < before; }, {client.get()});
    client.reset();
  }

  std::unique_ptr<Memory> memory;
  std::unique_ptr<Runtime> runtime;
  SiteService service;
  std::shared_ptr<Server::Impl> server;
  std::string uri;
  // Applies to requests from now on; set while none is on its way.
  Disguise::Impossible impossible;
  runtime::OpenDevice* instead = nullptr;          // the device by which they seem to come
  const fabric::ConnectRequest* newest = nullptr;  // the newest request, until it is answered

 private:
  void on_connect_request(runtime::OpenDevice& device,
                          std::unique_ptr<fabric::ConnectRequest> request) override {
    auto disguised = std::make_unique<Disguise>(std::move(request), identity_, impossible);
    newest = disguised.get();
    server->on_connect_request(instead != nullptr ? *instead : device, std::move(disguised));
    requests_.fetch_add(1);
  }
  void on_shortage() override { server->on_shortage(); }

  fabric::Identity identity_;
  std::atomic<uint32_t> requests_ = 0;
  runtime::OpenDevice* device_ = nullptr;
  fabric::Listener* listener_ = nullptr;
};

}  // namespace rrdk::loopback
