// In the steady state the engine allocates nothing.
#include "allocation_hook.h"
#include "pair.h"

namespace rrdk::engine::test {
namespace {

uint64_t allocations = 0;

class Allocations : public Pair {};

// Shows: V1-MEM-04
TEST_F(Allocations, SteadyStateMakesNone) {
  connect();
  a->ended.reserve(10000);
  Buffer source = memory->get(5000);
  Buffer sink = memory->get(5000);
  b->handler = [&](ServedCall& call) {
    Encoder e(call.reply, *memory, call.inline_size(), call.max_reply());
    e.put_u32(call.xid);
    e.put_u32(1);
    e.put_item(source.first(5000), Ddp::kEligible);
    e.put_fixed({source.data(), 4000});
    e.finish();
    b->engine->reply(call);
  };
  MemorySpan span = sink.first(5000);
  ResultRoom room{{&span, 1}};
  OutgoingCall calls[8];
  for (int round = 0; round < 200; ++round) {
    if (round == 50)
      apps::set_allocation_hook([]() noexcept { allocations += in_engine; });
    for (OutgoingCall& call : calls) {
      EngineScope inside(true);
      Encoder e(call.message, *memory, 1024, 1u << 20);
      e.put_u64(0);
      e.put_item(source.first(4096), Ddp::kEligible);
      e.put_item(source.first(9), Ddp::kEligible);
      e.finish();
      call.results = {&room, 1};
      call.max_reply = 6000;
      call.force_long = round % 3 == 0;
      a->engine->submit(call);
    }
    run();
  }
  apps::set_allocation_hook(nullptr);
  EXPECT_EQ(a->ended.size(), 1600u);
  for (OutgoingCall* call : a->ended)
    EXPECT_EQ(call->status, CallStatus::kOk);
  EXPECT_EQ(allocations, 0u);
  for (OutgoingCall& call : calls)
    call.release();
}

}  // namespace
}  // namespace rrdk::engine::test
