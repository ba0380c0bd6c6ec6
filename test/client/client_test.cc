// How calls end for their caller: exactly once, whatever happens.
#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

#include "../server/loopback.h"
#include "calls/calls.h"
#include "log_lines.h"

namespace rrdk::loopback {
namespace {

// Submits itself again from its callback, `left` times.
struct Repeating {
  explicit Repeating(ClientConnection& connection) : call(connection) {}
  Call call;
  uint32_t left = 0;
  std::atomic<bool> done = false;

  void submit() {
    call.begin(kBinding, 0);
    call.submit(
        [](Call&, void* argument) {
          auto& self = *static_cast<Repeating*>(argument);
          if (self.left-- == 0)
            self.done.store(true, std::memory_order_release);
          else
            self.submit();
        },
        this);
  }
};

std::vector<std::unique_ptr<EndingCall>> submit_many(ClientConnection& connection,
                                                     uint32_t procedure, int count) {
  std::vector<std::unique_ptr<EndingCall>> endings;
  for (int i = 0; i < count; ++i) {
    endings.push_back(std::make_unique<EndingCall>(connection));
    endings.back()->begin(procedure);
    endings.back()->submit();
  }
  return endings;
}

// Shows: V1-CREDIT-10
TEST(Client, CallsBeyondTheCreditsWaitForTheirTurn) {
  World world(Cores::kEmbedded, {.credits = 4}, {.credits = 32});
  auto connection = world.connect();
  open_window(*connection);
  auto endings = submit_many(*connection, kKeep, 32);
  world.until([&] { return world.keeper.kept() == 4; });
  for (int i = 0; i < 1000; ++i)
    world.runtime->poll(static_cast<uint32_t>(i % 2));
  EXPECT_EQ(world.keeper.kept(), 4u);
  EXPECT_EQ(connection->stats()[Counter::kCredits], 4u);
  EXPECT_GT(connection->stats()[Counter::kWaitsCredit], 0u);
  for (auto& ending : endings) {
    world.until([&] {
      world.keeper.release();
      return ending->ended() == 1;
    });
    EXPECT_EQ(ending->call.status(), CallStatus::kOk);
  }
}

// A call that waits goes out in the pass that takes the answer which brings its credit: nothing
// else would make the core look at that connection before its next tick.
TEST(Client, CallsThatWaitGoOutBehindTheAnswerThatLetsThem) {
  constexpr uint32_t kServers = 0, kClients = 1;  // cores
  Ends ends({.embedded_cores = 2}, {}, {.credits = 1},
            {{.binding = &kBinding, .procedures = kTable}}, "iwarp://127.0.0.1:0");
  auto connection = ends.client->connect(ends.uri, kClients).value();
  open_window(*connection);
  {
    EndingCall first(*connection), second(*connection);
    for (EndingCall* call : {&first, &second}) {
      call->begin(0);
      call->submit();
    }
    const auto pass = [&](uint32_t core) { return [&, core] { return ends.runtime->poll(core); }; };
    const auto calls = [&] { return ends.server->stats()[Counter::kCallsReceived]; };
    const uint64_t before = calls();
    pass(kClients)();
    wait_until([&] { return calls() == before + 1; }, pass(kServers));
    pass(kServers)();  // its answer leaves by then
    wait_until([&] { return first.ended() == 1; }, pass(kClients));
    wait_until([&] { return calls() == before + 2; }, pass(kServers));
    ends.until([&] { return second.ended() == 1; });
    EXPECT_EQ(second.call.status(), CallStatus::kOk);
  }
  connection.reset();
  ends.end();
}

TEST(Client, AnUnansweredCallTimesOut) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    World world(cores);
    auto connection = world.connect();
    open_window(*connection);  // a connection whose only credit is lost is given up (V1-CREDIT-23)
    Call call(*connection);
    uint64_t start = Runtime::now_ns();
    call.begin(kBinding, kKeep);
    call.set_timeout_ms(20);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kTimeout);
    EXPECT_GE(Runtime::now_ns() - start, 20'000'000u);
    EXPECT_EQ(connection->stats()[Counter::kCallsTimedOut], 1u);
    // The late answer is dropped, and the connection serves on.
    world.until([&] { return world.keeper.kept() == 1; });
    world.keeper.release();
    call.begin(kBinding, 0);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
}

