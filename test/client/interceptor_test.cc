// Interceptors (rrdk/interceptor.h): what they see of the calls of both ends, on every way that a
// call can take, and what they refuse.
#include "rrdk/interceptor.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "both_ways.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

// What an interceptor at a server has seen of one call.
struct Seen {
  uint32_t program, version, procedure, xid;
  uint32_t uid;  // of AUTH_SYS; UINT32_MAX: another flavour
  std::string peer;
  uint64_t note;
  CallOutcome outcome;
};

struct Guard {
  Admission admit(const ServerCall& call, uint64_t& note) {
    EXPECT_EQ(note, 0u);
    note = ++asked;
    return call.procedure() == refused ? answer : Admission();
  }
  void trace(const ServerCall& call, const CallOutcome& outcome, uint64_t note) {
    const auto user = call.auth_sys();
    const std::lock_guard lock(mutex);
    seen.push_back({call.program(), call.version(), call.procedure(), call.xid(),
                    user ? user->uid : UINT32_MAX, call.connection().peer().to_string(), note,
                    outcome});
  }
  size_t ended() {
    const std::lock_guard lock(mutex);
    return seen.size();
  }
  Seen last() {
    const std::lock_guard lock(mutex);
    return seen.back();
  }

  uint32_t refused = UINT32_MAX;
  Admission answer;
  std::atomic<uint64_t> asked = 0;
  std::mutex mutex;
  std::vector<Seen> seen;
  const ServiceInterceptor interceptor{
      .before = [](const ServerCall& call, uint64_t& note,
                   void* self) { return static_cast<Guard*>(self)->admit(call, note); },
      .after = [](const ServerCall& call, const CallOutcome& outcome, uint64_t note,
                  void* self) { static_cast<Guard*>(self)->trace(call, outcome, note); },
      .context = this};
};

// A server whose calls a Guard watches.
struct GuardedWorld : Guard, World {
  explicit GuardedWorld(Cores cores, const std::string& where = "shm:" + socket_path(),
                        const ClientOptions& client_options = {})
      : World(options_for(cores), {.interceptor = &interceptor}, client_options) {
    World::uri = server->listen(where).value();
  }
};

// Makes a call with what its handler needs; false: it is not answered until the keeper says so.
void put_arguments(Call& call, uint32_t procedure, Memory& memory) {
  Encoder& args = call.begin(kBinding, procedure);
  switch (procedure) {
    case kEcho:
    case kWorker:
    case kThread:
    case kOnce:
      args.put_opaque(std::span<const std::byte>());
      break;
    case kRead:
      args.put_u64(0);
      args.put_u32(3000);
      call.offer(memory.get(3000), 3000);
      break;
    case kWrite:
      args.put_u64(0);
      args.put_item(patterned(memory, 0, 3000), 3000, Ddp::kEligible);
      break;
    case kReject:
      args.put_u32(static_cast<uint32_t>(AcceptStat::kGarbageArgs));
      break;
    case kDeny:
      args.put_u32(static_cast<uint32_t>(AuthStat::kRejectedCred));
      break;
    case kDelay:
      args.put_u64(1000);
      break;
    default:
      break;
  }
}

constexpr uint32_t kAnswered[] = {0,       kEcho,       kRead,        kWrite, kReject,
                                  kDeny,   kForget,     kKeep,        kDelay, kThread,
                                  kWorker, kFailEncode, kEmptyResult, kOnce};

CallStatus make_call(GuardedWorld& world, ClientConnection& connection, uint32_t procedure,
                     AuthStat* why) {
  EndingCall one(connection);
  put_arguments(one.call, procedure, *world.memory);
  one.submit();
  world.until([&] {
    world.keeper.release();
    return one.ended() == 1 && !one.call.in_flight();
  });
  *why = one.call.status() == CallStatus::kAuthError ? one.call.auth_stat() : AuthStat::kOk;
  return one.call.status();
}

