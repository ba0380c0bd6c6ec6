// Records of sampled calls: one thread reuses them continuously while another reads them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "engine/stage_log_datapath.h"

namespace rrdk::engine {
namespace {

// All fields read from a record belong to one call: here each call has one number in all fields.
TEST(StageLog, ARecordReadIsOfOneCall) {
  constexpr uint32_t kCalls = 1'000'000;
  const auto log = std::make_unique<StageLog>();
  log->sample(1);
  std::atomic<bool> over = false;
  std::thread core([&] {
    for (uint32_t n = 1; n <= kCalls; ++n) {
      StageRecord* const record = log->take(n, n % 2 != 0);
      if (record == nullptr)
        continue;
      record->name(n, n, n, n);
      for (size_t stage = 0; stage < kStages; ++stage)
        record->stamp(static_cast<Stage>(stage), n);
      record->complete();
    }
    over.store(true);
  });
  uint64_t read = 0, mixed = 0;
  std::vector<StampedCall> calls;
  do {
    calls.clear();
    log->read(calls);
    for (const StampedCall& call : calls) {
      const uint32_t n = call.xid;
      const bool is_whole =
          call.made == (n % 2 != 0) && call.connection == n && call.program == n &&
          call.version == n && call.procedure == n &&
          std::ranges::all_of(call.ticks, [n](uint64_t ticks) { return ticks == n; });
      mixed += !is_whole;
      ++read;
    }
  } while (!over.load());
  core.join();
  EXPECT_EQ(mixed, 0u) << "of " << read;
  EXPECT_GE(read, kStampedCalls);
}

}  // namespace
}  // namespace rrdk::engine