TEST(Client, ATimeoutHoldsForCallsThatWaitForCredits) {
  World world(Cores::kEmbedded, {}, {.call_timeout_ms = 30});
  auto connection = world.connect();
  auto endings = submit_many(*connection, kKeep, 10);  // one credit before the first reply
  for (auto& ending : endings) {
    world.until([&] { return ending->ended() == 1; });
    EXPECT_EQ(ending->call.status(), CallStatus::kTimeout);
  }
}

TEST(Client, CancelEndsACallOnce) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    World world(cores);
    auto connection = world.connect();
    open_window(*connection);
    EndingCall ending(*connection);
    ending.call.cancel();  // not in flight: no effect
    ending.begin(kKeep);
    ending.submit();
    world.until([&] { return world.keeper.kept() == 1; });
    EXPECT_TRUE(ending.call.in_flight());
    ending.call.cancel();
    ending.call.cancel();
    world.until([&] { return !ending.call.in_flight(); });
    EXPECT_EQ(ending.ended(), 1);
    EXPECT_EQ(ending.call.status(), CallStatus::kCancelled);
    world.keeper.release();
    open_window(*connection);
    EXPECT_EQ(ending.ended(), 1);
  }
}

// On the core's thread, which could call it back at once: a call that waits for a credit has
// nothing else to wait for.
TEST(Client, CancelDoesNotCallBackItself) {
  World world(Cores::kEmbedded, {.credits = 1});
  auto connection = world.connect();
  EndingCall ahead(*connection);
  ahead.begin(kKeep);
  ahead.submit();
  EndingCall ending(*connection);
  ending.begin(kKeep);
  ending.submit();
  world.until([&] { return world.keeper.kept() == 1; });
  ending.call.cancel();
  EXPECT_EQ(ending.ended(), 0);
  world.until([&] { return ending.ended() == 1; });
  EXPECT_EQ(ending.call.status(), CallStatus::kCancelled);
  world.keeper.release();
  world.until([&] { return ahead.ended() == 1; });
}

TEST(Client, CallbacksDoNotNest) {
  struct Chain {
    std::vector<std::unique_ptr<Call>> calls;
    size_t next = 0;
    int depth = 0;
    int deepest = 0;
    std::atomic<size_t> ends = 0;
    static void end(Call&, void* argument) {
      auto& self = *static_cast<Chain*>(argument);
      self.deepest = std::max(self.deepest, ++self.depth);
      if (++self.next < self.calls.size())
        self.calls[self.next]->cancel();
      --self.depth;
      self.ends.fetch_add(1, std::memory_order_release);
    }
  };
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated}) {
    World world(cores, {.credits = 1});
    auto connection = world.connect();
    EndingCall ahead(*connection);  // has the only credit
    ahead.begin(kKeep);
    ahead.submit();
    Chain chain;
    for (int i = 0; i < 20; ++i) {
      chain.calls.push_back(std::make_unique<Call>(*connection));
      chain.calls.back()->begin(kBinding, 0);
      chain.calls.back()->submit(Chain::end, &chain);
    }
    world.until([&] { return world.keeper.kept() == 1; });
    chain.calls[0]->cancel();
    world.until([&] { return chain.ends.load(std::memory_order_acquire) == 20; });
    EXPECT_EQ(chain.deepest, 1);
    for (auto& call : chain.calls)
      world.until([&] { return !call->in_flight(); });
    world.keeper.release();
    world.until([&] { return !ahead.call.in_flight(); });
    EXPECT_EQ(ahead.call.status(), CallStatus::kOk);
  }
}

TEST(Client, ALostConnectionSaysWhy) {
  LogLines log;
  World world;
  auto connection = world.connect();
  EXPECT_FALSE(connection->error());
  Call call(*connection);
  call.begin(kBinding, kDropCall);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kConnectionLost);
  auto error = connection->error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Errc::kConnectionLost);
  EXPECT_NE(error->message.find(world.uri), std::string::npos);
  EXPECT_EQ(log.count(LogLevel::kInfo, "connection to " + world.uri + " ended: "), 1);
}

TEST(Client, PastCredentialsAreFreed) {
  World world;
  auto connection = world.connect();
  Call call(*connection);
  size_t before = mallinfo2().uordblks;
  for (uint32_t uid = 1; uid <= 20000; ++uid) {
    AuthSys identity;
    identity.uid = uid;
    connection->set_auth_sys(identity);
    if (uid % 1000 != 0)
      continue;
    call.begin(kBinding, kWho);
    call.expect_reply(256);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(call.results().get_u32(), uid);
  }
  size_t after = mallinfo2().uordblks;
  EXPECT_LT(after, before + (1u << 20));  // 20000 would be eight times as many
}