void expect_all_are_seen_once(GuardedWorld& world, ClientConnection& connection) {
  AuthSys alice;
  alice.uid = 4711;
  connection.set_auth_sys(alice);
  for (uint32_t round = 0; round < 2; ++round) {
    for (uint32_t procedure : kAnswered) {
      SCOPED_TRACE(procedure);
      const size_t before = world.ended();
      AuthStat why = AuthStat::kOk;
      const CallStatus status = make_call(world, connection, procedure, &why);
      // The end may be told before or after the answer arrives.
      world.until([&] { return world.ended() == before + 1; });
      EXPECT_EQ(world.asked, before + 1);
      const Seen seen = world.last();
      EXPECT_EQ(seen.procedure, procedure);
      EXPECT_EQ(seen.program, kBinding.program);
      EXPECT_EQ(seen.version, kBinding.version);
      EXPECT_EQ(seen.uid, 4711u);
      EXPECT_FALSE(seen.peer.empty());
      EXPECT_EQ(seen.note, before + 1);
      EXPECT_EQ(seen.outcome.status, status) << to_string(status);
      EXPECT_EQ(seen.outcome.auth_stat, why);
    }
  }
  EXPECT_EQ(world.server->procedures()[0].procedure, 0u);
  EXPECT_EQ(world.server->procedures()[0].calls, 2u);
}

TEST(ServiceInterceptor, SeesEveryCallOnce) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    for (const std::string& where : {"shm:" + socket_path(), std::string("iwarp://127.0.0.1:0")}) {
      GuardedWorld world(cores, where);
      auto connection = world.connect();
      expect_all_are_seen_once(world, *connection);
    }
  }
}

// While a capture is taken, no call is served in the lane.
TEST(ServiceInterceptor, SeesEveryCallOnceOnTheGeneralPath) {
  const std::string file = socket_path() + ".pcapng";
  GuardedWorld world(Cores::kEmbedded);
  ASSERT_TRUE(world.runtime->start_capture(file));
  auto connection = world.connect();
  expect_all_are_seen_once(world, *connection);
  world.runtime->stop_capture();
  std::remove(file.c_str());
}

TEST(ServiceInterceptor, RefusesCallsBeforeTheirHandlers) {
  for (const std::string& where : {"shm:" + socket_path(), std::string("iwarp://127.0.0.1:0")}) {
    GuardedWorld world(Cores::kEmbedded, where);
    auto connection = world.connect();
    world.refused = kKeep;
    struct Case {
      Admission answer;
      CallStatus status;
      AuthStat why;
    };
    for (const Case& each :
         {Case{Admission::reject(AcceptStat::kSystemErr), CallStatus::kSystemErr, AuthStat::kOk},
          Case{Admission::reject(AcceptStat::kProcUnavail), CallStatus::kProcUnavail,
               AuthStat::kOk},
          Case{Admission::deny(AuthStat::kTooWeak), CallStatus::kAuthError, AuthStat::kTooWeak},
          Case{Admission::drop(), CallStatus::kConnectionLost, AuthStat::kOk}}) {
      const size_t before = world.ended();
      world.answer = each.answer;
      AuthStat why = AuthStat::kOk;
      EXPECT_EQ(make_call(world, *connection, kKeep, &why), each.status);
      EXPECT_EQ(why, each.why);
      EXPECT_EQ(world.ended(), before + 1);
      EXPECT_EQ(world.last().outcome.status, each.status);
      EXPECT_EQ(world.last().outcome.auth_stat, each.why);
      EXPECT_EQ(world.keeper.kept(), 0u);
    }
    world.until([&] { return !connection->alive(); });
  }
}

// NULL shows that a server is there; here it shows that only to those who may know.
TEST(ServiceInterceptor, RefusesNullToo) {
  GuardedWorld world(Cores::kEmbedded);
  world.refused = 0;
  world.answer = Admission::deny(AuthStat::kTooWeak);
  auto connection = world.connect();
  for (int i = 0; i < 3; ++i) {
    AuthStat why = AuthStat::kOk;
    EXPECT_EQ(make_call(world, *connection, 0, &why), CallStatus::kAuthError);
  }
  EXPECT_EQ(world.ended(), 3u);
}

// An interceptor at a client.
struct Tracer {
  struct Ended {
    uint32_t program, version, procedure, xid;
    std::string address;
    AuthFlavor flavor;
    uint32_t uid;
    uint64_t note;
    CallOutcome outcome;
  };

