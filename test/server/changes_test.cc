// Services that come and go, and limits that change, while calls are served.
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <new>

#include "loopback.h"

namespace rrdk::loopback {
namespace {

// Versions of one program; each answers with its number.
constexpr uint32_t kTell = 1;
constexpr uint32_t kHoldIt = 2;    // kept until the test releases it
constexpr uint32_t kTellWork = 3;  // as kTell, on a worker
constexpr uint32_t kWaitWork = 4;  // on a worker, until the gate opens
constexpr uint32_t kAppendIt = 5;  // as kTell, and not idempotent
constexpr uint32_t kRemoveIt = 6;  // -> the error code that remove_service() returns to a handler
constexpr uint32_t kRemoveWork = 7;

constexpr ProcedureBinding kVersionProcedures[] = {
    {.procedure = kTell, .name = "TELL", .fixed_results = 4},
    {.procedure = kHoldIt, .name = "HOLD", .fixed_results = 4},
};
constexpr Binding version_of(uint32_t version) {
  return {.program = 0x20005800,
          .version = version,
          .name = "versions",
          .procedures = kVersionProcedures};
}
constexpr Binding kOne = version_of(1);
constexpr Binding kTwo = version_of(2);

// The context that a service's handlers use for as long as they may be entered.
struct Site {
  uint32_t version = 1;
  Server* server = nullptr;
  Keeper keeper;
  std::atomic<bool> gate = false;
  std::atomic<uint32_t> entered = 0;
  std::atomic<uint32_t> at_gate = 0;
};

void tell(ServerCall call, void* context) {
  auto& site = *static_cast<Site*>(context);
  site.entered.fetch_add(1);
  call.results().put_u32(site.version);
  std::move(call).reply();
}

void hold_it(ServerCall call, void* context) {
  auto& site = *static_cast<Site*>(context);
  call.results().put_u32(site.version);
  keep(std::move(call), &site.keeper);
}

void wait_for_gate(ServerCall call, void* context) {
  auto& site = *static_cast<Site*>(context);
  site.at_gate.fetch_add(1);
  while (!site.gate.load())
    std::this_thread::yield();
  tell(std::move(call), context);
}

void remove_it(ServerCall call, void* context) {
  auto& site = *static_cast<Site*>(context);
  auto removed = site.server->remove_service(kOne.program, site.version);
  call.results().put_u32(removed ? 0 : static_cast<uint32_t>(removed.error().code));
  std::move(call).reply();
}

constexpr Procedure kVersionTable[] = {{kTell, tell},
                                       {kHoldIt, hold_it},
                                       {kTellWork, tell, Dispatch::kWorker},
                                       {kWaitWork, wait_for_gate, Dispatch::kWorker},
                                       {kRemoveIt, remove_it},
                                       {kRemoveWork, remove_it, Dispatch::kWorker}};
constexpr Procedure kHarmless[] = {{kTell, tell}};

struct Told {
  CallStatus status;
  uint32_t word = 0;
};

class Changes : public testing::TestWithParam<Cores> {
 protected:
  ~Changes() override {
    site_.gate = true;
    connection_.reset();
    ends_.end();
  }

  Result<void> add(const Binding& binding, Site& site) {
    return ends_.server->add_service(
        {.binding = &binding, .procedures = kVersionTable, .context = &site});
  }
  Result<void> remove(const Binding& binding) {
    return ends_.server->remove_service(binding.program, binding.version);
  }
  Told ask(const Binding& binding, uint32_t procedure = kTell) {
    Call call(*connection_);
    call.begin(binding, procedure);
    call.expect_reply(4);
    Told told{.status = call.submit_and_wait()};
    if (told.status == CallStatus::kOk)
      told.word = call.results().get_u32();
    return told;
  }

