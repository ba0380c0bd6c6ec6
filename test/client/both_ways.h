// A server that calls its clients, and clients that take such calls, for tests of both directions.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "../server/loopback.h"

namespace rrdk::loopback {

// The procedures of the server's program.
constexpr uint32_t kPlus = 1;        // word -> word + 1
constexpr uint32_t kCallBack = 2;    // procedure, count -> how many of `count` calls were right
constexpr uint32_t kSubscribe = 3;   // -> nothing; Host::clients has the caller
constexpr uint32_t kAskWorker = 4;   // as kCallBack, on a worker that waits for each call
constexpr uint32_t kStartLoad = 5;   // count -> no result; `count` calls that repeat themselves
constexpr uint32_t kLoadRights = 6;  // -> how many of these were right until now
// The procedures of the client's program.
constexpr uint32_t kTell = 1;        // word -> word + 100
constexpr uint32_t kTellWorker = 2;  // the same, on a worker
constexpr uint32_t kTellAsk = 3;     // the same, after the server has answered kPlus
constexpr uint32_t kTellKept = 4;    // the same, when Guest::keeper releases it
constexpr uint32_t kTellLong = 5;    // bytes -> their count
constexpr uint32_t kTellBack = 6;    // -> 1 if backward_client() is kUnsupported there
constexpr uint32_t kTellOther = 7;   // -> no result: there are versions 3 to 7
constexpr uint32_t kTellMany = 8;    // bytes -> opaque<>, when Guest::keeper releases it

inline constexpr ProcedureBinding kHostProcedures[] = {
    {.procedure = kPlus, .name = "PLUS", .fixed_results = 4},
    {.procedure = kCallBack, .name = "CALL_BACK", .fixed_results = 4},
    {.procedure = kSubscribe, .name = "SUBSCRIBE"},
    {.procedure = kAskWorker, .name = "ASK_WORKER", .fixed_results = 4},
    {.procedure = kStartLoad, .name = "START_LOAD"},
    {.procedure = kLoadRights, .name = "LOAD_RIGHTS", .fixed_results = 8},
};
inline constexpr Binding kHostBinding = {
    .program = 0x20005800, .version = 1, .name = "host", .procedures = kHostProcedures};

inline constexpr ProcedureBinding kGuestProcedures[] = {
    {.procedure = kTell, .name = "TELL", .fixed_results = 4},
    {.procedure = kTellWorker, .name = "TELL_WORKER", .fixed_results = 4},
    {.procedure = kTellAsk, .name = "TELL_ASK", .fixed_results = 4},
    {.procedure = kTellKept, .name = "TELL_KEPT", .fixed_results = 4},
    {.procedure = kTellLong, .name = "TELL_LONG", .fixed_results = 4},
    {.procedure = kTellBack, .name = "TELL_BACK", .fixed_results = 4},
};
inline constexpr Binding kGuestBinding = {
    .program = 0x20005801, .version = 1, .name = "guest", .procedures = kGuestProcedures};

// One call of a word, to either end: how it ended, and whether the answer was right.
struct Word {
  explicit Word(Caller& caller) : call(caller) {}

  // If `repeats`, it is made again until it ends with an error.
  void submit(const Binding& to, uint32_t procedure_in, uint32_t word_in, bool repeats_in = false) {
    binding = &to;
    procedure = procedure_in;
    word = word_in;
    repeats = repeats_in;
    send();
  }
  void send() {
    call.begin(*binding, procedure).put_u32(word);
    call.submit([](Call&, void* self) { static_cast<Word*>(self)->note_end(); }, this);
  }
  void note_end() {
    uint32_t expected = word + (binding == &kHostBinding ? 1 : 100);
    bool ok = call.status() == CallStatus::kOk;
    if (ok && call.results().get_u32() == expected && call.results().at_end())
      rights.fetch_add(1, std::memory_order_relaxed);
    bool once_more = ok && repeats;
    ends.fetch_add(1, std::memory_order_release);
    if (once_more)
      send();
  }
  int ended() const { return ends.load(std::memory_order_acquire); }
  bool right() const { return ended() == 1 && rights.load() == 1; }

