// Calls that are cancelled or time out: their memory is released later, and their connection
// survives.
#include <random>

#include "../seed.h"
#include "survival_world.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kBytes = 50000;

// A call with one of the ways in which data moves in chunks, with memory that can be lent.
enum class Way { kReadIntoItsBuffer, kReadIntoOurs, kWriteOfItsBuffer, kWriteOfOurs, kLongReply };
constexpr int kWays = 5;

struct Lending {
  explicit Lending(SurvivalWorld& world_in) : world(world_in), call(*world_in.connection) {}

  // Memory of the test's own, until it is released. It outlives the Lending's next call.
  struct Room {
    Buffer buffer;
    int* released;
    Buffer* kept;
  };

  // Returns false if there is no buffer now.
  bool submit(Way way_in, uint32_t timeout_ms) {
    way = way_in;
    kept.reset();
    bool reads = way == Way::kReadIntoItsBuffer || way == Way::kReadIntoOurs;
    bool ours = way == Way::kReadIntoOurs || way == Way::kWriteOfOurs;
    Buffer buffer;
    if (way != Way::kLongReply && !(buffer = take(reads)))
      return false;
    Encoder& args = call.begin(kBinding, reads ? kRead : way == Way::kLongReply ? kEcho : kWrite);
    MemorySpan span = buffer ? buffer.first(kBytes) : MemorySpan{};
    if (ours) {
      call.on_released(
          [](void* argument) {
            std::unique_ptr<Room> room(static_cast<Room*>(argument));
            ++*room->released;
            *room->kept = std::move(room->buffer);  // the data read is checked after this
          },
          new Room{std::move(buffer), &released, &kept});
      ++lent;
    }
    if (way == Way::kLongReply) {
      args.put_opaque(std::span<const std::byte>(zeros));
      call.expect_reply(kBytes);
    } else {
      args.put_u64(0);
    }
    if (reads) {
      args.put_u32(kBytes);
      ours ? call.offer(span) : call.offer(std::move(buffer), kBytes);
    } else if (way == Way::kWriteOfOurs) {
      args.put_item(span, Ddp::kEligible);
    } else if (way == Way::kWriteOfItsBuffer) {
      args.put_item(std::move(buffer), kBytes, Ddp::kEligible);
    }
    if (timeout_ms != 0)
      call.set_timeout_ms(timeout_ms);
    ++submitted;
    call.submit([](Call&, void* self) { static_cast<Lending*>(self)->end(); }, this);
    return true;
  }
  Buffer take(bool reads) {
    Buffer buffer = world.memory->get(kBytes);
    for (uint32_t i = 0; buffer && i < kBytes; ++i)
      buffer.data()[i] = reads ? std::byte{0} : pattern(i);
    return buffer;
  }
  void end() {
    ++ended;
    if (call.status() == CallStatus::kOk)
      check();
    else
      EXPECT_TRUE(call.status() == CallStatus::kCancelled || call.status() == CallStatus::kTimeout)
          << to_string(call.status());
  }
  void check() {
    ++ok;
    Decoder& results = call.results();
    if (way == Way::kReadIntoItsBuffer || way == Way::kReadIntoOurs) {
      EXPECT_EQ(results.get_u32(), 7u);
      ItemView data = results.get_item(kBytes);
      EXPECT_EQ(data.size(), kBytes);
      ASSERT_TRUE(data.contiguous());
      EXPECT_EQ(data.data()[kBytes - 1], pattern(kBytes - 1));
    } else if (way == Way::kLongReply) {
      EXPECT_EQ(results.get_opaque(kBytes).size(), zeros.size());
    } else {
      EXPECT_EQ(results.get_u32(), kBytes);
      EXPECT_EQ(results.get_u32(), 0u);  // bytes that were wrong
    }
    EXPECT_TRUE(results.at_end());
  }

  SurvivalWorld& world;
  Call call;
  Way way = Way::kLongReply;
  int submitted = 0, ended = 0, ok = 0;
  int lent = 0, released = 0;
  Buffer kept;
  inline static const std::vector<std::byte> zeros = std::vector<std::byte>(20000);
};

