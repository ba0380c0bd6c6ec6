// Programs described by one table (rrdk/program.h), served and called.
#include "rrdk/program.h"

#include "loopback.h"

namespace rrdk::loopback {
namespace {

constexpr uint32_t kStore = 1, kFetch = 4, kCount = 7;

struct Shelf {
  std::vector<std::byte> stored;
  uint32_t counted = 0;
};

void store(ServerCall call, void* context) {
  ItemView data = call.args().get_item(100'000);
  static_cast<Shelf*>(context)->stored.resize(data.size());
  data.copy_to(static_cast<Shelf*>(context)->stored.data());
  std::move(call).reply();
}

void fetch(ServerCall call, void* context) {
  const auto& stored = static_cast<Shelf*>(context)->stored;
  Buffer data = call.result_buffer(static_cast<uint32_t>(stored.size()));
  std::ranges::copy(stored, data.data());
  call.results().put_item(std::move(data), static_cast<uint32_t>(stored.size()), Ddp::kEligible);
  std::move(call).reply();
}

void count(ServerCall call, void* context) {
  call.results().put_u32(++static_cast<Shelf*>(context)->counted);
  std::move(call).reply();
}

constexpr Procedure kShelfTable[] = {
    {.number = kStore, .handler = store, .name = "STORE", .eligible_args = 1},
    {.number = 2, .name = "LATER"},
    {.number = kFetch,
     .handler = fetch,
     .name = "FETCH",
     .eligible_results = 1,
     .fixed_results = 4},
    {.number = kCount,
     .handler = count,
     .idempotent = false,
     .name = "COUNT",
     .fixed_results = 4,
     .no_long_calls = true},
};
constexpr Program kShelf(0x20005700, 3, "shelf", kShelfTable, BreachAnswer::kTransportError);
static_assert(kShelf.binding().program == 0x20005700 && kShelf.binding().version == 3);
static_assert(kShelf.binding().on_breach == BreachAnswer::kTransportError);
static_assert(kShelf.binding().find(kCount)->no_long_calls);
static_assert(kShelf.service().procedures.size() == 3);  // those with handlers

TEST(Programs, AreServedAndCalledByOneTable) {
  Shelf shelf;
  Ends ends(options_for(Cores::kEmbedded), {}, {}, {kShelf.service(&shelf)});
  auto connection = ends.client->connect(ends.uri).value();
  {
    Call call(*connection);
    call.begin(kShelf, kStore).put_item(patterned(*ends.memory, 0, 50'000), 50'000, Ddp::kEligible);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    call.begin(kShelf, kFetch);
    call.offer(ends.memory->get(50'000), 50'000);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    ItemView data = call.results().get_item(50'000);
    ASSERT_EQ(data.size(), 50'000u);
    EXPECT_EQ(data.data()[49'999], pattern(49'999));
    EXPECT_EQ(ends.server->stats()[Counter::kRdmaReadBytes], 50'000u);  // both are placed
    EXPECT_EQ(ends.server->stats()[Counter::kRdmaWrittenBytes], 50'000u);
    call.begin(kShelf, kCount);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kOk);
    EXPECT_EQ(ends.server->stats()[Counter::kReplayKept], 1u);  // not idempotent
    call.begin(kShelf, 2);
    EXPECT_EQ(call.submit_and_wait(), CallStatus::kProcUnavail);
  }
  connection.reset();
  ends.end();
}

// A table that is wrong, like any other.
TEST(Programs, ThatAreWrongAreRefused) {
  static constexpr Procedure kNameless[] = {{.number = 1, .handler = count}};
  static constexpr Program kWrong(0x20005701, 1, "wrong", kNameless);
  Ends ends(options_for(Cores::kEmbedded), {}, {}, {kShelf.service()});
  auto added = ends.server->add_service(kWrong.service());
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("procedure 1 has no name"), std::string::npos);
  ends.end();
}

}  // namespace
}  // namespace rrdk::loopback