  Site site_;
  Ends ends_{options_for(GetParam()), {.first_credits = 32}, {}, {}};
  std::unique_ptr<ClientConnection> connection_ = ends_.client->connect(ends_.uri).value();
};
INSTANTIATE_TEST_SUITE_P(Cores, Changes,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

TEST_P(Changes, AreSeenOnAConnectionThatIsThere) {
  EXPECT_EQ(ask(kOne).status, CallStatus::kProgUnavail);
  ASSERT_TRUE(add(kOne, site_));
  EXPECT_EQ(ask(kOne).word, 1u);
  EXPECT_EQ(ask(kTwo).status, CallStatus::kProgMismatch);
  Site second;
  second.version = 2;
  ASSERT_TRUE(add(kTwo, second));
  EXPECT_EQ(ask(kTwo).word, 2u);
  EXPECT_EQ(ask(kOne).word, 1u);
  ASSERT_TRUE(remove(kOne));
  EXPECT_EQ(ask(kOne).status, CallStatus::kProgMismatch);
  EXPECT_EQ(ask(kTwo).word, 2u);
  ASSERT_TRUE(remove(kTwo));
  EXPECT_EQ(ask(kTwo).status, CallStatus::kProgUnavail);
  EXPECT_TRUE(ends_.server->procedures().empty());
  EXPECT_EQ(remove(kTwo).error().code, Errc::kNotFound);
}

TEST_P(Changes, PutAnotherServiceInThePlaceOfOne) {
  for (uint32_t i = 1; i <= 50; ++i) {
    auto site = std::make_unique<Site>();
    site->version = i;
    ASSERT_TRUE(add(kOne, *site));
    EXPECT_EQ(add(kOne, *site).error().code, Errc::kInvalidArgument) << "it is there";
    EXPECT_EQ(ask(kOne).word, i);
    EXPECT_EQ(ask(kOne).word, i);
    ASSERT_TRUE(remove(kOne));
  }
}

TEST_P(Changes, LeaveKeptCallsToTheirHandlers) {
  ASSERT_TRUE(add(kOne, site_));
  EXPECT_EQ(ask(kOne).status, CallStatus::kOk);  // whose answer grants more than one credit
  Call call(*connection_);
  call.begin(kOne, kHoldIt);
  call.expect_reply(4);
  std::atomic<bool> ended = false;
  call.submit([](Call&, void* argument) { static_cast<std::atomic<bool>*>(argument)->store(true); },
              &ended);
  ends_.until([&] { return site_.keeper.kept() == 1; });
  ASSERT_TRUE(remove(kOne));
  ASSERT_TRUE(add(kTwo, site_));
  EXPECT_EQ(ask(kOne).status, CallStatus::kProgMismatch);
  EXPECT_FALSE(ended);
  site_.keeper.release();
  ends_.until([&] { return ended.load(); });
  EXPECT_EQ(call.status(), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), 1u);
}

TEST_P(Changes, ByAHandlerAreRefused) {
  site_.server = ends_.server.get();
  ASSERT_TRUE(add(kOne, site_));
  EXPECT_EQ(ask(kOne, kRemoveIt).word, static_cast<uint32_t>(Errc::kInvalidArgument));
  EXPECT_EQ(ask(kOne, kRemoveWork).word, static_cast<uint32_t>(Errc::kInvalidArgument));
  EXPECT_EQ(ask(kOne).word, 1u);
}

// Existing connections have no memory reserved for calls that run once.
TEST(ChangesOfServices, ThatRunOnceNeedACacheFromTheStart) {
  constexpr Procedure kOnceOnly[] = {{kTell, tell}, {kAppendIt, tell, Dispatch::kInline, false}};
  for (bool always : {false, true}) {
    Site site;
    Ends ends(options_for(Cores::kEmbedded), {.replay = {.always = always}}, {}, {});
    auto connection = ends.client->connect(ends.uri).value();
    ASSERT_TRUE(
        ends.server->add_service({.binding = &kTwo, .procedures = kHarmless, .context = &site}));
    auto added =
        ends.server->add_service({.binding = &kOne, .procedures = kOnceOnly, .context = &site});
    EXPECT_EQ(added.has_value(), always);
    if (always) {
      Call call(*connection);
      call.begin(kOne, kAppendIt);
      call.expect_reply(4);
      EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
      EXPECT_EQ(ends.server->stats()[Counter::kReplayKept], 1u);
    } else {
      EXPECT_EQ(added.error().code, Errc::kInvalidArgument);
    }
    connection.reset();
    ends.end();
  }
}

// A client that calls continuously gets the answer of an existing service, or an error that it
// is missing. No handler sees a destroyed Site (a sanitizer would report it).
TEST_P(Changes, HundredsUnderLoad) {
  constexpr uint32_t kChanges = 200;
  struct Asker {
    Asker(ClientConnection& connection, const std::atomic<bool>& stop_in, uint32_t procedure_in)
        : call(connection), stop(stop_in), procedure(procedure_in) {}
    void ask() {
      call.begin(kOne, procedure);
      call.expect_reply(4);
      call.submit([](Call&, void* argument) { static_cast<Asker*>(argument)->take(); }, this);
    }
    void take() {
      const CallStatus status = call.status();
      if (status == CallStatus::kOk)
        ok += call.results().get_u32() != 0;
      else if (status != CallStatus::kProgUnavail)
        ++wrong;
      if (stop.load())
        ended = true;
      else
        ask();
    }
    Call call;
    const std::atomic<bool>& stop;
    const uint32_t procedure;
    uint64_t ok = 0, wrong = 0;
    std::atomic<bool> ended = false;
  };
  std::atomic<bool> stop = false;
  std::vector<std::unique_ptr<Asker>> askers;
  for (uint32_t i = 0; i < 8; ++i)
    askers.push_back(std::make_unique<Asker>(*connection_, stop, i % 2 == 0 ? kTell : kTellWork));
  for (auto& asker : askers)
    asker->ask();
  uint64_t served = 0;
  for (uint32_t i = 0; i < kChanges; i += 2) {
    auto site = std::make_unique<Site>();
    ASSERT_TRUE(add(kOne, *site));
    // Every tenth time it waits until the handler is really called: calls race with the changes
    // before and after this.
    if (i % 20 == 0)
      ends_.until([&] { return site->entered.load() != 0; });
    ASSERT_TRUE(remove(kOne));
    served += site->entered.load();
  }
  stop = true;
  ends_.until([&] {
    return std::ranges::all_of(askers, [](const auto& asker) { return asker->ended.load(); });
  });
  uint64_t ok = 0;
  for (const auto& asker : askers) {
    ok += asker->ok;
    EXPECT_EQ(asker->wrong, 0u);
  }
  EXPECT_EQ(ok, served);
  EXPECT_GE(served, kChanges / 20);
}

class ChangesBesideWorkers : public Changes {};
INSTANTIATE_TEST_SUITE_P(Cores, ChangesBesideWorkers, testing::Values(Cores::kWorkers));

TEST_P(ChangesBesideWorkers, WaitForHandlersAndLetNoOtherBegin) {
  ASSERT_TRUE(add(kOne, site_));
  EXPECT_EQ(ask(kOne).status, CallStatus::kOk);
  site_.entered = 0;
  std::atomic<uint32_t> ended = 0;
  std::vector<std::unique_ptr<Call>> calls;
  auto send = [&](uint32_t procedure) {
    calls.push_back(std::make_unique<Call>(*connection_));
    calls.back()->begin(kOne, procedure);
    calls.back()->expect_reply(4);
    calls.back()->submit(
        [](Call&, void* argument) { static_cast<std::atomic<uint32_t>*>(argument)->fetch_add(1); },
        &ended);
  };
  constexpr uint32_t kWorkers = 2;
  for (uint32_t i = 0; i < kWorkers; ++i)
    send(kWaitWork);
  ends_.until([&] { return site_.at_gate.load() == kWorkers; });
  for (uint32_t i = 0; i < 8; ++i)
    send(kTellWork);
  // All calls are with workers, or on their way to them.
  ends_.until([&] {
    uint64_t in_progress = 0;
    for (const ProcedureStats& procedure : ends_.server->procedures())
      in_progress += procedure.calls_in_progress;
    return in_progress == calls.size();
  });
  std::atomic<bool> removed = false;
  std::thread remover([&] {
    EXPECT_TRUE(remove(kOne));
    removed = true;
  });
  ends_.until([&] { return ends_.server->procedures().empty(); });
  EXPECT_EQ(ask(kOne).status, CallStatus::kProgUnavail);
  EXPECT_FALSE(removed) << "handlers run";
  site_.gate = true;
  remover.join();
  EXPECT_EQ(site_.entered.load(), kWorkers) << "those that ran have ended, others have not begun";
  ends_.until([&] { return ended.load() == calls.size(); });
  EXPECT_EQ(site_.entered.load(), kWorkers);
  for (uint32_t i = 0; i < calls.size(); ++i)
    EXPECT_EQ(calls[i]->status(), i < kWorkers ? CallStatus::kOk : CallStatus::kProgUnavail);
}

TEST_P(ChangesBesideWorkers, DoNotWaitForHandlersOfOtherServices) {
  ASSERT_TRUE(add(kOne, site_));
  Site second;
  second.version = 2;
  ASSERT_TRUE(add(kTwo, second));
  EXPECT_EQ(ask(kTwo).word, 2u);
  std::thread slow([&] { EXPECT_EQ(ask(kOne, kWaitWork).word, 1u); });
  ends_.until([&] { return site_.at_gate.load() == 1; });
  EXPECT_TRUE(remove(kTwo));
  std::atomic<bool> removed = false;
  ASSERT_TRUE(ends_.server->remove_service_start(
      kOne.program, kOne.version,
      [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &removed));
  // Meanwhile another service is added, serves calls and is removed.
  ASSERT_TRUE(add(kTwo, second));
  EXPECT_EQ(ask(kTwo).word, 2u);
  EXPECT_TRUE(remove(kTwo));
  EXPECT_FALSE(removed) << "its handler runs";
  site_.gate = true;
  slow.join();
  ends_.until([&] { return removed.load(); });
}

// Holds a core as the scheduler may hold it, when it has found a service and has not counted the
// call yet: it reads the service's Binding, which lies in its own page, and that access faults
// once.
struct HeldCore {
  static constexpr size_t kPage = 4096;

  HeldCore() {
    page = static_cast<std::byte*>(
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    is_held = goes_on = false;
    struct sigaction act = {};
    act.sa_sigaction = on_fault;
    act.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &act, &before);
  }
  ~HeldCore() {
    ::sigaction(SIGSEGV, &before, nullptr);
    ::munmap(page, kPage);
  }
  static void on_fault(int, siginfo_t* info, void*) {
    auto* const at = static_cast<std::byte*>(info->si_addr);
    if (at < page || at >= page + kPage) {
      ::sigaction(SIGSEGV, &before, nullptr);  // and it faults again
      return;
    }
    ::mprotect(page, kPage, PROT_READ | PROT_WRITE);
    is_held = true;
    while (!goes_on)
      ::usleep(100);
  }

  static inline std::byte* page;
  static inline std::atomic<bool> is_held, goes_on;
  static inline struct sigaction before;
};

TEST(Removals, InSuccessionFreeNothingThatACoreReads) {
  ::mallopt(M_PERTURB, 0xa5);
  constexpr Binding kThree = version_of(3);
  HeldCore held;
  const Binding& two = *::new (static_cast<void*>(HeldCore::page)) Binding(kTwo);
  Site slow, quick;
  Ends ends({.poll_cpus = {-1, -1}, .worker_cpus = {-1}}, {}, {},
            {{.binding = &kOne, .procedures = kVersionTable, .context = &slow},
             {.binding = &two, .procedures = kVersionTable, .context = &quick},
             {.binding = &kThree, .procedures = kVersionTable, .context = &quick}});
  auto ask = [](ClientConnection& connection, const Binding& binding, uint32_t procedure) {
    Call call(connection);
    call.begin(binding, procedure);
    call.expect_reply(4);
    return call.submit_and_wait();
  };
  auto core_of_last = [&] {
    uint64_t last = 0;
    uint32_t core = 0;
    ends.server->visit([&](const ConnectionInfo& one) {
      if (one.id > last)
        core = one.core;
      last = std::max(last, one.id);
    });
    return core;
  };
  std::vector<std::unique_ptr<ClientConnection>> connections;
  do {
    connections.push_back(ends.client->connect(ends.uri).value());
    ASSERT_EQ(ask(*connections.back(), kOne, kTell), CallStatus::kOk);
  } while (core_of_last() != 1 && connections.size() < 8);
  ASSERT_EQ(core_of_last(), 1u);

  std::atomic<bool> one_removed = false, two_removed = false;
  auto removed = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
  std::thread slow_call(
      [&] { EXPECT_EQ(ask(*connections.front(), kOne, kWaitWork), CallStatus::kOk); });
  ends.until([&] { return slow.at_gate.load() == 1; });
  ASSERT_TRUE(ends.server->remove_service_start(kOne.program, 1, removed, &one_removed));
  // When this pass has ended, the first removal waits for its handler only.
  ASSERT_TRUE(ends.server->remove_service(kThree.program, 3));
  ASSERT_EQ(::mprotect(HeldCore::page, HeldCore::kPage, PROT_NONE), 0);
  std::thread quick_call([&] {
    const CallStatus status = ask(*connections.back(), kTwo, kTell);
    EXPECT_TRUE(status == CallStatus::kProgUnavail || status == CallStatus::kProgMismatch);
  });
  ends.until([&] { return HeldCore::is_held.load(); });
  ASSERT_TRUE(ends.server->remove_service_start(kTwo.program, 2, removed, &two_removed));
  slow.gate = true;
  ends.until([&] { return one_removed.load(); });
  EXPECT_FALSE(two_removed) << "a core has it";
  HeldCore::goes_on = true;
  quick_call.join();
  slow_call.join();
  ends.until([&] { return two_removed.load(); });
  EXPECT_EQ(quick.entered.load(), 0u);
  connections.clear();
  ends.end();
  ::mallopt(M_PERTURB, 0);
}

TEST(ChangedLimits, HoldFromThenOn) {
  World world;
  auto first = world.connect();
  ServerLimits limits = world.server->limits();
  EXPECT_EQ(limits.max_connections, ServerOptions().max_connections);
  EXPECT_EQ(limits.send_timeout_ms, ServerOptions().send_timeout_ms);
  limits.max_connections_per_client = 1;
  ASSERT_TRUE(world.server->set_limits(limits));
  EXPECT_FALSE(world.client->connect(world.uri));
  EXPECT_EQ(world.server->stats()[Counter::kConnectionsRefusedPerClient], 1u);
  limits.max_connections_per_client = 0;
  limits.max_connections = 0;
  EXPECT_EQ(world.server->set_limits(limits).error().code, Errc::kInvalidArgument);
  EXPECT_EQ(world.server->limits().max_connections_per_client, 1u) << "none has changed";
  limits.max_connections = 2;
  ASSERT_TRUE(world.server->set_limits(limits));
  auto second = world.client->connect(world.uri);
  ASSERT_TRUE(second);
  for (ClientConnection* connection : {first.get(), second->get()}) {
    Call call(*connection);
    call.begin(kBinding, kEcho).put_u32(0);
    call.expect_reply(4);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  EXPECT_FALSE(world.client->connect(world.uri)) << "both have called, and stay";
  limits.idle_timeout_ms = 1;
  ASSERT_TRUE(world.server->set_limits(limits));
  world.until([&] { return world.server->stats()[Counter::kClosedIdle] == 2; });
}

// Silent connections make way for a new one when the number has reached the limit, but not when a
// lower limit has left more.
TEST(ChangedLimits, CloseNoExistingConnection) {
  World world;
  std::vector<std::unique_ptr<ClientConnection>> silent;
  for (int i = 0; i < 6; ++i)
    silent.push_back(world.connect());
  ServerLimits limits = world.server->limits();
  limits.max_connections = 3;
  ASSERT_TRUE(world.server->set_limits(limits));
  EXPECT_FALSE(world.client->connect(world.uri));
  EXPECT_EQ(world.server->stats()[Counter::kClosedForRoom], 0u);
  world.until([&] { return world.server->stats()[Counter::kConnections] == 6; });
  limits.max_connections = 6;
  ASSERT_TRUE(world.server->set_limits(limits));
  EXPECT_TRUE(world.client->connect(world.uri));
  EXPECT_EQ(world.server->stats()[Counter::kClosedForRoom], 1u);
}

}  // namespace
}  // namespace rrdk::loopback
