// In the steady state a call allocates nothing and registers nothing, in any thread.
#include <algorithm>
#include <atomic>

#include "allocation_hook.h"
#include "both_ways.h"

namespace rrdk::loopback {
namespace {

std::atomic<uint64_t> allocations = 0;

class SteadyState : public testing::TestWithParam<Cores> {};
INSTANTIATE_TEST_SUITE_P(Cores, SteadyState,
                         testing::Values(Cores::kEmbedded, Cores::kDedicated, Cores::kWorkers));

// Allocations by any thread while `rounds` run. A thread that was switched out can be late with
// one-time work, such as taking the regions of a new peer; allocations of each call show in every
// try.
template <typename Rounds>
uint64_t fewest_allocations(Rounds rounds) {
  constexpr int kTries = 5;
  uint64_t fewest = UINT64_MAX;
  apps::set_allocation_hook([]() noexcept { allocations.fetch_add(1, std::memory_order_relaxed); });
  for (int i = 0; i < kTries && fewest != 0; ++i) {
    const uint64_t before = allocations;
    rounds();
    fewest = std::min(fewest, allocations - before);
  }
  apps::set_allocation_hook(nullptr);
  return fewest;
}

// One call of each shape: NULL, inline, worker, not idempotent, bulk in, bulk out, long call and
// reply, delayed.
void one_round(Call& call, const RegisteredMemory& memory) {
  call.begin(kBinding, 0);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  for (uint32_t procedure : {kEcho, kWorker, kOnce}) {
    call.begin(kBinding, procedure).put_opaque(std::span(memory.data(), 500));
    call.expect_reply(500);
    ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  }
  Encoder& read_args = call.begin(kBinding, kRead);
  read_args.put_u64(0);
  read_args.put_u32(20000);
  call.offer(memory.span(0, 20000));
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  Encoder& write_args = call.begin(kBinding, kWrite);
  write_args.put_u64(0);
  write_args.put_item(memory.span(0, 20000), Ddp::kEligible);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  call.begin(kBinding, kEcho).put_opaque(std::span(memory.data(), 9000));
  call.expect_reply(9000);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
  call.begin(kBinding, kDelay).put_u64(1000);
  ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
}

TEST_P(SteadyState, AllocatesAndRegistersNothing) {
  World world(GetParam());
  auto connection = world.connect();
  RegisteredMemory memory = world.memory->allocate(65536).value();
  {
    Call call(*connection);
    const auto rounds = [&] {
      for (int i = 0; i < 200; ++i)
        one_round(call, memory);
    };
    rounds();
    const uint64_t registrations = world.memory->registrations();
    EXPECT_EQ(fewest_allocations(rounds), 0u);
    EXPECT_EQ(world.memory->registrations(), registrations);
  }
}

// The same for calls in the other direction, made by a thread that waits for each.
TEST_P(SteadyState, BackwardCallsAllocateAndRegisterNothing) {
  BothWorld world(GetParam());
  std::shared_ptr<BackwardClient> back = world.subscribe();
  {
    Call call(*back);
    const auto rounds = [&] {
      for (uint32_t i = 0; i < 600; ++i) {
        call.begin(kGuestBinding, i % 3 == 0 ? kTellWorker : kTell).put_u32(i);
        ASSERT_EQ(call.submit_and_wait(), CallStatus::kOk);
      }
    };
    rounds();
    const uint64_t registrations = world.memory->registrations();
    EXPECT_EQ(fewest_allocations(rounds), 0u);
    EXPECT_EQ(world.memory->registrations(), registrations);
  }
}

}  // namespace
}  // namespace rrdk::loopback
