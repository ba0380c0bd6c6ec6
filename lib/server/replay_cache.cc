#include "server/replay_cache.h"

#include <algorithm>
#include <bit>

#include "server/call_context.h"

namespace rrdk::server {

namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint32_t kFewestEntries = 16;  // also of a cache for failures only

uint32_t entries_of(const ReplayOptions& options) {
  return std::max(options.entries, kFewestEntries);
}

}  // namespace

ReplayCache::ReplayCache(const ReplayOptions& options, ReplayCounters& counters)
    : window_ns_(options.window_ms * kMillisecondNs),
      max_reply_(options.max_reply),
      ring_size_(options.entries == 0 ? 0 : options.bytes),
      bucket_shift_(32 - static_cast<unsigned>(std::bit_width(entries_of(options)))),
      counters_(counters),
      entries_(entries_of(options)),
      buckets_(size_t{1} << (32 - bucket_shift_)),
      // Not initialised: pages that no reply needs are never touched.
      ring_(new std::byte[ring_size_]) {
  for (ReplayEntry& entry : entries_) {
    entry.next = free_;
    free_ = &entry;
  }
}

CallContext* ReplayCache::withdraw(const ServerLink& link) noexcept {
  CallContext* mine = nullptr;
  std::lock_guard lock(lock_);
  for (ReplayEntry& entry : entries_) {
    for (CallContext** place = &entry.waiters; *place != nullptr;) {
      CallContext& waiter = **place;
      if (waiter.link != &link) {
        place = &waiter.next_waiter;
        continue;
      }
      *place = waiter.next_waiter;
      waiter.replay = nullptr;
      waiter.next_waiter = mine;
      mine = &waiter;
    }
  }
  return mine;
}

void ReplayCache::note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
  std::lock_guard lock(lock_);
  expire(now_ns);
  ReplayEntry* entry = bucket(xid);
  while (entry != nullptr && (entry->xid != xid || entry->state != State::kFailed))
    entry = entry->next;
  if (entry != nullptr) {
    unlink(*entry);
  } else {
    entry = add(xid, 0, State::kFailed);
    if (entry == nullptr)
      return;  // all entries are calls that run
    failures_.fetch_add(1, std::memory_order_relaxed);
  }
  entry->connection = connection;
  append(*entry, now_ns);
}

bool ReplayCache::empty() noexcept {
  std::lock_guard lock(lock_);
  return std::ranges::all_of(entries_,
                             [](const ReplayEntry& entry) { return entry.state == State::kFree; });
}

}  // namespace rrdk::server