// Common to the tests below: calls of all ways. Some are given up by `timeout_ms` or by cancel(),
// one in `cancels`; 0 means none.
void give_up_some(SurvivalWorld& world, uint32_t timeout_ms, uint64_t cancels) {
  std::mt19937_64 random(test::run_seed());
  world.connect();
  open_window(*world.connection);
  std::vector<std::unique_ptr<Lending>> calls;
  for (int i = 0; i < 12; ++i)
    calls.push_back(std::make_unique<Lending>(world));
  for (int step = 0; step < 6000; ++step) {
    Lending& one = *calls[random() % calls.size()];
    if (!one.call.in_flight())
      one.submit(static_cast<Way>(random() % kWays), timeout_ms);
    else if (cancels != 0 && random() % cancels == 0)
      one.call.cancel();
    world.gate.holding = random() % 4 == 0;
    for (uint64_t polls = random() % 4; polls != 0; --polls)
      random() % 2 == 0 ? world.poll_client() : world.runtime->poll(SurvivalWorld::kServerCore);
    if (random() % 8 == 0)
      world.gate.answer_well();
  }
  world.gate.holding = false;
  world.until([&] {
    world.gate.answer_well();
    // If no memory was lent, a call that was given up may still be answered.
    const Stats now = world.stats();
    return now[Counter::kCallsAnsweredLate] == now[Counter::kCallsGivenUp] &&
           std::ranges::all_of(
               calls, [](auto& c) { return c->ended == c->submitted && c->released == c->lent; });
  });
  int ok = 0;
  for (auto& call : calls)
    ok += call->ok;
  EXPECT_GT(ok, 0);
  Stats stats = world.stats();
  EXPECT_EQ(stats[Counter::kReconnections], 0u);
  EXPECT_TRUE(world.connection->alive());
  EXPECT_GT(stats[Counter::kCallsGivenUp], 0u);
  EXPECT_GT(stats[Counter::kCallsLent], 0u);
  EXPECT_EQ(stats[Counter::kLendsExpired], 0u);
  EXPECT_EQ(stats[Counter::kCallsAnsweredLate], stats[Counter::kCallsGivenUp]);
  EXPECT_EQ(stats[Refusal::kLateReply], stats[Counter::kCallsGivenUp]);
  EXPECT_EQ(stats[Counter::kProtocolBreaches], 0u);
  open_window(*world.connection);
}

// A connection with its grant, whose server keeps its calls.
void connect_and_hold(SurvivalWorld& world) {
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
}

// Returns when the server has it.
template <typename Of>
void cancel_held(SurvivalWorld& world, Of& of) {
  world.until([&] { return world.gate.held.size() == 1; });
  of.call.cancel();
  world.until([&] { return !of.call.in_flight(); });
}

// A call that reads into memory of the test's own, and is cancelled.
void lend(SurvivalWorld& world, Lending& lending) {
  ASSERT_TRUE(lending.submit(Way::kReadIntoOurs, 0));
  cancel_held(world, lending);
}

TEST(GivenUp, CancelledReadsAndWritesDoNotCostTheConnection) {
  SurvivalWorld world({.credits = 8, .reconnect = at_once()});
  give_up_some(world, 0, 10);
}

TEST(GivenUp, ShortDeadlinesDoNotCostTheConnection) {
  SurvivalWorld world({.credits = 8, .reconnect = at_once()});
  give_up_some(world, 1, 0);
}

// All credits are held by calls that were given up, again and again.
TEST(GivenUp, AServerThatIsSlowerThanTheDeadlinesIsKept) {
  SurvivalWorld world({.credits = 16, .reconnect = at_once()}, {.credits = 16});
  world.connect();
  open_window(*world.connection);
  for (int round = 0; round < 5; ++round) {
    world.gate.holding = true;
    EndingCalls endings;
    for (int i = 0; i < 32; ++i) {
      endings.push_back(std::make_unique<EndingCall>(*world.connection));
      endings.back()->begin(kKeep);
      endings.back()->call.set_timeout_ms(5);
      endings.back()->submit();
    }
    world.until([&] { return all_ended(endings); });
    expect_status(endings, CallStatus::kTimeout);
    EXPECT_TRUE(world.connection->alive());
    world.gate.holding = false;
    world.gate.answer();
    open_window(*world.connection);
  }
  EXPECT_EQ(world.stats()[Counter::kReconnections], 0u);
  EXPECT_EQ(world.stats()[Counter::kCallsGivenUp], 5 * 16u);
  EXPECT_EQ(world.stats()[Counter::kCallsAnsweredLate], 5 * 16u);
}

TEST(GivenUp, AFirstCallMayTimeOut) {
  SurvivalWorld world({});
  world.connect();
  world.gate.holding = true;
  EndingCall first(*world.connection);
  first.begin(kKeep);
  first.call.set_timeout_ms(1);
  first.submit();
  world.until([&] { return first.ended() == 1 && !world.gate.held.empty(); });
  EXPECT_EQ(first.call.status(), CallStatus::kTimeout);
  EndingCalls next = submit(world, kEcho, 1);
  world.until([&] { return world.poll_client() == 0; });
  EXPECT_TRUE(world.connection->alive());
  world.gate.holding = false;
  world.gate.answer();
  world.until([&] { return all_ended(next); });
  expect_status(next, CallStatus::kOk);
}

// Shows: V1-CREDIT-23
TEST(GivenUp, AServerThatAnswersNothingIsGivenUpByName) {
  SurvivalWorld world({.credits = 2, .starved_ms = 20, .reconnect = at_once()});
  connect_and_hold(world);
  EndingCalls lost = submit(world, kKeep, 2);
  world.until([&] { return world.gate.held.size() == 2; });
  for (auto& ending : lost)
    ending->call.cancel();
  world.until([&] { return !world.connection->alive(); });
  auto error = world.connection->error();
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("all 2 credits are held by calls that were given up"),
            std::string::npos)
      << error->message;
  EXPECT_EQ(world.stats()[Refusal::kNoAnswers], 1u);
  world.gate.holding = false;
  world.gate.answer();
  EndingCalls next = submit(world, kEcho, 3);
  world.until([&] { return all_ended(next); });
  expect_status(next, CallStatus::kOk);
}

