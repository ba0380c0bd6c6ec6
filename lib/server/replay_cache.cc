#include "server/replay_cache.h"

#include <algorithm>

#include "server/server_link.h"

namespace rrdk::server {

namespace {

// Of failures that a client is remembered for.
constexpr uint32_t kFailures = 64;
// Lanes of connections that have ended; one more takes the place of the one that did so first.
constexpr size_t kMostEnded = 4;

}  // namespace

ReplayCache::ReplayCache(const ReplayOptions& options, ReplayCounters& counters)
    : options_(options), counters_(counters), failed_(kFailures, 0, options) {}

// What it still knows is forgotten with its client.
ReplayCache::~ReplayCache() {
  for (const std::unique_ptr<ReplayLane>& lane : lanes_)
    counters_.evicted.fetch_add(lane->size(), std::memory_order_relaxed);
}

ReplayLane* ReplayCache::enter(uint64_t now_ns) {
  if (options_.entries == 0)
    return nullptr;
  std::lock_guard lock(lock_);
  expire(now_ns);
  std::vector<ReplayLane*> ended;
  for (const std::unique_ptr<ReplayLane>& lane : lanes_) {
    if (!lane->in_use)
      ended.push_back(lane.get());
  }
  auto is_empty = [](const ReplayLane* lane) { return lane->empty(); };
  auto free = std::ranges::find_if(ended, is_empty);
  if (free == ended.end() && ended.size() >= kMostEnded) {
    free = std::ranges::min_element(ended, {}, &ReplayLane::left_ns);
    counters_.evicted.fetch_add((*free)->clear(), std::memory_order_relaxed);
    if (!is_empty(*free))  // a waiter of another connection has yet to look
      free = ended.end();
  }
  if (free == ended.end()) {
    lanes_.push_back(std::make_unique<ReplayLane>(options_.entries, options_.bytes, options_));
    free = ended.insert(ended.end(), lanes_.back().get());
  }
  (*free)->in_use = true;
  return *free;
}

void ReplayCache::leave(ReplayLane* lane, uint64_t now_ns) noexcept {
  if (lane == nullptr)
    return;
  std::lock_guard lock(lock_);
  lane->in_use = false;
  lane->left_ns = now_ns;
}

CallContext* ReplayCache::withdraw(const ServerLink& link) noexcept {
  CallContext* mine = nullptr;
  std::lock_guard lock(lock_);
  auto take = [&](ReplayEntry& entry) {
    for (CallContext** place = &entry.waiters; *place != nullptr;) {
      CallContext& waiter = **place;
      if (waiter.dispatcher != &link) {
        place = &waiter.next_waiter;
        continue;
      }
      *place = waiter.next_waiter;
      waiter.replay = nullptr;
      waiter.next_waiter = mine;
      mine = &waiter;
    }
  };
  for (const std::unique_ptr<ReplayLane>& lane : lanes_)
    std::ranges::for_each(lane->entries(), take);
  return mine;
}

void ReplayCache::note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) noexcept {
  std::lock_guard lock(lock_);
  uint64_t gone = failed_.expire(now_ns);
  ReplayEntry* entry = failed_.find(xid, 0, [](const ReplayEntry&) { return true; });
  if (entry != nullptr) {
    failed_.unlink(*entry);
  } else {
    // There is one: none of these is ever running or looked at.
    entry = failed_.add(xid, 0, State::kFailed, gone);
    failures_.fetch_add(1, std::memory_order_relaxed);
  }
  forget_failures(gone);
  entry->connection = connection;
  failed_.append(*entry, now_ns);
}

bool ReplayCache::empty() noexcept {
  std::lock_guard lock(lock_);
  return failed_.empty() &&
         std::ranges::all_of(lanes_,
                             [](const std::unique_ptr<ReplayLane>& lane) { return lane->empty(); });
}

}  // namespace rrdk::server
