#include "server/replay_lane.h"

#include <algorithm>
#include <bit>

namespace rrdk::server {

namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint32_t kFewestEntries = 16;

}  // namespace

ReplayLane::ReplayLane(uint32_t entries, uint64_t bytes, const ReplayOptions& options)
    : window_ns_(options.window_ms * kMillisecondNs),
      max_reply_(options.max_reply),
      ring_size_(bytes),
      bucket_shift_(32 - static_cast<unsigned>(std::bit_width(std::max(entries, kFewestEntries)))),
      entries_(std::max(entries, kFewestEntries)),
      buckets_(size_t{1} << (32 - bucket_shift_)),
      // Not initialised: pages that no reply needs are never touched.
      ring_(new std::byte[ring_size_]) {
  for (ReplayEntry& entry : entries_) {
    entry.lane = this;
    entry.next = free_;
    free_ = &entry;
  }
}

}  // namespace rrdk::server