  Call call;
  const Binding* binding = nullptr;
  uint32_t procedure = 0;
  uint32_t word = 0;
  bool repeats = false;
  std::atomic<int> ends = 0;
  std::atomic<uint64_t> rights = 0;
};

// Calls that repeat themselves until the connection ends.
struct Stream {
  void start(Caller& caller, const Binding& binding, uint32_t procedure, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      words.push_back(std::make_unique<Word>(caller));
      words.back()->submit(binding, procedure, i, true);
    }
  }
  uint64_t rights() const {
    uint64_t sum = 0;
    for (const auto& word : words)
      sum += word->rights.load(std::memory_order_relaxed);
    return sum;
  }
  bool over() const {
    for (const auto& word : words) {
      if (word->call.in_flight())
        return false;
    }
    return true;
  }
  std::vector<std::unique_ptr<Word>> words;
};

// The server's side.
struct Host {
  // The calls of one kCallBack, which is answered when all have ended.
  struct Round {
    Round(ServerCall call_in, std::shared_ptr<BackwardClient> client_in)
        : call(std::move(call_in)), client(std::move(client_in)) {}
    ServerCall call;
    std::shared_ptr<BackwardClient> client;
    std::vector<std::unique_ptr<Call>> calls;
    uint32_t left = 0;

    void start(uint32_t procedure, uint32_t count) {
      left = count;
      for (uint32_t i = 0; i < count; ++i) {
        calls.push_back(std::make_unique<Call>(*client));
        calls.back()->begin(kGuestBinding, procedure).put_u32(i);
        calls.back()->submit([](Call&, void* self) { static_cast<Round*>(self)->on_end(); }, this);
      }
    }
    // Called on one poll core only.
    void on_end() {
      if (--left != 0)
        return;
      uint32_t rights = 0;
      for (uint32_t i = 0; i < calls.size(); ++i)
        rights += calls[i]->status() == CallStatus::kOk && calls[i]->results().get_u32() == i + 100;
      call.results().put_u32(rights);
      std::move(call).reply();
      delete this;  // in the callback of one of its calls, which is allowed
    }
  };

  static Host& of(void* context) { return *static_cast<Host*>(context); }
  // Returns null on failure, which was recorded; the call is rejected.
  static std::shared_ptr<BackwardClient> client_of(ServerCall& call, void* context) {
    auto client = call.backward_client();
    if (client)
      return std::move(*client);
    of(context).note(client.error());
    std::move(call).reject(AcceptStat::kSystemErr);
    return nullptr;
  }
  static void plus(ServerCall call, void*) {
    call.results().put_u32(call.args().get_u32() + 1);
    std::move(call).reply();
  }
  static void call_back(ServerCall call, void* context) {
    uint32_t procedure = call.args().get_u32();
    uint32_t count = call.args().get_u32();
    std::shared_ptr<BackwardClient> client = client_of(call, context);
    if (client == nullptr)
      return;
    (new Round(std::move(call), std::move(client)))->start(procedure, count);
  }
  static void subscribe(ServerCall call, void* context) {
    std::shared_ptr<BackwardClient> client = client_of(call, context);
    if (client == nullptr)
      return;
    of(context).add(std::move(client));
    std::move(call).reply();
  }
  static void ask_worker(ServerCall call, void* context) {
    uint32_t procedure = call.args().get_u32();
    uint32_t count = call.args().get_u32();
    std::shared_ptr<BackwardClient> client = client_of(call, context);
    if (client == nullptr)
      return;
    Call back(*client);
    uint32_t rights = 0;
    for (uint32_t i = 0; i < count; ++i) {
      back.begin(kGuestBinding, procedure).put_u32(i);
      rights += back.submit_and_wait() == CallStatus::kOk && back.results().get_u32() == i + 100;
    }
    call.results().put_u32(rights);
    std::move(call).reply();
  }
  static void start_load(ServerCall call, void* context) {
    uint32_t count = call.args().get_u32();
    Host& host = of(context);
    host.load_client = call.backward_client().value();
    host.load.start(*host.load_client, kGuestBinding, kTell, count);
    std::move(call).reply();
  }
  static void load_rights(ServerCall call, void* context) {
    call.results().put_u64(of(context).load.rights());
    std::move(call).reply();
  }

