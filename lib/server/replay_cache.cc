#include "server/replay_cache.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace rrdk::server {

namespace {

// Failures that are remembered for a client.
constexpr size_t kMostFailures = 64;

// Calls that are forgotten at once: more than the one that comes.
constexpr uint32_t kMostExpired = 4;

}  // namespace

ReplayCache::ReplayCache(const ReplayOptions& options, uint32_t exposed, ReplayRoom& room,
                         ReplayCounters& counters)
    : options_(options), exposed_(exposed), room_(room), counters_(counters) {}

// What the cache still knows is forgotten with its client.
ReplayCache::~ReplayCache() {
  while (!left_.empty())
    forget(static_cast<LeftEntry&>(*left_.front()));
  for (const Lanes* lanes : {&live_, &ended_}) {
    for (const std::unique_ptr<ReplayLane>& lane : *lanes)
      room_.give(lane->charged);
  }
}

// A connection gets what its first calls need when it comes, so that these do not depend on what
// others take meanwhile; but only if half of all memory is left, so that connections without calls
// do not take what those with calls need.
ReplayLane* ReplayCache::enter(uint64_t now_ns, bool late) noexcept {
  std::lock_guard lock(lock_);
  expire(now_ns, kMostExpired);
  Lanes fresh;
  try {
    fresh.push_back(std::make_unique<ReplayLane>(options_, index_, counters_));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  ReplayLane& lane = *fresh.front();
  if (room_.ample() && take(lane, kPrepaid, false)) {
    lane.prepaid = kPrepaid - ReplayLane::kFirstRing;
    lane.prepaid_ring = ReplayLane::kFirstRing;
  }
  // A lane that is made later than its connection counts as older than the lanes that existed
  // before it.
  lane.number = late ? 0 : ++lanes_made_;
  lane.place = fresh.begin();
  live_.splice(late ? live_.begin() : live_.end(), fresh);
  return &lane;
}

void ReplayCache::leave(ReplayLane* lane, uint64_t now_ns) noexcept {
  if (lane == nullptr)
    return;
  std::lock_guard lock(lock_);
  expire(now_ns, kMostExpired);
  lane->in_use = false;
  lane->left_ns = now_ns;
  ended_.splice(ended_.end(), live_, lane->place);
  settle(*lane);
}

// Called after a connection has ended and none of its calls runs or is pinned: keeps the calls that
// can still be repeated, and frees the lane.
void ReplayCache::settle(ReplayLane& lane) noexcept {
  if (lane.in_use || lane.busy())
    return;
  lane.forget_but_last(has_elders(lane));
  while (ReplayEntry* entry = lane.oldest()) {
    if (!leave_behind(lane, *entry))
      return;  // the heap has no memory: the lane stays
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
  reply_bytes_ += left->length;
  left_.push(*left.release());
  has_left_.store(true, std::memory_order_relaxed);
  return true;
}

bool ReplayCache::grow(ReplayLane& lane) noexcept {
  constexpr uint64_t kCost = ReplayLane::cost_of(ReplayLane::kBlock);
  if (!charge(lane, kCost))
    return false;
  if (!lane.add_entries()) {
    discharge(lane, kCost);
    return false;
  }
  entries_ += ReplayLane::kBlock;
  index_.fit(entries_);
  return true;
}

// Called before a reply of `size` bytes is kept. Each connection has a ring for at least one reply.
// The ring grows only if there is plenty of memory, since rings never shrink, and entries need the
// rest. Otherwise a reply replaces older ones of its ring.
void ReplayCache::fit_ring(ReplayLane& lane, uint64_t size) noexcept {
  const uint64_t more = lane.ring_lacks(size);
  if (more == 0)
    return;
  if (lane.ring_bytes() == 0) {
    const uint64_t own = std::min(more, lane.prepaid_ring);
    if (more != own && !take(lane, more - own, true))
      return;
    lane.prepaid_ring -= own;
  } else if (!room_.plenty(more) || !take(lane, more, false)) {
    return;
  }
  if (!lane.grow_ring(more))
    discharge(lane, more);
}

// For entries.
bool ReplayCache::charge(ReplayLane& lane, uint64_t bytes) noexcept {
  const uint64_t own = std::min(bytes, lane.prepaid);
  if (bytes != own && !take(lane, bytes - own, true))
    return false;
  lane.prepaid -= own;
  return true;
}

// If it is urgent, replies of connections that have ended are dropped, if those are enough.
bool ReplayCache::take(ReplayLane& lane, uint64_t bytes, bool urgent) noexcept {
  while (!room_.take(bytes)) {
    if (!expire_oldest() && !(urgent && reply_bytes_ >= bytes && drop_oldest_reply()))
      return false;
  }
  lane.charged += bytes;
  return true;
}

void ReplayCache::discharge(ReplayLane& lane, uint64_t bytes) noexcept {
  lane.charged -= bytes;
  room_.give(bytes);
}

// It is still known that the call ran.
bool ReplayCache::drop_oldest_reply() noexcept {
  auto has_reply = [](const ReplayEntry* entry) { return entry->state == State::kDone; };
  while (oldest_reply_ != nullptr && !has_reply(oldest_reply_))
    oldest_reply_ = oldest_reply_->links.next;
  ReplayEntry* oldest = oldest_reply_;
  while (oldest != nullptr && (!has_reply(oldest) || oldest->pins != 0))
    oldest = oldest->links.next;
  if (oldest == nullptr)
    return false;
  auto& left = static_cast<LeftEntry&>(*oldest);
  left.state = State::kNotKept;
  left.reply.reset();
  reply_bytes_ -= left.length;
  room_.give(std::exchange(left.length, 0));
  ++counters_.replay_not_kept;
  return true;
}

void ReplayCache::forget(LeftEntry& left) noexcept {
  if (oldest_reply_ == &left)
    oldest_reply_ = left.links.next;
  left_.remove(left);
  has_left_.store(!left_.empty(), std::memory_order_relaxed);
  index_.erase(left);
  --entries_;
  reply_bytes_ -= left.length;
  room_.give(ReplayLane::cost_of(1) + left.length);
  delete &left;
}

// The call was repeated on a connection that has no space for it.
void ReplayCache::renew(LeftEntry& left) noexcept {
  if (oldest_reply_ == &left)
    oldest_reply_ = left.links.next;
  left_.remove(left);
  left.since_ns = now_ns_;
  left_.push(left);
  if (oldest_reply_ == nullptr)
    oldest_reply_ = &left;
}

// Returns false if the oldest may still be repeated.
bool ReplayCache::expire_oldest() noexcept {
  if (left_.empty())
    return false;
  auto& oldest = static_cast<LeftEntry&>(*left_.front());
  if (oldest.pins != 0 || !is_over(oldest.since_ns, now_ns_))
    return false;
  forget(oldest);
  ++counters_.replay_forgotten;
  return true;
}

uint32_t ReplayCache::expire(uint64_t now_ns, uint32_t most) noexcept {
  now_ns_ = now_ns;
  uint32_t gone = 0;
  while (gone != most && expire_oldest())
    ++gone;
  return gone;
}

bool ReplayCache::tidy(uint64_t now_ns, uint32_t& most) noexcept {
  if (!has_left_.load(std::memory_order_relaxed))
    return true;
  std::lock_guard lock(lock_);
  most -= expire(now_ns, most);
  return left_.empty() || !is_over(left_.front()->since_ns, now_ns);
}

bool ReplayCache::clear(uint32_t& most) noexcept {
  std::lock_guard lock(lock_);
  for (; most != 0 && !left_.empty(); --most) {
    forget(static_cast<LeftEntry&>(*left_.front()));
    ++counters_.replay_forgotten;
  }
  return left_.empty();
}

void ReplayCache::note_failure(uint32_t xid, uint64_t connection, uint64_t now_ns) {
  std::lock_guard lock(lock_);
  forget_failures(now_ns);
  std::erase_if(failures_, [&](const Failure& failure) { return failure.xid == xid; });
  if (failures_.size() == kMostFailures) {
    failures_.erase(failures_.begin());
    ++counters_.replay_forgotten;
  }
  failures_.push_back({xid, connection, now_ns});
  num_failures_.store(static_cast<uint32_t>(failures_.size()), std::memory_order_relaxed);
}

void ReplayCache::forget_failures(uint64_t now_ns) noexcept {
  auto recent = std::ranges::find_if(
      failures_, [&](const Failure& failure) { return !is_over(failure.since_ns, now_ns); });
  counters_.replay_forgotten += static_cast<uint64_t>(recent - failures_.begin());
  failures_.erase(failures_.begin(), recent);
  num_failures_.store(static_cast<uint32_t>(failures_.size()), std::memory_order_relaxed);
}

bool ReplayCache::empty() noexcept {
  std::lock_guard lock(lock_);
  auto is_empty = [](const std::unique_ptr<ReplayLane>& lane) { return lane->empty(); };
  return failures_.empty() && left_.empty() && std::ranges::all_of(live_, is_empty) &&
         std::ranges::all_of(ended_, is_empty);
}

// The lanes of connections.

void ReplayIndex::fit(size_t entries) noexcept {
  size_t wanted = std::bit_ceil(std::max(entries, kFewestBuckets));
  if (buckets_.size() >= wanted && buckets_.size() <= 4 * wanted)
    return;
  std::vector<ReplayEntry*> old;
  try {
    old.resize(wanted);
  } catch (const std::bad_alloc&) {
    return;
  }
  old.swap(buckets_);
  for (ReplayEntry* entry : old) {
    while (entry != nullptr) {
      ReplayEntry* next = entry->next;
      enter(*entry);
      entry = next;
    }
  }
}

ReplayLane::~ReplayLane() {
  counters_.replay_forgotten += used_;
  for (const std::unique_ptr<ReplayEntry[]>& block : blocks_) {
    for (const ReplayEntry& entry : std::span(block.get(), kBlock)) {
      if (entry.state != State::kFree)
        index_.erase(entry);
    }
  }
}

bool ReplayLane::add_entries() noexcept {
  try {
    blocks_.push_back(std::make_unique<ReplayEntry[]>(kBlock));
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (ReplayEntry& entry : std::span(blocks_.back().get(), kBlock)) {
    entry.lane = this;
    free_.push(entry);
  }
  return true;
}

// Its replies move to the beginning of the new ring.
bool ReplayLane::grow_ring(uint64_t more) noexcept {
  const uint64_t size = ring_size_ + more;
  // Not initialised: pages that no reply needs are never touched.
  std::unique_ptr<std::byte[]> ring(new (std::nothrow) std::byte[size]);
  if (ring == nullptr)
    return false;
  uint64_t end = 0;
  for (ReplayEntry* entry = oldest_reply(); entry != nullptr; entry = entry->links.next) {
    if (entry->state != State::kDone)
      continue;
    std::ranges::copy(reply_of(*entry), &ring[end]);
    entry->begin = end;
    entry->at = static_cast<uint32_t>(end);
    end += entry->length;
  }
  ring_ = std::move(ring);
  ring_size_ = size;
  head_ = end;
  return true;
}

void ReplayLane::forget_but_last(bool elders) noexcept {
  ReplayEntry* entry = finished_.back();
  for (uint32_t i = 0; i < last_ && entry != nullptr; ++i)
    entry = entry->links.previous;
  uint64_t gone = 0;
  while (entry != nullptr) {
    ReplayEntry& old = *entry;
    entry = entry->links.previous;
    if (elders && old.early) {
      set_aside(old);
    } else {
      release(old);
      ++gone;
    }
  }
  for (; !elders && !aside_.empty(); ++gone)
    release(*aside_.front());
  counters_.replay_forgotten += gone;
}

}  // namespace rrdk::server
