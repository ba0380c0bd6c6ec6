// Calls that are sent again, under their XIDs, when their connection breaks.
#include <algorithm>
#include <set>

#include "survival_world.h"

namespace rrdk::loopback {
namespace {

std::vector<uint32_t> sorted(std::vector<uint32_t> values) {
  std::ranges::sort(values);
  return values;
}

TEST(Retransmit, TheXidIsTheSame) {
  SurvivalWorld world({.reconnect = at_once(), .retransmit = true});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls endings = submit(world, kKeep, 8);
  world.until([&] { return world.gate.held.size() == 8; });
  std::vector<uint32_t> first = std::exchange(world.gate.xids, {});
  for (uint64_t round = 1; round <= 3; ++round) {
    world.gate.xids.clear();
    world.break_connection();
    // One call comes, until its answer grants more (V1-CREDIT-11).
    world.until([&] { return world.gate.held.size() == 1; });
    EXPECT_EQ(world.stats()[Counter::kCallsResent], round);
  }
  world.gate.holding = false;
  world.gate.answer();
  world.until([&] { return all_ended(endings); });
  expect_status(endings, CallStatus::kOk);
  EXPECT_EQ(sorted(world.gate.xids), sorted(first));
  EXPECT_EQ(world.stats()[Counter::kCallsResent], 2u + 8u);
}

// A server that keeps quiet for as long as it likes sees a call once per connection.
TEST(Retransmit, NeverOnTheSameConnection) {
  SurvivalWorld world({.reconnect = at_once(), .retransmit = true});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls held = submit(world, kKeep, 1);
  world.until([&] { return world.gate.held.size() == 1; });
  EndingCall late(*world.connection);
  late.begin(kKeep);
  late.call.set_timeout_ms(20);
  late.submit();
  world.until([&] { return late.ended() == 1; });
  EXPECT_EQ(late.call.status(), CallStatus::kTimeout);
  EXPECT_EQ(world.gate.xids.size(), 2u);
  EXPECT_EQ(world.stats()[Counter::kCallsResent], 0u);
  world.gate.answer();
  world.until([&] { return all_ended(held); });
}

TEST(Retransmit, IsSetPerCallUntilTheNextBegin) {
  SurvivalWorld world({.reconnect = at_once(), .retransmit = false});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls again = submit(world, kKeep, 2, true);
  EndingCalls once = submit(world, kKeep, 2, false);
  EndingCalls by_default = submit(world, kKeep, 2);
  world.until([&] { return world.gate.held.size() == 6; });
  world.break_connection();
  world.gate.holding = false;
  world.until([&] { return all_ended(again) && all_ended(once) && all_ended(by_default); });
  expect_status(again, CallStatus::kOk);
  expect_status(once, CallStatus::kConnectionLost);
  expect_status(by_default, CallStatus::kConnectionLost);

  world.gate.holding = true;
  EndingCall& reused = *again[0];
  reused.ends = 0;
  reused.begin(kKeep);
  reused.submit();
  world.until([&] { return world.gate.held.size() == 1; });
  world.break_connection();
  world.until([&] { return reused.ended() == 1; });
  EXPECT_EQ(reused.call.status(), CallStatus::kConnectionLost);
}

TEST(Retransmit, GoesBeforeCallsThatAreNew) {
  SurvivalWorld world({.credits = 4, .reconnect = at_once(), .retransmit = true});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls old = submit(world, kKeep, 4);
  world.until([&] { return world.gate.held.size() == 4; });
  std::vector<uint32_t> xids = std::exchange(world.gate.xids, {});
  world.break_connection();
  EndingCalls fresh = submit(world, kKeep, 12);
  world.gate.holding = false;
  world.gate.answer();
  world.until([&] { return all_ended(old) && all_ended(fresh); });
  expect_status(old, CallStatus::kOk);
  expect_status(fresh, CallStatus::kOk);
  std::vector<uint32_t> seen = world.gate.xids;
  ASSERT_EQ(seen.size(), 16u);
  EXPECT_EQ(sorted({seen.begin(), seen.begin() + 4}), sorted(xids));
  EXPECT_EQ(std::set<uint32_t>(seen.begin(), seen.end()).size(), 16u);
}

// A slot's count continues from before: a server that remembers XIDs sees no old XID on a new call.
TEST(Retransmit, XidsGoOnAfterAReconnection) {
  SurvivalWorld world({.credits = 16, .reconnect = at_once()});
  world.connect();
  uint32_t last = 0;
  for (uint64_t round = 0; round < 5; ++round) {
    EndingCalls endings = submit(world, kEcho, 1);
    world.until([&] { return all_ended(endings); });
    uint32_t xid = world.gate.xids.back();
    // The same slot, used once more. With 16 slots the slot takes five bits: property requests have
    // XIDs whose low bits belong to no slot.
    if (round != 0) {
      EXPECT_EQ(xid, last + 32);
    }
    last = xid;
    world.restart_server();
    world.until([&] { return world.stats()[Counter::kReconnections] == round + 1; });
  }
}

// Arguments that are fetched and results that are placed: with keys of the new connection.
TEST(Retransmit, ChunksAreOfferedAnew) {
  SurvivalWorld world({.reconnect = at_once(), .retransmit = true});
  world.connect();
  open_window(*world.connection);
  constexpr uint32_t kBytes = 60000;
  constexpr uint32_t kCalls = 6;
  RegisteredMemory area = world.memory->allocate(3 * kCalls * 65536).value();
  for (int round = 0; round < 5; ++round) {
    std::fill_n(area.data(), area.size(), std::byte{0});
    world.gate.holding = true;
    EndingCalls endings;
    for (uint32_t i = 0; i < kCalls; ++i) {
      for (int kind = 0; kind < 3; ++kind)
        endings.push_back(std::make_unique<EndingCall>(*world.connection));
      MemorySpan sink = area.span(3 * i * 65536, kBytes);
      MemorySpan source = area.span((3 * i + 1) * 65536, kBytes);
      for (uint32_t k = 0; k < kBytes; ++k)
        source.data[k] = pattern(i + k);
      Encoder& read_args = endings[3 * i]->begin(kRead);
      read_args.put_u64(i);
      read_args.put_u32(kBytes);
      endings[3 * i]->call.offer(sink);
      Encoder& write_args = endings[3 * i + 1]->begin(kWrite);
      write_args.put_u64(i);
      write_args.put_item(source, Ddp::kEligible);
      endings[3 * i + 2]->begin(kEcho).put_opaque(std::span(source.data, kBytes));  // long
      endings[3 * i + 2]->call.expect_reply(kBytes);
    }
    for (auto& ending : endings)
      ending->submit();
    world.until([&] { return world.gate.held.size() == endings.size(); });
    world.gate.holding = false;
    world.break_connection();
    world.until([&] { return all_ended(endings); });
    expect_status(endings, CallStatus::kOk);
    for (uint32_t i = 0; i < kCalls; ++i) {
      for (uint32_t k = 0; k < kBytes; ++k)
        ASSERT_EQ(area.data()[3 * i * 65536 + k], pattern(i + k));
      Decoder& written = endings[3 * i + 1]->call.results();
      EXPECT_EQ(written.get_u32(), kBytes);
      EXPECT_EQ(written.get_u32(), 0u);
      std::vector<std::byte> back(kBytes);
      ItemView echoed = endings[3 * i + 2]->call.results().get_opaque(kBytes);
      ASSERT_EQ(echoed.size(), kBytes);
      echoed.copy_to(back.data());
      EXPECT_TRUE(std::equal(back.begin(), back.end(), area.data() + (3 * i + 1) * 65536));
    }
  }
}

// A call that has ended on the old connection is not repeated on the new one.
TEST(Retransmit, CallsThatHaveEndedStayEnded) {
  SurvivalWorld world({.reconnect = at_once(), .retransmit = true});
  world.connect();
  open_window(*world.connection);
  world.gate.holding = true;
  EndingCalls endings = submit(world, kKeep, 4);
  world.until([&] { return world.gate.held.size() == 4; });
  std::vector<uint32_t> xids = std::exchange(world.gate.xids, {});
  endings[0]->call.cancel();
  endings[2]->call.cancel();
  world.until([&] { return endings[0]->ended() == 1 && endings[2]->ended() == 1; });
  world.gate.holding = false;
  world.break_connection();
  world.until([&] { return all_ended(endings); });
  for (int i : {0, 2})
    EXPECT_EQ(endings[static_cast<size_t>(i)]->call.status(), CallStatus::kCancelled);
  for (int i : {1, 3})
    EXPECT_EQ(endings[static_cast<size_t>(i)]->call.status(), CallStatus::kOk);
  EXPECT_EQ(sorted(world.gate.xids), sorted({xids[1], xids[3]}));
}

}  // namespace
}  // namespace rrdk::loopback