TEST(GivenUp, LentMemoryComesBackAfterTheBound) {
  SurvivalWorld world({.lend_ms = 5});
  connect_and_hold(world);
  Lending lending(world);
  lend(world, lending);
  world.until_silent([&] { return lending.released == 1; });
  EXPECT_EQ(world.stats()[Counter::kLendsExpired], 1u);
  world.gate.holding = false;
  open_window(*world.connection);  // as long as the server leaves the dead keys alone
  EXPECT_TRUE(world.connection->alive());
}

// The memory is lent as long as the connection lives, not longer.
TEST(GivenUp, LentMemoryComesBackWhenTheConnectionEnds) {
  SurvivalWorld world({});
  connect_and_hold(world);
  Lending lending(world);
  lend(world, lending);
  EXPECT_EQ(lending.released, 0);
  world.connection.reset();
  EXPECT_EQ(lending.released, 1);
}

// For memory that cannot be lent, because it must be the application's again when the callback
// comes.
TEST(GivenUp, MemoryThatIsNotLentIsFencedFirst) {
  SurvivalWorld world({});
  connect_and_hold(world);
  Buffer room = world.memory->get(kBytes);
  EndingCall ending(*world.connection);
  Encoder& args = ending.begin(kRead);
  args.put_u64(0);
  args.put_u32(kBytes);
  ending.call.offer(room.first(kBytes));
  ending.submit();
  cancel_held(world, ending);
  EXPECT_EQ(world.stats()[Counter::kCallsLent], 0u);
  std::memset(room.data(), 0x11, kBytes);
  world.gate.holding = false;
  world.gate.answer_well();
  world.until([&] { return !world.connection->alive(); });
  for (uint32_t i = 0; i < kBytes; ++i)
    ASSERT_EQ(room.data()[i], std::byte{0x11});
}

TEST(Call, AnOfferedBufferIsTakenBackWithItsResult) {
  SurvivalWorld world({});
  world.connect();
  Lending lending(world);
  EXPECT_FALSE(lending.call.take_offered(0));
  ASSERT_TRUE(lending.submit(Way::kReadIntoItsBuffer, 0));
  EXPECT_FALSE(lending.call.take_offered(0));
  world.until([&] { return !lending.call.in_flight(); });
  ASSERT_EQ(lending.ok, 1);
  Buffer data = lending.call.take_offered(0);
  ASSERT_TRUE(data);
  EXPECT_FALSE(lending.call.take_offered(0));
  EXPECT_FALSE(lending.call.take_offered(1));
  EndingCalls other = submit(world, kEcho, 1);
  world.until([&] { return all_ended(other); });
  for (uint32_t i = 0; i < kBytes; ++i)
    ASSERT_EQ(data.data()[i], pattern(i));
}

TEST(Call, ABufferThatCannotBeOfferedEndsIt) {
  SurvivalWorld world({});
  world.connect();
  Call call(*world.connection);
  for (auto [bytes, status] :
       {std::pair{0u, CallStatus::kNoMemory}, std::pair{1u << 20, CallStatus::kInvalidMemory}}) {
    Encoder& args = call.begin(kBinding, kRead);
    args.put_u64(0);
    args.put_u32(10);
    call.offer(bytes == 0 ? Buffer() : world.memory->get(4096), bytes);
    EXPECT_STREQ(to_string(call.submit_and_wait()), to_string(status));
  }
  EXPECT_TRUE(world.connection->alive());
}

// The release is reported in any case, and before the callback if the server holds nothing.
TEST(Call, ItsMemoryIsReleasedHoweverItEnds) {
  struct Order {
    int released = 0;
    int released_at_end = 0;
  };
  SurvivalWorld world({});
  world.connect();
  Call call(*world.connection);
  Order order;
  auto submit = [&](uint32_t procedure) {
    call.begin(kBinding, procedure);
    call.on_released([](void* o) { ++static_cast<Order*>(o)->released; }, &order);
    call.submit(
        [](Call&, void* o) {
          auto& at = *static_cast<Order*>(o);
          at.released_at_end = at.released;
        },
        &order);
    world.until([&] { return !call.in_flight(); });
  };
  submit(kKeep);
  EXPECT_EQ(order.released_at_end, 1);
  world.gate.holding = true;
  call.begin(kBinding, kKeep);
  call.on_released([](void* o) { ++static_cast<Order*>(o)->released; }, &order);
  call.set_timeout_ms(1);  // inline, with its Send complete
  EXPECT_EQ(call.submit_and_wait(), CallStatus::kTimeout);
  EXPECT_EQ(order.released, 2);
  world.stop_server();
  world.until([&] { return !world.connection->alive(); });
  submit(kKeep);
  EXPECT_EQ(call.status(), CallStatus::kConnectionLost);
  EXPECT_EQ(order.released_at_end, 3);
  EXPECT_EQ(order.released, 3);
}

}  // namespace
}  // namespace rrdk::loopback