  void note(const Error& error) {
    std::lock_guard lock(mutex);
    errors.push_back(error);
  }
  void add(std::shared_ptr<BackwardClient> client) {
    std::lock_guard lock(mutex);
    clients.push_back(std::move(client));
  }
  std::shared_ptr<BackwardClient> last() {
    std::lock_guard lock(mutex);
    return clients.empty() ? nullptr : clients.back();
  }
  // Call this before the Server is destroyed.
  void release() {
    load.words.clear();
    load_client.reset();
    std::lock_guard lock(mutex);
    clients.clear();
  }

  std::mutex mutex;
  std::vector<Error> errors;  // of backward_client()
  std::vector<std::shared_ptr<BackwardClient>> clients;
  std::shared_ptr<BackwardClient> load_client;
  Stream load;
};

inline constexpr Procedure kHostTable[] = {
    {kPlus, Host::plus},
    {kCallBack, Host::call_back},
    {kSubscribe, Host::subscribe},
    {kAskWorker, Host::ask_worker, Dispatch::kWorker},
    {kStartLoad, Host::start_load},
    {kLoadRights, Host::load_rights},
};

// The client's side.
struct Guest {
  // A forward call made for a backward one.
  struct Errand {
    Errand(ServerCall call_in, ClientConnection& connection)
        : call(std::move(call_in)), forward(connection) {}
    ServerCall call;
    Call forward;
    uint32_t word = 0;
  };

  static Guest& of(void* context) { return *static_cast<Guest*>(context); }
  static void tell(ServerCall call, void*) {
    call.results().put_u32(call.args().get_u32() + 100);
    std::move(call).reply();
  }
  static void tell_ask(ServerCall call, void* context) {
    auto* errand = new Errand(std::move(call), *of(context).connection);
    errand->word = errand->call.args().get_u32();
    errand->forward.begin(kHostBinding, kPlus).put_u32(errand->word);
    errand->forward.submit(
        [](Call& forward, void* argument) {
          std::unique_ptr<Errand> mine(static_cast<Errand*>(argument));
          bool right =
              forward.status() == CallStatus::kOk && forward.results().get_u32() == mine->word + 1;
          mine->call.results().put_u32(right ? mine->word + 100 : 0);
          std::move(mine->call).reply();
        },
        errand);
  }
  static void tell_kept(ServerCall call, void* context) {
    call.results().put_u32(call.args().get_u32() + 100);
    keep(std::move(call), &of(context).keeper);
  }
  static void tell_long(ServerCall call, void*) {
    call.results().put_u32(call.args().get_opaque(UINT32_MAX).size());
    std::move(call).reply();
  }
  static void tell_many(ServerCall call, void* context) {
    call.results().put_opaque(std::vector<std::byte>(call.args().get_u32()));
    keep(std::move(call), &of(context).keeper);
  }
  static void tell_other(ServerCall call, void*) { std::move(call).reject_versions(3, 7); }
  static void tell_back(ServerCall call, void* context) {
    auto back = call.backward_client();
    // Its connection is the one that the test made.
    ClientConnection* ours = of(context).connection.load();
    EXPECT_NE(call.connection().id(), 0u);
    EXPECT_EQ(call.connection().id(), ours != nullptr ? ours->info().id : 0);
    EXPECT_EQ(call.connection().peer().process->pid, ::getpid());
    call.results().put_u32(!back && back.error().code == Errc::kUnsupported ? 1 : 0);
    std::move(call).reply();
  }

  std::atomic<ClientConnection*> connection = nullptr;
  Keeper keeper;
};

