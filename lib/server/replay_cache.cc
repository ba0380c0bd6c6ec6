#include "server/replay_cache.h"

#include <algorithm>
#include <new>
#include <utility>

namespace rrdk::server {

namespace {

// Of failures that a client is remembered for.
constexpr size_t kMostFailures = 64;

// Of calls that are forgotten at once: each that comes makes up for itself, and more.
constexpr uint32_t kMostExpired = 4;

}  // namespace

ReplayCache::ReplayCache(const ReplayOptions& options, ReplayRoom& room, ReplayCounters& counters)
    : options_(options), room_(room), counters_(counters) {}

// What it still knows is forgotten with its client.
ReplayCache::~ReplayCache() {
  while (!left_.empty())
    forget(static_cast<LeftEntry&>(*left_.front()));
  for (const Lanes* lanes : {&live_, &ended_}) {
    for (const std::unique_ptr<ReplayLane>& lane : *lanes)
      room_.give(lane->charged);
  }
}

ReplayLane* ReplayCache::enter(uint64_t now_ns) noexcept {
  std::lock_guard lock(lock_);
  expire(now_ns);
  Lanes fresh;
  try {
    fresh.push_back(std::make_unique<ReplayLane>(options_, index_, counters_));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  ReplayLane& lane = *fresh.front();
  if (!charge(lane, ReplayLane::base_cost()))
    return nullptr;
  lane.number = ++lanes_made_;
  lane.place = fresh.begin();
  live_.splice(live_.end(), fresh);
  return &lane;
}

void ReplayCache::leave(ReplayLane* lane, uint64_t now_ns) noexcept {
  if (lane == nullptr)
    return;
  std::lock_guard lock(lock_);
  expire(now_ns);
  lane->in_use = false;
  lane->left_ns = now_ns;
  ended_.splice(ended_.end(), live_, lane->place);
  settle(*lane);
}

// Once the calls of a connection that has ended may move, those stay that can be repeated.
void ReplayCache::settle(ReplayLane& lane) noexcept {
  if (lane.in_use || lane.busy())
    return;
  lane.forget_but_last(has_elders(lane));
  while (ReplayEntry* entry = lane.oldest()) {
    if (!leave_behind(lane, *entry))
      return;  // the heap has nothing: the lane stays
  }
  entries_ -= lane.capacity();
  room_.give(lane.charged);
  ended_.erase(lane.place);
  index_.fit(entries_);
}

// What it takes was charged for the lane.
bool ReplayCache::leave_behind(ReplayLane& lane, ReplayEntry& entry) noexcept {
  const bool done = entry.state == State::kDone;
  std::unique_ptr<LeftEntry> left(new (std::nothrow) LeftEntry);
  if (left != nullptr && done)
    left->reply.reset(new (std::nothrow) std::byte[entry.length]);
  if (left == nullptr || (done && left->reply == nullptr))
    return false;
  if (done) {
    std::ranges::copy(lane.reply_of(entry), left->reply.get());
    left->length = entry.length;
  }
  left->state = entry.state;
  left->xid = entry.xid;
  left->fingerprint = entry.fingerprint;
  left->since_ns = lane.left_ns;
  lane.charged -= ReplayLane::cost_of(1) + left->length;
  lane.release(entry);
  index_.enter(*left);
  ++entries_;
  if (oldest_reply_ == nullptr)
    oldest_reply_ = left.get();
  left_.push(*left.release());
  return true;
}

bool ReplayCache::grow(ReplayLane& lane) noexcept {
  constexpr uint64_t kCost = ReplayLane::cost_of(ReplayLane::kBlock);
  if (!charge(lane, kCost))
    return false;
  if (!lane.add_entries(ReplayLane::kBlock)) {
    discharge(lane, kCost);
    return false;
  }
  entries_ += ReplayLane::kBlock;
  index_.fit(entries_);
  return true;
}

// Before a reply of so many bytes is kept.
void ReplayCache::fit_ring(ReplayLane& lane, uint64_t size) noexcept {
  const uint64_t more = lane.ring_lacks(size);
  if (more != 0 && charge(lane, more) && !lane.grow_ring(more))
    discharge(lane, more);
}

bool ReplayCache::charge(ReplayLane& lane, uint64_t bytes) noexcept {
  while (!room_.take(bytes)) {
    if (!expire_oldest() && !drop_oldest_reply())
      return false;
  }
  lane.charged += bytes;
  return true;
}

void ReplayCache::discharge(ReplayLane& lane, uint64_t bytes) noexcept {
  lane.charged -= bytes;
  room_.give(bytes);
}

// That its call ran stays known.
bool ReplayCache::drop_oldest_reply() noexcept {
  while (oldest_reply_ != nullptr &&
         (oldest_reply_->state != State::kDone || oldest_reply_->pins != 0))
    oldest_reply_ = oldest_reply_->links.next;
  if (oldest_reply_ == nullptr)
    return false;
  auto& left = static_cast<LeftEntry&>(*oldest_reply_);
  left.state = State::kNotKept;
  left.reply.reset();
  room_.give(std::exchange(left.length, 0));
  counters_.not_kept.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ReplayCache::forget(LeftEntry& left) noexcept {
  if (oldest_reply_ == &left)
    oldest_reply_ = left.links.next;
  left_.remove(left);
  index_.erase(left);
  --entries_;
  room_.give(ReplayLane::cost_of(1) + left.length);
  delete &left;
}

// False: the oldest may yet be repeated.
bool ReplayCache::expire_oldest() noexcept {
  if (left_.empty())
    return false;
  auto& oldest = static_cast<LeftEntry&>(*left_.front());
  if (oldest.pins != 0 || !is_over(oldest.since_ns, now_ns_))
    return false;
  forget(oldest);
  counters_.evicted.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ReplayCache::expire(uint64_t now_ns) noexcept {
  now_ns_ = now_ns;
  for (uint32_t i = 0; i < kMostExpired && expire_oldest(); ++i) {
  }
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
  return failures_.empty() && left_.empty() && std::ranges::all_of(live_, is_empty) &&
         std::ranges::all_of(ended_, is_empty);
}

}  // namespace rrdk::server