  CallInterceptor interceptor() {
    return {.before = [](const CallIdentity& call, uint64_t& note,
                         void* self) { return static_cast<Tracer*>(self)->ask(call, note); },
            .after = [](const CallIdentity& call, const CallOutcome& outcome, uint64_t note,
                        void* self) { static_cast<Tracer*>(self)->trace(call, outcome, note); },
            .context = this};
  }
  CallStatus ask(const CallIdentity& call, uint64_t& note) {
    EXPECT_EQ(note, 0u);
    EXPECT_EQ(call.xid, 0u);
    note = ++asked;
    return call.procedure == refused ? answer : CallStatus::kOk;
  }
  void trace(const CallIdentity& call, const CallOutcome& outcome, uint64_t note) {
    uint32_t uid = UINT32_MAX;
    if (call.flavor == AuthFlavor::kSys) {
      // After the stamp and the empty name of the machine.
      const std::byte* at = call.credential.data() + 8;
      uid = static_cast<uint32_t>(at[0]) << 24 | static_cast<uint32_t>(at[1]) << 16 |
            static_cast<uint32_t>(at[2]) << 8 | static_cast<uint32_t>(at[3]);
    }
    const std::lock_guard lock(mutex);
    ended.push_back({call.program, call.version, call.procedure, call.xid, call.address,
                     call.flavor, uid, note, outcome});
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return ended.size();
  }

  uint32_t refused = UINT32_MAX;
  CallStatus answer = CallStatus::kOk;
  std::atomic<uint64_t> asked = 0;
  std::mutex mutex;
  std::vector<Ended> ended;
};

TEST(CallInterceptor, SeesEveryCallOnceWithTheNumbersThatTheServerSees) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated}) {
    for (const std::string& where : {"shm:" + socket_path(), std::string("iwarp://127.0.0.1:0")}) {
      Tracer tracer;
      const CallInterceptor interceptor = tracer.interceptor();
      GuardedWorld world(cores, where, {.interceptor = &interceptor});
      auto connection = world.connect();
      AuthSys alice;
      alice.uid = 99;
      connection->set_auth_sys(alice);
      for (uint32_t procedure : kAnswered) {
        SCOPED_TRACE(procedure);
        const size_t before = tracer.count();
        AuthStat why = AuthStat::kOk;
        const CallStatus status = make_call(world, *connection, procedure, &why);
        world.until([&] { return world.ended() == before + 1; });
        ASSERT_EQ(tracer.count(), before + 1);
        EXPECT_EQ(tracer.asked, before + 1);
        const Tracer::Ended& ended = tracer.ended.back();
        EXPECT_EQ(ended.program, kBinding.program);
        EXPECT_EQ(ended.version, kBinding.version);
        EXPECT_EQ(ended.procedure, procedure);
        EXPECT_EQ(ended.xid, world.last().xid);
        EXPECT_EQ(ended.address, world.uri);
        EXPECT_EQ(ended.flavor, AuthFlavor::kSys);
        EXPECT_EQ(ended.uid, 99u);
        EXPECT_EQ(ended.note, before + 1);
        EXPECT_EQ(ended.outcome.status, status);
        EXPECT_EQ(ended.outcome.auth_stat, why);
      }
    }
  }
}

TEST(CallInterceptor, RefusesCallsThatAreThenNotSent) {
  Tracer tracer;
  const CallInterceptor interceptor = tracer.interceptor();
  GuardedWorld world(Cores::kEmbedded, "shm:" + socket_path(), {.interceptor = &interceptor});
  auto connection = world.connect();
  open_window(*connection);
  world.until([&] { return world.ended() == 1; });
  tracer.refused = kEcho;
  for (CallStatus answer : {CallStatus::kAuthError, CallStatus::kSystemErr, CallStatus::kFull}) {
    tracer.answer = answer;
    EndingCall one(*connection);
    put_arguments(one.call, kEcho, *world.memory);
    one.submit();
    EXPECT_EQ(one.ended(), 0) << "not within submit()";
    world.until([&] { return one.ended() == 1; });
    EXPECT_EQ(one.call.status(), answer == CallStatus::kFull ? CallStatus::kCancelled : answer);
    EXPECT_FALSE(one.call.sent());
    EXPECT_EQ(tracer.ended.back().xid, 0u);
    EXPECT_EQ(tracer.ended.back().outcome.status, one.call.status());
  }
  EXPECT_EQ(world.ended(), 1u) << "the server has seen none";
  EXPECT_EQ(tracer.count(), 4u);
}

