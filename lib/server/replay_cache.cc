#include "server/replay_cache.h"

#include <algorithm>

namespace rrdk::server {

namespace {

// Of failures that a client is remembered for.
constexpr size_t kMostFailures = 64;

}  // namespace

ReplayCache::ReplayCache(const ReplayOptions& options, uint32_t outstanding, ReplayRoom& room,
                         ReplayCounters& counters)
    : options_(options), outstanding_(outstanding), room_(room), counters_(counters) {}

// What it still knows is forgotten with its client.
ReplayCache::~ReplayCache() {
  for (const Lanes* lanes : {&live_, &ended_}) {
    for (const std::unique_ptr<ReplayLane>& lane : *lanes)
      room_.give(lane->charged);
  }
}

ReplayLane* ReplayCache::enter(uint64_t now_ns) {
  std::lock_guard lock(lock_);
  expire(now_ns);
  uint64_t reserved = reserved_bytes(outstanding_);
  if (!room_.take(reserved))
    return nullptr;
  // Fewer than the client may have outstanding would be no protection.
  uint32_t entries = std::max(options_.entries, most_repeated(outstanding_));
  live_.push_back(std::make_unique<ReplayLane>(
      ReplayLane::Size{.entries = entries, .early = outstanding_, .bytes = options_.bytes},
      options_, index_, counters_));
  ReplayLane& lane = *live_.back();
  lane.number = ++lanes_made_;
  lane.charged = reserved;
  fit_index();
  return &lane;
}

void ReplayCache::leave(ReplayLane* lane, uint64_t now_ns) {
  if (lane == nullptr)
    return;
  std::lock_guard lock(lock_);
  expire(now_ns);
  auto place = std::ranges::find(live_, lane, &std::unique_ptr<ReplayLane>::get);
  lane->in_use = false;
  lane->left_ns = now_ns;
  ended_.push_back(std::move(*place));
  live_.erase(place);
  settle(*lane);
  fit_index();
}

// Makes the lane of a connection that has ended as small as it can be, once its entries may move.
void ReplayCache::settle(ReplayLane& lane) {
  if (lane.in_use || lane.compact || lane.busy())
    return;
  auto place = std::ranges::find(ended_, &lane, &std::unique_ptr<ReplayLane>::get);
  lane.forget_but(most_repeated(outstanding_), has_elders(lane));
  if (lane.empty())
    return drop(place);
  uint64_t replies = lane.reply_bytes();
  bool kept = take_for_replies(replies);
  uint64_t charged = ReplayLane::cost(lane.size()) + (kept ? replies : 0);
  room_.give(lane.charged - ReplayLane::cost(lane.size()));
  std::unique_ptr<ReplayLane> small = lane.compacted(kept);
  small->charged = charged;
  *place = std::move(small);
}

// The replies of those that ended earlier make room; that their calls ran stays known.
bool ReplayCache::take_for_replies(uint64_t bytes) noexcept {
  auto oldest = ended_.begin();
  while (!room_.take(bytes)) {
    uint64_t dropped = 0;
    for (; dropped == 0 && oldest != ended_.end(); ++oldest) {
      if ((*oldest)->compact && !(*oldest)->busy())
        dropped = (*oldest)->drop_replies();
      (*oldest)->charged -= dropped;
    }
    if (dropped == 0)
      return false;
    room_.give(dropped);
  }
  return true;
}

void ReplayCache::drop(const Lanes::iterator& ended) noexcept {
  room_.give((*ended)->charged);
  ended_.erase(ended);
}

void ReplayCache::expire(uint64_t now_ns) noexcept {
  while (!ended_.empty() && !ended_.front()->busy() && is_over(ended_.front()->left_ns, now_ns))
    drop(ended_.begin());
}

void ReplayCache::fit_index() {
  size_t entries = 0;
  for (const Lanes* lanes : {&live_, &ended_}) {
    for (const std::unique_ptr<ReplayLane>& lane : *lanes)
      entries += lane->capacity();
  }
  index_.fit(entries);
}

void ReplayCache::note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  forget_failures(now_ns);
  std::erase_if(failures_, [&](const Failure& failure) { return failure.xid == xid; });
  if (failures_.size() == kMostFailures) {
    failures_.erase(failures_.begin());
    counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  }
  failures_.push_back({xid, connection, now_ns});
  num_failures_.store(static_cast<uint32_t>(failures_.size()), std::memory_order_relaxed);
}

void ReplayCache::forget_failures(uint64_t now_ns) noexcept {
  auto recent = std::ranges::find_if(
      failures_, [&](const Failure& failure) { return !is_over(failure.since_ns, now_ns); });
  counters_.evicted.fetch_add(static_cast<uint64_t>(recent - failures_.begin()),
                              std::memory_order_relaxed);
  failures_.erase(failures_.begin(), recent);
  num_failures_.store(static_cast<uint32_t>(failures_.size()), std::memory_order_relaxed);
}

bool ReplayCache::empty() noexcept {
  std::lock_guard lock(lock_);
  auto is_empty = [](const std::unique_ptr<ReplayLane>& lane) { return lane->empty(); };
  return failures_.empty() && std::ranges::all_of(live_, is_empty) &&
         std::ranges::all_of(ended_, is_empty);
}

}  // namespace rrdk::server