uint32_t caller_of(Call& call) {
  call.begin(kBinding, kWho);
  call.expect_reply(256);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  return call.results().get_u32();
}

SharedCredential credential_of(uint32_t uid) {
  AuthSys identity;
  identity.uid = uid;
  return SharedCredential(identity);
}

TEST(Client, CallsOfOneConnectionHaveCredentialsOfTheirOwn) {
  World world;
  auto connection = world.connect();
  AuthSys everyone;
  everyone.uid = 7;
  connection->set_auth_sys(everyone);
  const SharedCredential alice = credential_of(1);
  const SharedCredential bob = credential_of(2);
  Call first(*connection);
  Call second(*connection);
  ASSERT_TRUE(first.set_credential(alice));
  for (int round = 0; round != 3; ++round) {
    EXPECT_EQ(caller_of(first), 1u) << "a credential stays until another one is set";
    ASSERT_TRUE(second.set_credential(alice));
    EXPECT_EQ(caller_of(second), 1u);
    ASSERT_TRUE(second.set_credential(bob));
    EXPECT_EQ(caller_of(second), 2u);
    ASSERT_TRUE(second.reset_credential());
    EXPECT_EQ(caller_of(second), 7u);
  }
  everyone.uid = 8;
  connection->set_auth_sys(everyone);
  EXPECT_EQ(caller_of(first), 1u) << "the connection's is not asked for";
  EXPECT_EQ(caller_of(second), 8u);
}

TEST(Client, ACredentialIsSetBeforeTheArguments) {
  World world;
  auto connection = world.connect();
  const SharedCredential alice = credential_of(1);
  Call call(*connection);
  call.begin(kBinding, kWho);
  ASSERT_TRUE(call.set_credential(alice));
  call.expect_reply(256);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_EQ(call.results().get_u32(), 1u);
  call.begin(kBinding, kWho).put_u32(0);
  ASSERT_TRUE(call.set_credential(credential_of(2)));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidCall);
  EXPECT_EQ(caller_of(call), 2u) << "the next call has it";
  call.begin(kBinding, kWho).fail();
  ASSERT_TRUE(call.set_credential(alice));
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kInvalidCall) << "what failed stays failed";
}

TEST(Client, CredentialsOfCallsCostNoMemoryEachTime) {
  World world;
  auto connection = world.connect();
  const SharedCredential users[] = {credential_of(1), credential_of(2)};
  Call call(*connection);
  const auto run = [&](uint32_t calls) {
    for (uint32_t i = 0; i != calls; ++i) {
      ASSERT_TRUE(call.set_credential(users[i % 2]));
      ASSERT_EQ(caller_of(call), i % 2 + 1);
    }
  };
  run(100);
  const size_t before = mallinfo2().uordblks;
  run(1000);
  EXPECT_LE(mallinfo2().uordblks, before);
}

TEST(Client, ACallInFlightKeepsItsCredential) {
  World world;
  auto connection = world.connect();
  Call call(*connection);
  ASSERT_TRUE(call.set_credential(credential_of(1)));
  call.begin(kBinding, kKeep);
  ASSERT_TRUE(call.submit(nullptr, nullptr));
  EXPECT_FALSE(call.set_credential(credential_of(2)));
  EXPECT_FALSE(call.reset_credential());
  world.until([&] { return world.keeper.kept() == 1; });
  world.keeper.release();
  world.until([&] { return !call.in_flight(); });
  EXPECT_EQ(caller_of(call), 1u);
}

TEST(Client, ACredentialThatIsTooLongIsRefused) {
  const std::vector<std::byte> body(kMaxAuthBody + 1);
  const auto refused = SharedCredential::make(AuthFlavor{7}, body);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidArgument);
  EXPECT_TRUE(SharedCredential::make(AuthFlavor{7}, std::span(body).first(kMaxAuthBody)));
}

// Races between submit and cancel from a thread other than the core's.
TEST(Client, CancelAtAnyMomentEndsTheCallOnce) {
  World world(Cores::kDedicated);
  auto connection = world.connect();
  open_window(*connection);  // a cancelled call that holds the only credit ends the connection
  EndingCall ending(*connection);
  for (int round = 1; round <= 2000; ++round) {
    ending.begin(0);
    ending.submit();
    ending.call.cancel();
    world.until([&] { return ending.ended() == round; });
    CallStatus status = ending.call.status();
    ASSERT_TRUE(status == CallStatus::kOk || status == CallStatus::kCancelled);
  }
}