inline constexpr Procedure kGuestTable[] = {
    {kTell, Guest::tell},
    {kTellWorker, Guest::tell, Dispatch::kWorker},
    {kTellAsk, Guest::tell_ask},
    {kTellKept, Guest::tell_kept},
    {kTellLong, Guest::tell_long},
    {kTellBack, Guest::tell_back},
    {kTellOther, Guest::tell_other},
    {kTellMany, Guest::tell_many},
};

// Calls with chunks, in either direction: loopback's program, whose kKeep goes to Guest::keeper at
// the client.
inline constexpr Procedure kBulkTable[] = {
    {kEcho, echo}, {kRead, read}, {kWrite, write}, {kKeep, keep}, {kOtherProcedures, Guest::tell}};

// The versions and drafts that the ends speak.
struct Wire {
  RpcRdmaVersion version = RpcRdmaVersion::kOne;
  RpcRdmaDraft draft = RpcRdmaDraft::kDraft04;
  const char* name = "Version1";
};
inline constexpr Wire kWires[] = {
    {},
    {RpcRdmaVersion::kTwo, RpcRdmaDraft::kDraft00, "Draft00"},
    {RpcRdmaVersion::kTwo, RpcRdmaDraft::kDraft04, "Draft04"},
};

inline ClientOptions client_options(const Wire& wire) {
  return {.version = wire.version, .backward_credits = 64, .version2 = {.draft = wire.draft}};
}
inline ServerOptions server_options(const Wire& wire) {
  return {.versions = {.draft = wire.draft},
          .first_credits = 64,  // calls are held
          .backward_credits = 64};
}

// The objects that services of both ends use: made before the ends and destroyed after them.
struct Actors {
  Host host;
  Guest guest;
};

// Both ends in one process.
struct BothWorld : Actors, Ends {
  explicit BothWorld(Cores cores = Cores::kEmbedded, const Wire& wire = kWires[0])
      : BothWorld(cores, server_options(wire), client_options(wire)) {}
  BothWorld(Cores cores, const ServerOptions& server_options, const ClientOptions& client_options,
            bool serves = true, const std::string& where = "shm:" + socket_path())
      : Ends(options_for(cores), server_options, client_options,
             {{.binding = &kHostBinding, .procedures = kHostTable, .context = &host},
              {.binding = &kBinding, .procedures = kBulkTable, .context = &guest.keeper}},
             where) {
    if (serves) {
      EXPECT_TRUE(client->add_service(
          {.binding = &kGuestBinding, .procedures = kGuestTable, .context = &guest}));
      EXPECT_TRUE(client->add_service(
          {.binding = &kBinding, .procedures = kBulkTable, .context = &guest.keeper}));
    }
    connect();
  }
  ~BothWorld() {
    guest.keeper.release();
    connection.reset();
    host.release();
    end();
  }

  void connect() {
    auto made = client->connect(uri);
    ASSERT_TRUE(made) << made.error().message;
    connection = std::move(*made);
    guest.connection = connection.get();
  }
  void disconnect() {
    guest.keeper.release();
    guest.connection = nullptr;
    connection.reset();
  }
  // The BackwardClient of this client.
  std::shared_ptr<BackwardClient> subscribe() {
    Call call(*connection);
    call.begin(kHostBinding, kSubscribe);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    return host.last();
  }
  // A call forward, and one back.
  void plus() {
    Word word(*connection);
    word.submit(kHostBinding, kPlus, 5);
    until([&] { return word.ended() == 1; });
    EXPECT_TRUE(word.right());
  }
  // How many of `count` calls in the other direction were right.
  uint32_t call_back(uint32_t procedure, uint32_t count, uint32_t how = kCallBack) {
    Call call(*connection);
    Encoder& args = call.begin(kHostBinding, how);
    args.put_u32(procedure);
    args.put_u32(count);
    CallStatus status = call.submit_and_wait();
    EXPECT_EQ(status, CallStatus::kOk) << to_string(status);
    return status == CallStatus::kOk ? call.results().get_u32() : UINT32_MAX;
  }

  std::unique_ptr<ClientConnection> connection;
};

}  // namespace rrdk::loopback