// What submit() refuses has not been taken.
TEST(CallInterceptor, DoesNotSeeCallsThatFindNoRoom) {
  Tracer tracer;
  const CallInterceptor interceptor = tracer.interceptor();
  GuardedWorld world(Cores::kEmbedded, "shm:" + socket_path(),
                     {.max_queued = 0, .interceptor = &interceptor});
  auto connection = world.connect();
  EndingCall first(*connection), second(*connection);
  first.begin(0);
  first.submit();
  second.begin(0);
  EXPECT_FALSE(second.call.submit(nullptr, nullptr));
  EXPECT_EQ(second.call.status(), CallStatus::kFull);
  EXPECT_EQ(tracer.asked, 1u);
  world.until([&] { return first.ended() == 1; });
  EXPECT_EQ(tracer.count(), 1u);
  second.submit();
  world.until([&] { return second.ended() == 1; });
  EXPECT_EQ(tracer.count(), 2u);
}

TEST(CallInterceptor, LearnsOfTheEndOfCallsThatAreDestroyed) {
  Tracer tracer;
  const CallInterceptor interceptor = tracer.interceptor();
  World world(Cores::kEmbedded, {}, {.interceptor = &interceptor});
  auto connection = world.connect();
  {
    Call call(*connection);
    call.begin(kBinding, kKeep);
    call.submit(nullptr, nullptr);
    call.abandon();
  }
  world.until([&] { return tracer.count() == 1; });
  EXPECT_EQ(tracer.ended[0].outcome.status, CallStatus::kCancelled);
}

// The server has two of the calls, the others wait for credits.
TEST(CallInterceptor, IsToldOnceOfEachCallThatLosesItsConnection) {
  Tracer tracer;
  const CallInterceptor interceptor = tracer.interceptor();
  SurvivalWorld world({.credits = 2, .interceptor = &interceptor}, {.credits = 2});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  const EndingCalls calls = submit(world, kEcho, 4);
  world.until([&] { return world.gate.held.size() == 2; });
  ASSERT_EQ(tracer.count(), 1u) << "of open_window()";
  world.stop_server();
  world.until([&] { return all_ended(calls); });
  expect_status(calls, CallStatus::kConnectionLost);
  EXPECT_EQ(tracer.asked, 5u);
  ASSERT_EQ(tracer.count(), 5u);
  std::set<uint64_t> notes;
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(tracer.ended[i].outcome.status, CallStatus::kConnectionLost);
    notes.insert(tracer.ended[i].note);
  }
  EXPECT_EQ(notes, (std::set<uint64_t>{2, 3, 4, 5}));
  world.connection.reset();
  EXPECT_EQ(tracer.count(), 5u);
}

// The loss of the first connection is not told.
TEST(CallInterceptor, IsToldOnceOfACallThatTheNextConnectionCarries) {
  Tracer tracer;
  const CallInterceptor interceptor = tracer.interceptor();
  SurvivalWorld world({.reconnect = at_once(), .retransmit = true, .interceptor = &interceptor});
  world.connect();
  world.gate.holding = true;
  const EndingCalls calls = submit(world, kEcho, 1);
  world.until([&] { return world.gate.held.size() == 1; });
  world.restart_server();
  world.until([&] { return all_ended(calls); });
  expect_status(calls, CallStatus::kOk);
  EXPECT_EQ(tracer.asked, 1u);
  ASSERT_EQ(tracer.count(), 1u);
  EXPECT_EQ(tracer.ended[0].outcome.status, CallStatus::kOk);
  EXPECT_EQ(world.stats()[Counter::kCallsCarriedOver], 1u);
}

TEST(Interceptors, WatchTheOtherDirectionToo) {
  Tracer tracer;
  Guard guard;
  const CallInterceptor made = tracer.interceptor();
  const ServiceInterceptor served = guard.interceptor;
  ServerOptions server = server_options(kWires[0]);
  server.backward_interceptor = &made;
  ClientOptions client = client_options(kWires[0]);
  client.service_interceptor = &served;
  BothWorld world(Cores::kEmbedded, server, client);
  EXPECT_EQ(world.call_back(kTell, 3), 3u);
  EXPECT_EQ(tracer.count(), 3u);
  ASSERT_EQ(guard.ended(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(tracer.ended[i].xid, guard.seen[i].xid);
    EXPECT_EQ(guard.seen[i].program, kGuestBinding.program);
    EXPECT_EQ(guard.seen[i].procedure, kTell);
  }
  guard.refused = kTell;
  guard.answer = Admission::reject(AcceptStat::kSystemErr);
  EXPECT_EQ(world.call_back(kTell, 2), 0u);
  EXPECT_EQ(tracer.ended.back().outcome.status, CallStatus::kSystemErr);
}

}  // namespace
}  // namespace rrdk::loopback