// The core looks at a cancel() of a call that has ended while another thread cancels the next call.
TEST(Client, ACancelIsNotLostBehindThatOfAnEarlierCall) {
  Call::Impl::Cancel cancelling;
  ASSERT_TRUE(cancelling.ask(1));
  uint64_t meant = cancelling.meant;
  EXPECT_FALSE(cancelling.ask(2)) << "the item is on its way";
  ASSERT_FALSE(cancelling.end(meant)) << "and is not done with";
  EXPECT_EQ(meant, 2u);
  EXPECT_FALSE(cancelling.ask(2));
  EXPECT_TRUE(cancelling.end(meant));
  EXPECT_TRUE(cancelling.ask(3));
}

// A thread is held up in its cancel() until another thread cancels a later call.
TEST(Client, ACancelThatComesLateDoesNotReplaceALaterOne) {
  Call::Impl::Cancel cancelling;
  ASSERT_TRUE(cancelling.ask(6));
  EXPECT_FALSE(cancelling.ask(5));
  uint64_t meant = cancelling.meant;
  EXPECT_EQ(meant, 6u);
  EXPECT_TRUE(cancelling.end(meant));
  EXPECT_TRUE(cancelling.ask(5)) << "it is harmless: the core compares";
}

TEST(Client, ACancelledCallGivesItsOfferedMemoryBack) {
  World world;
  auto connection = world.connect();
  open_window(*connection);
  Buffer room = world.memory->get(65536);
  EndingCall ending(*connection);
  ending.begin(kKeep);
  ending.call.offer(room.first(65536));
  ending.submit();
  ending.call.cancel();
  world.until([&] { return ending.ended() == 1; });
  EXPECT_EQ(ending.call.status(), CallStatus::kCancelled);
  open_window(*connection);  // the connection is whole
}

TEST(Client, ClosingEndsAllCallsWithShutdown) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    World world(cores);
    auto connection = world.connect();
    open_window(*connection);
    auto endings = submit_many(*connection, kKeep, 100);
    connection.reset();
    for (auto& ending : endings) {
      EXPECT_EQ(ending->ended(), 1);
      EXPECT_EQ(ending->call.status(), CallStatus::kShutdown);
    }
    world.until([&] {
      world.keeper.release();
      return world.server->stats()[Counter::kConnections] == 0;
    });
  }
}

// A program that submits again from its callbacks does not keep the core busy.
TEST(Client, CallsOnALostConnectionEndOnceAMillisecond) {
  World world;
  auto connection = world.connect();
  Call call(*connection);
  call.begin(kBinding, kDropCall);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kConnectionLost);
  constexpr uint32_t kTimes = 50;
  uint64_t begin = Runtime::now_ns();
  std::vector<std::unique_ptr<Repeating>> calls;
  for (int i = 0; i < 10; ++i) {
    calls.push_back(std::make_unique<Repeating>(*connection));
    calls.back()->left = kTimes - 1;
    calls.back()->submit();
  }
  for (auto& repeating : calls) {
    world.until([&] { return repeating->done.load(); });
    EXPECT_EQ(repeating->call.status(), CallStatus::kConnectionLost);
  }
  EXPECT_GE(Runtime::now_ns() - begin, kTimes * 1'000'000);
}

// Embedded in a reactor that sleeps: the core's descriptor becomes readable in time for a deadline,
// and hardly ever before. An application timer that is due much later must not be the first.
class Sleeping : public testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Keepalive, Sleeping, testing::Values(0, 1000));

TEST_P(Sleeping, ACoreWakesForADeadlineAndForLittleElse) {
  World world(Cores::kEmbedded, {}, {.keepalive_ms = GetParam()});
  auto connection = world.connect(0);
  open_window(*connection);
  EndingCall ending(*connection);
  ending.begin(kKeep);
  ending.call.set_timeout_ms(200);
  ending.submit();
  world.until([&] { return world.keeper.kept() == 1; });
  int later = timerfd_create(CLOCK_MONOTONIC, 0);
  itimerspec due = {};
  due.it_value.tv_nsec = 800'000'000;
  ASSERT_EQ(timerfd_settime(later, 0, &due, nullptr), 0);
  int wakes = 0;
  while (true) {
    while (world.runtime->poll(0) != 0) {
    }
    if (ending.ended() != 0)
      break;
    if (!world.runtime->arm_wake(0))
      continue;
    pollfd waits[] = {{world.runtime->wake_fd(0), POLLIN, 0}, {later, POLLIN, 0}};
    ASSERT_GT(poll(waits, 2, -1), 0);
    ASSERT_NE(waits[0].revents & POLLIN, 0) << "it sleeps through the deadline";
    ++wakes;
  }
  close(later);
  EXPECT_EQ(ending.call.status(), CallStatus::kTimeout);
  EXPECT_LE(wakes, 20);  // a tick to set the deadline, the deadline, and few looks for silence
  world.keeper.release();
}

// Memory without a descriptor, which another process cannot map.
TEST(Client, MemoryThatTheDriverCannotUseEndsTheCallAndNotItsConnection) {
  LogLines log;
  World world;
  auto connection = world.connect();
  constexpr size_t kBytes = 65536;
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  RegisteredMemory own = world.memory->adopt(pages, kBytes, -1, 0).value();
  Call call(*connection);
  Encoder& read = call.begin(kBinding, kRead);
  read.put_u64(0);
  read.put_u32(1000);
  call.offer(own.span(0, 1000));
  EXPECT_STREQ(to_string(call.submit_and_wait()), to_string(CallStatus::kInvalidMemory));
  for (uint32_t bytes : {10u, 5000u}) {  // inline, and by reference
    Encoder& write = call.begin(kBinding, kWrite);
    write.put_u64(0);
    write.put_item(own.span(0, bytes), Ddp::kEligible);
    EXPECT_STREQ(to_string(call.submit_and_wait()), to_string(CallStatus::kInvalidMemory));
  }
  EXPECT_EQ(log.count(LogLevel::kError, world.uri, "has no descriptor"), 1);
  call.begin(kBinding, kEmptyResult);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
  EXPECT_TRUE(connection->alive());
  connection.reset();
  own = {};
  munmap(pages, kBytes);
}

TEST(Client, CallsSubmitFromTheirCallbacks) {
  for (Cores cores : {Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers}) {
    World world(cores);
    auto connection = world.connect();
    std::vector<std::unique_ptr<Repeating>> calls;
    for (int i = 0; i < 100; ++i) {
      calls.push_back(std::make_unique<Repeating>(*connection));
      calls.back()->left = 50;
      calls.back()->submit();
    }
    for (auto& call : calls)
      world.until([&] { return call->done.load(std::memory_order_acquire); });
    EXPECT_EQ(connection->stats()[Counter::kCallsOk], 5100u);
    EXPECT_EQ(connection->stats()[Counter::kCallsInFlight], 0u);
  }
}

TEST(Client, ManyThreadsShareAConnection) {
  World world(Cores::kWorkers);
  auto connection = world.connect();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Call call(*connection);
      for (int i = 0; i < 300; ++i) {
        call.begin(kBinding, i % 2 == 0 ? kEcho : kWorker).put_opaque(std::span<const std::byte>());
        ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(connection->stats()[Counter::kCallsOk], 1200u);
}

TEST(Client, TooLargeMessagesAreNotSent) {
  World world(Cores::kEmbedded, {}, {.max_call = 8192});
  auto connection = world.connect();
  Call call(*connection);
  std::vector<std::byte> bytes(9000);
  call.begin(kBinding, kEcho).put_opaque(bytes);
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kTooLarge);
  Buffer room = world.memory->get(4096);
  call.begin(kBinding, 0);
  call.offer(room.first(4096));  // NULL has no eligible results
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kTooLarge);
  EXPECT_EQ(world.server->stats()[Counter::kCallsReceived], 0u);
}

TEST(Client, SendsLongCallsAndTakesLongReplies) {
  World world;
  auto connection = world.connect();
  Call call(*connection);
  std::vector<std::byte> bytes(300000);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = pattern(i);
  call.begin(kBinding, kEcho).put_opaque(bytes);
  call.expect_reply(bytes.size());
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  ItemView back = call.results().get_opaque(UINT32_MAX);
  std::vector<std::byte> copy(back.size());
  back.copy_to(copy.data());
  EXPECT_EQ(copy, bytes);
  EXPECT_EQ(connection->stats()[Counter::kLongCalls], 1u);
  EXPECT_EQ(connection->stats()[Counter::kLongReplies], 1u);
}

}  // namespace
}  // namespace rrdk::loopback
